//! Landlock syscalls. The `landlock` crate makes rulesets and `child` enforces them; this adds the rules in between.

use super::check;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

const VERSION: u32 = 1;
const RULE_PATH_BENEATH: i32 = 1;

/// `struct landlock_path_beneath_attr` of linux/landlock.h.
#[repr(C, packed)]
struct PathBeneath {
    allowed_access: u64,
    parent_fd: i32,
}

/// The Landlock ABI of the running kernel. Distributions backport Landlock, so the kernel version does not tell.
pub fn abi() -> io::Result<i32> {
    // SAFETY: with LANDLOCK_CREATE_RULESET_VERSION the attribute pointer must be null and its size 0, as here.
    check(unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0usize, 0usize, VERSION) }).map(|abi| abi as i32)
}

/// Grants `rights` below the open directory or file `place`.
pub fn add_rule(ruleset: BorrowedFd<'_>, place: BorrowedFd<'_>, rights: u64) -> io::Result<()> {
    match add_path_rule(ruleset.as_raw_fd(), place.as_raw_fd(), rights) {
        true => Ok(()),
        false => Err(io::Error::last_os_error()),
    }
}

/// Grants `rights` below the open directory or file `place`. Runs after fork; on failure errno is set.
pub(super) fn add_path_rule(ruleset: RawFd, place: RawFd, rights: u64) -> bool {
    let rule = PathBeneath { allowed_access: rights, parent_fd: place };
    // SAFETY: `rule` has the kernel's layout and outlives the call; the kernel copies it.
    unsafe { libc::syscall(libc::SYS_landlock_add_rule, ruleset, RULE_PATH_BENEATH, &raw const rule, 0) == 0 }
}
