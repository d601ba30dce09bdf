//! Which files may be executed: what `paths.execute` names, and of that what `[commands] allow` names.

use super::{Access, Grant, PathPlan, Tree, is_below};
use std::collections::BTreeSet;
use std::path::PathBuf;

impl PathPlan {
    /// Takes the right to execute from everything except what `paths.execute` names. What is closed in a directory of that list
    /// stays closed: by a mount if one covers it, and otherwise because no grant reaches it.
    pub(super) fn execute_listed(&mut self, listed: Vec<PathBuf>, tree: &dyn Tree) {
        self.take_execution();
        let covered: BTreeSet<PathBuf> = self.covered.iter().cloned().collect();
        let closed = self.hidden.iter().chain(&self.denied).filter(|path| !is_below(path, &covered));
        let closed: BTreeSet<PathBuf> = closed.cloned().collect();
        let open: Vec<&PathBuf> = listed.iter().filter(|path| !is_below(path, &self.secret)).collect();
        open.into_iter().for_each(|path| self.grant_readable(path, &closed, tree));
        self.executable = Some(listed.into_iter().collect());
    }

    /// Takes the right to execute from everything except these programs, and from those that `paths.execute` does not name. A
    /// program that leads to a secret is skipped.
    pub fn execute_only(&mut self, programs: impl IntoIterator<Item = PathBuf>) {
        self.take_execution();
        let listed = |path: &PathBuf| self.executable.as_ref().is_none_or(|listed| is_below(path, listed));
        let open = programs.into_iter().filter(|path| listed(path) && !is_below(path, &self.secret));
        let programs: Vec<Grant> = open.map(|path| Grant { path, access: Access::ReadExecute }).collect();
        let without = self.without_mounts.iter_mut().map(|(grants, _)| grants);
        std::iter::once(&mut self.grants).chain(without).for_each(|grants| grants.extend(programs.iter().cloned()));
    }

    fn take_execution(&mut self) {
        let without = self.without_mounts.iter_mut().flat_map(|(grants, _)| grants);
        for grant in self.grants.iter_mut().chain(without) {
            grant.access = match grant.access {
                Access::ReadExecute => Access::Read,
                Access::Write => Access::WriteOnly,
                other => other,
            };
        }
    }
}
