//! A quick proof that no path layer refuses a call, for the many calls that no layer refuses.
//!
//! The full check in `foresee` resolves a path with about fifteen syscalls. This one asks the kernel for two things: which
//! directory the file is in, and whether its name is a symbolic link. What the layers say about a directory is remembered by the
//! directory's identity, so that a program that fills it with files pays for the full answer once. Whatever is not proven here
//! gets the full check.
//!
//! An entry is remembered for [`FRESH`] only. In that time, the command itself cannot move a directory to where the answer is
//! another one: both ends of such a move are refused, or have the same answer.

use super::closed::{short, short_pair};
use super::cwd;
use super::files::{Does, Shape, shapes};
use super::foresee::Foresight;
use super::names::{Identity, LONGEST, below_root, entry_of, look, look_at, same_mount, split, stays};
use super::target::{Target, kept_root};
use crate::plan::paths::Access;
use crate::plan::table::Reads;
use crate::sys::notify::Call;
use crate::trust::place;
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, Statx};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

const FRESH: Duration = Duration::from_millis(10);
/// The most directories that are remembered.
const MOST: usize = 4096;
/// How many of the directories that were looked at last are kept open.
const HELD: usize = 2;

/// The directories that were looked at.
#[derive(Default)]
pub struct Quick {
    known: HashMap<Identity, Directory>,
    since: Option<Instant>,
    held: Vec<(Identity, OwnedFd)>,
    opened: Opened,
}

/// A file that a thread is about to open for writing.
#[derive(Default)]
struct Opened {
    tid: i32,
    directory: Option<Identity>,
    name: OsString,
}

/// What the path layers say about the entries of a directory.
#[derive(Default)]
struct Directory {
    /// Its real path.
    at: PathBuf,
    reads: bool,
    writes: bool,
    /// The names that lead to a closed, covered or protected path.
    except: Vec<OsString>,
}

impl Directory {
    /// `None` as the name means the directory itself.
    fn allows(&self, name: Option<&OsStr>, wanted: Wanted) -> bool {
        let granted = match wanted {
            Wanted::Read => self.reads,
            Wanted::Write => self.writes,
            Wanted::Both => self.reads && self.writes,
        };
        granted && name.map_or(self.except.is_empty(), |name| !self.except.iter().any(|other| other == name))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Read,
    Write,
    Both,
}

impl Quick {
    /// Whether the path layers certainly allow this call, or it fails for another reason; and nothing about it has to be noted.
    /// `waits` says whether the call still waits.
    pub fn passes(&mut self, call: &Call, foresight: &Foresight, waits: &dyn Fn() -> bool) -> bool {
        self.refresh();
        let target = Target { tid: call.tid };
        let mut rooms = [[0u8; LONGEST]; 2];
        match shapes(call) {
            [Some(shape), None] => {
                let path = short(&target, call.args[shape.path], &mut rooms[0]);
                path.and_then(|path| self.passes_file(call, &shape, path, foresight, waits)).unwrap_or(false)
            }
            [Some(from), Some(to)] => {
                let Some(paths) = short_pair(&target, [call.args[from.path], call.args[to.path]], &mut rooms) else {
                    return false;
                };
                let mut both = [from, to].into_iter().zip(paths);
                both.all(|(shape, path)| self.passes_file(call, &shape, path, foresight, waits).unwrap_or(false))
            }
            [None, _] => false,
        }
    }

    fn refresh(&mut self) {
        let now = Instant::now();
        if self.since.is_none_or(|since| now.duration_since(since) > FRESH) || self.known.len() > MOST {
            self.known.clear();
            self.held.clear();
            cwd::forget();
            self.since = Some(now);
        }
    }

    fn passes_file(
        &mut self,
        call: &Call,
        shape: &Shape,
        path: &Path,
        foresight: &Foresight,
        waits: &dyn Fn() -> bool,
    ) -> Option<bool> {
        // Whether the last component of the path is followed if it is a link.
        let (wanted, followed) = match shape.does {
            Does::Open { exclusive: true, .. } => (Wanted::Write, false),
            // With O_NOFOLLOW, a link makes the call fail.
            Does::Open { read, write, create, .. } => match (read, write || create) {
                (true, false) => (Wanted::Read, shape.follow),
                (false, _) => (Wanted::Write, shape.follow),
                (true, true) => (Wanted::Both, shape.follow),
            },
            Does::Make | Does::Replace | Does::Remove | Does::Move => (Wanted::Write, false),
            Does::Link if !shape.follow => (Wanted::Write, false),
            _ => return None,
        };
        let target = Target { tid: call.tid };
        let directory = shape.directory(call);
        let seen = match entry_of(directory, path) {
            Some(name) => self.look_in_copy(&target, directory, name, followed, foresight),
            None => None,
        };
        let seen = match seen {
            Some(seen) => seen,
            None => {
                let (base, path) = start(&target, directory, path, foresight, waits)?;
                self.look_from(base.as_fd(), path, followed, foresight).ok()??
            }
        };
        let known = self.known.get(&seen.directory)?;
        let passes = known.allows(seen.name, wanted) && seen.stays;
        if passes
            && wanted != Wanted::Read
            && matches!(shape.does, Does::Open { .. })
            && let Some(name) = seen.name
        {
            (self.opened.tid, self.opened.directory) = (target.tid, Some(seen.directory));
            self.opened.name.clear();
            self.opened.name.push(name);
        }
        Some(passes)
    }

