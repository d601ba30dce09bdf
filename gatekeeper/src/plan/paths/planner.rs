//! From a policy and the file system to a `PathPlan`, step by step.

use super::hidden::{elsewhere, hidden};
use super::known::{DEVICE_TREE, DEVICES, GRAPHICS, SYSTEM, TERMINALS};
use super::spelling::{is_plain, is_under, order};
use super::{Access, Found, Grant, Kind, PathPlan, Places, Tree, git, is_below, plain};
use crate::plan::refusal::Refusal;
use crate::policy::{Policy, Profile};
use std::collections::BTreeSet;
use std::ops::Bound;
use std::path::{Path, PathBuf};

/// The kernel's file systems and the devices: a write there changes the machine. Never part of a writable tree.
const NEVER_WRITABLE: [&str; 3] = ["/proc", "/sys", "/dev"];

pub(super) struct Planner<'a> {
    pub policy: &'a Policy,
    pub places: &'a Places,
    /// Trees to leave out as a whole, unless they are writable.
    pub closed: &'a [PathBuf],
    pub found: &'a Found,
    pub tree: &'a dyn Tree,
}

/// What a run must not read.
struct Closed {
    /// Left out of the grants.
    hidden: BTreeSet<PathBuf>,
    /// Those of the hidden and crowded paths that `Found` has: patterns of the policy, and secrets by their names.
    secret: BTreeSet<PathBuf>,
    /// Covered by a mount, because leaving them out would take too many rules.
    crowded: BTreeSet<PathBuf>,
}

