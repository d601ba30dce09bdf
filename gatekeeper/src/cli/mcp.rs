//! `gatekeeper mcp`: serves commands under the operator's policy. The client can add only what `--grantable` lists.

use super::args::McpArgs;
use super::run::request_for;
use super::{failed, setup_failed};
use crate::mcp::{Terms, serve};
use crate::request::Asked;
use crate::sys;

pub fn main(args: &McpArgs) -> u8 {
    if let Err(error) = sys::process::set_not_dumpable() {
        return setup_failed(format_args!("mcp: cannot protect this process from the commands it runs: {error}"));
    }
    let request = match request_for(&args.policy, Asked::Command(Vec::new()), true) {
        Ok(request) => request,
        Err(error) => return setup_failed(error),
    };
    let terms = match Terms::new(request, &args.grantable) {
        Ok(terms) => terms,
        Err(refusal) => return setup_failed(refusal.message),
    };
    match serve(terms) {
        Ok(()) => 0,
        Err(error) => failed(format_args!("mcp: {error}")),
    }
}
