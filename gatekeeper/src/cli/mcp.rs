//! `gatekeeper mcp`: the flags are the operator's policy, and the client gets no other.

use super::args::McpArgs;
use super::run::request_for;
use super::{EXIT_SETUP, complain, failed};
use crate::mcp::{Terms, serve};
use crate::request::Asked;
use crate::sys;

pub fn main(args: &McpArgs) -> u8 {
    let refused = |error: &dyn std::fmt::Display| {
        complain(error);
        EXIT_SETUP
    };
    if let Err(error) = sys::process::set_not_dumpable() {
        return refused(&format_args!("start: {error}"));
    }
    let request = match request_for(&args.policy, Asked::Command(Vec::new()), true) {
        Ok(request) => request,
        Err(error) => return refused(&error),
    };
    let terms = match Terms::new(request, &args.grantable) {
        Ok(terms) => terms,
        Err(refusal) => return refused(&refusal.message),
    };
    match serve(terms) {
        Ok(()) => 0,
        Err(error) => failed(format_args!("mcp: {error}")),
    }
}