    /// Looks at a name in a directory that the program has open. A copy of its descriptor takes half the time of a path through
    /// /proc.
    fn look_in_copy<'a>(
        &mut self,
        target: &Target,
        directory: i32,
        name: &'a OsStr,
        followed: bool,
        foresight: &Foresight,
    ) -> Option<Seen<'a>> {
        let copy = target.copied(directory).ok()?;
        let parent = look_at(copy.as_fd()).ok()?;
        let id = self.learn(&parent, foresight, || rustix::fs::openat(&copy, ".", DIRECTORY, Mode::empty())).ok()?;
        let stays = !followed || stays(look(copy.as_fd(), Path::new(name), AtFlags::SYMLINK_NOFOLLOW), &parent).ok()?;
        Some(Seen { directory: id, name: Some(name), stays })
    }

    fn look_from<'a>(
        &mut self,
        base: BorrowedFd<'_>,
        path: &'a Path,
        followed: bool,
        foresight: &Foresight,
    ) -> rustix::io::Result<Option<Seen<'a>>> {
        let Some((above, name)) = split(path) else { return Ok(None) };
        let opened = open_above(base, above)?;
        let parent = look_at(opened.as_fd())?;
        let file = || look(opened.as_fd(), name.map_or(Path::new("."), Path::new), AtFlags::SYMLINK_NOFOLLOW);
        let stays = !followed || stays(file(), &parent)?;
        let id = self.learn(&parent, foresight, || Ok(opened))?;
        Ok(Some(Seen { directory: id, name, stays }))
    }

    /// Finds out what the layers say about a directory, unless that is known.
    fn learn(
        &mut self,
        found: &Statx,
        foresight: &Foresight,
        open: impl FnOnce() -> rustix::io::Result<OwnedFd>,
    ) -> rustix::io::Result<Identity> {
        let id = Identity::of(found);
        if self.known.contains_key(&id) {
            return Ok(id);
        }
        let opened = open()?;
        let at = place(&opened).map_err(|_| Errno::NOENT)?;
        let mut answer = foresight.answers_in(&at);
        // Inside bubblewrap, a mount may be read-only although Landlock grants the path.
        answer.writes &= !foresight.mounted_read_only(&opened);
        self.known.insert(id, Directory { at, ..answer });
        // What was opened may be another directory by now.
        if look_at(opened.as_fd()).is_ok_and(|opened| Identity::of(&opened) == id) {
            self.held.truncate(HELD - 1);
            self.held.insert(0, (id, opened));
        }
        Ok(id)
    }

    fn held(&self, id: Identity) -> Option<BorrowedFd<'_>> {
        self.held.iter().find(|(held, _)| *held == id).map(|(_, opened)| opened.as_fd())
    }

    /// The real path of a file that this thread has opened by its name a moment ago, if it still has that name. `here`: what the
    /// file is.
    pub(super) fn place_of(&mut self, tid: i32, here: &Statx) -> Option<PathBuf> {
        self.refresh();
        let Opened { directory, name, .. } = Some(&self.opened).filter(|opened| opened.tid == tid)?;
        let directory = (*directory)?;
        let there = look(self.held(directory)?, Path::new(name), AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let same = same_mount(here, &there) && Identity::of(here) == Identity::of(&there);
        self.known.get(&directory).filter(|known| same && known.writes).map(|known| known.at.join(name))
    }

    /// Opens a file in a directory that was looked at, and says where it is. Links are not followed.
    pub fn entry(
        &mut self,
        target: &Target,
        directory: i32,
        path: &Path,
        foresight: &Foresight,
        waits: &dyn Fn() -> bool,
    ) -> Option<(OwnedFd, PathBuf)> {
        self.refresh();
        if let Some(name) = entry_of(directory, path) {
            let copy = target.copied(directory).ok()?;
            let id = self.hold(&look_at(copy.as_fd()).ok()?, foresight, || {
                rustix::fs::openat(&copy, ".", DIRECTORY, Mode::empty())
            });
            return self.open_in(id?, name);
        }
        let (base, path) = start(target, directory, path, foresight, waits)?;
        let (above, name) = split(path)?;
        let opened = open_above(base.as_fd(), above).ok()?;
        let id = self.hold(&look_at(opened.as_fd()).ok()?, foresight, || Ok(opened));
        self.open_in(id?, name?)
    }

    /// Like [`Quick::learn`], for a decision that depends on it: the directory is open, so that no other one can have got its inode
    /// number.
    fn hold(
        &mut self,
        found: &Statx,
        foresight: &Foresight,
        open: impl FnOnce() -> rustix::io::Result<OwnedFd>,
    ) -> Option<Identity> {
        let id = Identity::of(found);
        if self.held(id).is_none() {
            self.known.remove(&id);
        }
        let id = self.learn(found, foresight, open).ok()?;
        self.held(id).map(|_| id)
    }

    fn open_in(&self, id: Identity, name: &OsStr) -> Option<(OwnedFd, PathBuf)> {
        let known = self.known.get(&id).filter(|known| known.writes)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(self.held(id)?, name, flags, Mode::empty()).ok()?;
        Some((file, known.at.join(name)))
    }
}

