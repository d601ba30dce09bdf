//! `gatekeeper extract`: the embedded libsandbox.so as a file.

use super::{EXIT_ERROR, args::ExtractArgs, complain};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

pub fn main(args: &ExtractArgs) -> u8 {
    let path = args.path.clone().unwrap_or_else(|| PathBuf::from("libsandbox.so"));
    let Some(bytes) = libsandbox_embed::LIBSANDBOX else {
        complain(
            "this gatekeeper was built without libsandbox.so; build it from the full source tree, or set LIBSANDBOX_SO at build time",
        );
        return EXIT_ERROR;
    };
    match write_new(&path, bytes, 0o755) {
        Ok(()) => {
            let _ = writeln!(io::stdout(), "{}", path.display());
            0
        }
        Err(error) => {
            complain(format_args!("extract: cannot write {}: {error}", path.display()));
            EXIT_ERROR
        }
    }
}

/// Writes beside the target and renames, so that nobody ever reads half a file.
pub(super) fn write_new(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let name = path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut beside = std::ffi::OsString::from(".");
    beside.push(name);
    beside.push(format!(".{}", std::process::id()));
    let beside = path.with_file_name(beside);
    let written = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&beside)
        .and_then(|mut file| file.write_all(bytes))
        .and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}
