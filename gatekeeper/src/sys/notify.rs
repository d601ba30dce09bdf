//! The listener of a filter: take a notified call, look whether it still waits, answer it.

use super::check;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// One call that waits for an answer.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    pub id: u64,
    /// The thread that makes it, as this process numbers it.
    pub tid: i32,
    pub number: i32,
    pub args: [u64; 6],
}

/// What a waiting call gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The kernel goes on with it, whatever its memory says by then.
    Continue,
    Errno(i32),
    Value(i64),
}

const USER_NOTIF_FLAG_CONTINUE: u32 = 1;

// _IOWR('!', 0, struct seccomp_notif), _IOWR('!', 1, struct seccomp_notif_resp), _IOW('!', 2, __u64)
const RECV: libc::c_ulong = 0xc050_2100;
const SEND: libc::c_ulong = 0xc018_2101;
const ID_VALID: libc::c_ulong = 0x4008_2102;
// _IOW('!', 3, struct seccomp_notif_addfd), since Linux 5.9; answering with it since 5.14
const ADDFD: libc::c_ulong = 0x4018_2103;
const ADDFD_FLAG_SEND: u32 = 2;
// _IOW('!', 4, __u64), since Linux 6.6
const SET_FLAGS: libc::c_ulong = 0x4008_2104;
const FD_SYNC_WAKE_UP: libc::c_ulong = 1;

/// Takes the next call. `None`: it went away before it was taken.
pub fn receive(listener: BorrowedFd<'_>) -> io::Result<Option<Call>> {
    // SAFETY: the kernel wants a zeroed struct of the size in the request, and fills it.
    unsafe {
        let mut call: libc::seccomp_notif = std::mem::zeroed();
        match check(i64::from(libc::ioctl(listener.as_raw_fd(), RECV as _, &raw mut call))) {
            Ok(_) => Ok(Some(Call { id: call.id, tid: call.pid as i32, number: call.data.nr, args: call.data.args })),
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Hands the processor over at once between the caller and this side, where the kernel can.
pub fn hand_over(listener: BorrowedFd<'_>) {
    // SAFETY: the flags are passed by value.
    unsafe { libc::ioctl(listener.as_raw_fd(), SET_FLAGS as _, FD_SYNC_WAKE_UP) };
}

/// Whether the call still waits: if so, what was read of its process was read of that process.
pub fn still_waits(listener: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: the kernel reads one u64.
    unsafe { libc::ioctl(listener.as_raw_fd(), ID_VALID as _, &raw const id) == 0 }
}

/// Answers a call. `false`: it waits no more, because its process died, or was interrupted by a signal and will make it
/// again.
pub fn answer(listener: BorrowedFd<'_>, id: u64, answer: Answer) -> io::Result<bool> {
    // SAFETY: all zeroes is a valid response, filled before the kernel reads it.
    unsafe {
        let mut response: libc::seccomp_notif_resp = std::mem::zeroed();
        response.id = id;
        match answer {
            Answer::Continue => response.flags = USER_NOTIF_FLAG_CONTINUE,
            Answer::Errno(errno) => response.error = -errno,
            Answer::Value(value) => response.val = value,
        }
        match check(i64::from(libc::ioctl(listener.as_raw_fd(), SEND as _, &raw mut response))) {
            Ok(_) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Answers a call with a descriptor: the program gets a copy of it, as if it had opened it. `false`: it waits no more.
pub fn give(listener: BorrowedFd<'_>, id: u64, descriptor: BorrowedFd<'_>, close_on_exec: bool) -> io::Result<bool> {
    #[repr(C)]
    struct Added {
        id: u64,
        flags: u32,
        srcfd: u32,
        newfd: u32,
        newfd_flags: u32,
    }
    let newfd_flags = if close_on_exec { libc::O_CLOEXEC as u32 } else { 0 };
    let add = |flags| {
        let added = Added { id, flags, srcfd: descriptor.as_raw_fd() as u32, newfd: 0, newfd_flags };
        // SAFETY: the kernel reads one value of the size in the request.
        check(i64::from(unsafe { libc::ioctl(listener.as_raw_fd(), ADDFD as _, &raw const added) }))
    };
    match add(ADDFD_FLAG_SEND) {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => answer(listener, id, Answer::Value(add(0)?)),
        Err(error) => Err(error),
    }
}
