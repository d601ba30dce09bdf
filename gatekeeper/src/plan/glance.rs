//! The real file system, as a `Tree` that looks at each path once. For one plan only: a later plan must look again.
//!
//! A plan asks about the same places many times (the working directory, the homes, /etc), and most of what it asks about
//! does not exist. Here one lstat answers for a name, and none is needed below a directory that does not exist. Symbolic
//! links, and what cannot be looked at, are left to `Disk`.

use super::disk::{self, Disk};
use super::paths::aliases::Mounted;
use super::paths::homes::Homes;
use super::paths::{Kind, Look, Searched, Seek, Tree, Unlisted};
use crate::sys::is_shortage;
use crate::trust::Untrusted;
use rustix::fs::{Access, AtFlags, CWD, FileType, Stat};
use rustix::io::Errno;
use std::cell::{OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

pub struct Glance {
    /// This user's id.
    me: u32,
    /// By the text of the path: comparing paths part by part takes longer than some of the lookups that this saves.
    seen: RefCell<HashMap<OsString, Rc<Seen>>>,
    /// Real paths of the directories below which everything is `Barred`: hundreds of names, if it is a home.
    bars: RefCell<HashSet<PathBuf>>,
    homes: OnceCell<Homes>,
    mounts: OnceCell<Vec<Mounted>>,
    /// What could not be read, although the plan depends on it.
    trouble: RefCell<Option<String>>,
}

/// What is known about a path.
enum Seen {
    /// It does not exist, or its directory does not.
    Absent,
    /// It exists and is no symbolic link.
    There { real: PathBuf, look: Look },
    /// A symbolic link, and the real path to which it leads, if that exists.
    Link { real: Option<PathBuf>, look: Look },
    /// It is in a directory of somebody else that this user cannot enter, nor a command that it starts.
    Barred,
    /// It cannot be looked at, or has no simple form: ask `Disk`.
    Unclear,
}

impl Default for Glance {
    fn default() -> Glance {
        let me = rustix::process::geteuid().as_raw();
        Glance {
            me,
            seen: RefCell::default(),
            bars: RefCell::default(),
            homes: OnceCell::new(),
            mounts: OnceCell::new(),
            trouble: RefCell::default(),
        }
    }
}

impl Glance {
    fn seen(&self, path: &Path) -> Rc<Seen> {
        if let Some(seen) = self.seen.borrow().get(path.as_os_str()) {
            return seen.clone();
        }
        let seen = Rc::new(self.see(path));
        self.seen.borrow_mut().insert(path.into(), seen.clone());
        seen
    }

    fn see(&self, path: &Path) -> Seen {
        let simple = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
        if !path.is_absolute() || !path.components().all(simple) {
            return Seen::Unclear;
        }
        let above = path.parent().map(|above| self.seen(above));
        let place = match (above.as_deref(), path.file_name()) {
            (Some(above), Some(name)) => match above {
                // A file holds nothing.
                Seen::There { look, .. } if look.kind != Kind::Directory => return Seen::Absent,
                Seen::There { real, .. } if self.bars.borrow().contains(real) => return Seen::Barred,
                Seen::Barred => return Seen::Barred,
                Seen::There { real, .. } | Seen::Link { real: Some(real), .. } => real.join(name),
                Seen::Absent => return Seen::Absent,
                Seen::Link { real: None, .. } | Seen::Unclear => return Seen::Unclear,
            },
            _ => PathBuf::from("/"),
        };
        match rustix::fs::lstat(&place) {
            Ok(stat) => {
                let look = self.look_of(&stat);
                match look.kind {
                    Kind::Link => Seen::Link { real: Disk.resolve(&place), look },
                    _ => Seen::There { real: place, look },
                }
            }
            Err(Errno::NOENT | Errno::NOTDIR) => Seen::Absent,
            Err(Errno::ACCESS) if self.bars(above.as_deref()) => Seen::Barred,
            Err(_) => Seen::Unclear,
        }
    }

    /// Whether a directory bars this user from everything in it. The owner of a directory can change its mode.
    fn bars(&self, directory: Option<&Seen>) -> bool {
        let Some(Seen::There { real, look }) = directory else { return false };
        let bars =
            !look.own && rustix::fs::accessat(CWD, real, Access::EXEC_OK, AtFlags::EACCESS) == Err(Errno::ACCESS);
        if bars {
            self.bars.borrow_mut().insert(real.clone());
        }
        bars
    }

    /// What was read; `None` if it could not be. A shortage of this process must not look like an empty file or directory.
    fn told<T>(&self, path: &Path, read: io::Result<T>) -> Option<T> {
        match read {
            Err(error) if is_shortage(&error) => self.failed(path, &error),
            other => other.ok(),
        }
    }

    fn failed<T>(&self, path: &Path, error: &io::Error) -> Option<T> {
        let text = || format!("{}: {error}, so what has to be closed is not known", path.display());
        self.trouble.borrow_mut().get_or_insert_with(text);
        None
    }

    fn look_of(&self, stat: &Stat) -> Look {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Directory,
            FileType::Symlink => Kind::Link,
            _ => Kind::Other,
        };
        Look { kind, own: stat.st_uid == self.me, linked: kind == Kind::File && stat.st_nlink > 1 }
    }
}

