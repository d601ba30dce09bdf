//! The real file system, as a `Tree` that looks at each path once. For one plan only: a later plan must look again.
//!
//! A plan asks about the same places many times (the working directory, the homes, /etc), and most of what it asks about
//! does not exist. Here one lstat answers for a name, and none is needed below a directory that does not exist. A link
//! with a plain target is followed here; other links, and what cannot be looked at, are left to `Disk`.

mod remembered;

use super::disk::{self, Disk};
use super::paths::aliases::Mounted;
use super::paths::homes::Homes;
use super::paths::spelling::{is_plain, last};
use super::paths::{Kind, Look, Searched, Seek, Tree, Unlisted};
use crate::sys::is_shortage;
use crate::trust::Untrusted;
use remembered::Remembered;
use rustix::fs::{Access, AtFlags, CWD, FileType, Stat};
use rustix::io::Errno;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

pub struct Glance {
    /// This user's id.
    me: u32,
    seen: Remembered<Seen>,
    /// The directory of the last path that was looked at. The next one is often in the same directory.
    last: RefCell<(OsString, Seen)>,
    /// Real paths of the directories below which everything is `Barred`: hundreds of names, if it is a home.
    bars: RefCell<BTreeSet<OsString>>,
    /// How many links are being followed.
    links: Cell<usize>,
    homes: OnceCell<Homes>,
    mounts: OnceCell<Vec<Mounted>>,
    /// What could not be read, although the plan depends on it.
    trouble: RefCell<Option<String>>,
}

/// What is known about a path.
#[derive(Clone)]
enum Seen {
    /// It does not exist, or its directory does not.
    Absent,
    /// It exists and is no symbolic link. `real` is `None` if that is the path itself.
    There { real: Option<Rc<Path>>, look: Look, executable: bool },
    /// A symbolic link, and the real path to which it leads, if that exists.
    Link { real: Option<Rc<Path>>, look: Look },
    /// It is in a directory of somebody else that this user cannot enter, nor a command that it starts.
    Barred,
    /// It cannot be looked at, or has no simple form: ask `Disk`.
    Unclear,
}

/// A plan looks at about a hundred paths.
const USUAL: usize = 112;
/// Longer chains of links are left to the kernel, which also ends those that go in a circle.
const MOST_LINKS: usize = 4;

impl Default for Glance {
    fn default() -> Glance {
        let me = rustix::process::geteuid().as_raw();
        Glance {
            me,
            seen: Remembered::with_capacity(USUAL),
            last: RefCell::new((OsString::new(), Seen::Unclear)),
            bars: RefCell::default(),
            links: Cell::new(0),
            homes: OnceCell::new(),
            mounts: OnceCell::new(),
            trouble: RefCell::default(),
        }
    }
}

impl Glance {
    fn seen(&self, path: &Path) -> Seen {
        let hash = self.seen.hash(path);
        self.seen.get(hash, path).unwrap_or_else(|| {
            let seen = self.see(path);
            self.seen.put(hash, path, seen.clone());
            seen
        })
    }

    fn see(&self, path: &Path) -> Seen {
        let (above, name) = match last(path) {
            Some(parts) => parts,
            None if path.as_os_str() == "/" => return self.see_place(path, None),
            None => return self.see_respelled(path),
        };
        let known = self.directory(above);
        match &known {
            // A file holds nothing.
            Seen::There { look, .. } if look.kind != Kind::Directory => Seen::Absent,
            Seen::There { real, .. } if self.is_barred(real.as_deref().unwrap_or(above)) => Seen::Barred,
            Seen::Barred => Seen::Barred,
            Seen::There { real: None, .. } => self.see_place(path, Some((above, &known))),
            Seen::There { real: Some(real), .. } | Seen::Link { real: Some(real), .. } => {
                self.see_place(&real.join(name), Some((real, &known))).at_another_path(&real.join(name))
            }
            Seen::Absent => Seen::Absent,
            Seen::Link { real: None, .. } | Seen::Unclear => Seen::Unclear,
        }
    }

    /// A path with another spelling than that of its components, such as one that ends in a slash.
    fn see_respelled(&self, path: &Path) -> Seen {
        let simple = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
        if !path.is_absolute() || !path.components().all(simple) {
            return Seen::Unclear;
        }
        let plain: PathBuf = path.components().collect();
        self.seen(&plain).at_another_path(&plain)
    }

    /// What is known about the directory of a path.
    fn directory(&self, above: &Path) -> Seen {
        if let (known, seen) = &*self.last.borrow()
            && known == above.as_os_str()
        {
            return seen.clone();
        }
        let seen = self.seen(above);
        let mut last = self.last.borrow_mut();
        last.0.clear();
        last.0.push(above);
        last.1 = seen.clone();
        seen
    }

    /// Looks at a path on whose way there are no links. `above`: its directory.
    fn see_place(&self, place: &Path, above: Option<(&Path, &Seen)>) -> Seen {
        match rustix::fs::lstat(place) {
            Ok(stat) => {
                let look = self.look_of(&stat);
                match look.kind {
                    Kind::Link => Seen::Link { real: self.follow(place).map(Rc::from), look },
                    _ => Seen::There { real: None, look, executable: stat.st_mode & 0o111 != 0 },
                }
            }
            Err(Errno::NOENT | Errno::NOTDIR) => Seen::Absent,
            Err(Errno::ACCESS) if above.is_some_and(|(above, seen)| self.bars(above, seen)) => Seen::Barred,
            Err(_) => Seen::Unclear,
        }
    }

