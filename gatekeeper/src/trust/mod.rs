//! How gatekeeper itself opens a file that a policy, a flag or a variable names.
//!
//! A confined command controls everything in the trees it may write: a directory named today can be a symbolic link to
//! `~/.ssh` tomorrow. So a path is walked component by component, and each is opened without following links. Links
//! outside such a tree are followed as the kernel would; a link inside it is an error that names the link. The walk takes
//! a path and the hostile trees, and returns a descriptor and the real path.
//!
//! `output` writes results, `program` finds helper programs, `remove` deletes trees, `text` formats without allocating.

pub mod output;
pub mod program;
pub mod remove;
pub(crate) mod text;
mod walk;

pub use walk::{Found, make_directory, walk};

use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The trees that confined commands may write, or wrote in an earlier run. Identified by device and inode, so that
/// another name of the same directory makes no difference.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hostile {
    tops: BTreeSet<(u64, u64)>,
}

/// Why a path was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Untrusted {
    #[error(
        "{} is a symbolic link to {} in a tree that confined commands may write, so one of them may have put it \
         there; name its target instead, or remove the link",
        link.display(), target.display()
    )]
    Link { link: PathBuf, target: PathBuf },
    #[error("{} is a {kind} in a tree that confined commands may write; remove it", path.display())]
    Kind { path: PathBuf, kind: &'static str },
    #[error("{} is a {kind}, not a regular file", path.display())]
    NotAFile { path: PathBuf, kind: &'static str },
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
}

impl Untrusted {
    pub(crate) fn io(path: &Path, error: impl Into<io::Error>) -> Untrusted {
        Untrusted::Io { path: path.to_owned(), error: error.into() }
    }

    /// Whether the path merely does not exist.
    pub fn is_missing(&self) -> bool {
        matches!(self, Untrusted::Io { error, .. } if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)))
    }
}

impl From<Untrusted> for io::Error {
    fn from(error: Untrusted) -> io::Error {
        match error {
            Untrusted::Io { error, .. } => error,
            other => io::Error::other(other),
        }
    }
}

impl Hostile {
    /// The working directory of a run. `/` is left out: no profile makes it writable, and every path is below it.
    pub fn working_directory(cwd: &Path) -> Hostile {
        let mut hostile = Hostile::default();
        hostile.add_working_directory(cwd);
        hostile
    }

    pub fn add_working_directory(&mut self, cwd: &Path) {
        if cwd != Path::new("/") {
            self.add(cwd);
        }
    }

    /// The working directory of this process, which an earlier run may have written.
    pub fn here() -> Hostile {
        std::env::current_dir().map_or_else(|_| Hostile::default(), |cwd| Hostile::working_directory(&cwd))
    }

    /// Adds a writable tree. One that does not exist yet holds nothing to distrust.
    pub fn add(&mut self, tree: &Path) {
        if let Ok(stat) = rustix::fs::stat(tree) {
            self.add_stat(&stat);
        }
    }

    pub(crate) fn add_stat(&mut self, stat: &Stat) {
        let top = (stat.st_dev, stat.st_ino);
        if FileType::from_raw_mode(stat.st_mode).is_dir() {
            self.tops.insert(top);
        }
    }

    fn has(&self, stat: &Stat) -> bool {
        self.tops.contains(&(stat.st_dev, stat.st_ino))
    }
}

/// Opens a regular file for reading. Anything else is refused, because a FIFO or a device could block.
pub fn open_regular(path: &Path, hostile: &Hostile) -> Result<(File, Found), Untrusted> {
    let found = walk(path, hostile)?;
    if let Some(kind) = odd_kind(&found.stat) {
        return Err(Untrusted::NotAFile { path: path.to_owned(), kind });
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = found.reopen(flags).map_err(|error| Untrusted::io(path, error))?;
    Ok((File::from(file), found))
}

/// The kind of a file that is not regular, for messages.
pub fn odd_kind(stat: &Stat) -> Option<&'static str> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => None,
        FileType::Directory => Some("directory"),
        FileType::Fifo => Some("FIFO"),
        FileType::Socket => Some("socket"),
        FileType::Symlink => Some("symbolic link"),
        _ => Some("device"),
    }
}

/// Opens the file of a descriptor again with other flags, through /proc/self/fd.
pub(crate) fn reopen(file: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty())
}

/// Whether a confined command must not inherit this descriptor. `openat` on a directory or an O_PATH descriptor starts
/// there, and so bypasses every mount.
pub fn is_a_way_in(file: BorrowedFd<'_>) -> bool {
    let directory = rustix::fs::fstat(file).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_dir());
    let place = rustix::fs::fcntl_getfl(file).is_ok_and(|flags| flags.contains(OFlags::PATH));
    directory || place
}

/// Whether a private directory of ours is safe in this one: only root and this user can write to it, or it is sticky, so
/// that other users cannot replace entries.
pub fn is_safe_base(stat: &Stat) -> bool {
    let me = rustix::process::geteuid().as_raw();
    let sticky = stat.st_mode & libc::S_ISVTX != 0;
    let by_others = stat.st_mode & libc::S_IWOTH != 0;
    let own_group = [0, rustix::process::getegid().as_raw()].contains(&stat.st_gid);
    let by_group = stat.st_mode & libc::S_IWGRP != 0 && !own_group;
    (stat.st_uid == me || is_system_owner(stat.st_uid)) && (sticky || !by_others && !by_group)
}

/// Root; or, in a user namespace, an owner who is not mapped into it. Neither we nor a confined command can be that user.
pub(crate) fn is_system_owner(uid: u32) -> bool {
    uid == 0 || uid == overflow_uid() && !is_mapped(uid)
}

fn overflow_uid() -> u32 {
    let text = std::fs::read_to_string("/proc/sys/kernel/overflowuid").unwrap_or_default();
    text.trim().parse().unwrap_or(65534)
}

fn is_mapped(uid: u32) -> bool {
    let Ok(text) = std::fs::read_to_string("/proc/self/uid_map") else { return true };
    text.lines().any(|line| {
        let mut numbers = line.split_whitespace().map(|word| word.parse::<u64>().unwrap_or(u64::MAX));
        let (first, count) = (numbers.next().unwrap_or(0), numbers.nth(1).unwrap_or(u64::MAX));
        u64::from(uid) >= first && u64::from(uid) - first < count
    })
}

impl AsFd for Found {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The current path of an open file.
pub fn place(fd: &OwnedFd) -> io::Result<PathBuf> {
    std::fs::read_link(by_descriptor(fd))
}

/// A path by which this process can use an open file, whatever its name means by now.
pub fn by_descriptor(fd: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}
