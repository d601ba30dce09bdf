//! The listener of a seccomp filter (seccomp_unotify(2)): receive a call, check that it still waits, answer it.

use super::check;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// A syscall that waits for an answer.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    pub id: u64,
    /// The thread that makes it, as numbered in this process's PID namespace.
    pub tid: i32,
    pub number: i32,
    pub args: [u64; 6],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The kernel executes the call and reads its arguments anew: another thread may have changed them in memory.
    Continue,
    Errno(i32),
    Value(i64),
}

/// Since Linux 6.6. The libc crate has it for some architectures only; from 424 on, all of them share numbers.
pub const FCHMODAT2: i64 = 452;

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

/// Changes the mode of a file by an O_PATH descriptor (Linux 6.6), which fchmod(2) does not take.
pub fn change_mode(file: BorrowedFd<'_>, mode: u32) -> io::Result<()> {
    // SAFETY: the path is a static, empty C string, which the kernel only reads.
    check(unsafe { libc::syscall(FCHMODAT2, file.as_raw_fd(), c"".as_ptr(), mode, libc::AT_EMPTY_PATH) }).map(drop)
}

/// Receives the next call. `None`: it was interrupted or its process died before that.
pub fn receive(listener: BorrowedFd<'_>) -> io::Result<Option<Call>> {
    // SAFETY: the kernel demands a zeroed struct, and writes no more than the size encoded in `RECV`, which is its size.
    unsafe {
        let mut call: libc::seccomp_notif = std::mem::zeroed();
        match check(i64::from(libc::ioctl(listener.as_raw_fd(), RECV as _, &raw mut call))) {
            Ok(_) => Ok(Some(Call { id: call.id, tid: call.pid as i32, number: call.data.nr, args: call.data.args })),
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Asks the kernel to wake this process and the caller on the same CPU (Linux 6.6). Older kernels are only slower.
pub fn hand_over(listener: BorrowedFd<'_>) {
    // SAFETY: SECCOMP_IOCTL_NOTIF_SET_FLAGS takes its flags by value.
    unsafe { libc::ioctl(listener.as_raw_fd(), SET_FLAGS as _, FD_SYNC_WAKE_UP) };
}

/// Whether the call still waits. If it does, its process id was not reused, so memory read before this call was its own.
pub fn still_waits(listener: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: the kernel reads one u64, and `id` outlives the call.
    unsafe { libc::ioctl(listener.as_raw_fd(), ID_VALID as _, &raw const id) == 0 }
}

/// Answers a call. `false`: it no longer waits, because its process died, or a signal interrupted the call, which the
/// process then makes again.
pub fn answer(listener: BorrowedFd<'_>, id: u64, answer: Answer) -> io::Result<bool> {
    // SAFETY: all zeroes is a valid response; the kernel reads no more than the size encoded in `SEND`, which is its size.
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

/// Answers a call with a copy of a descriptor, as if the program had opened it. `false`: the call no longer waits.
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
        // SAFETY: `Added` has the layout of `struct seccomp_notif_addfd`, and `ADDFD` encodes its size.
        check(i64::from(unsafe { libc::ioctl(listener.as_raw_fd(), ADDFD as _, &raw const added) }))
    };
    match add(ADDFD_FLAG_SEND) {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => answer(listener, id, Answer::Value(add(0)?)),
        Err(error) => Err(error),
    }
}
