//! The unit for systemd.

use crate::support::skip;
use std::process::{Command, Output};
use tempfile::TempDir;

const UNIT: &str = include_str!("../../gatekeeperd.service.in");
/// What `systemd-analyze security` computes, in tenths: user namespaces and the network are needed, and cost most of it.
const EXPOSURE: &str = "35";

/// Runs a command of systemd-analyze on the unit, as it is installed. None, with a printed skip, if there is no such program.
fn analyze(words: &[&str]) -> Option<Output> {
    let prefix = TempDir::new().expect("a temporary directory");
    std::fs::create_dir(prefix.path().join("bin")).expect("own directory");
    std::fs::copy(env!("CARGO_BIN_EXE_gatekeeperd"), prefix.path().join("bin/gatekeeperd")).expect("own directory");
    let file = prefix.path().join("gatekeeperd.service");
    std::fs::write(&file, UNIT.replace("@PREFIX@", &prefix.path().display().to_string())).expect("own directory");
    match Command::new("systemd-analyze").args(words).arg(&file).output() {
        Ok(done) => Some(done),
        Err(error) => {
            skip(&format!("systemd-analyze: {error}"));
            None
        }
    }
}

#[test]
fn systemd_understands_every_line_of_the_unit() {
    let Some(done) = analyze(&["verify", "--man=no"]) else { return };
    let said = String::from_utf8_lossy(&done.stderr);
    // Units of this machine are read too, and may have faults of their own.
    let about_us: Vec<&str> = said.lines().filter(|line| line.contains("gatekeeperd")).collect();
    assert!(done.status.success() && about_us.is_empty(), "{said}");
}

#[test]
fn the_unit_stays_as_closed_as_it_is() {
    let Some(done) = analyze(&["security", "--offline=yes", "--no-pager", "--threshold", EXPOSURE]) else { return };
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
}
