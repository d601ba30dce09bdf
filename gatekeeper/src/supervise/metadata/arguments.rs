//! The arguments of a call that changes metadata: which file it names, and the change. What the kernel refuses of them is refused
//! here with the same errno.

use crate::supervise::change::Change;
use crate::supervise::length::Length;
use crate::supervise::target::{Memory, Target};
use crate::sys::notify::{Call, FCHMODAT2};
use rustix::fs::{Timespec, Timestamps};
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

const LONGEST_VALUE: usize = 65536;
const NOFOLLOW: u32 = libc::AT_SYMLINK_NOFOLLOW as u32;
const EMPTY_PATH: u32 = libc::AT_EMPTY_PATH as u32;

/// The file that a call names.
pub(super) enum Named {
    Path {
        directory: i32,
        path: PathBuf,
        follow: bool,
    },
    /// `opened`: the descriptor has to be one that reads or writes, and not one of O_PATH.
    Descriptor {
        fd: i32,
        opened: bool,
    },
}

/// Reads the arguments of the call: the file and the change.
pub(super) fn read(call: &Call, target: &Target) -> io::Result<(Named, Change)> {
    let args = call.args;
    let int = |at: usize| args[at] as i32;
    let word = |at: usize| args[at] as u32;
    let failed = |errno: i32| Err(io::Error::from_raw_os_error(errno));
    let here = |at: usize, follow: bool| -> io::Result<Named> {
        let path = target.path(args[at])?;
        match path.as_os_str().is_empty() {
            true => failed(libc::ENOENT),
            false => Ok(Named::Path { directory: libc::AT_FDCWD, path, follow }),
        }
    };
    let opened = |fd: i32| Named::Descriptor { fd, opened: true };
    let there = |flags: u32| -> io::Result<Named> {
        if flags & !(NOFOLLOW | EMPTY_PATH) != 0 {
            return failed(libc::EINVAL);
        }
        let path = target.path(args[1])?;
        match path.as_os_str().is_empty() {
            true if flags & EMPTY_PATH == 0 => failed(libc::ENOENT),
            true if int(0) != libc::AT_FDCWD => Ok(Named::Descriptor { fd: int(0), opened: false }),
            _ => Ok(Named::Path { directory: int(0), path, follow: flags & NOFOLLOW == 0 }),
        }
    };
    // Times are changed on a descriptor by a null path (utimensat(2)), to which no flag applies.
    let there_or_opened = |flags: u32| match (args[1], int(0)) {
        (0, fd) if fd != libc::AT_FDCWD && flags == 0 => Ok(opened(fd)),
        (0, fd) if fd != libc::AT_FDCWD => failed(libc::EINVAL),
        _ => there(flags),
    };
    let name = |at: usize| -> io::Result<CString> { Ok(CString::new(target.path(args[at])?.as_os_str().as_bytes())?) };
    let value = || -> io::Result<Vec<u8>> {
        let size = args[3] as usize;
        if size > LONGEST_VALUE {
            return Err(io::Error::from_raw_os_error(libc::E2BIG));
        }
        target.exactly(args[2], size)
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
        libc::SYS_futimesat => (there_or_opened(0)?, Change::Times(times(target, args[2], Unit::Micros)?)),
        libc::SYS_fchmod => (opened(int(0)), Change::Mode(word(1))),
        libc::SYS_fchmodat => (there(0)?, Change::Mode(word(2))),
        FCHMODAT2 => (there(word(3))?, Change::Mode(word(2))),
        libc::SYS_fchown => (opened(int(0)), Change::Owner(word(1), word(2))),
        libc::SYS_fchownat => (there(word(4))?, Change::Owner(word(2), word(3))),
        libc::SYS_utimensat => (there_or_opened(word(3))?, Change::Times(times(target, args[2], Unit::Nanos)?)),
        libc::SYS_setxattr => (here(0, true)?, Change::SetAttribute(name(1)?, value()?, word(4))),
        libc::SYS_lsetxattr => (here(0, false)?, Change::SetAttribute(name(1)?, value()?, word(4))),
        libc::SYS_fsetxattr => (opened(int(0)), Change::SetAttribute(name(1)?, value()?, word(4))),
        libc::SYS_removexattr => (here(0, true)?, Change::RemoveAttribute(name(1)?)),
        libc::SYS_lremovexattr => (here(0, false)?, Change::RemoveAttribute(name(1)?)),
        libc::SYS_fremovexattr => (opened(int(0)), Change::RemoveAttribute(name(1)?)),
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
