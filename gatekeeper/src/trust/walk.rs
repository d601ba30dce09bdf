//! The walk to a path, one component at a time.

use super::{Hostile, Untrusted, reopen};
use rustix::fs::{Access, AtFlags, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// MAXSYMLINKS of the kernel.
const MAX_LINKS: usize = 40;
/// A bound on the steps of a walk, because each `..` starts again at the root. No path of PATH_MAX bytes needs as many.
const MAX_STEPS: usize = 100_000;
const LOOK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Called with each directory on the path before anything in it is opened.
type Seen<'a> = &'a dyn Fn(&Path, &Stat) -> Result<(), Untrusted>;

/// The file at the end of a walk.
#[derive(Debug)]
pub struct Found {
    /// Opened with O_PATH.
    pub file: OwnedFd,
    /// The path without links. For a file without a name, the target of its link in /proc.
    pub real: PathBuf,
    pub stat: Stat,
    /// Whether it is in a hostile tree, or is the top of one.
    pub hostile: bool,
    /// Whether a link in /proc led to a file without a path: a pipe, or a deleted file.
    pub nameless: bool,
}

impl Found {
    pub fn is_directory(&self) -> bool {
        FileType::from_raw_mode(self.stat.st_mode).is_dir()
    }

    /// The same file, opened with other flags.
    pub fn reopen(&self, flags: OFlags) -> Result<OwnedFd, Errno> {
        reopen(self.file.as_fd(), flags)
    }
}

/// Walks to an existing path. A relative one starts at the working directory of this process.
pub fn walk(path: &Path, hostile: &Hostile) -> Result<Found, Untrusted> {
    Walk::new(path, hostile, None, None)?.run()
}

/// Walks to a directory, and creates missing components with this mode.
pub fn make_directory(path: &Path, hostile: &Hostile, mode: Mode) -> Result<Found, Untrusted> {
    let found = Walk::new(path, hostile, Some(mode), None)?.run()?;
    if found.is_directory() { Ok(found) } else { Err(Untrusted::io(path, Errno::NOTDIR)) }
}

/// Walks to a path and calls `seen` with every directory on it, including those on the paths of its links.
pub(super) fn walk_seen(path: &Path, seen: &dyn Fn(&Path, &Stat) -> Result<(), Untrusted>) -> Result<Found, Untrusted> {
    Walk::new(path, &Hostile::default(), None, Some(seen))?.run()
}

struct Walk<'a> {
    asked: &'a Path,
    hostile: &'a Hostile,
    make: Option<Mode>,
    seen: Option<Seen<'a>>,
    /// The components still to walk.
    ahead: VecDeque<OsString>,
    /// The current file or directory.
    at: OwnedFd,
    real: PathBuf,
    stat: Stat,
    below: bool,
    /// Whether the walk is in a hostile tree and has passed a directory that this user can write.
    changeable: bool,
    links: usize,
}

