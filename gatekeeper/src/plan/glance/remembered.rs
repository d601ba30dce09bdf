//! What is known about paths, by their texts: comparing paths part by part takes longer than some of the lookups that this saves.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The place of a path in `texts`, and what is known about it.
type Entry<T> = (Range<usize>, T);

/// A map in which a path is hashed once for the question and the answer.
pub(super) struct Remembered<T> {
    hashes: RandomState,
    /// By the hash of a path.
    known: RefCell<HashMap<u64, Entry<T>, BuildHasherDefault<Hashed>>>,
    /// All paths one after the other: one piece of memory instead of one for each.
    texts: RefCell<Vec<u8>>,
}

/// A path of a plan has about as many bytes.
const USUAL_LENGTH: usize = 20;

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
        let texts = Vec::with_capacity(count * USUAL_LENGTH);
        Remembered { hashes: RandomState::new(), known: RefCell::new(known), texts: RefCell::new(texts) }
    }

    /// With keys that nobody can know.
    pub(super) fn hash(&self, path: &Path) -> u64 {
        let mut hasher = self.hashes.build_hasher();
        hasher.write(path.as_os_str().as_bytes());
        hasher.finish()
    }

    /// What is known about a path with this hash. If another one has the same hash, nothing is.
    pub(super) fn get(&self, hash: u64, path: &Path) -> Option<T> {
        let (known, texts) = (self.known.borrow(), self.texts.borrow());
        let (at, known) = known.get(&hash)?;
        (texts.get(at.clone()) == Some(path.as_os_str().as_bytes())).then(|| known.clone())
    }

    pub(super) fn put(&self, hash: u64, path: &Path, known: T) {
        let mut texts = self.texts.borrow_mut();
        let start = texts.len();
        texts.extend_from_slice(path.as_os_str().as_bytes());
        self.known.borrow_mut().insert(hash, (start..texts.len(), known));
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
