//! Which paths are granted: a policy and a view of the tree in, Landlock grants and protected places out.
//!
//! Landlock can only grant. To keep a credential unreadable, everything around it is granted instead: the siblings, and
//! the siblings of its parents. What a grant cannot take back inside a writable tree is listed as protected, for the
//! mount layer; what nobody can protect is listed as `open`, for the report.

pub mod aliases;
mod credentials;
mod git;
pub mod homes;
mod known;
mod memory;
mod patterns;
mod protect;
mod secrets;

pub use credentials::CREDENTIALS;
pub(crate) use credentials::SYSTEM_CREDENTIALS;
pub use known::*;
pub use patterns::{EntryKind, Found, KERNEL, Searched, Seek, Unlisted, check_count, plain, shown};
pub use protect::refuse_links;

use super::refusal::Refusal;
use crate::policy::{Policy, Profile};
use crate::trust::Untrusted;
use homes::Homes;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::ops::Bound;
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

/// What is at a path itself, no link followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    pub kind: Kind,
    /// Whether it belongs to this user.
    pub own: bool,
    /// Whether it is a file that has another name (a hard link).
    pub linked: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    File,
    Directory,
    Link,
    Other,
}

/// What the plan needs to know of the file system.
pub trait Tree {
    /// The path with every symbolic link followed; `None` if it leads nowhere. For names that are ours or the system's.
    fn resolve(&self, path: &Path) -> Option<PathBuf>;
    /// The same for a path that a caller names. Below the hostile trees commands write: a link there that leads
    /// somewhere is an error, because a command may have put it there to be granted what it leads to.
    fn reach(&self, path: &Path, hostile: &[PathBuf]) -> Result<Option<PathBuf>, Untrusted>;
    /// The symbolic links on the way to a path, each below the real path of its directory.
    fn links(&self, path: &Path) -> Vec<PathBuf>;
    fn look(&self, path: &Path) -> Option<Look>;
    /// The entries of a directory that are not symbolic links; `None` if it cannot be listed.
    fn entries(&self, directory: &Path) -> Option<Vec<PathBuf>>;
    /// The names in a directory, whatever they are.
    fn names(&self, directory: &Path) -> Vec<OsString>;
    fn is_directory(&self, path: &Path) -> bool;
    /// Whether two paths lead to the same file or directory.
    fn is_same(&self, one: &Path, other: &Path) -> bool;
    /// Whether the caller may neither read nor enter it, nor change that: its permissions are protection enough.
    fn is_closed(&self, path: &Path) -> bool;
    /// A directory on the way to a path, by links as well, that belongs to this user and cannot be entered. What is in it
    /// cannot be seen from here, and a command that runs as this user opens it again.
    fn shut(&self, path: &Path) -> Option<PathBuf>;
    /// A small file as a whole.
    fn text(&self, path: &Path) -> Option<String>;
    /// Looks through a whole tree, following no link.
    fn search(&self, top: &Path, seek: &dyn Seek) -> Result<Searched, Unlisted>;
    /// Home directories as the system has them.
    fn homes(&self) -> Homes;
    fn mounts(&self) -> Vec<aliases::Mounted>;
}

