//! The names that the real tree had when a run began.
//!
//! A file that the command replaces as a whole (as `sed -i` does) looks like a new one afterwards, and if the user has removed the
//! real file meanwhile, nothing else tells that there was one. Only names are read, and of a large tree only those of the
//! directories next to the top, so that starting a run stays quick.

use super::tree::Dir;
use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// How many names to read: some milliseconds.
const MOST: usize = 10_000;

/// The names of each directory that was read completely.
#[derive(Debug, Default)]
pub struct Names(HashMap<PathBuf, HashSet<OsString>>);

impl Names {
    pub fn of(real: &Dir) -> Names {
        let mut names = Names::default();
        // What cannot be read is not known; the run itself says more about it.
        let _ = names.read(real);
        names
    }

    fn read(&mut self, real: &Dir) -> io::Result<()> {
        let mut left = MOST;
        let mut ahead = VecDeque::from([PathBuf::new()]);
        while let Some(path) = ahead.pop_front() {
            let Some(directory) = real.at(&path)? else { continue };
            let Some(entries) = directory.entries(left)? else { return Ok(()) };
            left -= entries.len();
            ahead.extend(entries.iter().filter(|(_, is_directory)| *is_directory).map(|(name, _)| path.join(name)));
            self.0.insert(path, entries.into_iter().map(|(name, _)| name).collect());
        }
        Ok(())
    }

    /// Whether the real tree had this name. `None`: its directory was not read.
    pub fn had(&self, path: &Path) -> Option<bool> {
        let (parent, name) = super::tree::split(path);
        self.0.get(parent).map(|names| names.contains(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_level_by_level_up_to_the_limit() {
        let top = tempfile::tempdir().expect("a temporary directory");
        std::fs::create_dir_all(top.path().join("a/b")).expect("own directory");
        std::fs::create_dir(top.path().join("z")).expect("own directory");
        std::fs::write(top.path().join("a/f"), "").expect("own directory");
        std::os::unix::fs::symlink("a", top.path().join("link")).expect("own directory");
        let names = || Names::of(&Dir::new(std::fs::File::open(top.path()).expect("there").into(), false));
        let had = |path: &str| names().had(Path::new(path));
        assert_eq!(
            [had("a"), had("a/f"), had("none"), had("a/none")],
            [Some(true), Some(true), Some(false), Some(false)]
        );
        assert_eq!((had("link/f"), had("none/f")), (None, None), "no link is followed");
        for number in 0..MOST {
            std::fs::write(top.path().join("a/b").join(number.to_string()), "").expect("own directory");
        }
        assert_eq!([had("a/f"), had("a/b/0"), had("z/0")], [Some(true), None, Some(false)]);
    }
}
