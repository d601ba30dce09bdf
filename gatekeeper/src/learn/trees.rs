//! Reduces the files that were used to the narrowest sensible grants: a directory in place of many of its files, but
//! never the home directory.

use crate::plan::paths::Places;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// From this many entries of a directory on, the directory itself is granted.
pub const MANY: usize = 5;

/// The directories of the run, which decide what is too wide to grant.
pub struct Around<'a> {
    pub places: &'a Places,
}

impl Around<'_> {
    /// Whether a directory is too wide to grant: `/`, a directory in it, the home directory, or an ancestor of that.
    pub fn too_wide(&self, path: &Path) -> bool {
        let home = self.places.home.as_ref().map(|home| home.canonicalize().unwrap_or_else(|_| home.clone()));
        let holds_home = home.is_some_and(|home| home.starts_with(path));
        let temporary = ["/tmp", "/var/tmp", "/dev/shm"].iter().any(|known| path == Path::new(known));
        holds_home || (path.components().count() <= 2 && !temporary)
    }

    /// The working directory, unless it is too wide to grant.
    pub fn work(&self) -> Option<PathBuf> {
        let cwd = self.places.cwd.canonicalize().ok()?;
        (!self.too_wide(&cwd)).then_some(cwd)
    }
}

/// Removes every path that is inside another one of the set.
pub fn outermost(places: BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
    let mut kept: BTreeSet<PathBuf> = BTreeSet::new();
    // Sorted, so a directory comes before its contents.
    for place in places {
        if !kept.iter().any(|outer| place.starts_with(outer)) {
            kept.insert(place);
        }
    }
    kept
}

/// Replaces [`MANY`] or more entries of a directory by the directory, repeatedly, unless it is too wide.
pub fn gathered(places: BTreeSet<PathBuf>, around: &Around<'_>) -> BTreeSet<PathBuf> {
    let mut places = outermost(places);
    loop {
        let mut by_parent: BTreeMap<&Path, usize> = BTreeMap::new();
        for parent in places.iter().filter_map(|place| place.parent()) {
            *by_parent.entry(parent).or_default() += 1;
        }
        let many = by_parent.into_iter().filter(|(parent, count)| *count >= MANY && !around.too_wide(parent));
        let many: BTreeSet<PathBuf> = many.map(|(parent, _)| parent.to_owned()).collect();
        if many.is_empty() {
            return places;
        }
        places.extend(many);
        places = outermost(places);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(paths: &[&str]) -> BTreeSet<PathBuf> {
        paths.iter().map(PathBuf::from).collect()
    }

    fn places() -> Places {
        Places {
            home: Some(PathBuf::from("/root")),
            cwd: PathBuf::from("/"),
            tmp: None,
            also_written: Vec::new(),
            staged: false,
            copy: None,
        }
    }

    #[test]
    fn few_files_stay_files_and_many_become_their_directory() {
        let places = places();
        let around = Around { places: &places };
        let few = set(&["/etc/a/1", "/etc/a/2"]);
        assert_eq!(gathered(few.clone(), &around), few);
        let many = set(&["/etc/a/1", "/etc/a/2", "/etc/a/3", "/etc/a/4", "/etc/a/5", "/srv/x/y"]);
        assert_eq!(gathered(many, &around), set(&["/etc/a", "/srv/x/y"]));
    }

    #[test]
    fn neither_the_root_nor_the_home_is_ever_gathered() {
        let places = places();
        let around = Around { places: &places };
        for top in ["", "/root", "/etc"] {
            let many: BTreeSet<PathBuf> = (0..50).map(|n| PathBuf::from(format!("{top}/{n}"))).collect();
            assert_eq!(gathered(many.clone(), &around), many, "{top}");
        }
    }

    #[test]
    fn what_is_inside_another_place_is_left_out() {
        assert_eq!(outermost(set(&["/a/b", "/a", "/a/b/c", "/ab"])), set(&["/a", "/ab"]));
    }
}
