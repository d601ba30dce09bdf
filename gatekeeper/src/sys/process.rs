//! Calls on processes: pidfds, signals, wait statuses, limits and memory.

use super::check;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Denies other processes of the same user this one's memory and descriptors.
pub fn set_not_dumpable() -> io::Result<()> {
    // SAFETY: PR_SET_DUMPABLE takes no pointers.
    check(i64::from(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) })).map(drop)
}

/// Makes this process the new parent of orphans below it.
pub fn set_subreaper() -> io::Result<()> {
    // SAFETY: PR_SET_CHILD_SUBREAPER takes no pointers.
    check(i64::from(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) })).map(drop)
}

/// Sends a signal to a process, or to a process group if the number is negative.
pub fn kill(pid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: kill takes no pointers.
    check(i64::from(unsafe { libc::kill(pid, signal) })).map(drop)
}

/// Whether a thread has a scheduling policy without real-time priority.
pub fn has_ordinary_policy(tid: i32) -> bool {
    // SAFETY: sched_getscheduler takes no pointers. The syscall itself, because musl's function always fails.
    let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, tid) as i32 };
    [libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE].contains(&(policy & !libc::SCHED_RESET_ON_FORK))
}

pub fn pidfd_open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: pidfd_open takes no pointers; the descriptor it returns is new, and only the result owns it.
    unsafe { check(libc::syscall(libc::SYS_pidfd_open, pid, 0)).map(|fd| OwnedFd::from_raw_fd(fd as i32)) }
}

/// A descriptor of a thread, for its own table of descriptors. Before Linux 6.9 only the first thread of a process has one.
pub fn thread_open(tid: i32) -> io::Result<OwnedFd> {
    const PIDFD_THREAD: i32 = libc::O_EXCL;
    // SAFETY: as in `pidfd_open`.
    let opened = unsafe { check(libc::syscall(libc::SYS_pidfd_open, tid, PIDFD_THREAD)) };
    match opened {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => pidfd_open(tid),
        // SAFETY: the descriptor is new, and only the result owns it.
        other => other.map(|fd| unsafe { OwnedFd::from_raw_fd(fd as i32) }),
    }
}

/// A copy of descriptor `fd` of that process.
pub fn pidfd_getfd(process: BorrowedFd<'_>, fd: i32) -> io::Result<OwnedFd> {
    // SAFETY: as in `pidfd_open`.
    unsafe {
        check(libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0))
            .map(|fd| OwnedFd::from_raw_fd(fd as i32))
    }
}

/// Waits for a child of this process and returns its wait status.
pub fn wait(pid: i32) -> io::Result<i32> {
    let mut status = 0;
    loop {
        // SAFETY: waitpid writes one int, and `status` outlives the call.
        match check(i64::from(unsafe { libc::waitpid(pid, &mut status, 0) })) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => return other.map(|_| status),
        }
    }
}

/// A child of this process that has ended, and its wait status. Does not wait.
pub fn ended_child() -> Option<(i32, i32)> {
    let mut status = 0;
    // SAFETY: waitpid writes one int, and `status` outlives the call.
    let pid = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) };
    (pid > 0).then_some((pid, status))
}

/// Leaves the session of the process that started this one: signals of its terminal do not arrive here.
pub fn leave_session() -> io::Result<()> {
    // SAFETY: setsid takes no pointers.
    check(i64::from(unsafe { libc::setsid() })).map(drop)
}

/// Whether this process leads its session, as the program of a terminal does.
pub fn leads_session() -> bool {
    // SAFETY: neither call takes a pointer.
    unsafe { libc::getsid(0) == libc::getpid() }
}

/// Whether /proc is mounted and shows this PID namespace; in another, the numbers mean other processes.
pub fn has_own_proc() -> bool {
    std::fs::read_link("/proc/self").is_ok_and(|own| own.as_os_str() == std::process::id().to_string().as_str())
}

/// Sends SIGSTOP to one thread, which stops its whole process. Sent to the process, it waits for the first thread, even if that
/// one waits for an answer of ours and the others run.
pub fn stop_by_thread(pid: i32, tid: i32) -> io::Result<()> {
    // SAFETY: tgkill takes no pointers.
    check(unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, libc::SIGSTOP) }).map(drop)
}

/// Stops this process as Ctrl-Z would. Returns when it is continued, or at once if its process group is orphaned and
/// nothing could continue it. `false`: this is process 1 of a PID namespace, which a signal from inside does not stop.
pub fn stop() -> bool {
    // SAFETY: all zeroes is a valid signal set, filled before it is read; a null pointer discards the old mask.
    unsafe {
        let mut terminal: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut terminal);
        libc::sigaddset(&mut terminal, libc::SIGTSTP);
        // Raised for this thread while blocked, so that it stops here and not in another thread later. A SIGTSTP from the
        // terminal may be pending too; SIGCONT clears both.
        libc::raise(libc::SIGTSTP);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &terminal, std::ptr::null_mut());
        libc::pthread_sigmask(libc::SIG_BLOCK, &terminal, std::ptr::null_mut());
        libc::getpid() != 1
    }
}

