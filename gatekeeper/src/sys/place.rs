//! The run's own directory, as the guardian makes it: before the command starts, and after everybody who could remove it
//! is known. If one of the two processes is killed, the other is left to remove it.
//!
//! Everything is reached by descriptors that were opened before the command started: what the command puts in place of
//! a name later is never followed. Runs after fork: no allocation.

use crate::trust::remove;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, mkdirat, openat, statat, unlinkat};
use rustix::io::Errno;
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

/// What is to be made, granted and, when the front process is gone, removed.
pub struct Place {
    /// The directory in which it is made, and its name there.
    pub base: Arc<OwnedFd>,
    pub name: CString,
    pub inside: Vec<Make>,
    /// Landlock rights on what is made here, since nothing of it is there when the other rules are added.
    pub grants: Vec<(CString, u64)>,
    pub keep: bool,
}

/// One entry, by its path inside of the directory.
pub enum Make {
    Directory { name: CString, mode: u32 },
    File { name: CString, mode: u32, contents: Vec<u8> },
}

/// A mount point that bubblewrap makes, and that is removed afterwards if nothing was put there.
#[derive(Clone)]
pub struct Stub {
    pub parent: Arc<OwnedFd>,
    pub name: CString,
}

#[repr(C, packed)]
struct PathBeneath {
    allowed_access: u64,
    parent_fd: i32,
}
const RULE_PATH_BENEATH: i32 = 1;

impl Place {
    /// Makes everything, in order. The directory is held open by `held` once it is there, also where a later step fails.
    pub(super) fn make(&self, ruleset: Option<RawFd>, held: &mut Option<OwnedFd>) -> Result<(), Errno> {
        mkdirat(&self.base, &self.name, Mode::RWXU)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = held.insert(openat(&self.base, &self.name, flags, Mode::empty())?);
        self.inside.iter().try_for_each(|make| make.make(directory))?;
        match ruleset {
            Some(ruleset) => self.grants.iter().try_for_each(|(name, rights)| grant(ruleset, directory, name, *rights)),
            None => Ok(()),
        }
    }

    /// Removes what the front process has left, wherever the command may have moved it.
    pub(super) fn remove(&self, directory: &OwnedFd) {
        if self.keep || fstat(directory).is_ok_and(|stat| stat.st_nlink == 0) {
            return;
        }
        let _ = remove::empty(directory.as_fd());
        let _ = unlinkat(&self.base, &self.name, AtFlags::REMOVEDIR);
    }
}

fn grant(ruleset: RawFd, directory: &OwnedFd, name: &CString, rights: u64) -> Result<(), Errno> {
    let place = openat(directory, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let rule = PathBeneath { allowed_access: rights, parent_fd: place.as_raw_fd() };
    // SAFETY: the kernel reads one rule, laid out as its own, that lives through the call.
    let added = unsafe { libc::syscall(libc::SYS_landlock_add_rule, ruleset, RULE_PATH_BENEATH, &raw const rule, 0) };
    if added == 0 { Ok(()) } else { Err(Errno::from_raw_os_error(super::child::errno())) }
}

impl Make {
    fn make(&self, directory: &OwnedFd) -> Result<(), Errno> {
        match self {
            Make::Directory { name, mode } => mkdirat(directory, name, Mode::from_raw_mode(*mode)),
            Make::File { name, mode, contents } => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = openat(directory, name, flags, Mode::from_raw_mode(*mode))?;
                match rustix::io::write(&file, contents)? == contents.len() {
                    true => Ok(()),
                    false => Err(Errno::NOSPC),
                }
            }
        }
    }
}

impl Stub {
    pub fn remove(&self) {
        let Ok(stat) = statat(&self.parent, &self.name, AtFlags::SYMLINK_NOFOLLOW) else { return };
        let flags = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => AtFlags::REMOVEDIR,
            FileType::RegularFile if stat.st_size == 0 => AtFlags::empty(),
            _ => return,
        };
        let _ = unlinkat(&self.parent, &self.name, flags);
    }
}
