//! The contract between `libsandbox.so` and gatekeeper: the variables and their grammar, the syscall groups, the
//! built-in profiles, and how a list becomes a seccomp program.
//!
//! Everything here runs inside other people's processes, so it takes borrowed bytes, gives values, never allocates,
//! never panics and makes no syscall. It has no constructor: linking it filters nobody.

#![no_std]

#[cfg(test)]
extern crate std;

pub mod action;
pub mod bpf;
pub mod equivalents;
pub mod file;
pub mod grammar;
pub mod groups;
pub mod nearest;
pub mod profiles;
mod sha256;
pub mod syscalls;
pub mod vars;

pub use sha256::sha256;
