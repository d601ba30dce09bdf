//! User namespaces: maps this user into a new one, and opens files as a process inside one would.
//!
//! Runs after fork as well: raw syscalls, no allocation there.

use super::child::{errno, write_file};
use super::{check, process};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Writes the id maps of the user namespace that this process has just entered.
pub(super) fn map_own(uid: &CStr, gid: &CStr) -> bool {
    // Gaining capabilities made the process undumpable, and its files in /proc root's (proc(5)).
    // SAFETY: PR_SET_DUMPABLE takes no pointers.
    let own = unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) == 0 };
    // Kernels before 3.19 have no setgroups file and map groups without it. A missing map file is an error.
    let keeps_groups = own && (write_file(c"/proc/self/setgroups", c"deny") || errno() == libc::ENOENT);
    keeps_groups && write_file(c"/proc/self/uid_map", uid) && write_file(c"/proc/self/gid_map", gid)
}

// _IO(0xb7, 2)
const NS_GET_PARENT: libc::c_ulong = 0xb702;

/// The user namespace in which another was made.
pub fn parent_of(namespace: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // SAFETY: NS_GET_PARENT takes no pointer; the descriptor it returns is new, and only the result owns it.
    unsafe {
        check(i64::from(libc::ioctl(namespace.as_raw_fd(), NS_GET_PARENT as _)))
            .map(|fd| OwnedFd::from_raw_fd(fd as i32))
    }
}

/// Opens a file that is held by an O_PATH descriptor for writing, as a process in that user namespace would.
///
/// A process with threads cannot enter a user namespace (setns(2)). So a forked process does, which shares only the
/// descriptor table with this one, and puts the opened file on a descriptor number that this process has reserved.
pub fn open_from(namespace: BorrowedFd<'_>, file: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let name = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let kept = namespace.try_clone_to_owned()?;
    let (namespace, slot) = (namespace.as_raw_fd(), kept.as_raw_fd());
    // SAFETY: without CLONE_VM the new process has its own memory; it makes raw syscalls on strings built before and ends
    // with _exit. `kept` owns the number `slot` throughout; dup3 only changes the file behind it. The process is cloned
    // without an exit signal, so that a SIGCHLD handler of an embedding program does not run.
    unsafe {
        let helper = check(libc::syscall(libc::SYS_clone, libc::CLONE_FILES, 0, 0, 0, 0))? as i32;
        if helper == 0 {
            let entered = libc::setns(namespace, libc::CLONE_NEWUSER) == 0;
            let fd = if entered { libc::open(name.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC) } else { -1 };
            let done = fd >= 0 && libc::dup3(fd, slot, libc::O_CLOEXEC) == slot;
            let error = errno();
            libc::close(fd);
            libc::_exit(if done { 0 } else { error.clamp(1, 255) });
        }
        let status = process::wait_for_helper(helper);
        match libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)) {
            Some(0) => Ok(kept),
            error => Err(io::Error::from_raw_os_error(error.unwrap_or(libc::ECANCELED))),
        }
    }
}
