//! Learning: runs a command with everything allowed, and makes the smallest policy under which it would have passed.
//!
//! The supervisor collects a `Lesson` while the command runs; `compose` makes a policy from it.

mod compose;
mod denials;
mod grants;
mod merge;
mod trees;

pub use compose::{Learned, compose};
pub use denials::{FromDenialsError, from_answers, from_denials};
pub use merge::merged;
