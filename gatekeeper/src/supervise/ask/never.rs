//! What is never asked, because no answer may open it.
//!
//! The supervisor is not confined, so it must not act on what keeps the command confined: files of the kernel, the policy,
//! gatekeeper's own directories and results, and the entries that are protected in writable trees.

use super::place::{Located, Place};
use crate::plan::Plan;
use crate::supervise::files::Does;
use rustix::fs::fstatfs;
use std::path::{Path, PathBuf};

/// File systems whose files are the kernel's: proc, sysfs, cgroup, cgroup2, debugfs, tracefs, securityfs, selinuxfs, bpf,
/// configfs, binfmt_misc, efivarfs, nsfs (statfs(2), linux/magic.h).
const KERNELS: [u64; 13] = [
    0x9fa0,
    0x6265_6572,
    0x0027_e0eb,
    0x6367_7270,
    0x6462_6720,
    0x7472_6163,
    0x7363_6673,
    0xf97c_ff8c,
    0xcafe_4a11,
    0x6265_6570,
    0x4249_4e4d,
    0xde5e_81e4,
    0x6e73_6673,
];

/// Real paths.
#[derive(Default)]
pub struct Never {
    /// May not be changed, nor what is below them.
    changed: Vec<PathBuf>,
    /// May not be opened at all.
    opened: Vec<PathBuf>,
    /// Closed places. They may be asked about by their names, but no directory that contains one may be moved: under its new
    /// name, the contents could be readable.
    closed: Vec<PathBuf>,
    /// Writable trees. The supervisor knows them by path, so no other directory may get their names.
    trees: Vec<PathBuf>,
    /// Set for a program inside bubblewrap, whose files are opened outside of it.
    outside: Option<Outside>,
}

/// What must not be opened for a program that has other mounts than the supervisor.
struct Outside {
    /// What bubblewrap has mounted, at its own path.
    mounted: Vec<PathBuf>,
}

/// Directories of which bubblewrap makes a private version: the same name means another file there.
const PRIVATE: [&str; 4] = ["/tmp", "/dev", "/proc", "/sys"];

impl Never {
    /// `run_dir`: the private directory of the run.
    pub fn new(plan: &Plan, run_dir: Option<&Path>) -> Never {
        let named = plan.ask.iter().flat_map(|ask| &ask.never).map(|path| plan.places.absolute(path));
        let named = named.chain(plan.policy.sources.iter().cloned());
        // A result that does not exist yet is known by its directory.
        let real = |path: PathBuf| {
            std::fs::canonicalize(&path).ok().or_else(|| {
                let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
                Some(std::fs::canonicalize(parent).ok()?.join(path.file_name()?))
            })
        };
        let mut changed: Vec<PathBuf> = named.filter_map(real).collect();
        let mut closed = Vec::new();
        if let Some(landlock) = &plan.landlock {
            let paths = &landlock.paths;
            closed.clone_from(&paths.hidden);
            let lists = [&paths.protected, &paths.links, &paths.covered, &paths.unwanted];
            changed.extend(lists.into_iter().flatten().cloned());
        }
        // A command that works in a copy changes the copy. The real tree waits for `gatekeeper stage apply`.
        changed.extend(plan.stage.iter().filter(|stage| stage.copy().is_some()).map(|stage| stage.tree.clone()));
        let opened = run_dir.into_iter().map(Path::to_owned).collect();
        Never { changed, opened, closed, trees: plan.written(), outside: None }
    }

    /// The same for a program inside bubblewrap. `mounted`: what bubblewrap mounts, at its own path.
    pub fn outside(plan: &Plan, mounted: Vec<PathBuf>) -> Never {
        let mut never = Never::new(plan, None);
        // Its changes are in the stage, which is mounted around bubblewrap only.
        never.changed.extend(plan.stage.iter().map(|stage| stage.tree.clone()));
        Never { outside: Some(Outside { mounted }), ..never }
    }

    pub fn is_in_tree(&self, at: &Path) -> bool {
        self.trees.iter().any(|tree| at.starts_with(tree))
    }

    /// Whether a file is one of these.
    pub fn holds(&self, located: &Located) -> bool {
        let at = located.at.as_path();
        // O_RDONLY with O_CREAT makes a file where there is none.
        let reads = matches!((&located.named.does, &located.place), (Does::Open { write: false, .. }, Place::File(_)));
        let below = |tops: &[PathBuf]| tops.iter().any(|top| at.starts_with(top));
        // Moving or removing a directory takes what is in it along.
        let takes = || matches!(located.named.does, Does::Move | Does::Remove | Does::Replace);
        let above = |tops: &[PathBuf]| takes() && tops.iter().any(|top| top.starts_with(at));
        let contains = |tops: &[PathBuf]| tops.iter().any(|top| top != at && top.starts_with(at)) && takes();
        let directory = || located.kind().is_some_and(|kind| kind.is_dir());
        // A descriptor of a directory outside leads around every mount of the program, by `..`.
        let leads_out = self.outside.is_some() && matches!(located.named.does, Does::Open { .. }) && directory();
        !at.is_absolute()
            || leads_out
            || self.is_private(at)
            || below(&self.opened)
            || above(&self.opened)
            || contains(&self.closed)
            || above(&self.trees) && directory()
            || !reads && (below(&self.changed) || above(&self.changed))
            || of_kernel(located)
            || device_of_root(located)
    }

    /// The same for a file whose mode, owner or times change.
    pub fn holds_path(&self, at: &Path, file: &std::os::fd::OwnedFd) -> bool {
        let below = |tops: &[PathBuf]| tops.iter().any(|top| at.starts_with(top));
        !at.is_absolute() || self.is_private(at) || below(&self.opened) || below(&self.changed) || is_kernels(file)
    }

    /// The same for a socket that is connected to.
    pub fn holds_socket(&self, at: &Path) -> bool {
        let own = self.opened.iter().chain(&self.changed);
        self.is_private(at) || own.into_iter().any(|top| at.starts_with(top))
    }

    /// Whether the name means another file to the program.
    fn is_private(&self, at: &Path) -> bool {
        let below = |top: &PathBuf| at.starts_with(top);
        self.outside
            .as_ref()
            .is_some_and(|outside| PRIVATE.iter().any(|top| at.starts_with(top)) && !outside.mounted.iter().any(below))
    }
}

fn of_kernel(located: &Located) -> bool {
    is_kernels(located.descriptor())
}

fn is_kernels(file: &std::os::fd::OwnedFd) -> bool {
    fstatfs(file).map_or(true, |found| KERNELS.contains(&(found.f_type as u64 & 0xffff_ffff)))
}

/// Root's command has dropped capabilities that the supervisor still has, and devices ask for them.
fn device_of_root(located: &Located) -> bool {
    let device = |located: &Located| {
        matches!(located.place, Place::File(_))
            && located.kind().is_none_or(|kind| kind.is_char_device() || kind.is_block_device())
    };
    rustix::process::geteuid().is_root() && device(located)
}
