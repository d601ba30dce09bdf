//! `gatekeeper check` on a corpus that the tests build, and proof of each verdict by running the program.

mod bytes;
mod cli;
mod corpus;
mod elsewhere;
mod hostile;
mod properties;
mod target;
mod truth;

pub use crate::support::gatekeeper_for_all as gatekeeper;
use crate::support::{Done, run};
use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

pub fn chmod(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("own file");
}

/// Writes these bytes as an executable file.
pub fn program(path: &Path, bytes: impl AsRef<[u8]>) -> PathBuf {
    std::fs::write(path, bytes).expect("writable");
    chmod(path, 0o755);
    path.to_owned()
}

#[track_caller]
pub fn check<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Done {
    run(Command::new(gatekeeper()).arg("check").args(arguments))
}

/// The JSON verdicts of a command.
#[track_caller]
pub fn verdicts(command: &mut Command) -> Vec<Value> {
    let done = run(command);
    match serde_json::from_str(&done.stdout()) {
        Ok(Value::Array(verdicts)) => verdicts,
        other => panic!("not an array of verdicts: {other:?} {done}"),
    }
}

/// The verdict on one path.
#[track_caller]
pub fn verdict(path: impl AsRef<OsStr>) -> Value {
    verdicts(Command::new(gatekeeper()).args(["check", "--json", "--"]).arg(path)).remove(0)
}

pub fn codes(verdict: &Value) -> Vec<&str> {
    let reasons = verdict["reasons"].as_array().map(Vec::as_slice).unwrap_or_default();
    reasons.iter().filter_map(|reason| reason["code"].as_str()).collect()
}
