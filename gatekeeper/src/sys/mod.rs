//! All `unsafe` of gatekeeper: one syscall per function, errors as `io::Error`, nothing decided.
//!
//! What runs between fork and exec is in `child`, `guardian`, `keeper`, `mounts`, `place` and `reap`: no allocation, no locks, raw syscalls only, because the
//! program that forks may have threads.

pub mod attempts;
mod capabilities;
pub mod child;
pub mod guardian;
pub(crate) mod ids;
pub mod keeper;
pub mod landlock;
pub mod memory;
pub mod message;
pub mod mounts;
pub mod notify;
pub mod place;
pub mod probe;
pub mod process;
pub mod progress;
pub(crate) mod reap;
pub mod seccomp;
pub mod secret;
pub mod signals;
pub mod socket;

use std::io;

/// The name of an errno, such as `EACCES`, or its number if the contract's table does not have it.
pub fn errno_name(errno: i32) -> String {
    let name = u16::try_from(errno).ok().and_then(sandbox_contract::action::errno_name);
    name.map_or_else(|| errno.to_string(), str::to_owned)
}

/// The result of a libc call that answers -1 and sets errno.
fn check(answer: i64) -> io::Result<i64> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}
