//! In other people's programs: the Rust library, the C library as installed, and the embedded library as a file.

mod api;
mod carried;
mod installed;
mod library;
pub mod rust;
