//! The programs of examples/rust.

use crate::support::{copy_program, fresh, gatekeeper, skip};
use std::path::PathBuf;

/// A copy of an example that every user may execute.
pub fn example(name: &str) -> Option<PathBuf> {
    let built = gatekeeper().parent()?.join("examples").join(name);
    let copy = fresh("example").join(name);
    if !built.exists() {
        skip("the examples are not built; `cargo test` without --test builds them");
        return None;
    }
    copy_program(&built, &copy);
    Some(copy)
}
