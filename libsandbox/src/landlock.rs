//! Enforces `SANDBOX_FS_READ` and `SANDBOX_FS_WRITE` with a Landlock ruleset on this process.
//!
//! With READ set, the program reads and executes only below paths of either list, and writes only below those of WRITE
//! (nowhere if WRITE is unset). With WRITE alone, reading is unrestricted. /dev/null is always writable.

use crate::failure::Failure;
use crate::filter::no_new_privs;
use crate::raw;
use core::ffi::CStr;
use sandbox_contract::vars;

// From linux/landlock.h. A fixed list: "every right this kernel knows" would mean something else on each kernel.
const EXECUTE: u64 = 1 << 0;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const REMOVE_AND_MAKE: u64 = 0b1_1111_1111 << 4;
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;

/// Never granted: a process that may create a disk's device node anywhere can read the whole disk through it.
const MAKE_DEVICES: u64 = 1 << 6 | 1 << 11;

const READ: u64 = EXECUTE | READ_FILE | READ_DIR;
const WRITE: u64 = WRITE_FILE | REMOVE_AND_MAKE | REFER | TRUNCATE;
/// The rights that the kernel accepts in a rule for a file that is not a directory.
const ON_FILES: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE;

const CREATE_RULESET_VERSION: usize = 1;
const RULE_PATH_BENEATH: usize = 1;
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
    let version = unsafe { raw::call(libc::SYS_landlock_create_ruleset, [0, 0, CREATE_RULESET_VERSION, 0, 0, 0]) };
    let version = version.map_err(Failure::NoLandlock)?;
    // Before ABI 3 (Linux 6.2), no rule stops truncate(2) or O_TRUNC from emptying any file that the user may write.
    if version < 3 {
        return Err(Failure::OldLandlock(version));
    }
    single_threaded()?;
    let handled = WRITE | if read.is_some() { READ } else { 0 };
    let ruleset = Ruleset { handled_access_fs: handled };
    let size = size_of::<Ruleset>();
    // SAFETY: `ruleset` lives through the call, and `size` is its size.
    let made = unsafe { raw::call(libc::SYS_landlock_create_ruleset, [&raw const ruleset as usize, size, 0, 0, 0, 0]) };
    let fd = made.map_err(Failure::NoLandlock)? as i32;
    let rules = add_rules(fd, read, write, handled).and_then(|()| no_new_privs()).and_then(|()| {
        // SAFETY: no memory is passed.
        let answer = unsafe { raw::call(libc::SYS_landlock_restrict_self, [fd as usize, 0, 0, 0, 0, 0]) };
        answer.map(drop).map_err(|errno| Failure::Kernel("the Landlock rules", errno))
    });
    raw::close(fd);
    rules
}

fn add_rules(
    fd: i32,
    read: Option<&'static [u8]>,
    write: Option<&'static [u8]>,
    handled: u64,
) -> Result<(), Failure<'static>> {
    for path in paths(read) {
        add_rule(fd, vars::FS_READ, path, READ & handled)?;
    }
    for path in paths(write) {
        add_rule(fd, vars::FS_WRITE, path, (READ | WRITE) & handled & !MAKE_DEVICES)?;
    }
    // Grant nothing if /dev/null is missing or is not the null device.
    let null = open(b"/dev/null").ok().filter(|null| null.is_null_device());
    null.map_or(Ok(()), |null| null.grant(fd, (READ_FILE | WRITE_FILE | TRUNCATE) & handled))
        .map_err(|errno| Failure::Path(vars::FS_WRITE, b"/dev/null", "make a Landlock rule for", errno))
}

fn paths(list: Option<&'static [u8]>) -> impl Iterator<Item = &'static [u8]> {
    list.unwrap_or_default().split(|byte| *byte == b':').filter(|path| !path.is_empty())
}

fn add_rule(ruleset: i32, variable: &'static str, path: &'static [u8], rights: u64) -> Result<(), Failure<'static>> {
    if path.len() >= MAX_PATH {
        return Err(Failure::PathTooLong(variable, path));
    }
    let place = open(path).map_err(|errno| Failure::Path(variable, path, "open", errno))?;
    place.grant(ruleset, rights).map_err(|errno| Failure::Path(variable, path, "make a Landlock rule for", errno))
}

/// An O_PATH descriptor to name a path in a rule; closed when dropped.
struct Place {
    fd: i32,
    stat: libc::stat,
}

fn open(path: &[u8]) -> Result<Place, i32> {
    let mut name = [0u8; MAX_PATH];
    // The last byte stays zero.
    name.iter_mut().take(MAX_PATH - 1).zip(path).for_each(|(to, from)| *to = *from);
    let name = CStr::from_bytes_until_nul(&name).map_err(|_| libc::ENAMETOOLONG)?;
    let fd = raw::open(name, libc::O_PATH)?;
    match raw::fstat(fd) {
        Ok(stat) => Ok(Place { fd, stat }),
        Err(errno) => {
            raw::close(fd);
            Err(errno)
        }
    }
}

impl Place {
    fn is_null_device(&self) -> bool {
        self.stat.st_mode & libc::S_IFMT == libc::S_IFCHR && self.stat.st_rdev == libc::makedev(1, 3)
    }

    /// Adds the rule, or returns errno.
    fn grant(&self, ruleset: i32, rights: u64) -> Result<(), i32> {
        let directory = self.stat.st_mode & libc::S_IFMT == libc::S_IFDIR;
        let allowed_access = if directory { rights } else { rights & ON_FILES };
        // The kernel refuses a rule that grants nothing.
        if allowed_access == 0 {
            return Ok(());
        }
        let rule = PathBeneath { allowed_access, parent_fd: self.fd };
        let arguments = [ruleset as usize, RULE_PATH_BENEATH, &raw const rule as usize, 0, 0, 0];
        // SAFETY: `rule` lives through the call and has the layout of the kernel's struct.
        unsafe { raw::call(libc::SYS_landlock_add_rule, arguments) }.map(drop)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        raw::close(self.fd);
    }
}

/// Fails if the process has more than one thread. Counts the links of /proc/self/task (two plus one per thread), or, if
/// /proc is not mounted, tries unshare(CLONE_THREAD), which does nothing but fails with EINVAL in a threaded process.
fn single_threaded() -> Result<(), Failure<'static>> {
    // SAFETY: unshare passes no memory.
    let unshare = || unsafe { raw::call(libc::SYS_unshare, [libc::CLONE_THREAD as usize, 0, 0, 0, 0, 0]) };
    match open(b"/proc/self/task") {
        Ok(tasks) if tasks.stat.st_nlink == 3 => Ok(()),
        Ok(_) => Err(Failure::ThreadsBeforeLandlock),
        Err(_) => match unshare() {
            Ok(_) => Ok(()),
            Err(libc::EINVAL) => Err(Failure::ThreadsBeforeLandlock),
            Err(errno) => Err(Failure::ThreadsUncounted(errno)),
        },
    }
}
