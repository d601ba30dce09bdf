//! Learning: runs a command with everything allowed, and makes the smallest policy under which it would have passed.
//!
//! The supervisor collects a `Lesson` while the command runs; `compose` makes a policy from it.

mod compose;
mod denials;
mod merge;
mod trees;

pub use compose::{Learned, compose};
pub use denials::{FromDenialsError, from_answers, from_denials};
pub use merge::merged;

use std::path::{Path, PathBuf};

/// The path, or its nearest ancestor that a policy file can express.
fn writable_down(path: &Path) -> PathBuf {
    crate::supervise::remedy::typeable(path).to_owned()
}
