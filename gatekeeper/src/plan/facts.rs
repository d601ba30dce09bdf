//! What a plan was made from, as facts that are checked again in a few calls. A plan whose facts still hold is the plan that would
//! be made now.
//!
//! A directory's time of change answers for every name in it, so one call replaces a lookup for each credential that could be
//! there. A file's time of change answers for its owner, mode and attributes, but not for its bytes: those change without a trace
//! through a writable mapping. So bytes that a plan has read are read again and compared.
//!
//! Where a change could stay unseen, there are no facts, and the plan is used once: on file systems whose times cannot be relied on
//! (network, FUSE), and where something was changed shortly before the plan was made, within a tick of the kernel's clock.

pub(super) mod mounts;

use super::disk::Disk;
use super::paths::Tree;
use super::record::{Content, Noted};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Statx, StatxAttributes, StatxFlags, statx};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{CString, OsStr, OsString};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

/// Longer than a tick of any kernel (10 ms), in which two changes have the same time.
const TICK: Duration = Duration::from_millis(20);
/// A plan that depends on more than this is not worth checking.
const MOST: usize = 2000;
/// The kernel follows at most 40 links.
const MOST_LINKS: usize = 40;
const WANTED: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::MNT_ID);

/// Facts that hold until something changes.
pub struct Facts {
    seen: Vec<(CString, Known)>,
    listed: Vec<(PathBuf, Vec<OsString>)>,
    read: Vec<Content>,
    mounts: u64,
    /// What was at the paths for which there are rules.
    granted: HashMap<PathBuf, Identity>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// A directory on the way to something else: its entries do not matter.
    Way(Identity),
    /// Nothing about it has changed, nor the names in it.
    Same(Identity, Times),
    /// Nothing is there. For the kernel's file systems, whose directories have no useful times, and for directories in which other
    /// names come and go.
    Absent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: (u32, u32),
    inode: u64,
    mount: u64,
    mode: u16,
    owner: (u32, u32),
    /// Of a device file.
    number: (u32, u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Times {
    size: u64,
    links: u32,
    modified: (i64, u32),
    changed: (i64, u32),
}

impl Facts {
    /// Whether a plan made now would see the same.
    pub fn hold(&self) -> bool {
        let seen = |(path, known): &(CString, Known)| {
            let stat = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, WANTED);
            match known {
                Known::Way(identity) => stat.is_ok_and(|stat| identity_of(&stat) == Some(*identity)),
                Known::Same(identity, times) => {
                    stat.is_ok_and(|stat| identity_of(&stat) == Some(*identity) && times_of(&stat) == *times)
                }
                Known::Absent => stat.is_err_and(|error| error == Errno::NOENT),
            }
        };
        mounts::generation() == Some(self.mounts)
            && self.seen.iter().all(seen)
            && self.listed.iter().all(|(path, names)| Disk.names(path).map(sorted).as_ref() == Some(names))
            && self.read.iter().all(Content::is_same)
    }

    /// Whether this is what was at the path of a grant. A rule is made for a file or directory, not for its path: what is swapped and
    /// put back while the rule is made leaves no other trace.
    pub fn is_granted(&self, path: &Path, place: BorrowedFd<'_>) -> bool {
        let stat = statx(place, c"", AtFlags::EMPTY_PATH, WANTED);
        stat.ok().and_then(|stat| identity_of(&stat)).is_some_and(|found| self.granted.get(path) == Some(&found))
    }

    /// The facts behind everything that was noted; `None` if a change could stay unseen.
    pub(super) fn of(noted: Noted) -> Option<Facts> {
        let began = noted.began.duration_since(UNIX_EPOCH).ok()?;
        // A clock that was set meanwhile orders nothing.
        let (shown, passed) = (noted.began.elapsed().ok()?, noted.clock.elapsed());
        let quiet = began.checked_sub(TICK)?;
        if shown.abs_diff(passed) > TICK || mounts::generation() != Some(noted.mounts) {
            return None;
        }
        let mut survey = Survey { quiet, ..Survey::default() };
        for (path, whole) in &noted.paths {
            survey.go(path, *whole)?;
        }
        let mut granted = HashMap::new();
        for path in &noted.granted {
            granted.extend(survey.look(path).ok().and_then(|stat| Some((path.clone(), identity_of(&stat)?))));
            // No other file can take its place unnoticed if the names in its directory are known.
            if !path.parent().is_some_and(|above| matches!(survey.known.get(above), Some(Known::Same(..)))) {
                survey.go(path, false)?;
            }
        }
        let mut seen = Vec::with_capacity(survey.known.len());
        for (path, known) in survey.known {
            seen.push((CString::new(path.into_os_string().as_bytes()).ok()?, known));
        }
        let listed = noted.listed.into_iter().map(|(path, names)| (path, sorted(names))).collect();
        (seen.len() <= MOST).then_some(Facts { seen, listed, read: noted.read, mounts: noted.mounts, granted })
    }
}

fn sorted(mut names: Vec<OsString>) -> Vec<OsString> {
    names.sort();
    names
}

/// `None` if the kernel does not say on which mount it is (before 5.8).
fn identity_of(stat: &Statx) -> Option<Identity> {
    StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::MNT_ID).then_some(Identity {
        device: (stat.stx_dev_major, stat.stx_dev_minor),
        inode: stat.stx_ino,
        mount: stat.stx_mnt_id,
        mode: stat.stx_mode,
        owner: (stat.stx_uid, stat.stx_gid),
        number: (stat.stx_rdev_major, stat.stx_rdev_minor),
    })
}

