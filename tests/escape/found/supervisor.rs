//! Calls that the supervisor makes for the program.

use super::Hole;

pub const HOLES: &[Hole] = &[];
