//! The built `libsandbox.so` as bytes, for programs that carry the library with them.

/// The library, or `None` when this crate was built without its sources.
pub const LIBSANDBOX: Option<&[u8]> = include!(concat!(env!("OUT_DIR"), "/embedded.rs"));