fn times_of(stat: &Statx) -> Times {
    let regular = matches!(kind_of(stat), FileType::RegularFile | FileType::Directory | FileType::Symlink);
    let changed = (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec);
    Times {
        size: stat.stx_size,
        links: stat.stx_nlink,
        // Whatever is written to a terminal changes this time of its device file.
        modified: if regular { (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec) } else { changed },
        changed,
    }
}

fn kind_of(stat: &Statx) -> FileType {
    FileType::from_raw_mode(stat.stx_mode.into())
}

/// What the times of a file system are worth.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reliance {
    Kept,
    /// The kernel's own file systems: nothing in them is replaced by a rename, and nothing is timed.
    Kernel,
    Unknown,
}

/// Looks again at what a plan has looked at.
#[derive(Default)]
struct Survey {
    /// Nothing may have changed since: from then on, a change could be part of the plan or not.
    quiet: Duration,
    known: BTreeMap<PathBuf, Known>,
    /// What was found, so that each path is looked at once.
    found: HashMap<PathBuf, Result<Statx, Errno>>,
    systems: HashMap<(u32, u32), Reliance>,
}

impl Survey {
    /// Notes every step of the way to a path, and its links. `whole`: what is there counts too, with the names in it.
    fn go(&mut self, path: &Path, whole: bool) -> Option<()> {
        if !path.is_absolute() {
            return None;
        }
        let mut ahead: Vec<OsString> = names_of(path);
        let mut at = PathBuf::from("/");
        let mut links = 0;
        self.way(&at)?;
        while let Some(name) = ahead.pop() {
            if name == ".." {
                at.pop();
                continue;
            }
            let next = at.join(&name);
            let stat = match self.look(&next) {
                Ok(stat) => stat,
                // The directory decides: by its names, or by its mode.
                Err(Errno::NOENT) => return self.without(&at, &next),
                Err(Errno::ACCESS) => return self.directory(&at),
                Err(_) => return None,
            };
            match kind_of(&stat) {
                FileType::Directory => self.way(&next)?,
                FileType::Symlink => {
                    self.same(&next, &stat)?;
                    links += 1;
                    if links > MOST_LINKS {
                        return None;
                    }
                    let target = rustix::fs::readlink(&next, Vec::new()).ok()?;
                    let target = Path::new(OsStr::from_bytes(target.to_bytes())).to_owned();
                    if target.is_absolute() {
                        at = PathBuf::from("/");
                    }
                    ahead.extend(names_of(&target));
                    continue;
                }
                // A file, on the way or at its end: nothing is below it.
                _ => return self.same(&next, &stat),
            }
            at = next;
        }
        if whole { self.directory(&at) } else { Some(()) }
    }

