//! The run's own directory, as the guardian makes it: before the command starts, and after everybody who could remove it
//! is known. Whoever is killed meanwhile, one of the two processes is left to remove it.
//!
//! Runs after fork: raw syscalls on memory prepared before, no allocation.

use std::ffi::CString;
use std::os::fd::RawFd;

/// What is to be made, granted and, when the front process is gone, removed.
pub struct Place {
    pub directory: CString,
    pub inside: Vec<Make>,
    /// Landlock rights on what is made here, since nothing of it is there when the other rules are added.
    pub grants: Vec<(CString, u64)>,
    /// The words of the program that removes the directory; none where it is to be kept.
    pub sweep: Option<Sweep>,
}

pub enum Make {
    Directory { path: CString, mode: u32 },
    File { path: CString, mode: u32, contents: Vec<u8> },
}

/// `gatekeeper __sweep DIRECTORY`.
pub struct Sweep {
    program: CString,
    words: Vec<CString>,
    pointers: Vec<*const libc::c_char>,
}

// SAFETY: the pointers are to the strings owned beside them, which nobody changes.
unsafe impl Send for Sweep {}

impl Sweep {
    pub fn new(program: CString, words: Vec<CString>) -> Sweep {
        let pointers = words.iter().map(|word| word.as_ptr()).chain([std::ptr::null()]).collect();
        Sweep { program, words, pointers }
    }

    pub fn words(&self) -> &[CString] {
        &self.words
    }
}

#[repr(C, packed)]
struct PathBeneath {
    allowed_access: u64,
    parent_fd: i32,
}
const RULE_PATH_BENEATH: i32 = 1;

impl Place {
    /// Makes everything, in order; false with errno set at the first that fails.
    pub(super) fn make(&self, ruleset: Option<RawFd>) -> bool {
        // SAFETY: every path is NUL-terminated and lives through its call.
        let made = unsafe { libc::mkdir(self.directory.as_ptr(), 0o700) == 0 };
        made && self.inside.iter().all(Make::make) && ruleset.is_none_or(|ruleset| self.grant(ruleset))
    }

    fn grant(&self, ruleset: RawFd) -> bool {
        self.grants.iter().all(|(path, rights)| {
            // SAFETY: the path is NUL-terminated; the kernel reads one rule, laid out as its own; the descriptor is closed once.
            unsafe {
                let fd = libc::open(path.as_ptr(), libc::O_PATH | libc::O_CLOEXEC);
                let rule = PathBeneath { allowed_access: *rights, parent_fd: fd };
                let added = libc::syscall(libc::SYS_landlock_add_rule, ruleset, RULE_PATH_BENEATH, &raw const rule, 0);
                let errno = *libc::__errno_location();
                libc::close(fd);
                *libc::__errno_location() = errno;
                added == 0
            }
        })
    }

    /// Removes the directory by becoming the program that does; returns if there is nothing to do.
    pub(super) fn sweep(&self) {
        let Some(sweep) = &self.sweep else { return };
        let nothing: [*const libc::c_char; 1] = [std::ptr::null()];
        // SAFETY: the path and the words are NUL-terminated, both lists end in null.
        unsafe {
            if libc::faccessat(libc::AT_FDCWD, self.directory.as_ptr(), libc::F_OK, libc::AT_SYMLINK_NOFOLLOW) == 0 {
                libc::execve(sweep.program.as_ptr(), sweep.pointers.as_ptr(), nothing.as_ptr());
            }
        }
    }
}

impl Make {
    fn make(&self) -> bool {
        // SAFETY: paths are NUL-terminated, contents are a live slice; the descriptor is closed once.
        unsafe {
            match self {
                Make::Directory { path, mode } => libc::mkdir(path.as_ptr(), *mode) == 0,
                Make::File { path, mode, contents } => {
                    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW | libc::O_CLOEXEC;
                    let fd = libc::open(path.as_ptr(), flags, *mode);
                    if fd < 0 {
                        return false;
                    }
                    let written = libc::write(fd, contents.as_ptr().cast(), contents.len());
                    libc::close(fd) == 0 && written == contents.len() as isize
                }
            }
        }
    }
}
