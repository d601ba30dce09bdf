//! Use in other programs: the Rust library, the installed C library, and the embedded libsandbox.so.

mod api;
mod carried;
mod installed;
mod library;
pub mod rust;