/// Where the run takes place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    pub home: Option<PathBuf>,
    pub cwd: PathBuf,
    /// The private temporary directory, where the profile gives one.
    pub tmp: Option<PathBuf>,
    /// Trees that other runs of the same session may write.
    pub also_written: Vec<PathBuf>,
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
    /// Symbolic links inside a writable tree that lead to what is protected or hidden, to be kept in their places.
    pub links: Vec<PathBuf>,
    /// Inside a writable tree, to be covered by a mount.
    pub covered: Vec<PathBuf>,
    /// Not there, and not to be left behind by the command: git would believe it.
    pub unwanted: Vec<PathBuf>,
    /// Inside a writable tree, and nothing keeps the command from making or changing it.
    pub open: Vec<PathBuf>,
    /// Made new and empty for the command, by a mount.
    pub private: Vec<PathBuf>,
    /// To be private as well, were it not for something in them that the run uses.
    pub shared: Vec<PathBuf>,
    /// Named by the policy and not there.
    pub missing: Vec<PathBuf>,
    /// What the policy's patterns mean.
    pub denied: Vec<PathBuf>,
    /// Instead of `grants` where nothing can be mounted, and what they close of `covered`.
    pub without_mounts: Option<(Vec<Grant>, BTreeSet<PathBuf>)>,
    /// What the report says beside.
    pub notes: Vec<String>,
    /// Whether more may be there that is closed by its name: an earlier command can make directories without number.
    pub incomplete: bool,
    /// What is hidden for what is in it, not to limit what is executed.
    secret: BTreeSet<PathBuf>,
}

/// File systems of the kernel and its devices: a write there changes the machine. Never part of a writable tree.
const NEVER_WRITABLE: [&str; 3] = ["/proc", "/sys", "/dev"];

impl PathPlan {
    /// `closed`: trees that are left out as a whole, unless they are writable. Refused where a link that a command may
    /// have made decides what is granted, and where all of a home would be writable without being named.
    pub fn new(
        policy: &Policy,
        places: &Places,
        closed: &[PathBuf],
        found: &Found,
        tree: &dyn Tree,
    ) -> Result<PathPlan, Refusal> {
        let mut plan = PathPlan::planned(policy, places, closed, found, true, tree)?;
        let writing = plan.grants.iter().filter(|grant| grant.access.writes()).map(|grant| grant.path.clone());
        let writing: BTreeSet<PathBuf> = writing.collect();
        let closes = plan.covered.iter().filter(|path| found.denied.contains(*path) || !is_below(path, &writing));
        let closes: BTreeSet<PathBuf> = closes.cloned().collect();
        if !closes.is_empty() {
            let other = PathPlan::planned(policy, places, closed, found, false, tree)?;
            plan.without_mounts = Some((other.grants, closes));
        }
        Ok(plan)
    }