    /// The real path to which a link leads.
    fn follow(&self, link: &Path) -> Option<PathBuf> {
        let target = self.target(link).filter(|_| self.links.get() < MOST_LINKS);
        // The kernel may refuse to follow a link: after too many of them, or by an option of the mount.
        let followed = || rustix::fs::access(link, Access::EXISTS).is_ok();
        let Some(target) = target.filter(|target| is_plain(target) && followed()) else { return Disk.resolve(link) };
        self.links.set(self.links.get() + 1);
        let seen = self.seen(&target);
        self.links.set(self.links.get() - 1);
        match seen {
            Seen::Absent => None,
            Seen::There { real: None, .. } => Some(target),
            Seen::There { real: Some(real), .. } => Some(real.to_path_buf()),
            Seen::Link { .. } | Seen::Barred | Seen::Unclear => Disk.resolve(link),
        }
    }

    /// The target of a link, as an absolute path.
    fn target(&self, link: &Path) -> Option<PathBuf> {
        // The links of /proc may lead elsewhere than their texts say.
        if link.starts_with("/proc") {
            return None;
        }
        let target = rustix::fs::readlink(link, Vec::new()).ok()?;
        Some(link.parent()?.join(OsString::from_vec(target.into_bytes())))
    }

    fn is_barred(&self, real: &Path) -> bool {
        self.bars.borrow().contains(real.as_os_str())
    }

    /// Whether a directory bars this user from everything in it. The owner of a directory can change its mode.
    fn bars(&self, real: &Path, directory: &Seen) -> bool {
        let Seen::There { look, .. } = directory else { return false };
        let bars =
            !look.own && rustix::fs::accessat(CWD, real, Access::EXEC_OK, AtFlags::EACCESS) == Err(Errno::ACCESS);
        if bars {
            self.bars.borrow_mut().insert(real.into());
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
        let (own, linked) = (stat.st_uid == self.me, disk::linked(stat, kind));
        Look { kind, own, linked, public: stat.st_mode & 0o004 != 0 }
    }
}

impl Seen {
    /// The same for another path to it than this one, which was looked at.
    fn at_another_path(self, path: &Path) -> Seen {
        match self {
            Seen::There { real: None, look, executable } => {
                Seen::There { real: Some(Rc::from(path)), look, executable }
            }
            other => other,
        }
    }
}

/// Whether this user may neither read nor, if it can be at all, execute a file.
fn is_refused(path: &Path, executable: bool) -> bool {
    let refused = |how| rustix::fs::accessat(CWD, path, how, AtFlags::EACCESS) == Err(Errno::ACCESS);
    refused(Access::READ_OK) && (!executable || refused(Access::EXEC_OK))
}

impl Tree for Glance {
    fn trouble(&self) -> Option<String> {
        self.trouble.borrow().clone()
    }

    fn resolve(&self, path: &Path) -> Option<PathBuf> {
        match self.seen(path) {
            Seen::Absent | Seen::Barred => None,
            Seen::There { real, .. } => Some(real.as_deref().unwrap_or(path).to_owned()),
            Seen::Link { real, .. } => real.as_deref().map(Path::to_owned),
            Seen::Unclear => Disk.resolve(path),
        }
    }

    fn look(&self, path: &Path) -> Option<Look> {
        match self.seen(path) {
            Seen::Absent | Seen::Barred => None,
            Seen::There { look, .. } | Seen::Link { look, .. } => Some(look),
            Seen::Unclear => Disk.look(path),
        }
    }

    fn is_directory(&self, path: &Path) -> bool {
        match self.seen(path) {
            Seen::Absent | Seen::Barred => false,
            Seen::There { look, .. } => look.kind == Kind::Directory,
            Seen::Link { .. } | Seen::Unclear => Disk.is_directory(path),
        }
    }

    fn is_closed(&self, path: &Path) -> bool {
        match self.seen(path) {
            Seen::Barred => false,
            // Its owner can change its mode.
            Seen::There { look, .. } if look.own => false,
            Seen::There { real, look, executable } => {
                let real = real.as_deref().unwrap_or(path);
                // A file without any bit for it cannot be executed by anyone; nor can a device, a socket or a FIFO.
                let executable = match look.kind {
                    Kind::Other => false,
                    Kind::File => executable,
                    Kind::Directory | Kind::Link => true,
                };
                // A directory can also be closed because everything in it is.
                self.me != 0 && is_refused(real, executable) || look.kind == Kind::Directory && Disk.is_closed(path)
            }
            _ => Disk.is_closed(path),
        }
    }

    fn shut(&self, path: &Path) -> Option<PathBuf> {
        match self.seen(path) {
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
            let hash = self.seen.hash(&real);
            if let Some(seen) = self.seen.get(hash, &real) {
                return matches!(seen, Seen::There { .. }).then_some(real);
            }
            let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
            let look = self.look_of(&stat);
            if look.kind == Kind::Link {
                return None;
            }
            let seen = Seen::There { real: None, look, executable: stat.st_mode & 0o111 != 0 };
            self.seen.put(hash, &real, seen);
            Some(real)
        })
    }

    fn links(&self, path: &Path) -> Vec<PathBuf> {
        Disk.links(path)
    }

    fn target(&self, path: &Path) -> Option<PathBuf> {
        Disk.target(path)
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

    fn contents(&self, path: &Path) -> Option<Vec<u8>> {
        self.told(path, disk::contents(path))?
    }

    fn search(&self, top: &Path, seek: &dyn Seek) -> Result<Searched, Unlisted> {
        Disk.search(top, seek)
    }
}

#[cfg(test)]
#[path = "glance_tests.rs"]
mod tests;
