//! The directories that hold protected names, watched for changes from outside.
//!
//! The watch is F_NOTIFY of fcntl(2): one signal for any change in a directory, without a queue that could overflow. It
//! is not inotify, because closing an inotify descriptor waits for the kernel, 10 ms or more at the end of every run.
//!
//! Runs after fork: raw syscalls on memory prepared before, no allocation.

use super::close;
use crate::sys::child::errno;
use crate::sys::statx;
use std::ffi::{CStr, CString};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// The names whose mounts the kernel removes when a process outside replaces them, by directory.
#[derive(Default)]
pub struct Watched {
    pub directories: Vec<Directory>,
    pub names: Vec<Name>,
}

pub struct Directory {
    path: CString,
    /// Whether the directory is itself one of the names. Any other directory must stay where it is.
    named: bool,
    fd: AtomicI32,
}

pub struct Name {
    /// Index into the directories.
    directory: usize,
    name: CString,
    /// How reports refer to it: an index into the mounts, or into the list that was given.
    at: usize,
    found: [AtomicU64; 3],
}

/// Device, inode and birth time, because file systems reuse inodes. All zero for a name that does not exist.
type Identity = [u64; 3];

impl Directory {
    pub fn new(path: CString, named: bool) -> Directory {
        Directory { path, named, fd: AtomicI32::new(-1) }
    }

    /// What [`Directory::new`] needs.
    pub(in crate::sys) fn parts(&self) -> (&CStr, bool) {
        (&self.path, self.named)
    }

    fn fd(&self) -> RawFd {
        self.fd.load(Ordering::Relaxed)
    }

    /// Watches the directory that is at the path now.
    fn watch(&self) -> bool {
        // DN_CREATE | DN_DELETE | DN_RENAME, and DN_MULTISHOT to keep the watch after the first event.
        let events: libc::c_ulong = 0x4 | 0x8 | 0x10 | 0x8000_0000;
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        close(self.fd());
        // SAFETY: a CString is NUL-terminated; F_NOTIFY takes its argument by value.
        unsafe {
            let fd = libc::open(self.path.as_ptr(), flags);
            let watches = fd >= 0 && libc::fcntl(fd, libc::F_NOTIFY, events) == 0;
            self.fd.store(if watches { fd } else { close(fd) }, Ordering::Relaxed);
            watches
        }
    }

    /// Whether the path still leads to the watched directory.
    fn stays(&self) -> bool {
        identity(self.fd(), c"") == identity(libc::AT_FDCWD, &self.path)
    }

    /// Watches the directory that took its place. False if it must stay where it is and was moved.
    pub(super) fn follow(&self) -> bool {
        let gone = || matches!(errno(), libc::ENOENT | libc::ENOTDIR);
        self.fd() >= 0 && self.stays() || self.named && (self.watch() || gone())
    }
}

impl Name {
    pub fn new(directory: usize, name: CString, at: usize) -> Name {
        Name { directory, name, at, found: [const { AtomicU64::new(0) }; 3] }
    }

    /// What [`Name::new`] needs.
    pub(in crate::sys) fn parts(&self) -> (usize, &CStr, usize) {
        (self.directory, &self.name, self.at)
    }

    /// Whether the name now means another file than at the last call. Remembers what it finds.
    fn changed(&self, directories: &[Directory]) -> bool {
        let directory = directories.get(self.directory).map_or(-1, Directory::fd);
        let now = if directory < 0 { [0; 3] } else { identity(directory, &self.name) };
        let before = [0, 1, 2].map(|part: usize| {
            self.found.get(part).zip(now.get(part)).map_or(0, |(found, now)| found.swap(*now, Ordering::Relaxed))
        });
        before != now
    }
}

fn identity(directory: RawFd, name: &CStr) -> Identity {
    // SAFETY: all zeroes is a valid `statx`.
    let mut stat: libc::statx = unsafe { std::mem::zeroed() };
    let flags = libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH;
    if !statx(directory, name, flags, libc::STATX_INO | libc::STATX_BTIME, &mut stat) {
        return [0; 3];
    }
    let device = u64::from(stat.stx_dev_major) << 32 | u64::from(stat.stx_dev_minor);
    let born = (stat.stx_btime.tv_sec as u64).wrapping_mul(1_000_000_000);
    [device, stat.stx_ino, born.wrapping_add(stat.stx_btime.tv_nsec.into())]
}

impl Watched {
    /// Watches every directory. False, with errno set, if one of them cannot be watched.
    pub(super) fn begin(&self) -> bool {
        let watches = self.directories.iter().all(Directory::watch);
        self.changed();
        watches
    }

    /// The first name that now means another file than at the last call.
    pub(super) fn changed(&self) -> Option<usize> {
        // No early return: each call has to remember every name.
        self.names.iter().fold(None, |first, name| {
            let changed = name.changed(&self.directories);
            first.or(changed.then_some(name.at))
        })
    }

    /// The smallest of its descriptors that is not below `number`.
    pub(super) fn next_from(&self, number: RawFd) -> Option<RawFd> {
        self.directories.iter().map(Directory::fd).filter(|fd| *fd >= number.max(0)).min()
    }
}
