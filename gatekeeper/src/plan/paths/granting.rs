//! Grants for trees in which something is closed: what is around it.

use super::known::DEVICE_TREE;
use super::spelling::{is_plain, is_under, order};
use super::{Access, Grant, PathPlan, Tree, is_below};
use std::collections::BTreeSet;
use std::ops::Bound;
use std::path::{Path, PathBuf};

/// The kernel's file systems and the devices: a write there changes the machine. Never part of a writable tree.
const NEVER_WRITABLE: [&str; 3] = ["/proc", "/sys", "/dev"];

impl PathPlan {
    /// Grants reading a tree without the devices in it, unless the tree is /dev itself.
    pub(super) fn grant_readable(&mut self, top: &Path, hidden: &BTreeSet<PathBuf>, tree: &dyn Tree) {
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
    pub(super) fn grant_around(&mut self, top: &Path, access: Access, hidden: &BTreeSet<PathBuf>, tree: &dyn Tree) {
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

    /// Grants a writable tree, or a device or directory of devices, as a whole, because creating a file needs a rule on its
    /// directory; mounts cover what is hidden in it. Without mounts, only the siblings of a denied path are granted, and new
    /// files are not.
    pub(super) fn grant_covering(
        &mut self,
        top: &Path,
        access: Access,
        hidden: &BTreeSet<PathBuf>,
        denied: &[PathBuf],
        tree: &dyn Tree,
    ) {
        let never = NEVER_WRITABLE.iter().map(Path::new).filter(|path| *path != top);
        let inside = denied.iter().map(PathBuf::as_path).chain(never).filter(|path| is_under(path, top));
        let left_out: BTreeSet<PathBuf> = inside.map(Path::to_owned).collect();
        match left_out.is_empty() {
            true => self.grants.push(Grant { path: top.to_owned(), access }),
            false => self.grant_around(top, access, &left_out, tree),
        }
        let inside = below(top, hidden).filter(|path| *path != top);
        self.covered.extend(inside.filter(|path| !is_below(path, &left_out)).cloned());
    }
}

/// The paths that are `top` or below it. `Path` orders by components, so they follow `top` without a gap.
pub(super) fn below<'a>(top: &'a Path, paths: &'a BTreeSet<PathBuf>) -> impl Iterator<Item = &'a PathBuf> {
    let from = (Bound::Included(top), Bound::Unbounded);
    paths.range::<Path, _>(from).take_while(move |path| is_under(path, top))
}

/// Sorts as `Grant` is ordered: by path, then by access.
pub(super) fn sort(grants: &mut [Grant]) {
    match grants.iter().all(|grant| is_plain(&grant.path)) {
        true => grants.sort_by(|a, b| order(&a.path, &b.path).then_with(|| a.access.cmp(&b.access))),
        false => grants.sort(),
    }
}
