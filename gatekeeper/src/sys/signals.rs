//! Signals to this process, as a descriptor to poll.

use super::check;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Signals that gatekeeper passes on to the command. Those of the terminal to a job in the background stop the command, and
/// gatekeeper stops after it; if they stopped both, `fg` would continue gatekeeper before it knows that the command had stopped.
const FORWARDED: [i32; 12] = [
    libc::SIGTTIN,
    libc::SIGTTOU,
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
            change_mask(libc::SIG_BLOCK, &set, &mut before)?;
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
        self.before = of_bits(blocked.iter().fold(0, |bits, signal| bits | bit(*signal)));
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

/// sigprocmask(2) itself, for this thread. The C library's function leaves out the signals that it uses itself (glibc: 32 and
/// 33; musl: 34 too), but other processes may send those as well, and a caller may have blocked them.
///
/// # Safety
/// `set` and `before` are null, or point to signal sets.
unsafe fn change_mask(how: i32, set: *const libc::sigset_t, before: *mut libc::sigset_t) -> io::Result<()> {
    // SAFETY: the kernel reads and writes the first eight bytes of the caller's sets, which are larger.
    check(unsafe { libc::syscall(libc::SYS_rt_sigprocmask, how, set, before, size_of::<u64>()) }).map(drop)
}

/// The bit of a signal in the kernel's sets; 0 if there is no such signal.
fn bit(signal: i32) -> u64 {
    u32::try_from(signal - 1).ok().and_then(|at| 1u64.checked_shl(at)).unwrap_or(0)
}

/// The set of these signals. The C library's functions cannot add its own.
fn of_bits(bits: u64) -> libc::sigset_t {
    // SAFETY: all zeroes is a valid signal set, which begins with the kernel's.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        (&raw mut set).cast::<u64>().write(bits);
        set
    }
}

/// Blocks every signal in this thread, which in a process without others is the process.
pub fn block_all() -> io::Result<()> {
    // SAFETY: the set outlives the call, and a null pointer discards the old mask.
    unsafe { change_mask(libc::SIG_SETMASK, &of_bits(!0), std::ptr::null_mut()) }
}

/// Restores a mask.
pub fn set_mask(mask: &libc::sigset_t) -> io::Result<()> {
    // SAFETY: as in `block_all`.
    unsafe { change_mask(libc::SIG_SETMASK, mask, std::ptr::null_mut()) }
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
    // SAFETY: a signal set begins with the kernel's.
    let bits = unsafe { std::ptr::from_ref(set).cast::<u64>().read() };
    (1..=64).filter(|signal| bits & bit(*signal) != 0).collect()
}

/// The signal mask of this thread.
pub fn current_mask() -> libc::sigset_t {
    let mut mask = of_bits(0);
    // SAFETY: with a null set the call changes nothing and writes the current mask into `mask`. It cannot fail then.
    let _ = unsafe { change_mask(libc::SIG_BLOCK, std::ptr::null(), &mut mask) };
    mask
}
