//! The run directory. The guardian makes it before it starts the command; the front process removes it, or the guardian
//! if the front process was killed.
//!
//! Every access goes through descriptors opened before the command started, so nothing that the command puts in the
//! place of a name is followed. Runs after fork: no allocation.

use super::landlock;
use crate::trust::remove;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, mkdirat, openat, statat, unlinkat};
use rustix::io::Errno;
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

/// The run directory that the guardian makes, grants to the command, and removes if the front process is gone.
pub struct Place {
    /// Its parent directory, and its name there.
    pub base: Arc<OwnedFd>,
    pub name: CString,
    pub inside: Vec<Make>,
    /// Landlock rights on its entries, which do not exist yet when the parent adds the other rules.
    pub grants: Vec<(CString, u64)>,
    /// Leave it in place at the end of the run.
    pub keep: bool,
}

/// One entry, by its path inside the directory.
pub enum Make {
    Directory { name: CString, mode: u32 },
    File { name: CString, mode: u32, contents: Vec<u8> },
}

/// A mount point that bubblewrap creates. It is removed after the run if it is still empty.
#[derive(Clone)]
pub struct Stub {
    pub parent: Arc<OwnedFd>,
    pub name: CString,
}

impl Place {
    /// Makes every entry in order. `held` keeps the directory open once it exists, even if a later step fails.
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

    /// Removes what the front process left, wherever the command may have moved it.
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
    match landlock::add_path_rule(ruleset, place.as_raw_fd(), rights) {
        true => Ok(()),
        false => Err(Errno::from_raw_os_error(super::child::errno())),
    }
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
