//! Isolation: the layer of namespaces above all others, made by bubblewrap, for those who ask for it.
//!
//! bubblewrap builds a small world (the working directory, the system read-only, a private /tmp, no network, no other
//! processes) and runs gatekeeper again inside of it, which puts Landlock and the filter in force there and executes; so
//! denials are reported as they are without it. What works here shows by trying, once for each run, and a bubblewrap
//! that does not work is a cause with words, never a program that runs twice.

pub(crate) mod available;
pub(crate) mod config;
pub(crate) mod handover;
pub(crate) mod mounts;
pub mod planned;

pub use available::{Availability, check_availability, check_bwrap, wrap_command};
pub use config::SandboxConfig;
