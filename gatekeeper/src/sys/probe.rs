//! Tries each layer for real, in a short-lived process. Sysctls and kernel versions do not tell what an outer sandbox or
//! a security module denies.

use super::child::errno;
use super::mounts::Mounts;
use super::stage::Source;
use super::{check, ids};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// The outcome of a try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    Works,
    /// The step that failed, counted from 0, and its errno.
    Failed {
        step: u8,
        errno: i32,
    },
    /// Killed by this signal, as an outer filter may do.
    Killed(i32),
}

impl Attempt {
    pub fn works(self) -> bool {
        self == Attempt::Works
    }
}

/// Runs the steps in a forked process until one fails.
fn attempt(steps: &[&dyn Fn() -> bool]) -> io::Result<Attempt> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    // SAFETY: without CLONE_VM the new process has its own memory; it makes raw syscalls only and ends with _exit.
    let pid = check(unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) })? as i32;
    if pid == 0 {
        // The failed step, counted from 1, and its errno; all zero if none failed.
        let mut result = [0u8; 5];
        for (step, take) in (1u8..).zip(steps) {
            if !take() {
                result[0] = step;
                result[1..].copy_from_slice(&errno().to_ne_bytes());
                break;
            }
        }
        // SAFETY: pointer and length are those of `result`; _exit runs no handlers.
        unsafe {
            libc::write(write.as_raw_fd(), result.as_ptr().cast(), result.len());
            libc::_exit(0)
        }
    }
    drop(write);
    let mut result = [0u8; 5];
    let read = io::Read::read(&mut std::fs::File::from(read), &mut result)?;
    let status = super::process::wait(pid)?;
    Ok(match result {
        _ if read != result.len() => {
            Attempt::Killed(if libc::WIFSIGNALED(status) { libc::WTERMSIG(status) } else { 0 })
        }
        [0, ..] => Attempt::Works,
        [step, a, b, c, d] => Attempt::Failed { step: step - 1, errno: i32::from_ne_bytes([a, b, c, d]) },
    })
}

fn no_new_privs() -> bool {
    // SAFETY: PR_SET_NO_NEW_PRIVS takes no pointers.
    unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 }
}

fn unshare(flags: i32) -> bool {
    // SAFETY: unshare takes no pointers.
    unsafe { libc::unshare(flags) == 0 }
}

/// Installs a filter that allows everything, with a listener on request.
pub fn filter(listener: bool) -> io::Result<Attempt> {
    let allow = libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW };
    let flags = if listener { libc::SECCOMP_FILTER_FLAG_NEW_LISTENER } else { 0 };
    attempt(&[&no_new_privs, &|| {
        let mut instruction = allow;
        let program = libc::sock_fprog { len: 1, filter: &raw mut instruction };
        // SAFETY: `program` points to one instruction and says so; the kernel copies it.
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) >= 0 }
    }])
}

/// Enforces a Landlock ruleset.
pub fn landlock(ruleset: BorrowedFd<'_>) -> io::Result<Attempt> {
    let ruleset = ruleset.as_raw_fd();
    // SAFETY: landlock_restrict_self takes no pointers.
    attempt(&[&no_new_privs, &|| unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset, 0) == 0 }])
}

/// Creates a user namespace, maps this user into it, and creates a mount namespace there.
pub fn user_namespace() -> io::Result<Attempt> {
    let map = |id: u32| CString::new(format!("{id} {id} 1\n"));
    let uid = map(rustix::process::geteuid().as_raw())?;
    let gid = map(rustix::process::getegid().as_raw())?;
    attempt(&[&|| unshare(libc::CLONE_NEWUSER), &|| ids::map_own(&uid, &gid), &|| {
        unshare(libc::CLONE_NEWNS) && make_private()
    }])
}

/// Enters the namespaces of a run.
pub fn namespaces(mounts: &Mounts) -> io::Result<Attempt> {
    attempt(&[&|| mounts.enter(), &make_private])
}

/// Creates a mount namespace without a user namespace, which needs root.
pub fn mount_namespace() -> io::Result<Attempt> {
    attempt(&[&|| unshare(libc::CLONE_NEWNS), &make_private])
}

/// Mounts a stage in a new mount namespace, which ends with the process.
pub fn stage(tree: &CStr, source: &Source) -> io::Result<Attempt> {
    let map = |id: u32| CString::new(format!("{id} {id} 1\n"));
    let uid = map(rustix::process::geteuid().as_raw())?;
    let gid = map(rustix::process::getegid().as_raw())?;
    let mount = || source.mount(tree, libc::MS_NOSUID | libc::MS_NODEV);
    match rustix::process::geteuid().is_root() {
        true => attempt(&[&|| unshare(libc::CLONE_NEWNS), &make_private, &mount]),
        false => attempt(&[
            &|| unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) && ids::map_own(&uid, &gid),
            &make_private,
            &mount,
        ]),
    }
}

fn make_private() -> bool {
    let none = std::ptr::null::<libc::c_char>();
    // SAFETY: the path is a literal; mount(2) ignores the other pointers when it changes the propagation.
    unsafe { libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, none.cast()) == 0 }
}

/// Moves the process into the cgroup of this `cgroup.procs`.
pub fn join(procs: RawFd) -> io::Result<Attempt> {
    // SAFETY: write reads one byte of the literal.
    attempt(&[&|| unsafe { libc::write(procs, c"0".as_ptr().cast(), 1) == 1 }])
}
