//! Check: can LD_PRELOAD confine this command? Follows the exec chain down to the ELF file that the kernel starts.
//!
//! Takes a command and its context (search path, directory, user, preload), gives a verdict with reasons and the
//! descriptor to execute. Only `disk` and `walk` make system calls. Nothing is executed or written, and hostile files get
//! a verdict like any other.

mod binfmt;
mod chain;
mod disk;
mod dynamic;
mod elf;
mod env;
mod files;
mod loader;
mod lookup;
pub mod memory;
mod notes;
mod preload;
mod script;
mod verdict;
pub mod walk;

pub use binfmt::Handler;
pub use chain::Checker;
pub use disk::{Disk, HANDLERS, registered_handlers};
pub use dynamic::Release;
pub use elf::NATIVE;
pub use files::{Facts, Failure, FileType, Files, Opened};
pub use preload::Preload;
pub use script::{Malformed, Shebang, parse as parse_shebang};
pub use verdict::{Decision, Kind, Libc, Link, Linkage, Reason, ReasonCode, Verdict};

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::PathBuf;

/// The user who would execute the command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    pub uid: u32,
    pub gids: Vec<u32>,
}

/// What a verdict depends on, apart from the files.
#[derive(Clone, Debug)]
pub struct Context {
    /// PATH; `None` if it is not set.
    pub path: Option<OsString>,
    /// Absolute.
    pub cwd: PathBuf,
    pub caller: Caller,
    pub preload: Preload,
    /// The registered binfmt_misc handlers.
    pub handlers: Vec<Handler>,
    /// The ELF machine that runs here.
    pub machine: u16,
    /// Whether to report DT_NEEDED, the targets of symbolic links, and code that runs before the filter.
    pub detail: bool,
}

/// What to execute: the same open file that was checked.
#[derive(Debug)]
pub struct Target {
    /// The final ELF file; opened with O_PATH if it cannot be read.
    pub file: File,
    pub path: PathBuf,
    /// The words that replace `argv[0]`.
    pub argv: Vec<OsString>,
}

#[derive(Debug)]
pub struct Checked {
    pub verdict: Verdict,
    /// `None` if the verdict is to refuse, or if the files are not on disk.
    pub target: Option<Target>,
}

/// The verdict on one command.
pub fn check(command: &OsStr, context: &Context, files: &dyn Files) -> Checked {
    Checker::new(context, files).check(command)
}
