//! Verdict: what is this file really, down the whole exec chain to an ELF.
//!
//! Takes a command and what it depends on (search path, directory, user, preload), gives a verdict with its reasons and
//! the descriptor to execute. Pure but for `disk` and `walk`: nothing is executed, nothing is written, and hostile files
//! get a verdict like any other.

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
pub use disk::{Disk, registered_handlers};
pub use dynamic::Release;
pub use elf::NATIVE;
pub use files::{Facts, Failure, FileType, Files, Opened};
pub use preload::Preload;
pub use script::{Malformed, Shebang, parse as parse_shebang};
pub use verdict::{Decision, Kind, Libc, Link, Linkage, Reason, ReasonCode, Verdict};

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::PathBuf;

/// Who would execute.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    pub uid: u32,
    pub gids: Vec<u32>,
}

/// What a verdict depends on besides the files.
#[derive(Clone, Debug)]
pub struct Context {
    /// PATH; `None` if it is not set.
    pub path: Option<OsString>,
    /// Absolute.
    pub cwd: PathBuf,
    pub caller: Caller,
    pub preload: Preload,
    /// The binfmt_misc handlers registered.
    pub handlers: Vec<Handler>,
    /// The ELF machine that runs here.
    pub machine: u16,
    /// Also tell DT_NEEDED, where symbolic links lead, and what runs before the filter.
    pub detail: bool,
}

/// What to execute: the very file that was looked at.
#[derive(Debug)]
pub struct Target {
    /// The final ELF; only a path (O_PATH) if it cannot be read.
    pub file: File,
    pub path: PathBuf,
    /// The words in place of `argv[0]`.
    pub argv: Vec<OsString>,
}

#[derive(Debug)]
pub struct Checked {
    pub verdict: Verdict,
    /// `None` exactly if the verdict is to refuse (or the files are not on disk).
    pub target: Option<Target>,
}

/// The verdict on one command.
pub fn check(command: &OsStr, context: &Context, files: &dyn Files) -> Checked {
    Checker::new(context, files).check(command)
}
