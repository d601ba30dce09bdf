//! libsandbox.so inside programs that work against it.

use super::Hole;

pub const HOLES: &[Hole] = &[];
