//! Paths from `SANDBOX_FS_READ` and `SANDBOX_FS_WRITE`, as a Landlock ruleset on this process.
//!
//! With READ set, reading and executing is confined to both lists, and writing to WRITE (nowhere if unset). With WRITE
//! alone, reading stays open. /dev/null can always be written: it keeps nothing.

use crate::failure::Failure;
use crate::filter::{errno, no_new_privs};
use sandbox_contract::vars;

// linux/landlock.h; the rights by name, since "all that this kernel knows" would change meaning with the kernel.
const EXECUTE: u64 = 1 << 0;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const REMOVE_AND_MAKE: u64 = 0b1_1111_1111 << 4;
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;

const READ: u64 = EXECUTE | READ_FILE | READ_DIR;
const WRITE: u64 = WRITE_FILE | REMOVE_AND_MAKE;
/// What a rule on a file, not a directory, may hold.
const ON_FILES: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE;

const CREATE_RULESET_VERSION: u32 = 1;
const RULE_PATH_BENEATH: u32 = 1;
const MAX_PATH: usize = 4096;

#[repr(C)]
struct Ruleset {
    handled_access_fs: u64,
}

#[repr(C, packed)]
struct PathBeneath {
    allowed_access: u64,
    parent_fd: i32,
}

pub fn restrict(read: Option<&'static [u8]>, write: Option<&'static [u8]>) -> Result<(), Failure<'static>> {
    // SAFETY: asking for the version passes no memory.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0usize, 0usize, CREATE_RULESET_VERSION) };
    if version < 1 {
        return Err(Failure::NoLandlock(errno()));
    }
    if threads() != Some(1) {
        return Err(Failure::ThreadsBeforeLandlock);
    }
    // REFER and TRUNCATE came with ABI 2 and 3. Without them a kernel refuses every rename between directories, and
    // lets every truncate through that the descriptor allows.
    let newer = (if version >= 2 { REFER } else { 0 }) | (if version >= 3 { TRUNCATE } else { 0 });
    let write_rights = WRITE | newer;
    let handled = write_rights | if read.is_some() { READ } else { 0 };
    let ruleset = Ruleset { handled_access_fs: handled };
    // SAFETY: `ruleset` lives through the call and its size is its own.
    let fd = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, &ruleset, size_of::<Ruleset>(), 0u32) };
    let Ok(fd) = i32::try_from(fd) else { return Err(Failure::NoLandlock(errno())) };
    if fd < 0 {
        return Err(Failure::NoLandlock(errno()));
    }
    let rules = add_rules(fd, read, write, handled, write_rights).and_then(|()| no_new_privs());
    // SAFETY: `fd` is the ruleset made above; the calls pass no memory.
    let answer = unsafe {
        let answer = if rules.is_ok() { libc::syscall(libc::SYS_landlock_restrict_self, fd, 0u32) } else { 0 };
        let failed = errno();
        libc::close(fd);
        (answer, failed)
    };
    rules?;
    if answer.0 == 0 { Ok(()) } else { Err(Failure::Kernel("the Landlock rules", answer.1)) }
}

fn add_rules(
    fd: i32,
    read: Option<&'static [u8]>,
    write: Option<&'static [u8]>,
    handled: u64,
    write_rights: u64,
) -> Result<(), Failure<'static>> {
    for path in paths(read) {
        add_rule(fd, vars::FS_READ, path, READ & handled)?;
    }
    for path in paths(write) {
        add_rule(fd, vars::FS_WRITE, path, (READ | write_rights) & handled)?;
    }
    add_rule(fd, vars::FS_WRITE, b"/dev/null", (READ_FILE | WRITE_FILE | TRUNCATE) & handled)
}

fn paths(list: Option<&'static [u8]>) -> impl Iterator<Item = &'static [u8]> {
    list.unwrap_or_default().split(|byte| *byte == b':').filter(|path| !path.is_empty())
}

fn add_rule(ruleset: i32, variable: &'static str, path: &'static [u8], rights: u64) -> Result<(), Failure<'static>> {
    let mut name = [0u8; MAX_PATH];
    if path.len() >= MAX_PATH {
        return Err(Failure::PathTooLong(variable, path));
    }
    name.iter_mut().zip(path).for_each(|(to, from)| *to = *from);
    // SAFETY: `name` is NUL-terminated: the path is shorter than the zeroed buffer.
    let fd = unsafe { libc::open(name.as_ptr().cast(), libc::O_PATH | libc::O_CLOEXEC) };
    if fd < 0 {
        return Err(Failure::Path(variable, path, "open", errno()));
    }
    // SAFETY: `stat` may be all zeroes and fstat fills it; `rule` lives through its call; `fd` is closed once.
    let (answer, failed) = unsafe {
        let mut stat: libc::stat = core::mem::zeroed();
        // By number: the C library's fstat is a symbol of glibc 2.33.
        let mut answer = libc::syscall(libc::SYS_fstat, fd, &mut stat);
        if answer == 0 {
            let directory = stat.st_mode & libc::S_IFMT == libc::S_IFDIR;
            let rule =
                PathBeneath { allowed_access: if directory { rights } else { rights & ON_FILES }, parent_fd: fd };
            answer = if rule.allowed_access == 0 {
                0
            } else {
                libc::syscall(libc::SYS_landlock_add_rule, ruleset, RULE_PATH_BENEATH, &rule, 0u32)
            };
        }
        let failed = errno();
        libc::close(fd);
        (answer, failed)
    };
    if answer == 0 { Ok(()) } else { Err(Failure::Path(variable, path, "make a Landlock rule for", failed)) }
}

/// How many threads the process has: the links of /proc/self/task less `.` and `..`.
fn threads() -> Option<u64> {
    // SAFETY: `stat` may be all zeroes and is filled by the call; the path is a literal.
    unsafe {
        let mut stat: libc::stat = core::mem::zeroed();
        let answer = libc::syscall(libc::SYS_newfstatat, libc::AT_FDCWD, c"/proc/self/task".as_ptr(), &mut stat, 0);
        (answer == 0).then(|| (stat.st_nlink as u64).saturating_sub(2))
    }
}
