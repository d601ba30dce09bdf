//! User namespaces: the maps by which a process is itself in one that it has just made, and files opened from inside of
//! one. What runs after fork makes raw syscalls and does not allocate.

use super::child::{errno, write_file};
use super::{check, process};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Maps the user and the group of this process, in the namespace that it is in.
pub(super) fn map_own(uid: &CStr, gid: &CStr) -> bool {
    // SAFETY: no memory is passed. The process became undumpable with its new capabilities, and its /proc files root's.
    let own = unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) == 0 };
    // Kernels before 3.19 have no setgroups file, and need none. Every other file has to be there.
    let keeps_groups = own && (write_file(c"/proc/self/setgroups", c"deny") || errno() == libc::ENOENT);
    keeps_groups && write_file(c"/proc/self/uid_map", uid) && write_file(c"/proc/self/gid_map", gid)
}

// _IO(0xb7, 2)
const NS_GET_PARENT: libc::c_ulong = 0xb702;

/// The user namespace in which another was made.
pub fn parent_of(namespace: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed; the descriptor returned is new and owned by the result alone.
    unsafe {
        check(i64::from(libc::ioctl(namespace.as_raw_fd(), NS_GET_PARENT as _)))
            .map(|fd| OwnedFd::from_raw_fd(fd as i32))
    }
}

/// Opens a file, held by a descriptor that only names it, for writing, as a process in that user namespace would.
///
/// A process with threads cannot enter one. Its place takes a forked process that shares nothing with this one but the
/// table of descriptors, and puts the file where this one has kept a number for it.
pub fn open_from(namespace: BorrowedFd<'_>, file: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let name = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let kept = namespace.try_clone_to_owned()?;
    let (namespace, slot) = (namespace.as_raw_fd(), kept.as_raw_fd());
    // SAFETY: the new process makes raw syscalls on memory that was prepared before and ends with _exit; the number of the
    // slot stays this process's own, whatever file it stands for. No signal comes at its end, so no handler of a program
    // that embeds this one hears of it.
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
