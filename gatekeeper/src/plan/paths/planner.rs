//! From a policy and the file system to a `PathPlan`, step by step.

use super::granting::{below, sort};
use super::hidden::{Hidden, elsewhere, hidden, to_search};
use super::known::{DEVICES, GRAPHICS, SYSTEM, TERMINALS};
use super::linked::{By, Linked};
use super::memory::Memory;
use super::protect::Kept;
use super::spelling::is_under;
use super::{Access, Found, Grant, Kind, PathPlan, Places, Tree, git, is_below, plain};
use crate::plan::refusal::Refusal;
use crate::policy::{Policy, Profile};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

pub(super) struct Planner<'a> {
    pub policy: &'a Policy,
    pub places: &'a Places,
    /// Trees to leave out as a whole, unless they are writable.
    pub closed: &'a [PathBuf],
    /// The programs of the run, and where it starts.
    pub used: &'a [&'a Path],
    pub found: &'a Found,
    pub tree: &'a dyn Tree,
    /// What links in closed directories lead to. The same with mounts and without.
    pub linked: OnceCell<Linked>,
}

/// What a run must not read.
struct Closed {
    /// Left out of the grants.
    hidden: BTreeSet<PathBuf>,
    /// Those of the hidden and crowded paths that were found by a name: patterns of the policy, and secrets.
    secret: BTreeSet<PathBuf>,
    /// Covered by a mount, because leaving them out would take too many rules.
    crowded: BTreeSet<PathBuf>,
}

