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
    rustix::fs::statx(process, path, flags, StatxFlags::TYPE | StatxFlags::INO | StatxFlags::MNT_ID)
}

pub(super) fn same_mount(one: &Statx, other: &Statx) -> bool {
    let known = |found: &Statx| found.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    known(one) && known(other) && one.stx_mnt_id == other.stx_mnt_id
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

/// The directory and the name in it; no name if the path ends in `.`, which means the directory. `None` for a path that ends in
/// `..` or `/`.
pub(super) fn split(whole: &Path) -> Option<(&Path, Option<&OsStr>)> {
    let bytes = whole.as_os_str().as_bytes();
    let at = bytes.iter().rposition(|byte| *byte == b'/')?;
    let (above, name) = (OsStr::from_bytes(bytes.get(..at)?), OsStr::from_bytes(bytes.get(at + 1..)?));
    match Path::new(name).components().next()? {
        Component::Normal(name) => Some((Path::new(above), Some(name))),
        Component::CurDir => Some((Path::new(above), None)),
        _ => None,
    }
}

/// Whether a file is in its directory. One that is not there will be created there, or the call fails.
pub(super) fn stays(file: rustix::io::Result<Statx>, parent: &Statx) -> rustix::io::Result<bool> {
    match file {
        Ok(file) => Ok(!FileType::from_raw_mode(file.stx_mode.into()).is_symlink() && same_mount(&file, parent)),
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
}
