//! Layers tried for real, each in a process of its own that ends at once: what a sysctl or a version says is not asked.

use super::{check, ids};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// What became of a try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    Works,
    /// The step that failed, counted from 0, and its errno.
    Failed {
        step: u8,
        errno: i32,
    },
    /// Killed for trying, as an outer filter may do.
    Killed(i32),
}

impl Attempt {
    pub fn works(self) -> bool {
        self == Attempt::Works
    }
}

/// Runs the steps in a process of its own, until one fails.
fn attempt(steps: &[&dyn Fn() -> bool]) -> io::Result<Attempt> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    // SAFETY: a plain fork by number; the new process makes raw syscalls only and ends with _exit.
    let pid = check(unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) })? as i32;
    if pid == 0 {
        let mut told = [0u8; 5];
        for (step, take) in (1u8..).zip(steps) {
            if !take() {
                // SAFETY: errno is always there.
                let errno = unsafe { *libc::__errno_location() };
                told[0] = step;
                told[1..].copy_from_slice(&errno.to_ne_bytes());
                break;
            }
        }
        // SAFETY: a local of that size is written; _exit runs no handlers.
        unsafe {
            libc::write(write.as_raw_fd(), told.as_ptr().cast(), told.len());
            libc::_exit(0)
        }
    }
    drop(write);
    let mut told = [0u8; 5];
    let heard = io::Read::read(&mut std::fs::File::from(read), &mut told)?;
    let status = super::process::wait(pid)?;
    Ok(match told {
        _ if heard != told.len() => Attempt::Killed(if libc::WIFSIGNALED(status) { libc::WTERMSIG(status) } else { 0 }),
        [0, ..] => Attempt::Works,
        [step, a, b, c, d] => Attempt::Failed { step: step - 1, errno: i32::from_ne_bytes([a, b, c, d]) },
    })
}

fn no_new_privs() -> bool {
    // SAFETY: no memory is passed.
    unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 }
}

fn unshare(flags: i32) -> bool {
    // SAFETY: no memory is passed.
    unsafe { libc::unshare(flags) == 0 }
}

/// A filter that allows everything, put on; with a listener if asked for.
pub fn filter(listener: bool) -> io::Result<Attempt> {
    let allow = libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW };
    let flags = if listener { libc::SECCOMP_FILTER_FLAG_NEW_LISTENER } else { 0 };
    attempt(&[&no_new_privs, &|| {
        let mut instruction = allow;
        let program = libc::sock_fprog { len: 1, filter: &raw mut instruction };
        // SAFETY: one live instruction, which the kernel copies.
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) >= 0 }
    }])
}

/// A ruleset put in force.
pub fn landlock(ruleset: BorrowedFd<'_>) -> io::Result<Attempt> {
    let ruleset = ruleset.as_raw_fd();
    // SAFETY: no memory is passed.
    attempt(&[&no_new_privs, &|| unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset, 0) == 0 }])
}

/// A user namespace with this user in it: made, mapped, and then used for a mount namespace.
pub fn user_namespace() -> io::Result<Attempt> {
    let map = |id: u32| CString::new(format!("{id} {id} 1\n"));
    let uid = map(rustix::process::geteuid().as_raw())?;
    let gid = map(rustix::process::getegid().as_raw())?;
    attempt(&[&|| unshare(libc::CLONE_NEWUSER), &|| ids::map_own(&uid, &gid), &|| {
        unshare(libc::CLONE_NEWNS) && make_private()
    }])
}

/// A mount namespace without a user namespace, as root has it.
pub fn mount_namespace() -> io::Result<Attempt> {
    attempt(&[&|| unshare(libc::CLONE_NEWNS), &make_private])
}

fn make_private() -> bool {
    let none = std::ptr::null::<libc::c_char>();
    // SAFETY: the path is a literal; null is allowed for the rest. It happens in a mount namespace of its own.
    unsafe { libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, none.cast()) == 0 }
}

/// A process moved into a cgroup, whose `cgroup.procs` this is.
pub fn join(procs: RawFd) -> io::Result<Attempt> {
    // SAFETY: one byte of a literal is written.
    attempt(&[&|| unsafe { libc::write(procs, c"0".as_ptr().cast(), 1) == 1 }])
}