    /// `mounts`: whether files inside of writable trees, and in crowded directories, can be covered.
    fn planned(
        policy: &Policy,
        places: &Places,
        closed: &[PathBuf],
        found: &Found,
        mounts: bool,
        tree: &dyn Tree,
    ) -> Result<PathPlan, Refusal> {
        let mut plan = PathPlan { notes: found.notes.clone(), incomplete: found.stopped, ..PathPlan::default() };
        let writes = policy.profiles.contains(&Profile::Write);
        let homes = places.homes(tree);
        let session: Vec<PathBuf> = places.also_written.iter().filter_map(|top| tree.resolve(top)).collect();
        tree.reach(&places.cwd, &session).map_err(|error| Refusal::setup(error.to_string()))?;
        let cwd = tree.resolve(&places.cwd);
        let mut hostile: Vec<PathBuf> = places.hostile(tree, &[]);
        let named = |paths: &[PathBuf], hostile: &[PathBuf], missing: &mut Vec<PathBuf>| {
            let mut found = Vec::new();
            for path in paths {
                let path = places.absolute(path);
                match tree.reach(&path, hostile).map_err(|error| Refusal::setup(error.to_string()))? {
                    Some(path) => found.push(path),
                    None => missing.push(path),
                }
            }
            Ok::<_, Refusal>(found)
        };
        // Twice: a tree that is written may hold a link to another that is named.
        hostile.extend(places.hostile(tree, &named(&policy.paths.write, &hostile, &mut Vec::new())?));
        let asked_to_write = named(&policy.paths.write, &hostile, &mut plan.missing)?;
        if let Some(path) = asked_to_write.iter().find(|path| is_kernels(path) && tree.is_directory(path)) {
            return Err(Refusal::setup(format!(
                "{} belongs to the kernel: writes below it change the machine, and no tree there is granted; name the \
                 one file that is to be written",
                path.display()
            )));
        }
        if let Some(path) = asked_to_write.iter().find(|path| tree.shut(&path.join("entry")).is_some()) {
            return Err(Refusal::setup(format!(
                "{} cannot be entered, so what is in it cannot be protected: chmod u+rwx it",
                path.display()
            )));
        }
        let mut writable = asked_to_write.clone();
        if writes {
            let wide =
                cwd.iter().find(|cwd| homes.own.iter().any(|home| home.starts_with(cwd)) || cwd.parent().is_none());
            if let Some(cwd) = wide.filter(|cwd| !asked_to_write.iter().any(|path| cwd.starts_with(path))) {
                return Err(Refusal::writable_home(cwd));
            }
            writable.extend(cwd.clone());
            writable.extend(places.tmp.clone());
            writable.extend(cwd.iter().flat_map(|cwd| git::linked_worktree(cwd, &homes.own, &hostile, tree)));
        }
        if policy.profiles.contains(&Profile::Read) {
            writable.extend(places.tmp.clone());
        }
        if policy.profiles.contains(&Profile::Browser) {
            writable.extend(places.tmp.clone());
            let listed = policy.paths.read.iter().flatten().any(|path| path == Path::new(GRAPHICS));
            plan.grants.extend(
                tree.resolve(Path::new(GRAPHICS)).filter(|_| listed).map(|path| Grant { path, access: Access::Device }),
            );
        }
        let also = named(&policy.paths.also_read, &hostile, &mut plan.missing)?;
        let mut not_there = Vec::new();
        let mut denied = named(&plain(policy), &hostile, &mut not_there)?;
        for path in not_there {
            match tree.shut(&path) {
                Some(closed) => denied.push(closed),
                None => plan.missing.push(path),
            }
        }
        if !mounts {
            denied.extend(found.denied.iter().cloned());
        }
        writable.retain(|top| !found.denied.iter().any(|denied| top.starts_with(denied)));
        if policy.private_shm() {
            let used: Vec<&Path> = [places.cwd.as_path()].into_iter().chain(places.tmp.as_deref()).collect();
            plan.grant_memory(&mut writable, &used, &[asked_to_write.clone(), also.clone()].concat(), tree);
        }
        // A list of what may be read names a credential or does not mean it.
        let listed = named(policy.paths.read.as_deref().unwrap_or_default(), &hostile, &mut plan.missing)?;
        let asked: Vec<PathBuf> = also.iter().chain(&listed).cloned().collect();
        let mut hidden = hidden(places, tree, &writable, &asked, &denied);
        hidden.extend(elsewhere(&hidden, &writable, &asked, tree));
        plan.secret = hidden.clone();
        let outside = |path: &&PathBuf| !writable.iter().any(|top| path.starts_with(top) || top.starts_with(path));
        hidden.extend(closed.iter().filter(outside).cloned());
        let by_name: Vec<&PathBuf> = asked.iter().chain(&writable).collect();
        let secret = found.closed_but(&by_name, cwd.as_deref()).chain(&found.denied).cloned();
        let mut secret: BTreeSet<PathBuf> = secret.collect();
        secret.extend(elsewhere(&secret, &writable, &asked, tree));
        plan.secret.extend(secret.iter().cloned());
        let read_only = secret.iter().filter(|path| !writable.iter().any(|top| path.starts_with(top)));
        let crowded = if mounts { found.crowded(&read_only.cloned().collect()) } else { BTreeSet::new() };
        hidden.extend(secret.difference(&crowded).cloned());

        match &policy.paths.read {
            None => plan.grant_readable(Path::new("/"), &hidden, tree),
            Some(_) => {
                let system = SYSTEM.iter().filter_map(|path| tree.resolve(Path::new(path)));
                for path in system.chain(listed) {
                    plan.grant_readable(&path, &hidden, tree);
                }
            }
        }
        plan.grants.extend(places.summary().map(|path| Grant { path, access: Access::Read }));
        let kept = denied.iter().chain(secret.difference(&crowded)).cloned().collect();
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
        plan.covered.extend(crowded.iter().cloned());
        plan.covered.sort();
        // A cover over a directory takes what is in it along.
        plan.covered.dedup_by(|inner, outer| inner.starts_with(outer));
        plan.protect(policy, places, &writable, &asked_to_write, &found.links, tree);
        hidden.extend(crowded);
        plan.hidden = hidden.into_iter().collect();
        plan.tell_other_names(tree);
        if let Some(execute) = &policy.paths.execute {
            plan.execute_only(named(execute, &hostile, &mut Vec::new())?);
        }
        plan.denied = found.denied.iter().cloned().collect();
        let unique: BTreeSet<Grant> = plan.grants.drain(..).collect();
        plan.grants = unique.into_iter().collect();
        Ok(plan)
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
        if is_below(top, hidden) {
            return;
        }
        if below(top, hidden).next().is_none() {
            self.grants.push(Grant { path: top.to_owned(), access });
            return;
        }
        self.grants.push(Grant { path: top.to_owned(), access: Access::List });
        let known = || {
            below(top, hidden).filter_map(|hidden| Some(top.join(hidden.strip_prefix(top).ok()?.components().next()?)))
        };
        let entries = tree.entries(top).unwrap_or_else(|| known().collect());
        for entry in entries {
            self.grant_around(&entry, access, hidden, tree);
        }
    }

