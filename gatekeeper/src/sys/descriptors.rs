//! Descriptors of this process: copies of them, and which stay open for whom.

use super::check;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A copy of one of this process's own descriptors, closed on exec.
pub fn duplicate(fd: i32) -> io::Result<OwnedFd> {
    // SAFETY: F_DUPFD_CLOEXEC takes no pointers; the descriptor it returns is new, and only the result owns it.
    unsafe { check(i64::from(libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3))).map(|fd| OwnedFd::from_raw_fd(fd as i32)) }
}

/// Whether these descriptors are open. At start-up, before gatekeeper opens any, open ones were inherited.
pub fn are_open(numbers: &[i32]) -> bool {
    // SAFETY: F_GETFD takes no pointers, and a closed number is an error.
    numbers.iter().all(|number| unsafe { libc::fcntl(*number, libc::F_GETFD) >= 0 })
}

/// Closes a descriptor at the next exec.
pub fn close_on_exec(number: i32) -> io::Result<()> {
    // SAFETY: F_SETFD takes no pointers.
    check(i64::from(unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) })).map(drop)
}

/// Makes one standard stream of this process a copy of another.
pub fn replace(stream: i32, by: i32) -> io::Result<()> {
    debug_assert!((0..3).contains(&stream), "no other number is without an owner");
    // SAFETY: dup2 takes no pointers.
    check(i64::from(unsafe { libc::dup2(by, stream) })).map(drop)
}

/// Marks every descriptor from this one on as close-on-exec.
pub(super) fn close_on_exec_from(first: u32) -> bool {
    // SAFETY: no memory is passed.
    unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) == 0 }
}

/// Keeps the descriptors of this process, its standard streams excepted, from a program that it starts. What the caller of
/// gatekeeper left open would otherwise stay open as long as anything that the program leaves behind.
pub fn keep_descriptors_from(command: &mut std::process::Command) {
    use std::os::unix::process::CommandExt;
    // SAFETY: close_range is async-signal-safe, and nothing is allocated.
    unsafe { command.pre_exec(|| if close_on_exec_from(3) { Ok(()) } else { Err(io::Error::last_os_error()) }) };
}

/// Closes every descriptor but this one and the standard streams, of which standard input becomes a copy of standard output.
pub fn keep_only(descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let kept = descriptor.as_raw_fd();
    // SAFETY: dup3 takes no pointers, and nothing in this process uses descriptor 0 again.
    check(i64::from(unsafe { libc::dup3(1, 0, libc::O_CLOEXEC) }))?;
    close_all_but(3, &|from| (kept >= from).then_some(kept));
    Ok(())
}

/// Closes every descriptor from `first` on but those to keep: `next` returns the smallest of them that is not below its
/// argument.
pub(super) fn close_all_but(mut first: i32, next: &dyn Fn(i32) -> Option<i32>) {
    loop {
        let kept = next(first);
        let last = kept.map_or(i64::from(u32::MAX), |kept| i64::from(kept) - 1);
        if i64::from(first) <= last {
            // SAFETY: close_range takes no pointers; the caller uses none of the descriptors in the range again.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
        let Some(kept) = kept else { return };
        first = kept + 1;
    }
}
