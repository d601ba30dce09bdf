//! Names of files as seen from a process whose call waits, and what lies at them.

use rustix::fs::{AtFlags, FileType, Statx, StatxFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

/// Longer paths get the full check.
pub(super) const LONGEST: usize = 512;
/// `/proc/PID/fd/NUMBER/` before a path.
pub(super) const PREFIX: usize = 24;
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

/// The path as seen from the process's directory in /proc: below its root, its working directory or one of its descriptors.
pub(super) fn from_process<'a>(
    directory: i32,
    path: &Path,
    buffer: &'a mut [u8; PREFIX + LONGEST],
) -> Option<&'a Path> {
    use std::io::Write;
    // In these, /proc/self means the process that looks. /dev/stdin and the like lead there.
    if path.starts_with("/proc") || path.starts_with("/dev") && !path.starts_with("/dev/shm") {
        return None;
    }
    let bytes = path.as_os_str().as_bytes();
    let mut rest = &mut buffer[..];
    let written = match directory {
        _ if path.is_absolute() => rest.write_all(b"root"),
        libc::AT_FDCWD => rest.write_all(b"cwd/"),
        number => write!(rest, "fd/{number}/"),
    };
    written.and_then(|()| rest.write_all(bytes)).ok()?;
    let left = rest.len();
    let used = buffer.len() - left;
    Some(Path::new(OsStr::from_bytes(buffer.get(..used)?)))
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
    fn a_path_is_looked_up_below_the_process() {
        let shown = |directory, path: &str| {
            let mut buffer = [0u8; PREFIX + LONGEST];
            let whole = from_process(directory, Path::new(path), &mut buffer)?.to_owned();
            let (above, name) = split(&whole)?;
            Some((above.to_str()?.to_owned(), name.map(|name| name.to_str().unwrap_or_default().to_owned())))
        };
        let found = |above: &str, name: Option<&str>| Some((above.to_owned(), name.map(str::to_owned)));
        assert_eq!(shown(libc::AT_FDCWD, "file"), found("cwd", Some("file")));
        assert_eq!(shown(libc::AT_FDCWD, "a/../b/file"), found("cwd/a/../b", Some("file")));
        assert_eq!(shown(7, "file"), found("fd/7", Some("file")));
        assert_eq!(shown(7, "/usr/file"), found("root/usr", Some("file")));
        assert_eq!(shown(7, "/usr"), found("root", Some("usr")));
        assert_eq!(shown(libc::AT_FDCWD, "."), found("cwd", None));
        for full in ["a/..", "a/", "/", "/proc/self/status", "/dev/null"] {
            assert_eq!(shown(libc::AT_FDCWD, full), None, "{full}");
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
