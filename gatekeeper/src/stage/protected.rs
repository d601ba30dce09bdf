//! What `apply` does not take over by itself: files that decide what other programs run or trust.

use super::changes::{Change, What};
use super::tree::Kind;
use crate::plan::disk::Disk;
use crate::plan::paths::{PROTECTED, PathPlan, Places, STARTUP, is_sensitive};
use crate::policy::{Document, Policy, Profile};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The protected names, relative to the working directory.
pub struct Names(BTreeSet<PathBuf>);

impl Names {
    /// Names that are protected whether they exist or not, those that a run protected, and what a run would protect now.
    pub fn new(tree: &Path, of_runs: Vec<PathBuf>) -> Names {
        let mut names: BTreeSet<PathBuf> = PROTECTED.iter().map(PathBuf::from).collect();
        names.extend(of_runs);
        let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
        if let Some(inside) = home.as_deref().and_then(|home| home.strip_prefix(tree).ok()) {
            names.extend(STARTUP.iter().map(|name| inside.join(name)));
        }
        let places =
            Places { home, cwd: tree.to_owned(), tmp: None, also_written: Vec::new(), staged: false, copy: None };
        let document = Document { profile: Some(vec![Profile::Write]), ..Document::default() };
        if let Ok(policy) = Policy::resolve(document)
            && let Ok(plan) = PathPlan::new(&policy, &places, &[], &[], &Default::default(), &Disk)
        {
            let found = plan.protected.iter().chain(&plan.links).chain(&plan.covered).chain(&plan.unwanted);
            names.extend(found.filter_map(|path| path.strip_prefix(tree).ok()).map(Path::to_owned));
        }
        Names(names)
    }

    /// Whether a change touches a protected name: the name itself, something below it, or a directory above it that is
    /// replaced or removed as a whole.
    pub fn has(&self, change: &Change) -> bool {
        let path = change.path.as_path();
        // A file or a link in the place of `.git` brings the hooks and settings of wherever it leads.
        let replaces = matches!(change.what, What::Deleted | What::Type) || change.kind != Kind::Dir;
        let in_git = |inside: &Path| match inside.as_os_str().is_empty() {
            true => replaces,
            false => is_sensitive(inside, change.kind == Kind::Symlink),
        };
        self.0.iter().any(|name| path.starts_with(name) || replaces && name.starts_with(path))
            || in_gits(path).any(in_git)
    }
}

/// The rest of a path below each `.git` in it. Editors look for repositories in subdirectories, and ask git about each.
fn in_gits(path: &Path) -> impl Iterator<Item = &Path> {
    let gits = path.ancestors().filter(|above| above.file_name() == Some(OsStr::new(".git")));
    gits.filter_map(|git| path.strip_prefix(git).ok())
}
