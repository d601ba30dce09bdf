//! What stays as it is inside of writable trees: what decides what others will run or trust, and the links that lead to it.

use super::git::{Sensitive, is_git_directory};
use super::{CREDENTIALS, PROTECTED, PathPlan, Places, STARTUP, Tree, aliases};
use crate::plan::refusal::Refusal;
use crate::policy::Policy;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

impl PathPlan {
    /// Finds what exists of the protected places, and what could be put in their stead. `asked`: what the caller named
    /// to be written, which is not protected.
    pub(super) fn protect(
        &mut self,
        policy: &Policy,
        places: &Places,
        writable: &[PathBuf],
        asked: &[PathBuf],
        known_links: &[PathBuf],
        tree: &dyn Tree,
    ) {
        if writable.is_empty() {
            return;
        }
        let is_inside = |path: &Path| writable.iter().any(|top| path.starts_with(top));
        let homes = places.homes(tree).own;
        let bases: BTreeSet<PathBuf> = tree
            .resolve(&places.cwd)
            .into_iter()
            .chain(homes.iter().cloned())
            .chain(writable.iter().cloned())
            .collect();
        let mut git = Sensitive::default();
        let mut names: Vec<PathBuf> = Vec::new();
        for base in &bases {
            names.extend(PROTECTED.iter().map(|entry| base.join(entry)));
            git.of_tree(base, tree);
            // The git directory of a linked worktree is itself one of the writable trees.
            if is_git_directory(base, tree) {
                git.of_directory(base, tree);
            }
        }
        // Of a home that is writable in part, as with ~/.config as the working directory, what lies in that part.
        let is_deeper = |path: &PathBuf| writable.iter().any(|top| path.starts_with(top) && path != top);
        let startup = homes.iter().flat_map(|home| STARTUP.iter().map(|entry| home.join(entry)));
        let startup: BTreeSet<PathBuf> = startup.filter(|path| is_deeper(path) && !writable.contains(path)).collect();
        names.extend(startup.iter().cloned());
        names.extend(policy.sources.iter().cloned());
        names.append(&mut git.there);

        let mut found = BTreeSet::new();
        let mut links = BTreeSet::new();
        for name in names {
            let at_home = || homes.iter().any(|home| is_inside(home) && name.starts_with(home));
            match (tree.look(&name), tree.resolve(&name)) {
                (Some(_), real) => {
                    if real.as_ref() != Some(&name) {
                        links.extend(tree.links(&name));
                    }
                    found.extend(real.or_else(|| tree.shut(&name)));
                }
                // An earlier command may have shut the directory that it is in; this one would open it again.
                (None, _) => match tree.shut(&name) {
                    Some(closed) => drop(found.insert(closed)),
                    None if startup.contains(&name) || at_home() => self.open.push(name),
                    None => {}
                },
            }
        }
        // Without its link a secret that lies elsewhere is not known to be one in the next run.
        let secrets = homes.iter().flat_map(|home| CREDENTIALS.iter().map(move |name| home.join(name)));
        let secrets = secrets.chain(known_links.iter().cloned());
        for name in secrets.filter(|name| is_inside(name)) {
            links.extend(tree.links(&name));
        }
        // The same by other mounts that are writable as well.
        let mounts = if found.iter().any(|path| is_inside(path)) { tree.mounts() } else { Vec::new() };
        let again: Vec<PathBuf> = found
            .iter()
            .flat_map(|path| aliases::of(path, &mounts))
            .filter(|(other, is)| is_inside(other) && tree.is_same(other, is))
            .map(|(other, _)| other)
            .collect();
        found.extend(again);

        let kept = |path: &PathBuf| is_inside(path) && !asked.contains(path);
        let covered = &self.covered;
        let is_hidden = |path: &PathBuf| covered.iter().any(|covered| path.starts_with(covered));
        self.protected = found.into_iter().filter(|path| kept(path) && !is_hidden(path)).collect();
        let protected = &self.protected;
        let is_read_only = |path: &PathBuf| protected.iter().any(|place| path.starts_with(place));
        self.links = links.into_iter().filter(|path| kept(path) && !is_hidden(path) && !is_read_only(path)).collect();
        self.unwanted = git.absent.into_iter().filter(kept).collect();
        self.open.sort();
        self.open.dedup();
    }
}

impl PathPlan {
    /// A file that is closed or kept by its name has others, and an earlier command may have given it one: told, because
    /// nothing finds them but a search of the whole file system.
    pub(super) fn tell_other_names(&mut self, tree: &dyn Tree) {
        let is_linked = |path: &&PathBuf| tree.look(path).is_some_and(|found| found.linked);
        let linked: BTreeSet<PathBuf> = self.hidden.iter().chain(&self.protected).filter(is_linked).cloned().collect();
        if linked.is_empty() {
            return;
        }
        let linked: Vec<PathBuf> = linked.into_iter().collect();
        let shown = super::shown(&linked, 20);
        self.notes.push(format!("have other names (hard links), by which they may stay open: {shown}"));
        self.incomplete = true;
    }
}

/// Refuses links in trees that commands write also where other layers than Landlock use what the policy names.
pub fn refuse_links(
    policy: &Policy,
    places: &Places,
    paths: Option<&PathPlan>,
    tree: &dyn Tree,
) -> Result<(), Refusal> {
    let grants = paths.iter().flat_map(|paths| &paths.grants);
    let written: Vec<PathBuf> = grants.filter(|grant| grant.access.writes()).map(|grant| grant.path.clone()).collect();
    let hostile = places.hostile(tree, &written);
    let isolation = policy.bubblewrap.extra_read.iter().chain(&policy.bubblewrap.extra_write);
    for path in policy.network.unix.iter().chain(isolation) {
        tree.reach(&places.absolute(path), &hostile).map_err(|error| Refusal::setup(error.to_string()))?;
    }
    Ok(())
}
