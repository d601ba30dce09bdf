//! A quick proof that no path layer refuses a call, for the many calls that no layer refuses.
//!
//! The full check in `foresee` resolves a path with about fifteen syscalls. This one asks the kernel for two things: which
//! directory the file is in, and whether its name is a symbolic link. What the layers say about a directory is remembered by the
//! directory's identity, so that a program that fills it with files pays for the full answer once. Whatever is not proven here
//! gets the full check.
//!
//! An entry is remembered for [`FRESH`] only. In that time, the command itself cannot move a directory to where the answer is
//! another one: both ends of such a move are refused, or have the same answer.

use super::closed::short;
use super::files::{Does, Shape, shapes};
use super::foresee::Foresight;
use super::names::{Identity, LONGEST, PREFIX, entry_of, from_process, look, same_mount, split, stays};
use super::target::{Target, inside_process};
use crate::plan::paths::Access;
use crate::plan::table::Reads;
use crate::sys::notify::Call;
use crate::trust::place;
use rustix::fs::{AtFlags, Mode, OFlags, Statx};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
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
    opened: Option<Opened>,
}

/// A file that a thread is about to open for writing.
struct Opened {
    tid: i32,
    directory: Identity,
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
    pub fn passes(&mut self, call: &Call, foresight: &Foresight) -> bool {
        self.refresh();
        let target = Target { tid: call.tid };
        let shapes = shapes(call);
        shapes[0].is_some()
            && shapes.iter().flatten().all(|shape| self.passes_file(call, shape, &target, foresight).unwrap_or(false))
    }

    fn refresh(&mut self) {
        let now = Instant::now();
        if self.since.is_none_or(|since| now.duration_since(since) > FRESH) || self.known.len() > MOST {
            self.known.clear();
            self.held.clear();
            self.since = Some(now);
        }
    }

    fn passes_file(&mut self, call: &Call, shape: &Shape, target: &Target, foresight: &Foresight) -> Option<bool> {
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
        let mut room = [0u8; LONGEST];
        let path = short(target, call.args[shape.path], &mut room)?;
        let directory = shape.directory(call);
        let seen = match entry_of(directory, path) {
            Some(name) => self.look_in_copy(target, directory, name, followed, foresight),
            None => None,
        };
        let seen = match seen {
            Some(seen) => seen,
            None => self.look_from_process(target, directory, path, followed, foresight)?,
        };
        let known = self.known.get(&seen.directory)?;
        let passes = known.allows(seen.name.as_deref(), wanted) && seen.stays;
        if passes && wanted != Wanted::Read && matches!(shape.does, Does::Open { .. }) {
            self.opened = seen.name.map(|name| Opened { tid: target.tid, directory: seen.directory, name });
        }
        Some(passes)
    }

    /// Looks at a name in a directory that the program has open. A copy of its descriptor takes half the time of a path through
    /// /proc.
    fn look_in_copy(
        &mut self,
        target: &Target,
        directory: i32,
        name: &OsStr,
        followed: bool,
        foresight: &Foresight,
    ) -> Option<Seen> {
        let copy = target.copied(directory).ok()?;
        let parent = look(copy.as_fd(), Path::new(""), AtFlags::EMPTY_PATH).ok()?;
        let id = self.learn(&parent, foresight, || rustix::fs::openat(&copy, ".", DIRECTORY, Mode::empty())).ok()?;
        let stays = !followed || stays(look(copy.as_fd(), Path::new(name), AtFlags::SYMLINK_NOFOLLOW), &parent).ok()?;
        Some(Seen { directory: id, name: Some(name.to_owned()), stays })
    }

    fn look_from_process(
        &mut self,
        target: &Target,
        directory: i32,
        path: &Path,
        followed: bool,
        foresight: &Foresight,
    ) -> Option<Seen> {
        let mut buffer = [0u8; PREFIX + LONGEST];
        let whole = from_process(directory, path, &mut buffer)?;
        let (above, name) = split(whole)?;
        inside_process(target.tid, |process| {
            let parent = look(process, above, AtFlags::empty())?;
            let open = || rustix::fs::openat(process, above, DIRECTORY, Mode::empty());
            let id = self.learn(&parent, foresight, open)?;
            let file = || match (self.held(id), name) {
                (Some(opened), Some(name)) => look(opened, Path::new(name), AtFlags::SYMLINK_NOFOLLOW),
                _ => look(process, whole, AtFlags::SYMLINK_NOFOLLOW),
            };
            let stays = !followed || stays(file(), &parent)?;
            Ok(Seen { directory: id, name: name.map(OsStr::to_owned), stays })
        })
        .ok()
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
        if look(opened.as_fd(), Path::new(""), AtFlags::EMPTY_PATH).is_ok_and(|opened| Identity::of(&opened) == id) {
            self.held.truncate(HELD - 1);
            self.held.insert(0, (id, opened));
        }
        Ok(id)
    }

    fn held(&self, id: Identity) -> Option<BorrowedFd<'_>> {
        self.held.iter().find(|(held, _)| *held == id).map(|(_, opened)| opened.as_fd())
    }

    /// The real path of a file that this thread has opened by its name a moment ago, if it still has that name.
    pub fn place_of(&mut self, tid: i32, file: &OwnedFd) -> Option<PathBuf> {
        self.refresh();
        let opened = self.opened.as_ref().filter(|opened| opened.tid == tid)?;
        let directory = self.held(opened.directory)?;
        let there = look(directory, Path::new(&opened.name), AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let here = look(file.as_fd(), Path::new(""), AtFlags::EMPTY_PATH).ok()?;
        let same = same_mount(&here, &there) && Identity::of(&here) == Identity::of(&there);
        self.known.get(&opened.directory).filter(|known| same && known.writes).map(|known| known.at.join(&opened.name))
    }

    /// Opens a file in a directory that was looked at, and says where it is. Links are not followed.
    pub fn entry(
        &mut self,
        target: &Target,
        directory: i32,
        path: &Path,
        foresight: &Foresight,
    ) -> Option<(OwnedFd, PathBuf)> {
        self.refresh();
        if let Some(name) = entry_of(directory, path) {
            let copy = target.copied(directory).ok()?;
            let parent = look(copy.as_fd(), Path::new(""), AtFlags::EMPTY_PATH).ok()?;
            let open = || rustix::fs::openat(&copy, ".", DIRECTORY, Mode::empty());
            let id = self.learn(&parent, foresight, open).ok()?;
            return self.open_in(copy.as_fd(), id, name);
        }
        let mut buffer = [0u8; PREFIX + LONGEST];
        let (above, name) = split(from_process(directory, path, &mut buffer)?)?;
        let id = inside_process(target.tid, |process| {
            let parent = look(process, above, AtFlags::empty())?;
            self.learn(&parent, foresight, || rustix::fs::openat(process, above, DIRECTORY, Mode::empty()))
        });
        let id = id.ok()?;
        self.open_in(self.held(id)?, id, name?)
    }

    fn open_in(&self, directory: BorrowedFd<'_>, id: Identity, name: &OsStr) -> Option<(OwnedFd, PathBuf)> {
        let known = self.known.get(&id).filter(|known| known.writes)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(directory, name, flags, Mode::empty()).ok()?;
        Some((file, known.at.join(name)))
    }
}

const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::CLOEXEC).union(OFlags::DIRECTORY);

/// A file that a call names.
struct Seen {
    directory: Identity,
    name: Option<OsString>,
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