    fn look(&mut self, path: &Path) -> Result<Statx, Errno> {
        if let Some(found) = self.found.get(path) {
            return *found;
        }
        let found = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, WANTED);
        self.found.insert(path.to_owned(), found);
        found
    }

    /// A directory that is passed.
    fn way(&mut self, path: &Path) -> Option<()> {
        if self.known.contains_key(path) {
            return Some(());
        }
        let stat = self.look(path).ok()?;
        let is_top = stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
        if self.reliance(path, &stat) == Reliance::Unknown && !is_top {
            return None;
        }
        // Entries of a busy directory come and go. That it is still the same directory then follows from the one above.
        let above = path.parent().filter(|_| since(&stat) >= self.quiet);
        self.known.insert(path.to_owned(), Known::Way(identity_of(&stat)?));
        above.map_or(Some(()), |above| self.directory(above))
    }

    /// A directory whose names count.
    fn directory(&mut self, path: &Path) -> Option<()> {
        if matches!(self.known.get(path), Some(Known::Same(..))) {
            return Some(());
        }
        self.way(path)?;
        let stat = self.look(path).ok()?;
        self.same(path, &stat)
    }

    /// What must not change at all.
    fn same(&mut self, path: &Path, stat: &Statx) -> Option<()> {
        let identity = identity_of(stat)?;
        let known = match self.reliance(path, stat) {
            Reliance::Kept if since(stat) < self.quiet => Known::Same(identity, times_of(stat)),
            Reliance::Kernel if kind_of(stat) != FileType::Symlink => Known::Way(identity),
            _ => return None,
        };
        self.known.insert(path.to_owned(), known);
        Some(())
    }

    /// A name that is not in a directory.
    fn without(&mut self, directory: &Path, name: &Path) -> Option<()> {
        let stat = self.look(directory).ok()?;
        // Each run makes a directory of its own where temporary files are.
        let busy = Mode::from_raw_mode(stat.stx_mode.into()).contains(Mode::SVTX) || since(&stat) >= self.quiet;
        if busy || self.reliance(directory, &stat) == Reliance::Kernel {
            self.way(directory)?;
            self.known.insert(name.to_owned(), Known::Absent);
            return Some(());
        }
        self.directory(directory)
    }

    fn reliance(&mut self, path: &Path, stat: &Statx) -> Reliance {
        let device = (stat.stx_dev_major, stat.stx_dev_minor);
        *self.systems.entry(device).or_insert_with(|| {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let opened = rustix::fs::open(path, flags, Mode::empty());
            match opened.and_then(rustix::fs::fstatfs) {
                Ok(system) if KEPT.contains(&(system.f_type as u32)) => Reliance::Kept,
                Ok(system) if KERNEL.contains(&(system.f_type as u32)) => Reliance::Kernel,
                _ => Reliance::Unknown,
            }
        })
    }
}

/// When anything about a file was changed last, at the latest.
fn since(stat: &Statx) -> Duration {
    let time = |seconds: i64, nanoseconds: u32| {
        // ext4 with inodes of 128 bytes counts whole seconds, so another change in this one would have the same time.
        let whole = Duration::from_secs(u64::from(nanoseconds == 0));
        Duration::new(u64::try_from(seconds).unwrap_or(u64::MAX), nanoseconds).saturating_add(whole)
    };
    let modified = match kind_of(stat) {
        FileType::Directory => time(stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
        _ => Duration::ZERO,
    };
    time(stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec).max(modified)
}

/// The names of a path, the first one last.
fn names_of(path: &Path) -> Vec<OsString> {
    let name = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
    let names = path.components().filter(|part| name(*part)).map(|part| part.as_os_str().to_owned());
    let mut names: Vec<OsString> = names.collect();
    names.reverse();
    names
}

/// File systems that note each change at once, from the kernel's clock (statfs(2)): ext2 to ext4, XFS, Btrfs, tmpfs, overlayfs, F2FS,
/// ZFS, bcachefs, and the read-only squashfs and EROFS.
const KEPT: [u32; 10] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0x0102_1994,
    0x794c_7630,
    0xf2f5_2010,
    0x2fc1_2fc1,
    0xca45_1a4e,
    0x7371_7368,
    0xe0f5_e1e2,
];
/// proc and sysfs.
const KERNEL: [u32; 2] = [0x9fa0, 0x6265_6572];

#[cfg(test)]
#[path = "facts_tests.rs"]
mod tests;