/// A timer that sends SIGCONT to this process. Kernel timers keep running while a process is stopped.
pub struct Wake(libc::c_int);

impl Wake {
    pub fn after(time: std::time::Duration) -> io::Result<Wake> {
        // SAFETY: all zeroes is a valid sigevent; timer_create writes one timer id, which is an int.
        unsafe {
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_SIGNAL;
            event.sigev_signo = libc::SIGCONT;
            let mut timer: libc::c_int = 0;
            check(libc::syscall(libc::SYS_timer_create, libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer))?;
            let wake = Wake(timer);
            wake.again(time)?;
            Ok(wake)
        }
    }

    /// Sends the signal after this time, instead of when it was to be sent before.
    pub fn again(&self, time: std::time::Duration) -> io::Result<()> {
        // SAFETY: all zeroes is a valid itimerspec, and the kernel only reads it.
        unsafe {
            let mut when: libc::itimerspec = std::mem::zeroed();
            when.it_value.tv_sec = time.as_secs() as _;
            // A time of zero would disarm the timer.
            when.it_value.tv_nsec = i64::from(time.subsec_nanos().max(1)) as _;
            let none: *mut libc::itimerspec = std::ptr::null_mut();
            check(libc::syscall(libc::SYS_timer_settime, self.0, 0, &raw const when, none)).map(drop)
        }
    }
}

impl Drop for Wake {
    fn drop(&mut self) {
        // SAFETY: this value owns the timer, and timer_delete takes no pointers.
        unsafe { libc::syscall(libc::SYS_timer_delete, self.0) };
    }
}

/// Continues a child that was stopped. Does not reap one that ended.
pub fn wake(child: i32) {
    // SAFETY: all zeroes is a valid siginfo, and waitid fills it; with WSTOPPED it only reports stops.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let options = libc::WSTOPPED | libc::WNOHANG;
        if libc::waitid(libc::P_PID, child as libc::id_t, &mut info, options) == 0 && info.si_pid() == child {
            libc::kill(child, libc::SIGCONT);
        }
    }
}

/// Continues every child that was stopped.
pub fn wake_children() {
    loop {
        // SAFETY: all zeroes is a valid siginfo, and waitid fills it; with WSTOPPED it only reports stops.
        let stopped = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let answer = libc::waitid(libc::P_ALL, 0, &mut info, libc::WSTOPPED | libc::WNOHANG);
            if answer == 0 { info.si_pid() } else { 0 }
        };
        if stopped == 0 {
            return;
        }
        let _ = kill(stopped, libc::SIGCONT);
    }
}

/// Kills and reaps every process below this one. The front process calls this if the guardian died.
pub fn end_children() {
    super::reap::end_tree();
}

/// Kills and reaps every child but these, and what becomes a child thereby. The guardian program calls this.
pub fn end_children_but(spared: &[i32]) {
    super::reap::end_all_but(spared);
}

/// This process's (soft, hard) limit on a resource. An i32, because glibc and musl give the constants different types.
pub fn limit(resource: i32) -> io::Result<(u64, u64)> {
    // SAFETY: all zeroes is a valid rlimit, and getrlimit fills it.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        check(i64::from(libc::getrlimit(resource as _, &mut limit)))?;
        Ok((limit.rlim_cur, limit.rlim_max))
    }
}

/// How many kinds of limits there are: RLIM_NLIMITS of the kernel.
pub const RESOURCES: i32 = 16;

/// The processors and the memory nodes that this thread may use, as the kernel's masks.
pub type Hardware = ([u8; 1024], [u8; 128]);

/// `None` if this machine has more of them than fit, or an outer sandbox denies the question.
pub fn hardware() -> Option<Hardware> {
    const MPOL_F_MEMS_ALLOWED: libc::c_ulong = 4;
    let (mut processors, mut nodes) = ([0u8; 1024], [0u8; 128]);
    let none: *mut libc::c_int = std::ptr::null_mut();
    // SAFETY: the kernel writes at most the size that it gets into each mask, and nothing through the null pointers.
    unsafe {
        let size = size_of_val(&processors);
        check(libc::syscall(libc::SYS_sched_getaffinity, 0, size, processors.as_mut_ptr())).ok()?;
        let bits = size_of_val(&nodes) * 8;
        let asked = libc::syscall(libc::SYS_get_mempolicy, none, nodes.as_mut_ptr(), bits, 0, MPOL_F_MEMS_ALLOWED);
        match check(asked) {
            Ok(_) => Some((processors, nodes)),
            // A kernel for machines with one node.
            Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => Some((processors, nodes)),
            Err(_) => None,
        }
    }
}

