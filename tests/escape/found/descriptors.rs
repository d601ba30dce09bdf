//! What one run leaves in a writable tree, and gatekeeper itself opens, writes, removes or executes in the next.

use super::Hole;

pub const HOLES: &[Hole] = &[];
