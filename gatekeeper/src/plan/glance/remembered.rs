//! What is known about paths, by their texts: comparing paths part by part takes longer than some of the lookups that this saves.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsString;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A map in which a path is hashed once for the question and the answer.
pub(super) struct Remembered<T> {
    hashes: RandomState,
    known: RefCell<HashMap<u64, (OsString, T), BuildHasherDefault<Hashed>>>,
}

/// Takes a hash as it is.
#[derive(Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    /// Not called: the keys are numbers.
    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl<T: Clone> Remembered<T> {
    pub(super) fn with_capacity(count: usize) -> Remembered<T> {
        let known = HashMap::with_capacity_and_hasher(count, BuildHasherDefault::default());
        Remembered { hashes: RandomState::new(), known: RefCell::new(known) }
    }

    /// With keys that nobody can know.
    pub(super) fn hash(&self, path: &Path) -> u64 {
        let mut hasher = self.hashes.build_hasher();
        hasher.write(path.as_os_str().as_bytes());
        hasher.finish()
    }

    /// What is known about a path with this hash. If another one has the same hash, nothing is.
    pub(super) fn get(&self, hash: u64, path: &Path) -> Option<T> {
        let known = self.known.borrow();
        known.get(&hash).filter(|(known, _)| known == path.as_os_str()).map(|(_, known)| known.clone())
    }

    pub(super) fn put(&self, hash: u64, path: &Path, known: T) {
        self.known.borrow_mut().insert(hash, (path.into(), known));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_the_hash_of_another_is_not_known() {
        let remembered = Remembered::with_capacity(2);
        remembered.put(7, Path::new("/a"), 1);
        assert_eq!(remembered.get(7, Path::new("/a")), Some(1));
        assert_eq!(remembered.get(7, Path::new("/b")), None);
        remembered.put(7, Path::new("/b"), 2);
        assert_eq!(remembered.get(7, Path::new("/b")), Some(2));
        assert_eq!(remembered.get(7, Path::new("/a")), None);
    }
}
