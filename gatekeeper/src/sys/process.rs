//! Processes: descriptors of them, signals to them, what they are.

use super::check;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Keeps other processes of the same user out of this one's memory and descriptors.
pub fn set_not_dumpable() -> io::Result<()> {
    // SAFETY: prctl with these arguments passes no memory.
    check(i64::from(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) })).map(drop)
}

/// Orphans below this process become its children.
pub fn set_subreaper() -> io::Result<()> {
    // SAFETY: prctl with these arguments passes no memory.
    check(i64::from(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) })).map(drop)
}

/// Sends a signal to a process, or with a negative number to a process group.
pub fn kill(pid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: kill passes no memory.
    check(i64::from(unsafe { libc::kill(pid, signal) })).map(drop)
}

pub fn pidfd_open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed; the descriptor returned is new and owned by the result alone.
    unsafe { check(libc::syscall(libc::SYS_pidfd_open, pid, 0)).map(|fd| OwnedFd::from_raw_fd(fd as i32)) }
}

/// A copy of descriptor `fd` of that process.
pub fn pidfd_getfd(process: BorrowedFd<'_>, fd: i32) -> io::Result<OwnedFd> {
    // SAFETY: as in `pidfd_open`.
    unsafe {
        check(libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0))
            .map(|fd| OwnedFd::from_raw_fd(fd as i32))
    }
}

/// A copy of one of this process's own descriptors, closed on exec.
pub fn duplicate(fd: i32) -> io::Result<OwnedFd> {
    // SAFETY: as in `pidfd_open`.
    unsafe { check(i64::from(libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3))).map(|fd| OwnedFd::from_raw_fd(fd as i32)) }
}

/// Whether these descriptors are open. Asked before anything is opened, they are the caller's.
pub fn are_open(numbers: &[i32]) -> bool {
    // SAFETY: F_GETFD passes no memory.
    numbers.iter().all(|number| unsafe { libc::fcntl(*number, libc::F_GETFD) >= 0 })
}

/// Waits for a child of this process and returns its wait status.
pub fn wait(pid: i32) -> io::Result<i32> {
    let mut status = 0;
    loop {
        // SAFETY: the kernel writes one int into `status`.
        match check(i64::from(unsafe { libc::waitpid(pid, &mut status, 0) })) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => return other.map(|_| status),
        }
    }
}

/// Whether /proc is there and is that of this PID namespace: in another's, numbers mean other processes.
pub fn has_own_proc() -> bool {
    std::fs::read_link("/proc/self").is_ok_and(|own| own.as_os_str() == std::process::id().to_string().as_str())
}

/// Stops this process as its terminal would, and comes back when it was continued, or at once where nobody could continue it.
/// By its own thread: another might take the signal later, when what follows here has been done. `false`: process 1 of a
/// namespace cannot be stopped from inside of it.
pub fn stop() -> bool {
    // SAFETY: the set is plain data of this frame that these calls fill and read.
    unsafe {
        let mut terminal: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut terminal);
        libc::sigaddset(&mut terminal, libc::SIGTSTP);
        // Raised while it is blocked: the terminal's own may wait as well, and whoever continues us clears both.
        libc::raise(libc::SIGTSTP);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &terminal, std::ptr::null_mut());
        libc::pthread_sigmask(libc::SIG_BLOCK, &terminal, std::ptr::null_mut());
        libc::getpid() != 1
    }
}

/// A timer that continues this process, should it be stopped by then. Timers of the kernel run on while a process is stopped.
pub struct Wake(libc::c_int);

impl Wake {
    pub fn after(time: std::time::Duration) -> io::Result<Wake> {
        // SAFETY: all zeroes is a valid event, filled before the kernel reads it; it writes one timer id of four bytes.
        unsafe {
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_SIGNAL;
            event.sigev_signo = libc::SIGCONT;
            let mut timer: libc::c_int = 0;
            check(libc::syscall(libc::SYS_timer_create, libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer))?;
            let wake = Wake(timer);
            let mut when: libc::itimerspec = std::mem::zeroed();
            when.it_value.tv_sec = time.as_secs() as _;
            // Zero would switch it off.
            when.it_value.tv_nsec = i64::from(time.subsec_nanos().max(1)) as _;
            let none: *mut libc::itimerspec = std::ptr::null_mut();
            check(libc::syscall(libc::SYS_timer_settime, wake.0, 0, &raw const when, none))?;
            Ok(wake)
        }
    }
}

impl Drop for Wake {
    fn drop(&mut self) {
        // SAFETY: the timer is this value's own, and no memory is passed.
        unsafe { libc::syscall(libc::SYS_timer_delete, self.0) };
    }
}

/// Lets a child go on if somebody has stopped it.
pub fn wake(child: i32) {
    // SAFETY: `info` is plain data that the kernel fills. Only stops are asked for, so a death is left to `wait`.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let options = libc::WSTOPPED | libc::WNOHANG;
        if libc::waitid(libc::P_PID, child as libc::id_t, &mut info, options) == 0 && info.si_pid() == child {
            libc::kill(child, libc::SIGCONT);
        }
    }
}

/// Ends every child of this process, and the orphans that come to it, until none is left. For when the guardian died.
pub fn end_children() {
    super::reap::end_tree();
}

/// This process's limit on a resource, as (soft, hard). C libraries number them by types of their own.
pub fn limit(resource: i32) -> io::Result<(u64, u64)> {
    // SAFETY: `limit` is plain data that the kernel fills.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        check(i64::from(libc::getrlimit(resource as _, &mut limit)))?;
        Ok((limit.rlim_cur, limit.rlim_max))
    }
}

/// Reads another process's memory; fewer bytes where it ends.
pub fn read_memory(pid: i32, address: u64, into: &mut [u8]) -> io::Result<usize> {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: into.len() };
    // SAFETY: the kernel writes at most `into.len()` bytes into `into`; the other address is the other process's.
    check(unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) } as i64).map(|read| read as usize)
}

/// The wait status of a short-lived process of ours that was forked without a signal at its end. Whoever stops it, to make
/// us wait, ends it. Raw syscalls only.
pub(super) fn wait_for_helper(pid: i32) -> i32 {
    let mut status = 0;
    loop {
        // SAFETY: the kernel writes one int into `status`; kill passes no memory.
        unsafe {
            let waited = libc::waitpid(pid, &mut status, libc::__WALL | libc::WUNTRACED);
            if waited == pid && libc::WIFSTOPPED(status) {
                libc::kill(pid, libc::SIGKILL);
            } else if waited == pid {
                return status;
            } else if *libc::__errno_location() != libc::EINTR {
                return -1;
            }
        }
    }
}