/// Where the lookup of a path starts, and the path from there.
fn start<'a>(
    target: &Target,
    directory: i32,
    path: &'a Path,
    foresight: &Foresight,
    waits: &dyn Fn() -> bool,
) -> Option<(Rc<OwnedFd>, &'a Path)> {
    // In these, /proc/self means the process that looks. /dev/stdin and the like lead there.
    if path.starts_with("/proc") || path.starts_with("/dev") && !path.starts_with("/dev/shm") {
        return None;
    }
    if path.is_absolute() {
        return kept_root().or_else(|| target.link("root").ok().map(Rc::new)).zip(below_root(path));
    }
    let opened = match directory {
        libc::AT_FDCWD if foresight.knows_cwd => cwd::of(target, waits),
        _ => None,
    };
    let open = || match directory {
        libc::AT_FDCWD => target.link("cwd"),
        number => target.link(&format!("fd/{number}")),
    };
    opened.or_else(|| open().ok().map(Rc::new)).zip(Some(path))
}

/// Opens the directory that a name is in. Not through magic links of /proc, to which the command may have made a link: they lead
/// to files of the process that looks, which is this one.
fn open_above(base: BorrowedFd<'_>, above: &Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat2(base, above, DIRECTORY, Mode::empty(), ResolveFlags::NO_MAGICLINKS)
}

const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::CLOEXEC).union(OFlags::DIRECTORY);

/// A file that a call names.
struct Seen<'a> {
    directory: Identity,
    name: Option<&'a OsStr>,
    /// Whether the name leads nowhere else: it is not a symbolic link that would be followed, nor a mount point.
    stays: bool,
}

impl Foresight {
    /// What the path layers say about the entries of a directory, given its real path.
    fn answers_in(&self, at: &Path) -> Directory {
        // A removed directory is called "... (deleted)". In /proc, /proc/self means the process that looks.
        let deleted = at.as_os_str().as_bytes().ends_with(b" (deleted)");
        if !self.on || !at.is_absolute() || deleted || at.starts_with("/proc") {
            return Directory::default();
        }
        let held = || self.read_only.iter().chain(&self.covered).chain(&self.closed);
        if held().any(|place| at.starts_with(place)) {
            return Directory::default();
        }
        let below = held().filter_map(|place| place.strip_prefix(at).ok());
        let first = |rest: &Path| rest.components().next().map(|name| name.as_os_str().to_owned());
        // As in `closed`: what is readable is looked up if paths are listed, and for devices.
        let every_read = self.reads == Some(Reads::ByPath) && !self.listed && !at.starts_with("/dev");
        Directory {
            at: PathBuf::new(),
            reads: every_read || self.granted(at, |access| access != Access::List),
            writes: self.changes(at),
            except: below.filter_map(first).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exception_is_not_allowed_and_nor_is_the_directory_that_has_it() {
        let directory = Directory { reads: true, except: vec![".env".into()], ..Directory::default() };
        assert!(directory.allows(Some(OsStr::new("file")), Wanted::Read));
        assert!(!directory.allows(Some(OsStr::new("file")), Wanted::Write));
        assert!(!directory.allows(Some(OsStr::new("file")), Wanted::Both));
        assert!(!directory.allows(Some(OsStr::new(".env")), Wanted::Read));
        assert!(!directory.allows(None, Wanted::Read));
    }
}
