//! Which paths are granted: a policy and a view of the tree in, Landlock grants and protected places out.
//!
//! Landlock can only grant. To keep a credential unreadable, everything around it is granted instead: the siblings, and
//! the siblings of its parents. What a grant cannot take back inside a writable tree is listed as protected, for the
//! mount layer; what nobody can protect is listed as `open`, for the report.

mod known;
mod memory;

pub use known::*;

use crate::policy::{Policy, Profile};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// What a grant allows beneath its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// List directories; the contents of files stay closed.
    List,
    Read,
    /// Read and execute.
    ReadExecute,
    /// Everything, also executing.
    Write,
    /// Everything but executing.
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

/// What the plan needs to know of the file system.
pub trait Tree {
    /// The path with every symbolic link followed; `None` if it leads nowhere.
    fn resolve(&self, path: &Path) -> Option<PathBuf>;
    /// The entries of a directory that are not symbolic links; `None` if it cannot be listed.
    fn entries(&self, directory: &Path) -> Option<Vec<PathBuf>>;
    /// The names in a directory, whatever they are.
    fn names(&self, directory: &Path) -> Vec<OsString>;
    fn is_directory(&self, path: &Path) -> bool;
    /// Whether the caller may neither read nor enter it, nor change that: its permissions are protection enough.
    fn is_closed(&self, path: &Path) -> bool;
    /// The first bytes of a small file.
    fn text(&self, path: &Path) -> Option<String>;
}

/// Where the run takes place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    pub home: Option<PathBuf>,
    pub cwd: PathBuf,
    /// The private temporary directory, where the profile gives one.
    pub tmp: Option<PathBuf>,
}

/// The file beside the private temporary directory that tells the command its limits.
pub const SUMMARY: &str = "summary";

