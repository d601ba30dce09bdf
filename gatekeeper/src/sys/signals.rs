//! Signals to this process, as a descriptor to poll.

use super::check;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Signals that gatekeeper passes on to the command.
const FORWARDED: [i32; 10] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGTSTP,
    libc::SIGCONT,
    libc::SIGWINCH,
    libc::SIGALRM,
];

/// A signalfd for the forwarded signals and SIGCHLD, which are blocked in this process.
pub struct Signals {
    fd: OwnedFd,
    /// The signal mask from before, for the command.
    before: libc::sigset_t,
}

/// One signal that arrived.
#[derive(Debug, Clone, Copy)]
pub struct Arrived {
    pub signal: i32,
    /// Whether the terminal sent it; the command, in the same process group, got it too.
    pub by_kernel: bool,
}

impl Signals {
    pub fn take() -> io::Result<Signals> {
        // SAFETY: all zeroes is a valid signal set, and these calls fill it; only the result owns the new descriptor.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in FORWARDED {
                libc::sigaddset(&mut set, signal);
            }
            libc::sigaddset(&mut set, libc::SIGCHLD);
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            check(i64::from(libc::sigprocmask(libc::SIG_BLOCK, &set, &mut before)))?;
            let fd = check(i64::from(libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)))?;
            // Writing the report to a closed pipe must fail with EPIPE, not kill gatekeeper.
            libc::signal(libc::SIGPIPE, libc::SIG_IGN);
            Ok(Signals { fd: OwnedFd::from_raw_fd(fd as i32), before })
        }
    }

    /// The same signals, through a copy of the descriptor.
    pub fn of(fd: OwnedFd) -> Signals {
        Signals { fd, before: current_mask() }
    }

    /// Sets the mask for the command: inside bubblewrap, the one that the outer gatekeeper was started with.
    pub fn with_blocked(mut self, blocked: &[i32]) -> Signals {
        // SAFETY: these calls change one initialised signal set.
        unsafe {
            libc::sigemptyset(&mut self.before);
            for signal in blocked {
                libc::sigaddset(&mut self.before, *signal);
            }
        }
        self
    }

    /// The mask that the command starts with.
    pub fn before(&self) -> libc::sigset_t {
        self.before
    }

    pub fn next(&self) -> Option<Arrived> {
        // SAFETY: all zeroes is a valid `signalfd_siginfo`, and read gets its size.
        unsafe {
            let mut info: libc::signalfd_siginfo = std::mem::zeroed();
            let read = libc::read(self.fd.as_raw_fd(), (&raw mut info).cast(), size_of_val(&info));
            (read == size_of_val(&info) as isize)
                .then_some(Arrived { signal: info.ssi_signo as i32, by_kernel: info.ssi_code == libc::SI_KERNEL })
        }
    }
}

impl std::os::fd::AsFd for Signals {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Blocks every signal in this thread, which in a process without others is the process.
pub fn block_all() -> io::Result<()> {
    // SAFETY: all zeroes is a valid signal set, filled before it is read; a null pointer discards the old mask.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        check(i64::from(libc::sigprocmask(libc::SIG_SETMASK, &all, std::ptr::null_mut()))).map(drop)
    }
}

/// A signalfd for the ends of children, which is blocked already.
pub fn of_children() -> io::Result<OwnedFd> {
    // SAFETY: all zeroes is a valid signal set; signalfd copies it, and only the result owns the new descriptor.
    unsafe {
        // Ignored, as the program that started this one may have had it, children would leave no wait status.
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        let mut children: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut children);
        libc::sigaddset(&mut children, libc::SIGCHLD);
        let fd = check(i64::from(libc::signalfd(-1, &children, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)))?;
        Ok(OwnedFd::from_raw_fd(fd as i32))
    }
}

/// Takes the signals that a signalfd has.
pub fn forget(signals: &OwnedFd) {
    let mut info = [0u8; size_of::<libc::signalfd_siginfo>()];
    while matches!(rustix::io::read(signals, &mut info), Ok(1..)) {}
}

/// The signals of a set.
pub fn members(set: &libc::sigset_t) -> Vec<i32> {
    // SAFETY: sigismember only reads the set.
    (1..=64).filter(|signal| unsafe { libc::sigismember(set, *signal) == 1 }).collect()
}

/// The signal mask of this thread.
pub fn current_mask() -> libc::sigset_t {
    // SAFETY: with a null set pthread_sigmask changes nothing and writes the current mask into `mask`.
    unsafe {
        let mut mask: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut mask);
        mask
    }
}
