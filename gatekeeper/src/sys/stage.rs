//! Mounts a stage over the working directory, in the command's mount namespace.
//!
//! The layers are opened here, in that namespace: overlayfs takes no directory of another one. Every path is opened without
//! following links, and overlayfs gets the descriptors, so no name has to be escaped for its options.
//!
//! Runs after fork: raw syscalls on memory prepared before, no allocation.

use super::child::{Launch, errno};
use super::landlock;
use super::mounts::{Place, bind, mount};
use crate::trust::text::StackText;
use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, RawFd};

/// A stage, and the Landlock rules on what is in it.
pub struct Staging {
    /// The working directory that the stage replaces.
    pub tree: CString,
    pub source: Source,
    /// The flags of the real mount, such as noexec, which the stage must not lose.
    pub flags: u64,
    /// Landlock rules attach to inodes, so those below the working directory are added once the stage is mounted.
    pub rules: Vec<(CString, u64)>,
    /// The program, if it lies in the working directory: opened again in the stage, which may hold another version.
    pub program: Option<CString>,
}

/// Where the command's changes go.
pub enum Source {
    /// overlayfs collects them in `upper`.
    Overlay { upper: CString, work: CString },
    /// A copy of the whole tree.
    Copy(CString),
}

impl Staging {
    /// Mounts the stage and adds the rules. False with errno set.
    pub(super) fn apply(&self, launch: &Launch) -> bool {
        let ruleset = launch.ruleset.as_ref().map(AsRawFd::as_raw_fd);
        let program = launch.program.as_raw_fd();
        mount(None, c"/", None, libc::MS_REC | libc::MS_PRIVATE, None)
            && self.source.mount(&self.tree, self.flags)
            && ruleset.is_none_or(|ruleset| self.add_rules(ruleset))
            && self.program.as_deref().is_none_or(|path| reopen(path, program))
    }

    fn add_rules(&self, ruleset: RawFd) -> bool {
        self.rules.iter().all(|(path, rights)| match Place::find(path) {
            Some(place) => landlock::add_path_rule(ruleset, place.0, *rights),
            // The stage has removed it: nothing is there to grant.
            None => matches!(errno(), libc::ENOENT | libc::ENOTDIR),
        })
    }
}

impl Source {
    /// Mounts over `tree`, which is also what shows through an overlay.
    pub(super) fn mount(&self, tree: &CStr, flags: u64) -> bool {
        let Some(place) = Place::find(tree) else { return false };
        let (upper, work) = match self {
            Source::Copy(from) => return Place::find(from).is_some_and(|from| bind(&from, &place, tree, None)),
            Source::Overlay { upper, work } => (Place::find(upper), Place::find(work)),
        };
        let (Some(upper), Some(work)) = (upper, work) else { return false };
        // userxattr: the only attributes that a user namespace may write; it turns redirects and metacopy off. The inode
        // index and xino would forbid changes to the real tree between two runs (overlayfs documentation, "Changes to
        // underlying filesystems"). volatile: without it, copying a file up and unmounting wait until the disk has everything
        // that any program has written to that file system.
        let options = StackText::<200>::of(format_args!(
            "lowerdir=/proc/self/fd/{},upperdir=/proc/self/fd/{},workdir=/proc/self/fd/{},userxattr,index=off,xino=off,volatile",
            place.0, upper.0, work.0
        ));
        let name = place.name();
        mount(Some(c"overlay"), name.as_c_str(), Some(c"overlay"), flags, Some(options.as_c_str()))
    }
}

/// Opens the program in the stage, under the number of the descriptor that was checked.
fn reopen(path: &CStr, program: RawFd) -> bool {
    // SAFETY: dup3 takes no pointers; the old descriptor of that number is closed by it, and nothing else uses it.
    Place::find(path).is_some_and(|place| unsafe { libc::dup3(place.0, program, libc::O_CLOEXEC) == program })
}
