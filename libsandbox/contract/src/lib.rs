//! Shared by `libsandbox.so` and gatekeeper: the variables and their grammar, the syscall groups, the built-in
//! profiles, and the compiler from lists to seccomp programs.
//!
//! All of it runs in other programs' processes, so it borrows its input, never allocates, never panics and makes no
//! syscall. It has no constructor: linking the crate installs no filter.

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
mod slots;
pub mod syscalls;
pub mod vars;

pub use sha256::sha256;