impl Planner<'_> {
    /// `mounts`: whether mounts can cover files inside the granted trees.
    pub(super) fn plan(&self, mounts: bool) -> Result<PathPlan, Refusal> {
        let (found, tree) = (self.found, self.tree);
        let mut plan = PathPlan { notes: found.notes.clone(), incomplete: found.incomplete, ..PathPlan::default() };
        tree.reach(&self.places.cwd, &self.places.session(tree)).map_err(|error| Refusal::setup(error.to_string()))?;
        let (hostile, named) = self.hostile(&mut plan.missing)?;
        self.refuse_unsafe_trees(&named)?;
        let writable = self.writable(&named, &hostile)?;
        let mut writable = self.moved(&writable, &hostile)?;
        let also = self.named(&self.policy.paths.also_read, &hostile, &mut plan.missing)?;
        let also = self.with_copies(also, &hostile)?;
        let plain = self.denied(&hostile, &mut plan.missing)?;
        let memory = self.memory(&[named.clone(), also.clone()].concat());
        if let Some(Memory::Asked(place) | Memory::Used(place)) = &memory {
            writable.push(place.clone());
        }
        // A credential in `paths.read` is readable only if the list names it, not if it names a directory above it.
        let listed = self.named(self.policy.paths.read.as_deref().unwrap_or_default(), &hostile, &mut plan.missing)?;
        let listed = self.with_copies(listed, &hostile)?;
        let asked: Vec<PathBuf> = also.iter().chain(&listed).chain(&named).cloned().collect();
        let Hidden { closed: known, opened } = hidden(self.places, tree, &writable, &asked, &plain);
        plan.denied = self.all_denied(plain, &known, &asked, &writable);
        plan.denied.extend(self.places.copies(&plan.denied, tree));
        plan.denied.sort();
        plan.denied.dedup();
        writable.retain(|top| !plan.denied.iter().any(|denied| top.starts_with(denied)));
        let mut closed = self.close(known, &writable, &asked, mounts, &mut plan);
        // Nothing can be mounted over the copy, so no grant may reach what is closed in the working directory.
        let copies = self.places.copies(closed.hidden.iter().chain(&closed.crowded), tree);
        let denied: Vec<PathBuf> = plan.denied.iter().chain(&copies).cloned().collect();
        plan.secret.extend(copies.iter().cloned());
        closed.hidden.extend(copies.iter().cloned());
        self.grant_reads(&mut plan, listed, also, &denied, &closed);
        // Where mounts can cover what is denied, files can be created beside it.
        let left_out = if mounts { &copies } else { &denied };
        self.grant_writes(&mut plan, &writable, &denied, left_out, &closed);
        match memory {
            Some(Memory::Private(place)) => plan.grant_memory(&place, mounts, &closed.hidden, &denied, tree),
            // The report need not mention what the caller asked for.
            Some(Memory::Used(place)) if writable.contains(&place) => plan.shared.push(place),
            _ => {}
        }
        let opened = self.opened(opened, &asked);
        self.keep_unchanged(&mut plan, &writable, &self.moved(&named, &hostile)?, closed, opened);
        if let Some(execute) = &self.policy.paths.execute {
            let execute = self.named(execute, &hostile, &mut Vec::new())?;
            plan.execute_listed(self.with_copies(execute, &hostile)?, tree);
        }
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

    fn memory(&self, named: &[PathBuf]) -> Option<Memory> {
        if !self.policy.private_shm() {
            return None;
        }
        let places = [self.places.work()].into_iter().chain(self.places.tmp.as_deref());
        let used: Vec<&Path> = places.chain(self.used.iter().copied()).collect();
        Memory::of(&used, named, self.tree)
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

    /// The devices that programs expect, and the directories of those that a profile lets the command control.
    fn devices(&self) -> impl Iterator<Item = PathBuf> {
        let has = |profile| self.policy.profiles.contains(&profile);
        let terminals = TERMINALS.iter().filter(move |_| has(Profile::Write));
        let listed = || self.policy.paths.read.iter().flatten().any(|path| path == Path::new(GRAPHICS));
        let graphics = (has(Profile::Browser) && listed()).then_some(&GRAPHICS);
        let all = DEVICES.iter().chain(terminals).chain(graphics);
        all.filter_map(|device| self.tree.resolve(Path::new(device)))
    }

    /// The real paths that the policy denies without a pattern.
    fn denied(&self, hostile: &[PathBuf], missing: &mut Vec<PathBuf>) -> Result<Vec<PathBuf>, Refusal> {
        let mut absent = Vec::new();
        let mut denied = self.named(&plain(self.policy), hostile, &mut absent)?;
        for path in absent {
            match self.tree.shut(&path) {
                Some(closed) => denied.push(closed),
                None => missing.push(path),
            }
        }
        Ok(denied)
    }

    /// All real paths that the policy denies: by a path, by a pattern, or by a link in a denied directory. In order.
    fn all_denied(
        &self,
        plain: Vec<PathBuf>,
        known: &BTreeMap<PathBuf, By>,
        asked: &[PathBuf],
        writable: &[PathBuf],
    ) -> Vec<PathBuf> {
        let linked = self.linked.get_or_init(|| {
            let by_name: Vec<&PathBuf> = asked.iter().chain(writable).collect();
            let cwd = self.tree.resolve(&self.places.cwd);
            let closed = self.found.closed_but(&by_name, cwd.as_deref());
            let mut directories = to_search(known, closed, cwd.as_deref());
            directories.extend(self.found.denied.iter().map(|path| (path.clone(), By::Policy)));
            Linked::of(directories, self.places, self.tree)
        });
        // What the caller asked for stays open, and a directory that holds it.
        let asked_for = |path: &&PathBuf| asked.iter().chain(writable).any(|asked| is_under(asked, path));
        let linked = linked.denied.iter().filter(|path| !asked_for(path));
        let all: BTreeSet<PathBuf> = self.found.denied.iter().chain(linked).cloned().chain(plain).collect();
        all.into_iter().collect()
    }

    /// Collects what must not be read, and decides for each path whether to leave it out or to cover it.
    fn close(
        &self,
        known: BTreeMap<PathBuf, By>,
        writable: &[PathBuf],
        asked: &[PathBuf],
        mounts: bool,
        plan: &mut PathPlan,
    ) -> Closed {
        let mut hidden: BTreeSet<PathBuf> = known.into_keys().collect();
        if let Some(linked) = self.linked.get() {
            let kept = linked.closed.iter().filter(|path| !asked.contains(path) && !writable.contains(path));
            hidden.extend(kept.cloned());
            let notes = linked.notes();
            plan.incomplete |= !notes.is_empty();
            plan.notes.extend(notes);
        }
        hidden.extend(elsewhere(&hidden, writable, asked, self.tree));
        plan.secret = hidden.clone();
        let work = self.places.copy.iter().map(|_| &self.places.cwd);
        let tops: Vec<&PathBuf> = writable.iter().chain(work).collect();
        let outside = |path: &&PathBuf| !tops.iter().any(|top| path.starts_with(top) || top.starts_with(path));
        hidden.extend(self.closed.iter().filter(outside).cloned());
        let by_name: Vec<&PathBuf> = asked.iter().chain(writable).collect();
        let cwd = self.tree.resolve(&self.places.cwd);
        let secret = self.found.closed_but(&by_name, cwd.as_deref()).chain(&plan.denied).cloned();
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
        mut also: Vec<PathBuf>,
        denied: &[PathBuf],
        closed: &Closed,
    ) {
        match &self.policy.paths.read {
            None => plan.grant_readable(Path::new("/"), &closed.hidden, self.tree),
            Some(_) => {
                // A path inside a credential directory names what is there, as `--read` does.
                let closed_trees = |path: &Path| self.closed.iter().any(|tree| is_under(path, tree));
                let inside = |path: &PathBuf| is_below(path, &closed.hidden) && !closed_trees(path);
                let (named, listed): (Vec<_>, Vec<_>) = listed.into_iter().partition(inside);
                also.extend(named);
                let system = SYSTEM.iter().filter_map(|path| self.tree.resolve(Path::new(path)));
                for path in system.chain(listed) {
                    plan.grant_readable(&path, &closed.hidden, self.tree);
                }
            }
        }
        plan.grants.extend(self.places.summary().map(|path| Grant { path, access: Access::Read }));
        let secret: BTreeSet<_> = closed.secret.difference(&closed.crowded).collect();
        let mut denied: BTreeSet<PathBuf> = denied.iter().cloned().collect();
        if !also.is_empty() {
            denied.extend(elsewhere(&denied, &[], &[], self.tree));
        }
        for path in also {
            // A directory above a credential does not name it, and a path below it does.
            let inside = below(&path, &closed.hidden).filter(|hidden| **hidden != path);
            let beside = secret.iter().copied().filter(|secret| !is_under(&path, secret));
            let kept = denied.iter().chain(beside).chain(inside).cloned().collect();
            plan.grant_around(&path, Access::ReadExecute, &kept, self.tree);
        }
    }

    fn grant_writes(
        &self,
        plan: &mut PathPlan,
        writable: &[PathBuf],
        denied: &[PathBuf],
        left_out: &[PathBuf],
        closed: &Closed,
    ) {
        for path in writable {
            plan.grant_covering(path, Access::Write, &closed.hidden, left_out, self.tree);
        }
        for device in self.devices().filter(|device| !denied.iter().any(|denied| device.starts_with(denied))) {
            plan.grant_covering(&device, Access::Device, &closed.hidden, left_out, self.tree);
        }
    }

    /// What would be closed, had the caller not asked to read it.
    fn opened(&self, mut opened: Vec<PathBuf>, asked: &[PathBuf]) -> Vec<PathBuf> {
        let linked = self.linked.get().map(|linked| &linked.closed);
        let by_name =
            |path: &&PathBuf| self.found.closed.contains(*path) || linked.is_some_and(|linked| linked.contains(*path));
        opened.extend(asked.iter().filter(by_name).cloned());
        opened
    }

    /// Lists what mounts have to cover or make read-only inside the writable trees. `opened`: may be read, which is no right to
    /// write.
    fn keep_unchanged(
        &self,
        plan: &mut PathPlan,
        writable: &[PathBuf],
        named: &[PathBuf],
        closed: Closed,
        opened: Vec<PathBuf>,
    ) {
        let Closed { mut hidden, crowded, .. } = closed;
        plan.covered.extend(crowded.iter().cloned());
        plan.covered.sort();
        // A cover over a directory also covers what is in it.
        plan.covered.dedup_by(|inner, outer| inner.starts_with(outer));
        let kept = Kept { asked: named, found: self.found, opened: &opened };
        plan.protect(self.policy, self.places, writable, &kept, self.tree);
        hidden.extend(crowded);
        plan.hidden = hidden.into_iter().collect();
        let none = BTreeSet::new();
        plan.note_hard_links(self.linked.get().map_or(&none, |linked| &linked.files), self.tree);
    }
}
