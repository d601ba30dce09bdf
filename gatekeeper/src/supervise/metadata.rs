//! chmod, chown, utime and setxattr and their variants, and on old kernels truncate, performed by the supervisor for the program.
//!
//! Landlock does not restrict them. The supervisor opens the file as the program would find it, judges its real path,
//! and makes the change on that descriptor. The path is resolved only once, so there is no race.

use super::length::Length;
use super::target::{Memory, OTHERS_LINKS, Target};
use crate::sys::notify::{Answer, Call, FCHMODAT2};
use crate::trust::{by_descriptor, place};
use rustix::fs::{AtFlags, Gid, Mode, StatxFlags, Timespec, Timestamps, Uid, XattrFlags};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// When the first of these was found, and what was found.
type Known = (Instant, Vec<Seen>);

/// The writable trees, and the protected paths in them. Real paths.
pub struct Writable {
    trees: Vec<PathBuf>,
    protected: Vec<PathBuf>,
    /// Directories on which something else is mounted for the program: a stage, a private directory.
    mounted: Vec<PathBuf>,
    /// The mounts on which a file was found at its path, by thread, with the innermost of the directories above that contains
    /// it. What else may lie on top of a file is among the protected paths, so the other files of that mount in that directory
    /// are found at their paths too.
    mounts: Mutex<Option<Known>>,
}

/// A thread, a mount, and the position of a directory.
type Seen = (i32, u64, usize);

/// How long a mount is remembered.
const FRESH: Duration = Duration::from_millis(10);
/// STATX_MNT_ID_UNIQUE (Linux 6.8): a number that no later mount gets.
const UNIQUE_MOUNT: u32 = 0x4000;

/// The result of a change.
pub enum Done {
    Answered(Answer),
    /// The file is in no writable tree; this is what would have been done.
    Refused(PathBuf, Prepared),
    /// Denied whatever the policy grants, for this reason.
    Never(PathBuf, &'static str),
}

pub const LENDS_RIGHTS: &str = "set-user-ID and set-group-ID bits and file capabilities are refused on every file";

/// The change, read from the program's memory once.
enum Change {
    Mode(u32),
    Owner(u32, u32),
    Times(Timestamps),
    SetAttribute(CString, Vec<u8>, u32),
    RemoveAttribute(CString),
    Length(Length),
}

/// A change that is ready to be made, on a descriptor.
pub struct Prepared {
    pub file: OwnedFd,
    follow: bool,
    change: Change,
}

impl Prepared {
    /// Makes the change. What lends rights stays refused.
    pub fn apply(&self) -> io::Result<()> {
        match lends_rights(&self.file, &self.change)? {
            true => Err(io::Error::from_raw_os_error(libc::EPERM)),
            false => apply(&self.file, self.follow, &self.change),
        }
    }

