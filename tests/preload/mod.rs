//! libsandbox.so, preloaded: every promise of libsandbox(7), tested with programs that make the calls.
//!
//! A denial is proven by an errno that the call itself never returns, or by the exact signal, and each has a control in
//! which the same call is allowed.

mod abi;
mod actions;
mod arch;
mod files;
mod grammar;
mod guest;
mod landlock;
mod lists;
mod manual;
mod messages;
mod object;
mod others;
mod refusals;
mod threads;
mod verbose;

use crate::support::{Done, libsandbox, probe, run};
use sandbox_contract::vars;
use std::path::Path;
use std::process::Command;

pub const ALLOW: &str = vars::ALLOW;
pub const DENY: &str = vars::DENY;
pub const ACTION: &str = vars::ACTION;

/// An errno (EPROTO, 71) that none of the probes' calls returns by itself.
pub const SENTINEL: (&str, &str) = (ACTION, "errno:EPROTO");
pub const SIGSYS: i32 = 31;

/// A command with the library preloaded and none of its variables set.
pub fn preloaded(program: &Path) -> Command {
    let mut command = plain(program);
    command.env("LD_PRELOAD", libsandbox());
    command
}

/// The control: the same command without the library.
pub fn plain(program: &Path) -> Command {
    let mut command = Command::new(program);
    for name in vars::ALL.into_iter().chain(["LD_PRELOAD"]) {
        command.env_remove(name);
    }
    command
}

/// Runs the probe `calls` with these calls, preloaded, under these variables.
#[track_caller]
pub fn calls(variables: &[(&str, &str)], words: &[&str]) -> Done {
    run(preloaded(&probe("calls", &[])).envs(variables.iter().copied()).args(words))
}

/// Asserts that the library refuses these variables with exactly this line, before main.
#[track_caller]
pub fn refused(variables: &[(&str, &str)], line: &str) {
    calls(variables, &["getppid"]).exits(1).prints("").complains(&format!("libsandbox: {line}\n"));
}
