//! `libsandbox.so` for programs that embed it: as bytes, and as a file on disk that no other user can have written. Also the
//! guardian program of gatekeeper, as bytes.

mod place;

/// The library, or `None` if this crate was built without its sources.
pub const LIBSANDBOX: Option<&[u8]> = include!(concat!(env!("OUT_DIR"), "/embedded.rs"));

/// The guardian program, which starts commands for programs that embed gatekeeper, or `None` without its sources.
pub const GUARDIAN: Option<&[u8]> = include!(concat!(env!("OUT_DIR"), "/guardian.rs"));

/// Writes the library to a private file for `LD_PRELOAD` and returns its path.
///
/// The file is written once and compared byte by byte on every use. Its directory is the first of `XDG_RUNTIME_DIR`,
/// `XDG_CACHE_HOME` and `HOME/.cache` that belongs to this user and is not mounted noexec. Shared directories such as
/// /tmp are never used, because another user could have created the file first.
///
/// # Errors
/// Fails if there is no such directory, or if this crate was built without the library. Start nothing then: a loader
/// that does not find the library runs the program without it.
pub fn on_disk() -> std::io::Result<std::path::PathBuf> {
    let missing = || std::io::Error::new(std::io::ErrorKind::Unsupported, "built without libsandbox.so");
    place::on_disk(LIBSANDBOX.ok_or_else(missing)?)
}