/// How many of the lowest numbers below this process's limit of descriptors are unused. One syscall tells for all of them.
pub fn unused_descriptors() -> io::Result<usize> {
    const LOWEST: usize = 64;
    let (limit, _) = limit(libc::RLIMIT_NOFILE as i32)?;
    let mut polled: [libc::pollfd; LOWEST] =
        std::array::from_fn(|fd| libc::pollfd { fd: fd as i32, events: 0, revents: 0 });
    let count = limit.min(LOWEST as u64);
    // SAFETY: poll fills at most `count` entries of the array. Polling an unused number only sets POLLNVAL.
    check(i64::from(unsafe { libc::poll(polled.as_mut_ptr(), count as libc::nfds_t, 0) }))?;
    Ok(polled.iter().filter(|fd| fd.revents & libc::POLLNVAL != 0).count())
}

/// Reads another process's memory. Returns fewer bytes than asked for if the mapping ends before.
pub fn read_memory(pid: i32, address: u64, into: &mut [u8]) -> io::Result<usize> {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: into.len() };
    // SAFETY: the kernel writes at most `into.len()` bytes to `into`; the remote address is never used in this process.
    check(unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) } as i64).map(|read| read as usize)
}

/// Reads two pieces of another process's memory, both of them whole.
pub fn read_memory_pair(pid: i32, addresses: [u64; 2], into: [&mut [u8]; 2]) -> io::Result<()> {
    let [one, other] = into;
    let whole = one.len() + other.len();
    let piece = |base: *mut libc::c_void, size: usize| libc::iovec { iov_base: base, iov_len: size };
    let remote = [piece(addresses[0] as *mut _, one.len()), piece(addresses[1] as *mut _, other.len())];
    let local = [piece(one.as_mut_ptr().cast(), one.len()), piece(other.as_mut_ptr().cast(), other.len())];
    // SAFETY: as in `read_memory`, for both pieces.
    let read = check(unsafe { libc::process_vm_readv(pid, local.as_ptr(), 2, remote.as_ptr(), 2, 0) } as i64)?;
    if read as usize == whole { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EFAULT)) }
}

/// Whether two threads share their root and working directory (CLONE_FS). An error if one is gone, or kcmp(2) is missing.
pub fn share_directories(one: i32, other: i32) -> io::Result<bool> {
    const KCMP_FS: i32 = 3;
    // SAFETY: KCMP_FS takes no pointers.
    check(unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_FS, 0, 0) }).map(|order| order == 0)
}

/// Writes to memory of a process, where the process itself could write.
pub fn write_memory(pid: i32, address: u64, bytes: &[u8]) -> io::Result<()> {
    let local = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: bytes.len() };
    // SAFETY: the kernel reads at most `bytes.len()` bytes of `bytes`; the remote address is never used in this process.
    let written = check(unsafe { libc::process_vm_writev(pid, &local, 1, &remote, 1, 0) } as i64)?;
    if written as usize == bytes.len() { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EFAULT)) }
}

/// Sends a signal to one thread of a process.
pub fn signal_thread(pid: i32, tid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: tgkill takes no pointers.
    check(unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, signal) }).map(drop)
}

/// Reaps a helper that was cloned without an exit signal, and returns its wait status. Kills it if it is stopped, because
/// stopping it would make this process wait. Runs after fork as well: raw syscalls only.
pub(super) fn wait_for_helper(pid: i32) -> i32 {
    let mut status = 0;
    loop {
        // SAFETY: waitpid writes one int, and `status` outlives the call; kill takes no pointers.
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

/// Sets the umask of the calling thread, which stops sharing it (and the working directory) with the other threads. `false`:
/// an outer sandbox denies that, and nothing has changed.
pub fn umask_of_thread(mask: u32) -> bool {
    thread_local! {
        static OWN: bool = {
            // SAFETY: unshare takes no pointers. CLONE_FS needs no privilege and affects only this thread.
            unsafe { libc::unshare(libc::CLONE_FS) == 0 }
        };
    }
    let own = OWN.with(|own| *own);
    if own {
        // SAFETY: umask takes no pointers and cannot fail.
        unsafe { libc::umask(mask as libc::mode_t) };
    }
    own
}

/// The size of a page. Not by `rustix::param`: before Linux 6.4 that reads /proc/self/auxv, which is closed to an undumpable
/// process of an ordinary user, and then panics.
pub fn page_size() -> u64 {
    // SAFETY: sysconf takes no pointers. The C library has kept the value since the start of the program.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.try_into().unwrap_or(4096)
}

/// The unit of times in /proc/PID/stat.
pub fn ticks_per_second() -> u64 {
    // SAFETY: as above.
    unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.try_into().unwrap_or(100)
}