    /// A writable tree is granted whole, because new files need the grant of their directory; what is to be hidden in it
    /// is left to the mount layer, unless the caller denied it: then the siblings are granted, and new files are not.
    fn grant_writable(&mut self, top: &Path, hidden: &BTreeSet<PathBuf>, denied: &[PathBuf], tree: &dyn Tree) {
        let never = NEVER_WRITABLE.iter().map(PathBuf::from).filter(|path| path != top);
        let left_out: BTreeSet<PathBuf> =
            denied.iter().cloned().chain(never).filter(|path| path.starts_with(top)).collect();
        match left_out.is_empty() {
            true => self.grants.push(Grant { path: top.to_owned(), access: Access::Write }),
            false => self.grant_around(top, Access::Write, &left_out, tree),
        }
        let inside = hidden.iter().filter(|path| path.starts_with(top) && *path != top);
        self.covered.extend(inside.filter(|path| !is_below(path, &left_out)).cloned());
    }

    /// Takes the right to execute away from everything but these. What is hidden stays so: a link may lead there.
    pub fn execute_only(&mut self, programs: impl IntoIterator<Item = PathBuf>) {
        let open = programs.into_iter().filter(|path| !is_below(path, &self.secret));
        let programs: Vec<Grant> = open.map(|path| Grant { path, access: Access::ReadExecute }).collect();
        let without = self.without_mounts.iter_mut().map(|(grants, _)| grants);
        for grants in std::iter::once(&mut self.grants).chain(without) {
            for grant in grants.iter_mut() {
                grant.access = match grant.access {
                    Access::ReadExecute => Access::Read,
                    Access::Write => Access::WriteOnly,
                    other => other,
                };
            }
            grants.extend(programs.iter().cloned());
        }
    }

    /// What is granted, with the mounts in force or without.
    pub fn grants(&self, mounts: bool) -> &[Grant] {
        match &self.without_mounts {
            Some((grants, _)) if !mounts => grants,
            _ => &self.grants,
        }
    }
}

/// Whether a path is one of these or below one. There may be thousands of them.
fn is_below(path: &Path, tops: &BTreeSet<PathBuf>) -> bool {
    path.ancestors().any(|above| tops.contains(above))
}

/// Those that are this path or below it: paths are sorted by their components, so they follow it.
fn below<'a>(top: &'a Path, paths: &'a BTreeSet<PathBuf>) -> impl Iterator<Item = &'a PathBuf> {
    let from = (Bound::Included(top), Bound::Unbounded);
    paths.range::<Path, _>(from).take_while(move |path| path.starts_with(top))
}

