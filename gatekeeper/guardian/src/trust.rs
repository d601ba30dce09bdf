//! The parts of gatekeeper's `trust` that `sys` uses.

#[path = "../../src/trust/remove.rs"]
pub mod remove;
#[path = "../../src/trust/text.rs"]
pub mod text;
