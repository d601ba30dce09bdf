//! Landlock's version. Rulesets are built with the `landlock` crate and put in force in `child`.

use super::check;
use std::io;

const VERSION: u32 = 1;

/// The ABI of the running kernel, asked for and not guessed from its version.
pub fn abi() -> io::Result<i32> {
    // SAFETY: asking for the version passes no memory.
    check(unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0usize, 0usize, VERSION) }).map(|abi| abi as i32)
}
