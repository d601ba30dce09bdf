//! The view of the file system that a plan needs, as a trait, so that tests can describe odd trees.

use super::aliases::Mounted;
use super::homes::Homes;
use super::patterns::{Searched, Seek, Unlisted};
use crate::trust::Untrusted;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

/// What lies at a path; a symbolic link is not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    pub kind: Kind,
    /// Whether it belongs to this user.
    pub own: bool,
    /// Of a file with more than one name (hard links).
    pub linked: Option<Inode>,
    /// Whether every user may read it, as far as its own permissions say.
    pub public: bool,
}

/// A file that has several names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inode {
    pub device: u64,
    pub number: u64,
    pub names: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    File,
    Directory,
    Link,
    Other,
}

pub trait Tree {
    /// The real path; `None` if it does not exist. Only for paths that gatekeeper or the system chose.
    fn resolve(&self, path: &Path) -> Option<PathBuf>;
    /// The real path of a path that the caller named. Commands write below the `hostile` trees, so a link there is an
    /// error: a command could have made it to be granted the link's target.
    fn reach(&self, path: &Path, hostile: &[PathBuf]) -> Result<Option<PathBuf>, Untrusted>;
    /// The same for many paths. The trees are looked at once, because a policy may list thousands of both.
    fn reach_all(&self, paths: &[PathBuf], hostile: &[PathBuf]) -> Result<Vec<Option<PathBuf>>, Untrusted>;
    /// The symbolic links on the way to a path, each by the real path of its directory.
    fn links(&self, path: &Path) -> Vec<PathBuf>;
    /// What the last link on the way to a path names, which need not exist.
    fn target(&self, path: &Path) -> Option<PathBuf>;
    fn look(&self, path: &Path) -> Option<Look>;
    /// The file at a path in a directory that was searched, if it has several names.
    fn other_names(&self, path: &Path) -> Option<Inode> {
        self.look(path)?.linked
    }
    /// The entries of a directory that are not symbolic links; `None` if it cannot be listed.
    fn entries(&self, directory: &Path) -> Option<Vec<PathBuf>>;
    /// The names of all entries of a directory; none if it does not exist, `None` if it cannot be listed.
    fn names(&self, directory: &Path) -> Option<Vec<OsString>>;
    fn is_directory(&self, path: &Path) -> bool;
    /// Whether two paths lead to the same file or directory.
    fn is_same(&self, one: &Path, other: &Path) -> bool;
    /// Whether file permissions alone keep this user out: it can neither read nor enter the path, nor change its mode.
    fn is_closed(&self, path: &Path) -> bool;
    /// A directory on the way to a path, also through links, that belongs to this user and cannot be entered. The plan
    /// cannot see what it holds, but a command of the same user could `chmod` it and look.
    fn shut(&self, path: &Path) -> Option<PathBuf>;
    /// Where an absent path would appear: with all that exists of it resolved.
    fn place(&self, path: &Path) -> Option<PathBuf> {
        let (above, real) = path.ancestors().skip(1).find_map(|above| Some((above, self.resolve(above)?)))?;
        let rest = path.strip_prefix(above).ok()?;
        rest.components().all(|part| matches!(part, Component::Normal(_))).then(|| real.join(rest))
    }
    /// All bytes of a file that is no link and not large.
    fn contents(&self, path: &Path) -> Option<Vec<u8>>;
    /// The same as text.
    fn text(&self, path: &Path) -> Option<String> {
        String::from_utf8(self.contents(path)?).ok()
    }
    /// Searches a whole tree without following links.
    fn search(&self, top: &Path, seek: &dyn Seek) -> Result<Searched, Unlisted>;
    /// Home directories according to the system.
    fn homes(&self) -> Homes;
    fn mounts(&self) -> Vec<Mounted>;
    /// What could not be read for want of descriptors or memory. A plan made from the rest would protect less.
    fn trouble(&self) -> Option<String> {
        None
    }
}