impl Planner<'_> {
    /// `mounts`: whether mounts can cover files inside the granted trees.
    pub(super) fn plan(&self, mounts: bool) -> Result<PathPlan, Refusal> {
        let (found, tree) = (self.found, self.tree);
        let mut plan = PathPlan { notes: found.notes.clone(), incomplete: found.stopped, ..PathPlan::default() };
        tree.reach(&self.places.cwd, &self.places.session(tree)).map_err(|error| Refusal::setup(error.to_string()))?;
        let (hostile, named) = self.hostile(&mut plan.missing)?;
        self.refuse_unsafe_trees(&named)?;
        let writable = self.writable(&named, &hostile)?;
        let mut writable = self.moved(&writable, &hostile)?;
        self.grant_graphics(&mut plan);
        let also = self.named(&self.policy.paths.also_read, &hostile, &mut plan.missing)?;
        let also = self.with_copies(also, &hostile)?;
        let mut denied = self.denied(&hostile, mounts, &mut plan.missing)?;
        let shut = found.denied.iter().cloned().chain(self.places.copies(&found.denied, tree));
        let shut: BTreeSet<PathBuf> = shut.collect();
        writable.retain(|top| !is_below(top, &shut));
        if self.policy.private_shm() {
            let used: Vec<&Path> = [self.places.work()].into_iter().chain(self.places.tmp.as_deref()).collect();
            plan.grant_memory(&mut writable, &used, &[named.clone(), also.clone()].concat(), tree);
        }
        // A credential in `paths.read` is readable only if the list names it, not if it names a directory above it.
        let listed = self.named(self.policy.paths.read.as_deref().unwrap_or_default(), &hostile, &mut plan.missing)?;
        let listed = self.with_copies(listed, &hostile)?;
        let asked: Vec<PathBuf> = also.iter().chain(&listed).chain(&named).cloned().collect();
        let mut closed = self.close(&writable, &asked, &denied, mounts, &mut plan);
        // Nothing can be mounted over the copy, so no grant may reach what is closed in the working directory.
        let copies = self.places.copies(closed.hidden.iter().chain(&closed.crowded), tree);
        denied.extend(copies.iter().cloned());
        plan.secret.extend(copies.iter().cloned());
        closed.hidden.extend(copies);
        self.grant_reads(&mut plan, listed, also, &denied, &closed);
        self.grant_writes(&mut plan, &writable, &denied, &closed);
        self.keep_unchanged(&mut plan, &writable, &self.moved(&named, &hostile)?, closed);
        if let Some(execute) = &self.policy.paths.execute {
            let execute = self.named(execute, &hostile, &mut Vec::new())?;
            plan.execute_only(self.with_copies(execute, &hostile)?);
        }
        plan.denied = shut.into_iter().collect();
        sort(&mut plan.grants);
        plan.grants.dedup();
        Ok(plan)
    }

    /// The real paths of what the policy names; those that do not exist are added to `missing`.
    fn named(
        &self,
        paths: &[PathBuf],
        hostile: &[PathBuf],
        missing: &mut Vec<PathBuf>,
    ) -> Result<Vec<PathBuf>, Refusal> {
        let paths: Vec<PathBuf> = paths.iter().map(|path| self.places.absolute(path)).collect();
        let reached = self.reach(&paths, hostile)?;
        let mut found = Vec::new();
        for (path, reached) in paths.into_iter().zip(reached) {
            match reached {
                Some(path) => found.push(path),
                None => missing.push(path),
            }
        }
        Ok(found)
    }

    /// Where the command writes what lies in the working directory: in the copy, if it works in one.
    fn moved(&self, paths: &[PathBuf], hostile: &[PathBuf]) -> Result<Vec<PathBuf>, Refusal> {
        let (mut moved, mut copies) = (Vec::new(), Vec::new());
        for path in paths {
            match self.places.copied(path) {
                Some(copy) => copies.push(copy),
                None => moved.push(path.clone()),
            }
        }
        moved.extend(self.reach(&copies, hostile)?.into_iter().flatten());
        Ok(moved)
    }

    /// These paths, and the same ones in the copy.
    fn with_copies(&self, paths: Vec<PathBuf>, hostile: &[PathBuf]) -> Result<Vec<PathBuf>, Refusal> {
        let copies: Vec<PathBuf> = paths.iter().filter_map(|path| self.places.copied(path)).collect();
        let copies = self.reach(&copies, hostile)?;
        Ok(paths.into_iter().chain(copies.into_iter().flatten()).collect())
    }

    fn reach(&self, paths: &[PathBuf], hostile: &[PathBuf]) -> Result<Vec<Option<PathBuf>>, Refusal> {
        self.tree.reach_all(paths, hostile).map_err(|error| Refusal::setup(error.to_string()))
    }

    /// The trees that commands write, and the real paths that the policy names as writable. Resolved in two passes, if a
    /// writable tree may hold a link to another named tree.
    fn hostile(&self, missing: &mut Vec<PathBuf>) -> Result<(Vec<PathBuf>, Vec<PathBuf>), Refusal> {
        let mut hostile = self.places.hostile(self.tree, &[]);
        let mut absent = Vec::new();
        let named = self.named(&self.policy.paths.write, &hostile, &mut absent)?;
        // A link can only be in a directory.
        let written: Vec<PathBuf> = named.iter().filter(|path| self.tree.is_directory(path)).cloned().collect();
        if written.is_empty() {
            missing.append(&mut absent);
            return Ok((hostile, named));
        }
        hostile.extend(self.places.hostile(self.tree, &written));
        let named = self.named(&self.policy.paths.write, &hostile, missing)?;
        Ok((hostile, named))
    }

    fn refuse_unsafe_trees(&self, named: &[PathBuf]) -> Result<(), Refusal> {
        let is_kernels = |path: &Path| ["/proc", "/sys"].iter().any(|top| is_under(path, Path::new(top)));
        if let Some(path) = named.iter().find(|path| is_kernels(path) && self.tree.is_directory(path)) {
            return Err(Refusal::setup(format!(
                "{} belongs to the kernel: a write below it changes the machine, so no directory there can be granted; \
                 name the single file to write",
                path.display()
            )));
        }
        // Nothing is below a file, and a policy may list thousands.
        let holds =
            |path: &&PathBuf| self.tree.look(path).is_none_or(|found| !matches!(found.kind, Kind::File | Kind::Other));
        if let Some(path) = named.iter().filter(holds).find(|path| self.tree.shut(&path.join("entry")).is_some()) {
            return Err(Refusal::setup(format!(
                "{} cannot be entered, so what is in it cannot be protected: chmod u+rwx it",
                path.display()
            )));
        }
        Ok(())
    }

    /// The writable trees: those that the policy names, and those that its profiles imply.
    fn writable(&self, named: &[PathBuf], hostile: &[PathBuf]) -> Result<Vec<PathBuf>, Refusal> {
        let has = |profile| self.policy.profiles.contains(&profile);
        let mut writable = named.to_vec();
        if has(Profile::Write) {
            let cwd = self.tree.resolve(&self.places.cwd);
            let homes = self.places.homes(self.tree).own;
            let wide = cwd.iter().find(|cwd| homes.iter().any(|home| home.starts_with(cwd)) || cwd.parent().is_none());
            if let Some(cwd) = wide.filter(|cwd| !named.iter().any(|path| cwd.starts_with(path))) {
                return Err(Refusal::writable_home(cwd));
            }
            writable.extend(cwd.clone());
            let linked = cwd.iter().filter(|_| !self.places.staged);
            writable.extend(linked.flat_map(|cwd| git::linked_worktree(cwd, &homes, hostile, self.tree)));
        }
        if has(Profile::Write) || has(Profile::Read) || has(Profile::Browser) {
            writable.extend(self.places.tmp.clone());
        }
        Ok(writable)
    }

    fn grant_graphics(&self, plan: &mut PathPlan) {
        let listed = self.policy.paths.read.iter().flatten().any(|path| path == Path::new(GRAPHICS));
        if listed && self.policy.profiles.contains(&Profile::Browser) {
            let device = self.tree.resolve(Path::new(GRAPHICS));
            plan.grants.extend(device.map(|path| Grant { path, access: Access::Device }));
        }
    }

    /// The real paths that the policy denies. What its patterns match is denied too where no mount can cover it.
    fn denied(&self, hostile: &[PathBuf], mounts: bool, missing: &mut Vec<PathBuf>) -> Result<Vec<PathBuf>, Refusal> {
        let mut absent = Vec::new();
        let mut denied = self.named(&plain(self.policy), hostile, &mut absent)?;
        for path in absent {
            match self.tree.shut(&path) {
                Some(closed) => denied.push(closed),
                None => missing.push(path),
            }
        }
        if !mounts {
            denied.extend(self.found.denied.iter().cloned());
        }
        Ok(denied)
    }

    /// Collects what must not be read, and decides for each path whether to leave it out or to cover it.
    fn close(
        &self,
        writable: &[PathBuf],
        asked: &[PathBuf],
        denied: &[PathBuf],
        mounts: bool,
        plan: &mut PathPlan,
    ) -> Closed {
        let mut hidden = hidden(self.places, self.tree, writable, asked, denied);
        hidden.extend(elsewhere(&hidden, writable, asked, self.tree));
        plan.secret = hidden.clone();
        let work = self.places.copy.iter().map(|_| &self.places.cwd);
        let tops: Vec<&PathBuf> = writable.iter().chain(work).collect();
        let outside = |path: &&PathBuf| !tops.iter().any(|top| path.starts_with(top) || top.starts_with(path));
        hidden.extend(self.closed.iter().filter(outside).cloned());
        let by_name: Vec<&PathBuf> = asked.iter().chain(writable).collect();
        let cwd = self.tree.resolve(&self.places.cwd);
        let secret = self.found.closed_but(&by_name, cwd.as_deref()).chain(&self.found.denied).cloned();
        let mut secret: BTreeSet<PathBuf> = secret.collect();
        secret.extend(elsewhere(&secret, writable, asked, self.tree));
        plan.secret.extend(secret.iter().cloned());
        let read_only = secret.iter().filter(|path| !writable.iter().any(|top| path.starts_with(top)));
        let crowded = if mounts { self.found.crowded(&read_only.cloned().collect()) } else { BTreeSet::new() };
        hidden.extend(secret.difference(&crowded).cloned());
        Closed { hidden, secret, crowded }
    }

    fn grant_reads(
        &self,
        plan: &mut PathPlan,
        listed: Vec<PathBuf>,
        also: Vec<PathBuf>,
        denied: &[PathBuf],
        closed: &Closed,
    ) {
        match &self.policy.paths.read {
            None => plan.grant_readable(Path::new("/"), &closed.hidden, self.tree),
            Some(_) => {
                let system = SYSTEM.iter().filter_map(|path| self.tree.resolve(Path::new(path)));
                for path in system.chain(listed) {
                    plan.grant_readable(&path, &closed.hidden, self.tree);
                }
            }
        }
        plan.grants.extend(self.places.summary().map(|path| Grant { path, access: Access::Read }));
        let kept: BTreeSet<_> = denied.iter().chain(closed.secret.difference(&closed.crowded)).cloned().collect();
        for path in also {
            // A directory above a credential does not name it.
            let inside = below(&path, &closed.hidden).filter(|hidden| **hidden != path);
            let kept = kept.iter().chain(inside).cloned().collect();
            plan.grant_around(&path, Access::ReadExecute, &kept, self.tree);
        }
    }

    fn grant_writes(&self, plan: &mut PathPlan, writable: &[PathBuf], denied: &[PathBuf], closed: &Closed) {
        for path in writable {
            plan.grant_writable(path, &closed.hidden, denied, self.tree);
        }
        let writes = self.policy.profiles.contains(&Profile::Write);
        let terminals = TERMINALS.iter().filter(|_| writes);
        let devices = DEVICES.iter().chain(terminals).filter_map(|device| self.tree.resolve(Path::new(device)));
        let granted = devices.filter(|device| !denied.iter().any(|denied| device.starts_with(denied)));
        plan.grants.extend(granted.map(|path| Grant { path, access: Access::Device }));
    }

    /// Lists what mounts have to cover or make read-only inside the writable trees.
    fn keep_unchanged(&self, plan: &mut PathPlan, writable: &[PathBuf], named: &[PathBuf], closed: Closed) {
        let Closed { mut hidden, crowded, .. } = closed;
        plan.covered.extend(crowded.iter().cloned());
        plan.covered.sort();
        // A cover over a directory also covers what is in it.
        plan.covered.dedup_by(|inner, outer| inner.starts_with(outer));
        plan.protect(self.policy, self.places, writable, named, &self.found.links, self.tree);
        hidden.extend(crowded);
        plan.hidden = hidden.into_iter().collect();
        plan.note_hard_links(self.tree);
    }
}

