//! Names of files as seen from a process whose call waits, and what lies at them.

use rustix::fs::{AtFlags, FileType, Statx, StatxFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

/// Longer paths get the full check.
pub(super) const LONGEST: usize = 512;
/// STATX_MNT_ID_UNIQUE (Linux 6.8): a number that no later mount gets.
const UNIQUE_MOUNT: u32 = 0x4000;

#[derive(PartialEq, Eq, Hash, Clone, Copy)]
pub(super) struct Identity {
    device: (u32, u32),
    inode: u64,
    mount: u64,
}

impl Identity {
    pub(super) fn of(found: &Statx) -> Identity {
        Identity { device: (found.stx_dev_major, found.stx_dev_minor), inode: found.stx_ino, mount: found.stx_mnt_id }
    }
}

pub(super) fn look(process: BorrowedFd<'_>, path: &Path, flags: AtFlags) -> rustix::io::Result<Statx> {
    // Never wait for a file system that does not answer, nor mount anything.
    let flags = flags | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let asked = StatxFlags::TYPE | StatxFlags::INO | StatxFlags::MNT_ID;
    // A kernel that knows the unique number reports it instead of the other one.
    rustix::fs::statx(process, path, flags, asked | StatxFlags::from_bits_retain(UNIQUE_MOUNT))
}

/// Looks at an open file.
pub(super) fn look_at(file: BorrowedFd<'_>) -> rustix::io::Result<Statx> {
    look(file, Path::new(""), AtFlags::EMPTY_PATH)
}

pub(super) fn same_mount(one: &Statx, other: &Statx) -> bool {
    let mount = StatxFlags::MNT_ID.bits() | UNIQUE_MOUNT;
    let known = |found: &Statx| found.stx_mask & mount;
    known(one) != 0 && known(one) == known(other) && one.stx_mnt_id == other.stx_mnt_id
}

/// The number of a file's mount, if no later mount gets it.
pub(super) fn unique_mount(found: &Statx) -> Option<u64> {
    (found.stx_mask & UNIQUE_MOUNT != 0).then_some(found.stx_mnt_id)
}

pub(super) fn is_link(found: &Statx) -> bool {
    FileType::from_raw_mode(found.stx_mode.into()).is_symlink()
}

/// An absolute path as seen from the root directory, byte by byte: a slash at the end means something. `None` for one that
/// ends in `..` or `/`.
pub(super) fn below_root(path: &Path) -> Option<&Path> {
    let bytes = path.as_os_str().as_bytes();
    let start = bytes.iter().position(|byte| *byte != b'/').filter(|start| *start > 0)?;
    Some(Path::new(OsStr::from_bytes(bytes.get(start..)?))).filter(|below| split(below).is_some())
}

/// The directory and the name in it; no name if the path ends in `.`, which means the directory. `None` for a path that ends in
/// `..` or `/`.
pub(super) fn split(whole: &Path) -> Option<(&Path, Option<&OsStr>)> {
    let bytes = whole.as_os_str().as_bytes();
    let (above, name) = match bytes.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (OsStr::from_bytes(bytes.get(..at)?), OsStr::from_bytes(bytes.get(at + 1..)?)),
        None => (OsStr::new("."), whole.as_os_str()),
    };
    match Path::new(name).components().next()? {
        Component::Normal(name) => Some((Path::new(above), Some(name))),
        Component::CurDir => Some((Path::new(above), None)),
        _ => None,
    }
}

/// Whether a file is in its directory. One that is not there will be created there, or the call fails.
pub(super) fn stays(file: rustix::io::Result<Statx>, parent: &Statx) -> rustix::io::Result<bool> {
    match file {
        Ok(file) => Ok(!is_link(&file) && same_mount(&file, parent)),
        Err(Errno::NOENT) => Ok(true),
        Err(error) => Err(error),
    }
}

/// The name, if the path is one name in a directory that is open.
pub(super) fn entry_of(directory: i32, path: &Path) -> Option<&OsStr> {
    let name = path.as_os_str();
    let is_name = !name.as_bytes().contains(&b'/') && !matches!(name.as_bytes(), b"" | b"." | b"..");
    (directory >= 0 && is_name).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_directory_and_a_name_in_it() {
        let parts = |path: &'static str| split(Path::new(path)).map(|(above, name)| (above, name.map(Path::new)));
        let found = |above: &'static str, name: Option<&'static str>| Some((Path::new(above), name.map(Path::new)));
        assert_eq!(parts("file"), found(".", Some("file")));
        assert_eq!(parts("a/../b/file"), found("a/../b", Some("file")));
        assert_eq!(parts("a/."), found("a", None));
        assert_eq!(parts("."), found(".", None));
        for full in ["a/..", "a/", "..", ""] {
            assert_eq!(parts(full), None, "{full}");
        }
    }

    #[test]
    fn a_path_below_the_root_keeps_its_end() {
        let below = |path: &'static str| below_root(Path::new(path)).map(|below| below.as_os_str());
        assert_eq!(below("/usr/lib"), Some(OsStr::new("usr/lib")));
        assert_eq!(below("//usr/lib/."), Some(OsStr::new("usr/lib/.")));
        assert_eq!(below("/usr"), Some(OsStr::new("usr")));
        for other in ["usr/lib", "/usr/lib/", "/usr/..", "/", ""] {
            assert_eq!(below(other), None, "{other}");
        }
    }
}
