//! The built `libsandbox.so` as bytes, for programs that carry the library with them, and as a file that can be trusted.

mod place;

/// The library, or `None` when this crate was built without its sources.
pub const LIBSANDBOX: Option<&[u8]> = include!(concat!(env!("OUT_DIR"), "/embedded.rs"));

/// The library as a file for `LD_PRELOAD`: private to this user, written once, compared byte by byte on every use.
///
/// It lies below `XDG_RUNTIME_DIR`, `XDG_CACHE_HOME` or `HOME/.cache`, whichever first is this user's own and lets code
/// run; never in a place such as /tmp, where somebody else could have put a file before.
///
/// # Errors
/// Without such a place, or where this crate was built without the library. Start nothing then: a loader that finds no
/// library goes on without it.
pub fn on_disk() -> std::io::Result<std::path::PathBuf> {
    let missing = || std::io::Error::new(std::io::ErrorKind::Unsupported, "built without libsandbox.so");
    place::on_disk(LIBSANDBOX.ok_or_else(missing)?)
}
