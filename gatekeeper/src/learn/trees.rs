//! From the files that were touched to the narrowest sensible places: a directory for many of its files, never a home.

use crate::plan::paths::Places;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Files, or directories, of one directory from which on the directory itself is named.
const MANY: usize = 5;

/// Where the run took place, and what is too wide to be granted.
pub struct Around<'a> {
    pub places: &'a Places,
}

impl Around<'_> {
    /// The root, the top directories, and every directory that holds the home, itself too.
    pub fn too_wide(&self, path: &Path) -> bool {
        let home = self.places.home.as_ref().and_then(|home| home.canonicalize().ok());
        let holds_home = home.is_some_and(|home| home.starts_with(path));
        let temporary = ["/tmp", "/var/tmp", "/dev/shm"].iter().any(|known| path == Path::new(known));
        holds_home || (path.components().count() <= 2 && !temporary)
    }

    /// The working directory, if it is one that may be granted as a whole.
    pub fn work(&self) -> Option<PathBuf> {
        let cwd = self.places.cwd.canonicalize().ok()?;
        (!self.too_wide(&cwd)).then_some(cwd)
    }
}

/// Keeps of a set of places those that no other contains.
pub fn outermost(places: BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
    let mut kept: BTreeSet<PathBuf> = BTreeSet::new();
    // In order, a directory comes before what is in it.
    for place in places {
        if !kept.iter().any(|outer| place.starts_with(outer)) {
            kept.insert(place);
        }
    }
    kept
}

/// Names the directory where many of its entries are named, again and again up to what is too wide.
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
        Places { home: Some(PathBuf::from("/root")), cwd: PathBuf::from("/"), tmp: None, also_written: Vec::new() }
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