impl<'a> Walk<'a> {
    fn new(
        asked: &'a Path,
        hostile: &'a Hostile,
        make: Option<Mode>,
        seen: Option<Seen<'a>>,
    ) -> Result<Walk<'a>, Untrusted> {
        if asked.as_os_str().is_empty() {
            return Err(Untrusted::io(asked, Errno::NOENT));
        }
        let absolute = match asked.is_absolute() {
            true => asked.to_owned(),
            false => std::env::current_dir().map_err(|error| Untrusted::io(asked, error))?.join(asked),
        };
        let (at, stat) = root().map_err(|error| Untrusted::io(asked, error))?;
        let real = PathBuf::from("/");
        let mut walk = Walk {
            asked,
            hostile,
            make,
            seen,
            ahead: names(absolute.as_os_str()),
            at,
            real,
            stat,
            below: false,
            changeable: false,
            links: 0,
        };
        walk.arrive()?;
        Ok(walk)
    }

    fn run(mut self) -> Result<Found, Untrusted> {
        for _ in 0..MAX_STEPS {
            let Some(name) = self.ahead.pop_front() else {
                return Ok(Found {
                    file: self.at,
                    real: self.real,
                    stat: self.stat,
                    hostile: self.below,
                    nameless: false,
                });
            };
            if !FileType::from_raw_mode(self.stat.st_mode).is_dir() {
                return Err(Untrusted::io(self.asked, Errno::NOTDIR));
            }
            match name.as_bytes() {
                b"" | b"." => {}
                // The real path has no links, so its parent is the path without the last component.
                b".." => {
                    self.real.pop();
                    self.again()?;
                }
                _ => {
                    let (file, stat) = self.open(&name)?;
                    if !FileType::from_raw_mode(stat.st_mode).is_symlink() {
                        self.real.push(&name);
                        (self.at, self.stat) = (file, stat);
                        self.arrive()?;
                    } else if let Some(found) = self.follow(&name, &file)? {
                        return Ok(found);
                    }
                }
            }
        }
        Err(Untrusted::io(self.asked, Errno::LOOP))
    }

    fn open(&self, name: &OsStr) -> Result<(OwnedFd, Stat), Untrusted> {
        let failed = |error: Errno| match error {
            Errno::NOENT => Untrusted::io(self.asked, error),
            _ => Untrusted::io(&self.real.join(name), error),
        };
        let opened = match (openat(&self.at, name, LOOK, Mode::empty()), self.make) {
            (Err(Errno::NOENT), Some(mode)) => {
                match rustix::fs::mkdirat(&self.at, name, mode) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(Untrusted::io(&self.real.join(name), error)),
                }
                openat(&self.at, name, LOOK, Mode::empty())
            }
            (opened, _) => opened,
        };
        let file = opened.map_err(failed)?;
        let stat = fstat(&file).map_err(failed)?;
        Ok((file, stat))
    }

    /// Updates the state for the current directory.
    fn arrive(&mut self) -> Result<(), Untrusted> {
        if !FileType::from_raw_mode(self.stat.st_mode).is_dir() {
            return Ok(());
        }
        if let Some(seen) = self.seen {
            seen(&self.real, &self.stat)?;
        }
        self.below |= self.hostile.has(&self.stat);
        // A confined command runs as this user: where this user may not write, it cannot have put a link.
        self.changeable |= self.below && is_changeable(&self.at, &self.stat);
        Ok(())
    }

    /// Starts again at `/`, with the components of the real path in front of those ahead.
    fn again(&mut self) -> Result<(), Untrusted> {
        let mut ahead = names(self.real.as_os_str());
        ahead.append(&mut self.ahead);
        self.ahead = ahead;
        (self.at, self.stat) = root().map_err(|error| Untrusted::io(self.asked, error))?;
        self.real = PathBuf::from("/");
        (self.below, self.changeable) = (false, false);
        self.arrive()
    }

    /// Puts the target of a link ahead. Ends the walk if a link of /proc leads to a file without a path.
    fn follow(&mut self, name: &OsStr, link: &OwnedFd) -> Result<Option<Found>, Untrusted> {
        let wrong = |error: Errno| Untrusted::io(self.asked, error);
        let target = OsString::from_vec(readlinkat(link, "", Vec::new()).map_err(wrong)?.into_bytes());
        if self.changeable {
            return Err(Untrusted::Link { link: self.real.join(name), target: target.into() });
        }
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(wrong(Errno::LOOP));
        }
        if rustix::fs::fstatfs(&self.at).is_ok_and(|fs| fs.f_type == rustix::fs::PROC_SUPER_MAGIC)
            && let Some(found) = self.magic(name, Path::new(&target))?
        {
            return Ok(Some(found));
        }
        let mut ahead = names(&target);
        ahead.append(&mut self.ahead);
        self.ahead = ahead;
        if target.as_bytes().first() == Some(&b'/') {
            self.real = PathBuf::from("/");
            self.again()?;
        }
        Ok(None)
    }

    /// A magic link of /proc leads to an open file, whatever its text says. `None` if the text leads to the same file, so
    /// that the walk can follow it.
    fn magic(&self, name: &OsStr, target: &Path) -> Result<Option<Found>, Untrusted> {
        let wrong = |error: Errno| Untrusted::io(&self.real.join(name), error);
        let file = openat(&self.at, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(wrong)?;
        let stat = fstat(&file).map_err(wrong)?;
        let same = |other: Stat| (other.st_dev, other.st_ino) == (stat.st_dev, stat.st_ino);
        let ordinary = match target.is_absolute() {
            true => rustix::fs::stat(target).is_ok_and(same),
            // Links in an `fd` directory may not be paths, such as `pipe:[4711]`.
            false => !self.real.ends_with("fd"),
        };
        if ordinary {
            return Ok(None);
        }
        let directory = FileType::from_raw_mode(stat.st_mode).is_dir();
        if directory || self.ahead.iter().any(|name| !matches!(name.as_bytes(), b"" | b".")) {
            return Err(wrong(Errno::NOENT));
        }
        Ok(Some(Found { file, real: target.to_owned(), stat, hostile: false, nameless: true }))
    }
}

fn root() -> Result<(OwnedFd, Stat), Errno> {
    let at = rustix::fs::open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let stat = fstat(&at)?;
    Ok((at, stat))
}

/// The components of a path. An empty last one (a trailing slash) asks for a directory, as it does for the kernel.
fn names(path: &OsStr) -> VecDeque<OsString> {
    path.as_bytes().split(|byte| *byte == b'/').map(|name| OsStr::from_bytes(name).to_owned()).collect()
}

/// Whether this user can write to a directory, or can give itself the permission.
fn is_changeable(directory: &OwnedFd, stat: &Stat) -> bool {
    let me = rustix::process::geteuid();
    let refused = rustix::fs::accessat(directory, ".", Access::WRITE_OK, AtFlags::EACCESS);
    me.is_root() || stat.st_uid == me.as_raw() || refused != Err(Errno::ACCESS)
}

#[cfg(test)]
#[path = "walk_tests.rs"]
mod tests;
