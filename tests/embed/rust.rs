//! The programs of examples/rust, where every user may execute them.

use crate::support::{copy_program, fresh, gatekeeper, skip};
use std::path::PathBuf;

/// An example, where every user may execute it.
pub fn example(name: &str) -> Option<PathBuf> {
    let built = gatekeeper().parent()?.join("examples").join(name);
    let copy = fresh("example").join(name);
    if !built.exists() {
        skip("the examples are not built; cargo test without --test builds them");
        return None;
    }
    copy_program(&built, &copy);
    Some(copy)
}
