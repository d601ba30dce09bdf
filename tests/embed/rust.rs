//! The programs of examples/rust, where every user may execute them.

use crate::support::{fresh, gatekeeper, run, skip};
use std::path::PathBuf;
use std::process::Command;

/// An example, where every user may execute it.
pub fn example(name: &str) -> Option<PathBuf> {
    let built = gatekeeper().parent()?.join("examples").join(name);
    let copy = fresh("example").join(name);
    if !built.exists() {
        skip("the examples are not built; cargo test without --test builds them");
        return None;
    }
    // By another process: a fork of another test that holds it open for writing would keep it from being executed.
    run(Command::new("cp").arg(&built).arg(&copy)).exits(0);
    Some(copy)
}
