//! Which paths a command must not read: credentials, and what the policy denies.

use super::credentials::{self, SYSTEM_CREDENTIALS};
use super::known::BLOCK_DEVICES;
use super::{Found, Places, Tree, aliases};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The credentials that exist and the denied paths, without those that the caller asked for by name.
pub(super) fn hidden(
    places: &Places,
    tree: &dyn Tree,
    writable: &[PathBuf],
    also: &[PathBuf],
    denied: &[PathBuf],
) -> BTreeSet<PathBuf> {
    let homes = places.homes(tree);
    let at_home = homes.own.iter().chain(&homes.others).flat_map(|home| credentials::at_home(home, tree));
    // A readable disk device makes every file on the disk readable.
    let disks = tree.names(Path::new(BLOCK_DEVICES)).into_iter().flatten().map(|name| Path::new("/dev").join(name));
    let asked_for = |path: &PathBuf| also.iter().chain(writable).any(|asked| asked == path);
    let system = SYSTEM_CREDENTIALS.iter().filter_map(|path| tree.resolve(Path::new(path)));
    let system = system.chain(disks.filter_map(|path| tree.resolve(&path)));
    // Skip what permissions already protect: hiding a path costs a Landlock rule for each of its siblings.
    let found = at_home.chain(system.filter(|path| !tree.is_closed(path)));
    let cwd = tree.resolve(&places.cwd);
    // Never hide the working directory, even if it lies inside a credential directory.
    let holds_work = |path: &PathBuf| cwd.iter().chain(&places.copy).any(|work| work.starts_with(path));
    found.filter(|path| !asked_for(path) && !holds_work(path)).chain(denied.iter().cloned()).collect()
}

/// The credentials that exist on this machine.
pub fn credentials(places: &Places, tree: &dyn Tree) -> BTreeSet<PathBuf> {
    let mut found = Found::default();
    if let Some(cwd) = tree.resolve(&places.cwd) {
        found.search_work(&cwd, tree);
    }
    let mut all = hidden(places, tree, &[], &[], &[]);
    all.extend(found.closed);
    all
}

/// The same files under other mounts of their file systems.
pub(super) fn elsewhere(
    hidden: &BTreeSet<PathBuf>,
    writable: &[PathBuf],
    asked: &[PathBuf],
    tree: &dyn Tree,
) -> Vec<PathBuf> {
    let mounts = if hidden.is_empty() { Vec::new() } else { tree.mounts() };
    let others = hidden.iter().flat_map(|path| aliases::of(path, &mounts));
    let others = others.filter(|(other, is)| tree.is_same(other, is)).map(|(other, _)| other);
    others.filter(|path| !asked.contains(path) && !writable.contains(path)).collect()
}
