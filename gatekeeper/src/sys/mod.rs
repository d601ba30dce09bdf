//! All of gatekeeper's `unsafe` code: one syscall per function, errors as `io::Error`, and no decisions.
//!
//! `child`, `descriptors`, `guardian`, `keeper`, `mounts`, `network`, `place`, `proc`, `reap` and `stage` run between fork and exec. The program that
//! forks may have threads, so this code makes raw syscalls only, allocates nothing and takes no lock.
//!
//! This folder is compiled twice: into gatekeeper, and into the guardian program (`gatekeeper/guardian`), which starts
//! commands for programs that must not be forked. `letter` is how a launch gets from one to the other.

pub mod attempts;
pub mod capabilities;
pub mod child;
pub mod descriptors;
pub mod guardian;
pub mod handle;
#[cfg(target_env = "musl")]
mod heap;
pub(crate) mod ids;
pub mod interrupt;
pub mod keeper;
pub mod landlock;
pub mod letter;
pub mod memory;
pub mod message;
pub mod mounts;
mod network;
pub mod notify;
pub mod outgoing;
pub mod place;
pub mod probe;
mod proc;
pub mod process;
pub mod progress;
pub(crate) mod reap;
pub mod rights;
pub mod seccomp;
pub mod secret;
pub mod signals;
pub mod socket;
pub mod stage;
pub mod start;

use std::ffi::CStr;
use std::io;
use std::os::fd::RawFd;

/// The name of an errno, such as `EACCES`, or its number if the contract's table does not have it.
pub fn errno_name(errno: i32) -> String {
    let name = u16::try_from(errno).ok().and_then(sandbox_contract::action::errno_name);
    name.map_or_else(|| errno.to_string(), str::to_owned)
}

/// Turns the result of a libc call that returns -1 and sets errno into an `io::Result`.
fn check(answer: i64) -> io::Result<i64> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

/// Whether an error tells nothing about a file: this process or the machine ran out of something.
pub fn is_shortage(error: &io::Error) -> bool {
    [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EIO].iter().any(|code| error.raw_os_error() == Some(*code))
}

fn set_errno(error: i32) {
    // SAFETY: __errno_location returns the address of this thread's errno, which lives as long as the thread.
    unsafe { *libc::__errno_location() = error };
}

/// Whether `statx` could fill `stat`. The syscall itself, because older versions of musl have no function for it.
fn statx(at: RawFd, name: &CStr, flags: i32, wanted: u32, stat: &mut libc::statx) -> bool {
    let stat: *mut libc::statx = stat;
    // SAFETY: a CStr is NUL-terminated, and the kernel writes no more than one `statx`, which is borrowed for the call.
    unsafe { libc::syscall(libc::SYS_statx, at, name.as_ptr(), flags, wanted, stat) == 0 }
}