impl Places {
    /// A path as a policy writes it: absolute, below the working directory, or below home with a leading `~`.
    pub fn absolute(&self, path: &Path) -> PathBuf {
        match (path.strip_prefix("~"), &self.home) {
            (Ok(rest), Some(home)) => home.join(rest),
            _ => self.cwd.join(path),
        }
    }

    /// The homes of this user, by its environment and by the system, and those of others that it may read as root.
    pub(super) fn homes(&self, tree: &dyn Tree) -> Homes {
        let mut homes = tree.homes();
        homes.own.extend(self.home.clone());
        let real = |homes: Vec<PathBuf>| -> Vec<PathBuf> {
            let real: BTreeSet<PathBuf> = homes.iter().filter_map(|home| tree.resolve(home)).collect();
            real.into_iter().filter(|home| home.parent().is_some()).collect()
        };
        let own = real(homes.own);
        let others = real(homes.others).into_iter().filter(|home| !own.contains(home)).collect();
        Homes { own, others }
    }

    /// The trees that commands write in this run, or wrote in an earlier one, among these and the working directory. Not
    /// `/`: everything is below it.
    pub fn hostile(&self, tree: &dyn Tree, written: &[PathBuf]) -> Vec<PathBuf> {
        let session = self.also_written.iter().filter_map(|top| tree.resolve(top));
        let all = tree.resolve(&self.cwd).into_iter().chain(session).chain(written.iter().cloned());
        all.filter(|top| top.parent().is_some()).collect()
    }
}

fn is_kernels(path: &Path) -> bool {
    ["/proc", "/sys"].iter().any(|top| path.starts_with(top))
}

/// What must not be read: the credentials that exist, and what the caller denies; less what was asked for by name.
fn hidden(
    places: &Places,
    tree: &dyn Tree,
    writable: &[PathBuf],
    also: &[PathBuf],
    denied: &[PathBuf],
) -> BTreeSet<PathBuf> {
    let homes = places.homes(tree);
    let at_home = homes.own.iter().chain(&homes.others).flat_map(|home| credentials::at_home(home, tree));
    // Whoever may read a disk reads every file on it.
    let disks = tree.names(Path::new(BLOCK_DEVICES)).into_iter().map(|name| Path::new("/dev").join(name));
    let system = SYSTEM_CREDENTIALS.iter().map(PathBuf::from).chain(disks);
    let asked_for = |path: &PathBuf| also.iter().chain(writable).any(|asked| asked == path);
    // Each one that is hidden costs a rule for everything beside it.
    let system = system.filter_map(|path| tree.resolve(&path)).filter(|path| !tree.is_closed(path));
    let found = at_home.chain(system);
    // The working directory itself is never a credential, wherever it is.
    let holds_work = |path: &PathBuf| tree.resolve(&places.cwd).is_some_and(|cwd| cwd.starts_with(path));
    found.filter(|path| !asked_for(path) && !holds_work(path)).chain(denied.iter().cloned()).collect()
}

/// The credentials that exist here.
pub fn credentials(places: &Places, tree: &dyn Tree) -> BTreeSet<PathBuf> {
    let mut found = Found::default();
    if let Some(cwd) = tree.resolve(&places.cwd) {
        found.search_work(&cwd, tree);
    }
    let mut all = hidden(places, tree, &[], &[], &[]);
    all.extend(found.closed);
    all
}

/// The same places by other mounts of their file systems.
fn elsewhere(hidden: &BTreeSet<PathBuf>, writable: &[PathBuf], asked: &[PathBuf], tree: &dyn Tree) -> Vec<PathBuf> {
    let mounts = tree.mounts();
    let others = hidden.iter().flat_map(|path| aliases::of(path, &mounts));
    let others = others.filter(|(other, is)| tree.is_same(other, is)).map(|(other, _)| other);
    others.filter(|path| !asked.contains(path) && !writable.contains(path)).collect()
}