impl Places {
    pub fn summary(&self) -> Option<PathBuf> {
        self.tmp.as_ref().map(|tmp| tmp.with_file_name(SUMMARY))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PathPlan {
    pub grants: Vec<Grant>,
    /// Unreadable, by leaving them out.
    pub hidden: Vec<PathBuf>,
    /// Inside a writable tree, to be made read-only by a mount.
    pub protected: Vec<PathBuf>,
    /// Inside a writable tree, to be covered by a mount.
    pub covered: Vec<PathBuf>,
    /// Made new and empty for the command, by a mount.
    pub private: Vec<PathBuf>,
    /// To be private as well, were it not for something in them that the run uses.
    pub shared: Vec<PathBuf>,
    /// Named by the policy and not there.
    pub missing: Vec<PathBuf>,
}

impl PathPlan {
    /// `closed`: trees that are left out as a whole, unless they are writable.
    pub fn new(policy: &Policy, places: &Places, closed: &[PathBuf], tree: &dyn Tree) -> PathPlan {
        let mut plan = PathPlan::default();
        let writes = policy.profiles.contains(&Profile::Write);
        let named = |paths: &[PathBuf], missing: &mut Vec<PathBuf>| -> Vec<PathBuf> {
            let mut found = Vec::new();
            for path in paths {
                let path = places.absolute(path);
                match tree.resolve(&path) {
                    Some(path) => found.push(path),
                    None => missing.push(path),
                }
            }
            found
        };
        let mut writable = named(&policy.paths.write, &mut plan.missing);
        if writes {
            writable.extend(tree.resolve(&places.cwd));
            writable.extend(places.tmp.clone());
            writable.extend(linked_worktree(&places.cwd, tree));
        }
        if policy.profiles.contains(&Profile::Browser) {
            writable.extend(places.tmp.clone());
            let listed = policy.paths.read.iter().flatten().any(|path| path == Path::new(GRAPHICS));
            plan.grants.extend(
                tree.resolve(Path::new(GRAPHICS)).filter(|_| listed).map(|path| Grant { path, access: Access::Device }),
            );
        }
        let also = named(&policy.paths.also_read, &mut plan.missing);
        let denied = named(&policy.paths.deny, &mut plan.missing);
        if policy.private_shm() {
            let granted = named(&policy.paths.write, &mut Vec::new());
            let used: Vec<&Path> = [places.cwd.as_path()].into_iter().chain(places.tmp.as_deref()).collect();
            plan.grant_memory(&mut writable, &used, &[granted, also.clone()].concat(), tree);
        }
        // A list of what may be read names a credential or does not mean it.
        let listed = named(policy.paths.read.as_deref().unwrap_or_default(), &mut Vec::new());
        let asked: Vec<PathBuf> = also.iter().chain(&listed).cloned().collect();
        let mut hidden = hidden(places, tree, &writable, &asked, &denied);
        let outside = |path: &&PathBuf| !writable.iter().any(|top| path.starts_with(top) || top.starts_with(path));
        hidden.extend(closed.iter().filter(outside).cloned());

        match &policy.paths.read {
            None => plan.grant_readable(Path::new("/"), &hidden, tree),
            Some(listed) => {
                let system = SYSTEM.iter().filter_map(|path| tree.resolve(Path::new(path)));
                for path in system.chain(named(listed, &mut plan.missing)) {
                    plan.grant_readable(&path, &hidden, tree);
                }
            }
        }
        plan.grants.extend(places.summary().map(|path| Grant { path, access: Access::Read }));
        let kept = denied.iter().cloned().collect();
        for path in also {
            plan.grant_around(&path, Access::ReadExecute, &kept, tree);
        }
        for path in &writable {
            plan.grant_writable(path, &hidden, &denied, tree);
        }
        let terminals = TERMINALS.iter().filter(|_| writes);
        for device in DEVICES.iter().chain(terminals).filter_map(|device| tree.resolve(Path::new(device))) {
            if !denied.iter().any(|denied| device.starts_with(denied)) {
                plan.grants.push(Grant { path: device, access: Access::Device });
            }
        }
        plan.protect(policy, places, &writable, tree);
        if let Some(execute) = &policy.paths.execute {
            plan.execute_only(named(execute, &mut Vec::new()));
        }
        plan.hidden = hidden.into_iter().collect();
        let unique: BTreeSet<Grant> = plan.grants.drain(..).collect();
        plan.grants = unique.into_iter().collect();
        plan
    }

    /// Grants a tree to read, without the devices in it, unless they are what was named.
    fn grant_readable(&mut self, top: &Path, hidden: &BTreeSet<PathBuf>, tree: &dyn Tree) {
        let devices = Path::new(DEVICE_TREE);
        if !devices.starts_with(top) || devices == top || !tree.is_directory(devices) {
            return self.grant_around(top, Access::ReadExecute, hidden, tree);
        }
        let with_devices = hidden.iter().cloned().chain([devices.to_owned()]).collect();
        self.grant_around(top, Access::ReadExecute, &with_devices, tree);
        if !hidden.contains(devices) {
            self.grants.push(Grant { path: devices.to_owned(), access: Access::List });
        }
    }

    /// Grants a tree but for what is hidden in it. Directories on the way to a hidden place can be listed.
    fn grant_around(&mut self, top: &Path, access: Access, hidden: &BTreeSet<PathBuf>, tree: &dyn Tree) {
        if hidden.iter().any(|hidden| top.starts_with(hidden)) {
            return;
        }
        if !hidden.iter().any(|hidden| hidden.starts_with(top)) {
            self.grants.push(Grant { path: top.to_owned(), access });
            return;
        }
        self.grants.push(Grant { path: top.to_owned(), access: Access::List });
        let known =
            || hidden.iter().filter_map(|hidden| Some(top.join(hidden.strip_prefix(top).ok()?.components().next()?)));
        let entries = tree.entries(top).unwrap_or_else(|| known().collect());
        for entry in entries {
            self.grant_around(&entry, access, hidden, tree);
        }
    }

    /// A writable tree is granted whole, because new files need the grant of their directory; what is to be hidden in it
    /// is left to the mount layer, unless the caller denied it: then the siblings are granted, and new files are not.
    fn grant_writable(&mut self, top: &Path, hidden: &BTreeSet<PathBuf>, denied: &[PathBuf], tree: &dyn Tree) {
        let denied: BTreeSet<PathBuf> = denied.iter().filter(|path| path.starts_with(top)).cloned().collect();
        if denied.is_empty() {
            self.grants.push(Grant { path: top.to_owned(), access: Access::Write });
            let inside = hidden.iter().filter(|path| path.starts_with(top) && *path != top);
            self.covered.extend(inside.cloned());
        } else {
            self.grant_around(top, Access::Write, &denied, tree);
        }
    }

    /// Finds what exists of the protected places inside writable trees.
    fn protect(&mut self, policy: &Policy, places: &Places, writable: &[PathBuf], tree: &dyn Tree) {
        if writable.is_empty() {
            return;
        }
        let bases = [Some(places.cwd.as_path()), places.home.as_deref()];
        let mut found = BTreeSet::new();
        for base in bases.into_iter().flatten().filter_map(|base| tree.resolve(base)).chain(writable.iter().cloned()) {
            found.extend(PROTECTED.iter().filter_map(|entry| tree.resolve(&base.join(entry))));
            // The git directory of a linked worktree is itself one of the writable trees.
            found.extend(
                ["hooks", "config"]
                    .iter()
                    .filter(|_| base.join("HEAD").exists_in(tree))
                    .filter_map(|entry| tree.resolve(&base.join(entry))),
            );
        }
        found.extend(policy.sources.iter().filter_map(|source| tree.resolve(source)));
        let inside = |path: &PathBuf| {
            writable.iter().any(|top| path.starts_with(top))
                && !policy.paths.write.iter().any(|path_given| places.absolute(path_given) == *path)
        };
        self.protected = found.into_iter().filter(|path| inside(path) && !self.covered.contains(path)).collect();
    }

    /// Takes the right to execute away from everything but these.
    pub fn execute_only(&mut self, programs: impl IntoIterator<Item = PathBuf>) {
        for grant in &mut self.grants {
            grant.access = match grant.access {
                Access::ReadExecute => Access::Read,
                Access::Write => Access::WriteOnly,
                other => other,
            };
        }
        self.grants.extend(programs.into_iter().map(|path| Grant { path, access: Access::ReadExecute }));
    }
}

trait ExistsIn {
    fn exists_in(&self, tree: &dyn Tree) -> bool;
}

impl ExistsIn for PathBuf {
    fn exists_in(&self, tree: &dyn Tree) -> bool {
        tree.resolve(self).is_some()
    }
}

impl Places {
    /// A path as a policy writes it: absolute, below the working directory, or below home with a leading `~`.
    pub fn absolute(&self, path: &Path) -> PathBuf {
        match (path.strip_prefix("~"), &self.home) {
            (Ok(rest), Some(home)) => home.join(rest),
            _ => self.cwd.join(path),
        }
    }
}

/// What must not be read: the credentials that exist, and what the caller denies; less what was asked for by name.
fn hidden(
    places: &Places,
    tree: &dyn Tree,
    writable: &[PathBuf],
    also: &[PathBuf],
    denied: &[PathBuf],
) -> BTreeSet<PathBuf> {
    let at_home = places.home.iter().flat_map(|home| CREDENTIALS.iter().map(move |name| home.join(name)));
    let at_work = WORK_CREDENTIALS.iter().map(|name| places.cwd.join(name));
    // Whoever may read a disk reads every file on it.
    let disks = tree.names(Path::new(BLOCK_DEVICES)).into_iter().map(|name| Path::new("/dev").join(name));
    let system = SYSTEM_CREDENTIALS.iter().map(PathBuf::from).chain(disks);
    let asked_for = |path: &PathBuf| also.iter().chain(writable).any(|asked| asked == path);
    // Each one that is hidden costs a rule for everything beside it.
    let system = system.filter(|path| !tree.is_closed(path));
    let found = at_home.chain(at_work).chain(system).filter_map(|path| tree.resolve(&path));
    // The working directory itself is never a credential, wherever it is.
    let holds_work = |path: &PathBuf| tree.resolve(&places.cwd).is_some_and(|cwd| cwd.starts_with(path));
    found.filter(|path| !asked_for(path) && !holds_work(path)).chain(denied.iter().cloned()).collect()
}

/// The credentials that exist here.
pub fn credentials(places: &Places, tree: &dyn Tree) -> BTreeSet<PathBuf> {
    hidden(places, tree, &[], &[], &[])
}

/// The git directories of a linked worktree: `.git` is then a file that names one, which names the common one.
fn linked_worktree(cwd: &Path, tree: &dyn Tree) -> Vec<PathBuf> {
    let dot_git = cwd.join(".git");
    if tree.is_directory(&dot_git) {
        return Vec::new();
    }
    let Some(text) = tree.text(&dot_git) else { return Vec::new() };
    let Some(named) = text.lines().next().and_then(|line| line.strip_prefix("gitdir: ")) else { return Vec::new() };
    let Some(own) = tree.resolve(&cwd.join(named.trim_end())) else { return Vec::new() };
    // git writes the way back here; without it this is somebody's file that points anywhere.
    let back = tree.text(&own.join("gitdir")).and_then(|back| tree.resolve(&own.join(back.trim_end())));
    if back != tree.resolve(&dot_git) {
        return Vec::new();
    }
    let common = tree.text(&own.join("commondir")).and_then(|common| tree.resolve(&own.join(common.trim_end())));
    std::iter::once(own).chain(common).collect()
}