    pub fn lends_rights(&self) -> bool {
        lends_rights(&self.file, &self.change).unwrap_or(true)
    }
}

/// The file that a call names.
enum Named {
    Path { directory: i32, path: PathBuf, follow: bool },
    Descriptor(i32),
}

const LONGEST_VALUE: usize = 65536;
const NOFOLLOW: u64 = libc::AT_SYMLINK_NOFOLLOW as u64;
const EMPTY_PATH: u64 = libc::AT_EMPTY_PATH as u64;

/// Makes the change if the file is in a writable tree. `waits` says whether the call still waits. If not, its process
/// may have died and its PID may be another process's by now, so nothing is changed.
pub fn change(call: &Call, writable: &Writable, waits: &dyn Fn() -> bool) -> Done {
    let target = Target { tid: call.tid };
    match try_change(call, &target, writable, waits) {
        Ok(done) => done,
        Err(error) => Done::Answered(Answer::Errno(error.raw_os_error().unwrap_or(libc::EPERM))),
    }
}

fn try_change(call: &Call, target: &Target, writable: &Writable, waits: &dyn Fn() -> bool) -> io::Result<Done> {
    let (at, prepared) = match find(call, target)? {
        Ok(found) => found,
        Err(path) => return Ok(Done::Never(path, OTHERS_LINKS)),
    };
    if !writable.holds(&at, &prepared.file, target) {
        return Ok(Done::Refused(at, prepared));
    }
    if lends_rights(&prepared.file, &prepared.change)? {
        return Ok(Done::Never(at, LENDS_RIGHTS));
    }
    if !waits() {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    apply(&prepared.file, prepared.follow, &prepared.change)?;
    Ok(Done::Answered(Answer::Value(0)))
}

/// Reads and finds what a call changes, and changes nothing. An error for every other call.
pub fn prepare(call: &Call, target: &Target) -> io::Result<(PathBuf, Prepared)> {
    find(call, target)?.map_err(|_| io::Error::from_raw_os_error(libc::ELOOP))
}

/// The file and the change; `Err` with the path if it goes through a link to a file of another process.
fn find(call: &Call, target: &Target) -> io::Result<Result<(PathBuf, Prepared), PathBuf>> {
    let (named, change) = read(call, target)?;
    let (file, follow) = match named {
        Named::Path { directory, path, follow } => match target.open(directory, &path, follow) {
            Err(error) if target.leads_elsewhere(&error, directory, &path) => return Ok(Err(path)),
            opened => (opened?, follow),
        },
        // Through /proc first: for pidfd_getfd, the PID of the thread's process has to be found.
        Named::Descriptor(fd) => (target.link(&format!("fd/{fd}")).or_else(|_| target.descriptor(fd))?, true),
    };
    Ok(Ok((place(&file)?, Prepared { file, follow, change })))
}

impl Writable {
    pub fn new(trees: Vec<PathBuf>, protected: Vec<PathBuf>, mounted: Vec<PathBuf>) -> Writable {
        Writable { trees, protected, mounted, mounts: Mutex::default() }
    }

    /// The innermost tree, or directory on which something is mounted, that contains this path.
    fn innermost(&self, at: &Path) -> Option<usize> {
        let tops = self.trees.iter().chain(&self.mounted).enumerate().filter(|(_, top)| at.starts_with(top));
        tops.max_by_key(|(_, top)| top.components().count()).map(|(position, _)| position)
    }

    /// Whether the process finds this file at this path.
    fn finds(&self, target: &Target, file: &OwnedFd, at: &Path) -> bool {
        let asked = StatxFlags::from_bits_retain(UNIQUE_MOUNT);
        let found = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, asked).ok();
        let mount = found.filter(|found| found.stx_mask & UNIQUE_MOUNT != 0).map(|found| found.stx_mnt_id);
        let seen = mount.zip(self.innermost(at)).map(|(mount, top)| (target.tid, mount, top));
        let Some(mount) = seen else { return target.finds(file, at) };
        let mut mounts = self.mounts.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let known = mounts.take().filter(|(since, _)| since.elapsed() < FRESH);
        let (since, mut known) = known.unwrap_or_else(|| (Instant::now(), Vec::new()));
        let found = known.contains(&mount) || target.finds(file, at);
        if found && !known.contains(&mount) {
            known.push(mount);
        }
        *mounts = Some((since, known));
        found
    }

    fn holds(&self, at: &Path, file: &OwnedFd, target: &Target) -> bool {
        // A pipe, a socket or a deleted file is in no tree.
        let nowhere = || std::fs::metadata(by_descriptor(file)).is_ok_and(|meta| meta.nlink() == 0);
        let within = |trees: &[PathBuf]| trees.iter().any(|top| at.starts_with(top));
        // A descriptor may bypass the read-only mount, so check the protected paths here as well.
        let inside = || within(&self.trees) && !within(&self.protected) && self.finds(target, file, at);
        !at.is_absolute() || inside() || nowhere()
    }
}

/// Whether the change makes a program run with the rights of its owner or group, or with capabilities. The command
/// itself has no_new_privs and cannot use them, but other users could: a set-user-ID file left by root's command would
/// make every user root. On a directory set-group-ID only sets the group of new files.
fn lends_rights(file: &OwnedFd, change: &Change) -> io::Result<bool> {
    match change {
        Change::Mode(mode) if mode & 0o6000 == 0 => Ok(false),
        Change::Mode(mode) => {
            let before = rustix::fs::fstat(file)?.st_mode;
            let added = mode & 0o6000 & !before;
            Ok(added != 0 && !rustix::fs::FileType::from_raw_mode(before).is_dir())
        }
        Change::SetAttribute(name, ..) => Ok(name.to_bytes() == b"security.capability"),
        _ => Ok(false),
    }
}

/// Reads the arguments of the call: the file and the change.
fn read(call: &Call, target: &Target) -> io::Result<(Named, Change)> {
    let args = call.args;
    let int = |at: usize| args[at] as i32;
    let word = |at: usize| args[at] as u32;
    let here = |at: usize, follow: bool| -> io::Result<Named> {
        Ok(Named::Path { directory: libc::AT_FDCWD, path: target.path(args[at])?, follow })
    };
    let there = |flags: u64| -> io::Result<Named> {
        // A null path means the descriptor itself (utimensat), and so does an empty one with AT_EMPTY_PATH.
        if args[1] == 0 {
            return Ok(Named::Descriptor(int(0)));
        }
        let path = target.path(args[1])?;
        match path.as_os_str().is_empty() {
            true if flags & EMPTY_PATH == 0 => Err(io::Error::from_raw_os_error(libc::ENOENT)),
            true if int(0) != libc::AT_FDCWD => Ok(Named::Descriptor(int(0))),
            _ => Ok(Named::Path { directory: int(0), path, follow: flags & NOFOLLOW == 0 }),
        }
    };
    let name = |at: usize| -> io::Result<CString> {
        use std::os::unix::ffi::OsStrExt;
        Ok(CString::new(target.path(args[at])?.as_os_str().as_bytes())?)
    };
    let value = || -> io::Result<Vec<u8>> {
        let size = args[3] as usize;
        if size > LONGEST_VALUE {
            return Err(io::Error::from_raw_os_error(libc::E2BIG));
        }
        target.bytes(args[2], size)
    };
    Ok(match i64::from(call.number) {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_chmod => (here(0, true)?, Change::Mode(word(1))),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_chown => (here(0, true)?, Change::Owner(word(1), word(2))),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_lchown => (here(0, false)?, Change::Owner(word(1), word(2))),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_utime => (here(0, true)?, Change::Times(times(target, args[1], Unit::Seconds)?)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_utimes => (here(0, true)?, Change::Times(times(target, args[1], Unit::Micros)?)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_futimesat => (there(0)?, Change::Times(times(target, args[2], Unit::Micros)?)),
        libc::SYS_fchmod => (Named::Descriptor(int(0)), Change::Mode(word(1))),
        libc::SYS_fchmodat => (there(0)?, Change::Mode(word(2))),
        FCHMODAT2 => (there(args[3])?, Change::Mode(word(2))),
        libc::SYS_fchown => (Named::Descriptor(int(0)), Change::Owner(word(1), word(2))),
        libc::SYS_fchownat => (there(args[4])?, Change::Owner(word(2), word(3))),
        libc::SYS_utimensat => (there(args[3])?, Change::Times(times(target, args[2], Unit::Nanos)?)),
        libc::SYS_setxattr => (here(0, true)?, Change::SetAttribute(name(1)?, value()?, word(4))),
        libc::SYS_lsetxattr => (here(0, false)?, Change::SetAttribute(name(1)?, value()?, word(4))),
        libc::SYS_fsetxattr => (Named::Descriptor(int(0)), Change::SetAttribute(name(1)?, value()?, word(4))),
        libc::SYS_removexattr => (here(0, true)?, Change::RemoveAttribute(name(1)?)),
        libc::SYS_lremovexattr => (here(0, false)?, Change::RemoveAttribute(name(1)?)),
        libc::SYS_fremovexattr => (Named::Descriptor(int(0)), Change::RemoveAttribute(name(1)?)),
        libc::SYS_truncate => (here(0, true)?, Change::Length(Length::asked(args[1], target.tid))),
        // setxattrat, removexattrat and file_setattr: programs fall back to the older syscalls.
        _ => return Err(io::Error::from_raw_os_error(libc::ENOSYS)),
    })
}

enum Unit {
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    Seconds,
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    Micros,
    Nanos,
}

fn times(target: &Target, address: u64, unit: Unit) -> io::Result<Timestamps> {
    let now = Timespec { tv_sec: 0, tv_nsec: libc::UTIME_NOW };
    if address == 0 {
        return Ok(Timestamps { last_access: now, last_modification: now });
    }
    let size = if matches!(unit, Unit::Seconds) { 16 } else { 32 };
    let bytes = target.bytes(address, size)?;
    let words: Vec<i64> = bytes.as_chunks::<8>().0.iter().map(|word| i64::from_ne_bytes(*word)).collect();
    let time = |sec: usize, rest: usize| Some(Timespec { tv_sec: *words.get(sec)?, tv_nsec: *words.get(rest)? });
    let micros =
        |sec, rest| time(sec, rest).map(|time| Timespec { tv_nsec: time.tv_nsec.saturating_mul(1000), ..time });
    let whole = |sec| time(sec, sec).map(|time| Timespec { tv_nsec: 0, ..time });
    let both = match unit {
        Unit::Seconds => whole(0).zip(whole(1)),
        Unit::Micros => micros(0, 1).zip(micros(2, 3)),
        Unit::Nanos => time(0, 1).zip(time(2, 3)),
    };
    let (last_access, last_modification) = both.ok_or_else(|| io::Error::from_raw_os_error(libc::EFAULT))?;
    Ok(Timestamps { last_access, last_modification })
}

fn apply(file: &OwnedFd, follow: bool, change: &Change) -> io::Result<()> {
    let path = by_descriptor(file);
    match change {
        Change::Mode(mode) => {
            if !follow && std::fs::symlink_metadata(&path).is_ok() && is_link(file)? {
                return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
            }
            rustix::fs::chmod(&path, Mode::from_raw_mode(mode & 0o7777))?;
        }
        Change::Owner(uid, gid) => {
            let uid = (*uid != u32::MAX).then(|| Uid::from_raw(*uid));
            let gid = (*gid != u32::MAX).then(|| Gid::from_raw(*gid));
            rustix::fs::chownat(file, "", uid, gid, AtFlags::EMPTY_PATH)?;
        }
        // utimensat(2) takes AT_EMPTY_PATH only since Linux 5.8. Before that, there is no way for a link.
        Change::Times(times) => match rustix::fs::utimensat(file, "", times, AtFlags::EMPTY_PATH) {
            Err(rustix::io::Errno::INVAL) if !is_link(file)? => {
                rustix::fs::utimensat(rustix::fs::CWD, &path, times, AtFlags::empty())?;
            }
            other => other?,
        },
        Change::SetAttribute(name, ..) | Change::RemoveAttribute(name) if is_privileged(name) => {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        Change::SetAttribute(name, value, flags) => {
            let flags = XattrFlags::from_bits(*flags).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
            rustix::fs::setxattr(&path, name.as_c_str(), value, flags)?;
        }
        Change::RemoveAttribute(name) => rustix::fs::removexattr(&path, name.as_c_str())?,
        Change::Length(length) => length.set(file)?,
    }
    Ok(())
}

/// Attributes that need capabilities, which root's command has dropped but this process still has.
fn is_privileged(name: &CStr) -> bool {
    let name = name.to_bytes();
    name.starts_with(b"trusted.") || name.starts_with(b"security.") && name != b"security.capability"
}

fn is_link(file: &OwnedFd) -> io::Result<bool> {
    let stat = rustix::fs::fstat(file)?;
    Ok(rustix::fs::FileType::from_raw_mode(stat.st_mode).is_symlink())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_remembered_for_the_innermost_directory_only() {
        let writable = Writable::new(vec!["/a".into(), "/b".into()], Vec::new(), vec!["/a/staged".into()]);
        let innermost = |path: &str| writable.innermost(Path::new(path));
        assert_eq!(innermost("/a/file"), innermost("/a/other/file"));
        assert_ne!(innermost("/a/file"), innermost("/b/file"));
        assert_ne!(innermost("/a/file"), innermost("/a/staged/file"));
        assert_eq!(innermost("/c"), None);
    }
}
