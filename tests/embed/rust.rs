//! The programs of examples/rust.

use crate::support::{built, copy_program, fresh, skip};
use std::path::PathBuf;

/// A copy of an example that every user may execute.
pub fn example(name: &str) -> Option<PathBuf> {
    let built = built("examples").join(name);
    let copy = fresh("example").join(name);
    if !built.exists() {
        skip("the examples are not built; `cargo test` without --test builds them");
        return None;
    }
    copy_program(&built, &copy);
    Some(copy)
}
