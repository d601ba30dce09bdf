//! The entries of a directory, read through a descriptor. One reader for searches and listings: that of the C library takes six
//! more syscalls for each directory.

use rustix::fs::{AtFlags, FileType, RawDir, statat};
use rustix::io::Errno;
use std::ffi::{CStr, OsStr};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// Calls `take` with the name and the listed type of each entry except `.` and `..`. Returns the error that ended the listing
/// early.
pub(super) fn each(
    directory: &OwnedFd,
    buffer: &mut [MaybeUninit<u8>],
    mut take: impl FnMut(&CStr, FileType),
) -> Option<Errno> {
    let mut entries = RawDir::new(directory, buffer);
    while let Some(entry) = entries.next() {
        let entry = match entry {
            Ok(entry) => entry,
            // The directory itself was removed.
            Err(Errno::NOENT) => break,
            Err(error) => return Some(error),
        };
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            take(entry.file_name(), entry.file_type());
        }
    }
    None
}

/// The type of an entry; `None` if it was removed. Some file systems do not store the type in the directory.
pub(super) fn type_of(directory: impl AsFd, name: &CStr, listed: FileType) -> Option<FileType> {
    match listed {
        FileType::Unknown => {
            let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
            Some(FileType::from_raw_mode(stat.st_mode))
        }
        known => Some(known),
    }
}

pub(super) fn text(name: &CStr) -> &OsStr {
    OsStr::from_bytes(name.to_bytes())
}
