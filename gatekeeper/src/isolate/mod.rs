//! Isolation: namespaces made by bubblewrap, as an optional layer around all others.
//!
//! bubblewrap sets up the mounts and namespaces (the working directory, the system read-only, a private /tmp, no network,
//! no other processes) and starts gatekeeper again inside. The inner gatekeeper applies Landlock and the filter and executes
//! the command, so denials are reported as without isolation. Each run finds out by trying whether bubblewrap works. If it
//! does not, the report says why; the command never starts twice.

pub(crate) mod available;
pub(crate) mod config;
pub(crate) mod handover;
pub(crate) mod mounts;
pub mod planned;

pub use available::{Availability, check_availability, check_bwrap, wrap_command};
pub use config::SandboxConfig;