impl PathPlan {
    /// Grants reading a tree without the devices in it, unless the tree is /dev itself.
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

    /// Grants a tree without what is hidden in it. Directories above a hidden path can be listed.
    fn grant_around(&mut self, top: &Path, access: Access, hidden: &BTreeSet<PathBuf>, tree: &dyn Tree) {
        if !is_below(top, hidden) {
            self.grant_beside(top.to_owned(), access, hidden, tree);
        }
    }

    /// The same for a tree above which nothing is hidden.
    fn grant_beside(&mut self, top: PathBuf, access: Access, hidden: &BTreeSet<PathBuf>, tree: &dyn Tree) {
        let first = below(&top, hidden).next();
        match first {
            None => return self.grants.push(Grant { path: top, access }),
            Some(first) if *first == top => return,
            Some(_) => {}
        }
        let known = || {
            below(&top, hidden)
                .filter_map(|hidden| Some(top.join(hidden.strip_prefix(&top).ok()?.components().next()?)))
        };
        let entries = tree.entries(&top).unwrap_or_else(|| known().collect());
        self.grants.reserve(entries.len() + 1);
        self.grants.push(Grant { path: top, access: Access::List });
        for entry in entries {
            self.grant_beside(entry, access, hidden, tree);
        }
    }

    /// Grants a writable tree as a whole, because creating a file needs a rule on its directory; mounts cover what is
    /// hidden in it. If the caller denied a path in it, only that path's siblings are granted, and new files are not.
    fn grant_writable(&mut self, top: &Path, hidden: &BTreeSet<PathBuf>, denied: &[PathBuf], tree: &dyn Tree) {
        let never = NEVER_WRITABLE.iter().map(Path::new).filter(|path| *path != top);
        let inside = denied.iter().map(PathBuf::as_path).chain(never).filter(|path| is_under(path, top));
        let left_out: BTreeSet<PathBuf> = inside.map(Path::to_owned).collect();
        match left_out.is_empty() {
            true => self.grants.push(Grant { path: top.to_owned(), access: Access::Write }),
            false => self.grant_around(top, Access::Write, &left_out, tree),
        }
        let inside = below(top, hidden).filter(|path| *path != top);
        self.covered.extend(inside.filter(|path| !is_below(path, &left_out)).cloned());
    }
}

/// The paths that are `top` or below it. `Path` orders by components, so they follow `top` without a gap.
fn below<'a>(top: &'a Path, paths: &'a BTreeSet<PathBuf>) -> impl Iterator<Item = &'a PathBuf> {
    let from = (Bound::Included(top), Bound::Unbounded);
    paths.range::<Path, _>(from).take_while(move |path| is_under(path, top))
}

/// Sorts as `Grant` is ordered: by path, then by access.
fn sort(grants: &mut [Grant]) {
    match grants.iter().all(|grant| is_plain(&grant.path)) {
        true => grants.sort_by(|a, b| order(&a.path, &b.path).then_with(|| a.access.cmp(&b.access))),
        false => grants.sort(),
    }
}
