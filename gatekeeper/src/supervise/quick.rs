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
use super::target::{Target, inside_process};
use crate::plan::paths::Access;
use crate::plan::table::Reads;
use crate::sys::notify::Call;
use crate::trust::place;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Statx, StatxFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::{OsStr, OsString};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::time::{Duration, Instant};

const FRESH: Duration = Duration::from_millis(10);
/// The most directories that are remembered.
const MOST: usize = 4096;
/// Longer paths get the full check.
const LONGEST: usize = 512;
/// `/proc/PID/fd/NUMBER/` before a path.
const PREFIX: usize = 24;

/// The directories that were looked at.
#[derive(Default)]
pub struct Quick {
    known: HashMap<Identity, Directory>,
    since: Option<Instant>,
}

#[derive(PartialEq, Eq, Hash, Clone, Copy)]
struct Identity {
    device: (u32, u32),
    inode: u64,
    mount: u64,
}

/// What the path layers say about the entries of a directory.
#[derive(Default)]
struct Directory {
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
        let now = Instant::now();
        if self.since.is_none_or(|since| now.duration_since(since) > FRESH) || self.known.len() > MOST {
            self.known.clear();
            self.since = Some(now);
        }
        let target = Target { tid: call.tid };
        let shapes = shapes(call);
        shapes[0].is_some()
            && shapes.iter().flatten().all(|shape| self.passes_file(call, shape, &target, foresight).unwrap_or(false))
    }

    fn passes_file(&mut self, call: &Call, shape: &Shape, target: &Target, foresight: &Foresight) -> Option<bool> {
        // Whether the last component of the path is followed if it is a link.
        let (wanted, followed) = match shape.does {
            Does::Open { exclusive: true, .. } => (Wanted::Write, false),
            Does::Open { read, write, create, .. } => match (read, write || create) {
                (true, false) => (Wanted::Read, true),
                (false, _) => (Wanted::Write, true),
                (true, true) => (Wanted::Both, true),
            },
            Does::Make | Does::Replace | Does::Remove | Does::Move => (Wanted::Write, false),
            Does::Link if !shape.follow => (Wanted::Write, false),
            _ => return None,
        };
        let mut room = [0u8; LONGEST];
        let path = short(target, call.args[shape.path], &mut room)?;
        let mut buffer = [0u8; PREFIX + LONGEST];
        let whole = from_process(shape.directory(call), path, &mut buffer)?;
        let (above, name) = split(whole)?;
        inside_process(target.tid, |process| {
            let parent = look(process, above, AtFlags::empty())?;
            let known = self.directory(process, above, &parent, foresight)?;
            if !known.allows(name, wanted) {
                return Ok(false);
            }
            if !followed {
                return Ok(true);
            }
            match look(process, whole, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(file) => {
                    Ok(!FileType::from_raw_mode(file.stx_mode.into()).is_symlink() && same_mount(&file, &parent))
                }
                // It will be created there, or the call fails.
                Err(Errno::NOENT) => Ok(true),
                Err(error) => Err(error),
            }
        })
        .ok()
    }

    fn directory(
        &mut self,
        process: BorrowedFd<'_>,
        path: &Path,
        found: &Statx,
        foresight: &Foresight,
    ) -> rustix::io::Result<&Directory> {
        let id = Identity {
            device: (found.stx_dev_major, found.stx_dev_minor),
            inode: found.stx_ino,
            mount: found.stx_mnt_id,
        };
        match self.known.entry(id) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(unknown) => {
                let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::DIRECTORY;
                let opened = rustix::fs::openat(process, path, flags, Mode::empty())?;
                let at = place(&opened).map_err(|_| Errno::NOENT)?;
                let mut answer = foresight.answers_in(&at);
                // Inside bubblewrap, a mount may be read-only although Landlock grants the path.
                answer.writes &= !foresight.mounted_read_only(&opened);
                Ok(unknown.insert(answer))
            }
        }
    }
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
            reads: every_read || self.granted(at, |access| access != Access::List),
            writes: self.changes(at),
            except: below.filter_map(first).collect(),
        }
    }
}

fn look(process: BorrowedFd<'_>, path: &Path, flags: AtFlags) -> rustix::io::Result<Statx> {
    // Never wait for a file system that does not answer, nor mount anything.
    let flags = flags | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    rustix::fs::statx(process, path, flags, StatxFlags::TYPE | StatxFlags::INO | StatxFlags::MNT_ID)
}

fn same_mount(one: &Statx, other: &Statx) -> bool {
    let known = |found: &Statx| found.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    known(one) && known(other) && one.stx_mnt_id == other.stx_mnt_id
}

/// The path as seen from the process's directory in /proc: below its root, its working directory or one of its descriptors.
fn from_process<'a>(directory: i32, path: &Path, buffer: &'a mut [u8; PREFIX + LONGEST]) -> Option<&'a Path> {
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
fn split(whole: &Path) -> Option<(&Path, Option<&OsStr>)> {
    let bytes = whole.as_os_str().as_bytes();
    let at = bytes.iter().rposition(|byte| *byte == b'/')?;
    let (above, name) = (OsStr::from_bytes(bytes.get(..at)?), OsStr::from_bytes(bytes.get(at + 1..)?));
    match Path::new(name).components().next()? {
        Component::Normal(name) => Some((Path::new(above), Some(name))),
        Component::CurDir => Some((Path::new(above), None)),
        _ => None,
    }
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

    #[test]
    fn an_exception_is_not_allowed_and_nor_is_the_directory_that_has_it() {
        let directory = Directory { reads: true, writes: false, except: vec![".env".into()] };
        assert!(directory.allows(Some(OsStr::new("file")), Wanted::Read));
        assert!(!directory.allows(Some(OsStr::new("file")), Wanted::Write));
        assert!(!directory.allows(Some(OsStr::new("file")), Wanted::Both));
        assert!(!directory.allows(Some(OsStr::new(".env")), Wanted::Read));
        assert!(!directory.allows(None, Wanted::Read));
    }
}
