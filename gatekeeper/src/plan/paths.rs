//! Which paths a command may use: a policy and a view of the file system in, Landlock grants and protected places out.
//!
//! Landlock can only grant. To keep a credential unreadable, the plan grants everything around it: its siblings, and the
//! siblings of its parents. Inside a writable tree that is not possible, so the mount layer makes paths there read-only
//! (`protected`) or covers them (`covered`). What neither layer can protect is listed in `open`, for the report.

pub mod aliases;
mod credentials;
mod executing;
mod followed;
mod git;
mod granting;
mod hidden;
pub mod homes;
mod known;
mod linked;
mod memory;
mod patterns;
mod places;
mod planner;
mod protect;
mod secrets;
pub mod spelling;
mod temporary;
mod tree;

pub use credentials::CREDENTIALS;
pub(crate) use credentials::SYSTEM_CREDENTIALS;
pub use git::is_sensitive;
pub use hidden::{credentials, kept};
pub use known::*;
pub use patterns::{EntryKind, Found, KERNEL, Searched, Seek, Unlisted, check_count, plain, shown};
pub use places::{Places, SUMMARY};
pub use protect::refuse_links;
pub use temporary::Used;
pub use tree::{Inode, Kind, Look, Tree};

use super::refusal::Refusal;
use crate::policy::Policy;
use planner::Planner;
use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What a grant allows beneath its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// List directories, but read no file.
    List,
    Read,
    /// Read and execute.
    ReadExecute,
    /// Everything, including execute.
    Write,
    /// Everything except execute.
    WriteOnly,
    /// Read, write and control a device.
    Device,
}

impl Access {
    pub fn writes(self) -> bool {
        matches!(self, Access::Write | Access::WriteOnly)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Grant {
    pub path: PathBuf,
    pub access: Access,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PathPlan {
    pub grants: Vec<Grant>,
    /// Unreadable, because no grant reaches them.
    pub hidden: Vec<PathBuf>,
    /// Inside a writable tree; a mount makes them read-only.
    pub protected: Vec<PathBuf>,
    /// Symbolic links inside a writable tree that lead to a protected or hidden path; they must stay in place.
    pub links: Vec<PathBuf>,
    /// Inside a granted tree; a mount covers them.
    pub covered: Vec<PathBuf>,
    /// Absent files that git would trust if the command created them; removed after the run.
    pub unwanted: Vec<PathBuf>,
    /// Inside a writable tree, and no layer keeps the command from creating or changing them.
    pub open: Vec<PathBuf>,
    /// Replaced by a new, empty directory for the command.
    pub private: Vec<PathBuf>,
    /// Directories for temporary files that are replaced by empty ones. Without mounts they are not granted at all.
    pub temporary: Vec<Grant>,
    /// Would be private, but the run uses something in them.
    pub shared: Vec<PathBuf>,
    /// If only some programs may be executed: the paths by which they are found, links among them.
    pub programs: Vec<PathBuf>,
    /// Named by the policy and absent.
    pub missing: Vec<PathBuf>,
    /// What the policy denies, by paths, patterns and links in denied directories, in order.
    pub denied: Vec<PathBuf>,
    /// For hosts without mounts: the grants to use instead, and which of `covered` these close.
    pub without_mounts: Option<(Vec<Grant>, BTreeSet<PathBuf>)>,
    /// Further facts for the report.
    pub notes: Vec<String>,
    /// Whether secrets may have been missed, as when the search stopped at its limit or a file has hard links.
    pub incomplete: bool,
    /// Files in protected directories that have other names.
    linked: BTreeSet<PathBuf>,
    /// The hidden paths that hold secrets, without those closed only to limit which programs run.
    secret: BTreeSet<PathBuf>,
    /// What `paths.execute` names. `None`: everything readable.
    executable: Option<BTreeSet<PathBuf>>,
}

impl PathPlan {
    /// `closed`: trees to leave out as a whole, unless they are writable. `used`: the programs of the run, and where it starts.
    /// Refuses a policy whose grants depend on a link that a command could have made, and one that makes a whole home
    /// writable without naming it.
    pub fn new(
        policy: &Policy,
        places: &Places,
        closed: &[PathBuf],
        used: &[&Path],
        found: &Found,
        tree: &dyn Tree,
    ) -> Result<PathPlan, Refusal> {
        let planner = Planner { policy, places, closed, used, found, tree, linked: OnceCell::new() };
        let mut plan = planner.plan(true)?;
        let writing: BTreeSet<PathBuf> = plan.writable().collect();
        let closes =
            plan.covered.iter().filter(|path| plan.denied.binary_search(path).is_ok() || !is_below(path, &writing));
        let closes: BTreeSet<PathBuf> = closes.chain(plan.hidden_in_private()).cloned().collect();
        if !closes.is_empty() {
            plan.without_mounts = Some((planner.plan(false)?.grants, closes));
        }
        Ok(plan)
    }

    /// The writable trees.
    pub fn writable(&self) -> impl Iterator<Item = PathBuf> {
        self.grants.iter().filter(|grant| grant.access.writes()).map(|grant| grant.path.clone())
    }

    /// The grants to use, with the mounts in force or without.
    pub fn grants(&self, mounts: bool) -> Cow<'_, [Grant]> {
        match &self.without_mounts {
            Some((grants, _)) if !mounts => Cow::Borrowed(grants),
            _ if mounts && !self.temporary.is_empty() => {
                Cow::Owned(self.grants.iter().chain(&self.temporary).cloned().collect())
            }
            _ => Cow::Borrowed(&self.grants),
        }
    }

    /// Directories of writable trees, and of terminals, that hold a denied path. Without mounts only what is in them is granted,
    /// so nothing can be created there.
    pub fn fixed_without_mounts(&self) -> Vec<PathBuf> {
        let Some((grants, closed)) = &self.without_mounts else { return Vec::new() };
        let changes = |grant: &&Grant| grant.access.writes() || grant.access == Access::Device;
        let tops: BTreeSet<PathBuf> = self.grants.iter().filter(changes).map(|grant| grant.path.clone()).collect();
        let granted: BTreeSet<&Path> = grants.iter().filter(changes).map(|grant| grant.path.as_path()).collect();
        let above = closed.iter().flat_map(|path| path.ancestors().skip(1).take_while(|above| is_below(above, &tops)));
        let fixed: BTreeSet<&Path> = above.filter(|above| !granted.contains(above)).collect();
        fixed.into_iter().map(Path::to_owned).collect()
    }
}

/// Whether a path is one of `tops` or below one. Looks up each ancestor, because there may be thousands of tops.
fn is_below(path: &Path, tops: &BTreeSet<PathBuf>) -> bool {
    path.ancestors().any(|above| tops.contains(above))
}
