//! Which paths a command must not read: credentials, and what the policy denies.

use super::credentials::{self, SYSTEM_CREDENTIALS};
use super::known::BLOCK_DEVICES;
use super::linked::{By, Linked};
use super::{Found, Places, Tree, aliases};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What is closed because of where it is.
pub(super) struct Hidden {
    /// The credentials that exist and the denied paths, and why each is closed.
    pub closed: BTreeMap<PathBuf, By>,
    /// Credentials that the caller asked for by name. They are open.
    pub opened: Vec<PathBuf>,
}

pub(super) fn hidden(
    places: &Places,
    tree: &dyn Tree,
    writable: &[PathBuf],
    also: &[PathBuf],
    denied: &[PathBuf],
) -> Hidden {
    let homes = places.homes_with_keys(tree);
    let at_home = homes.own.iter().chain(&homes.others).flat_map(|home| credentials::at_home(home, tree));
    // A readable disk device makes every file on the disk readable.
    let disks = tree.names(Path::new(BLOCK_DEVICES)).into_iter().flatten().map(|name| Path::new("/dev").join(name));
    let asked_for = |path: &PathBuf| also.iter().chain(writable).any(|asked| asked == path);
    let system = SYSTEM_CREDENTIALS.iter().map(Path::new);
    let system = system.filter_map(|path| tree.resolve(path).or_else(|| tree.shut(path)));
    let system = system.chain(disks.filter_map(|path| tree.resolve(&path)));
    // Skip what permissions already protect: hiding a path costs a Landlock rule for each of its siblings.
    let system = system.filter(|path| !tree.is_closed(path)).map(|path| (path, By::Keys));
    let at_home = at_home.map(|found| (found.path, if found.store { By::Store } else { By::Keys }));
    let cwd = tree.resolve(&places.cwd);
    // Never hide the working directory, even if it lies inside a credential directory.
    let holds_work = |path: &PathBuf| cwd.iter().chain(&places.copy).any(|work| work.starts_with(path));
    let found = at_home.chain(system).filter(|(path, _)| !holds_work(path));
    let (opened, closed): (Vec<_>, Vec<_>) = found.partition(|(path, _)| asked_for(path));
    let denied = denied.iter().map(|path| (path.clone(), By::Policy));
    Hidden {
        closed: closed.into_iter().chain(denied).collect(),
        opened: opened.into_iter().map(|(path, _)| path).collect(),
    }
}

/// The credentials that exist on this machine.
pub fn credentials(places: &Places, tree: &dyn Tree) -> BTreeSet<PathBuf> {
    let mut found = Found::default();
    let cwd = tree.resolve(&places.cwd);
    if let Some(cwd) = &cwd {
        found.search_work(cwd, tree);
    }
    let known = hidden(places, tree, &[], &[], &[]).closed;
    let linked = Linked::of(to_search(&known, found.closed.iter(), cwd.as_deref()), places, tree);
    known.into_keys().chain(found.closed).chain(linked.closed).collect()
}

/// The closed paths in which to follow links. `cwd`: what is closed in it was found by its name.
pub(super) fn to_search<'a>(
    known: &BTreeMap<PathBuf, By>,
    closed: impl Iterator<Item = &'a PathBuf>,
    cwd: Option<&Path>,
) -> Vec<(PathBuf, By)> {
    let by_name = |path: &PathBuf| if cwd.is_some_and(|cwd| path.starts_with(cwd)) { By::Name } else { By::Keys };
    let closed = closed.filter(|path| !known.contains_key(*path)).map(|path| (path.clone(), by_name(path)));
    known.iter().map(|(path, by)| (path.clone(), *by)).chain(closed).collect()
}

/// This user's homes, from the environment and the system, and the credentials of homes and of the system that exist.
pub fn kept(home: Option<PathBuf>, tree: &dyn Tree) -> (Vec<PathBuf>, BTreeSet<PathBuf>) {
    let cwd = PathBuf::from("/");
    let places = Places { home, cwd, tmp: None, also_written: Vec::new(), staged: false, copy: None };
    let known = hidden(&places, tree, &[], &[], &[]).closed;
    let linked = Linked::of(to_search(&known, std::iter::empty(), None), &places, tree);
    (places.homes(tree).own, known.into_keys().chain(linked.closed).collect())
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