/// Whether this user may neither read nor execute a file. A device, a socket or a FIFO cannot be executed.
fn is_refused(path: &Path, kind: Kind) -> bool {
    let refused = |how| rustix::fs::accessat(CWD, path, how, AtFlags::EACCESS) == Err(Errno::ACCESS);
    refused(Access::READ_OK) && (kind == Kind::Other || refused(Access::EXEC_OK))
}

impl Tree for Glance {
    fn trouble(&self) -> Option<String> {
        self.trouble.borrow().clone()
    }

    fn resolve(&self, path: &Path) -> Option<PathBuf> {
        match &*self.seen(path) {
            Seen::Absent | Seen::Barred => None,
            Seen::There { real, .. } => Some(real.clone()),
            Seen::Link { real, .. } => real.clone(),
            Seen::Unclear => Disk.resolve(path),
        }
    }

    fn look(&self, path: &Path) -> Option<Look> {
        match &*self.seen(path) {
            Seen::Absent | Seen::Barred => None,
            Seen::There { look, .. } | Seen::Link { look, .. } => Some(*look),
            Seen::Unclear => Disk.look(path),
        }
    }

    fn is_directory(&self, path: &Path) -> bool {
        match &*self.seen(path) {
            Seen::Absent | Seen::Barred => false,
            Seen::There { look, .. } => look.kind == Kind::Directory,
            Seen::Link { .. } | Seen::Unclear => Disk.is_directory(path),
        }
    }

    fn is_closed(&self, path: &Path) -> bool {
        match &*self.seen(path) {
            Seen::Barred => false,
            // Its owner can change its mode.
            Seen::There { look, .. } if look.own => false,
            // A directory can also be closed because everything in it is.
            Seen::There { real, look } if look.kind != Kind::Directory => self.me != 0 && is_refused(real, look.kind),
            _ => Disk.is_closed(path),
        }
    }

    fn shut(&self, path: &Path) -> Option<PathBuf> {
        match &*self.seen(path) {
            // The way to it can be walked to the end.
            Seen::Absent | Seen::Barred | Seen::There { .. } | Seen::Link { real: Some(_), .. } => None,
            Seen::Link { real: None, .. } | Seen::Unclear => Disk.shut(path),
        }
    }

    fn homes(&self) -> Homes {
        let failed = |error| self.failed(Path::new("/etc/passwd"), &error).unwrap_or_default();
        self.homes.get_or_init(|| disk::homes().unwrap_or_else(failed)).clone()
    }

    fn mounts(&self) -> Vec<Mounted> {
        let failed = |error| self.failed(Path::new("/proc/self/mountinfo"), &error).unwrap_or_default();
        self.mounts.get_or_init(|| disk::mounts().unwrap_or_else(failed)).clone()
    }

    fn reach(&self, path: &Path, hostile: &[PathBuf]) -> Result<Option<PathBuf>, Untrusted> {
        Disk.reach(path, hostile)
    }

    fn reach_all(&self, paths: &[PathBuf], hostile: &[PathBuf]) -> Result<Vec<Option<PathBuf>>, Untrusted> {
        // A policy may list thousands of files of one directory, and a plan reaches each more than once.
        disk::reach_all(paths, hostile, &|real, directory, name| {
            let known = self.seen.borrow().get(real.as_os_str()).cloned();
            let seen = match known {
                Some(seen) => seen,
                None => {
                    let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
                    let look = self.look_of(&stat);
                    if look.kind == Kind::Link {
                        return None;
                    }
                    let seen = Rc::new(Seen::There { real: real.clone(), look });
                    self.seen.borrow_mut().insert(real.clone().into_os_string(), seen.clone());
                    seen
                }
            };
            matches!(*seen, Seen::There { .. }).then_some(real)
        })
    }

    fn links(&self, path: &Path) -> Vec<PathBuf> {
        Disk.links(path)
    }

    fn entries(&self, directory: &Path) -> Option<Vec<PathBuf>> {
        self.told(directory, disk::entries(directory))
    }

    fn names(&self, directory: &Path) -> Option<Vec<OsString>> {
        self.told(directory, disk::names(directory))
    }

    fn is_same(&self, one: &Path, other: &Path) -> bool {
        Disk.is_same(one, other)
    }

    fn text(&self, path: &Path) -> Option<String> {
        self.told(path, disk::text(path))?
    }

    fn search(&self, top: &Path, seek: &dyn Seek) -> Result<Searched, Unlisted> {
        Disk.search(top, seek)
    }
}

#[cfg(test)]
#[path = "glance_tests.rs"]
mod tests;
