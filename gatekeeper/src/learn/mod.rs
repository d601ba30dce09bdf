//! Learning: one run that is let through and listened to, and the smallest policy under which it would have passed.
//!
//! The supervisor collects a `Lesson` while the command runs; `compose` makes a policy of it.

mod compose;
mod denials;
mod trees;

pub use compose::{Learned, compose, merged};
pub use denials::{FromDenialsError, from_denials};

use std::path::{Path, PathBuf};

/// The path, or its nearest ancestor that a policy file can hold.
fn writable_down(path: &Path) -> PathBuf {
    crate::supervise::remedy::typeable(path).to_owned()
}
