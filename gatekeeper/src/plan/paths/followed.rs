//! Symbolic links in protected directories, such as a hook that is a link to a script of the project. What they lead to is
//! executed or trusted like what is in the directory, so it must stay unchanged too.
//!
//! The search is bounded, and an earlier command may have made such a directory: its links must not make a whole tree read-only.

use super::linked::Links;
use super::patterns::EntryKind;
use super::spelling::is_under;
use super::{Tree, is_below};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// How many names below a directory a link may be: in a writable tree, and elsewhere.
const DEPTH: usize = 3;
const DEPTH_ELSEWHERE: usize = 1;
/// For each protected directory, and for all together to which links lead.
const MOST_DIRECTORIES: usize = 500;
const MOST_LINKS: usize = 200;
const MOST_FILES: usize = 5000;
/// Dependencies, and whole working trees of coding agents. They are replaced by links to those of another working tree.
const SKIPPED: [&str; 2] = ["node_modules", "worktrees"];

/// What the links lead to.
#[derive(Debug, Default)]
pub(super) struct Followed {
    /// What exists at their ends.
    pub there: BTreeSet<PathBuf>,
    /// What a command could create at their ends.
    pub absent: BTreeSet<PathBuf>,
    /// The links on the ways.
    pub links: BTreeSet<PathBuf>,
    /// Files in the directories that have other names (hard links).
    pub files: BTreeSet<PathBuf>,
    /// Directories that were not searched to the end.
    pub stopped: Vec<PathBuf>,
}

impl Followed {
    /// Follows the links in those of these paths that are directories, and in the directories to which they lead. `tops`: the
    /// writable trees.
    pub(super) fn of(protected: &BTreeSet<PathBuf>, tops: &BTreeSet<PathBuf>, tree: &dyn Tree) -> Followed {
        let mut followed = Followed::default();
        let mut shared = (MOST_DIRECTORIES, MOST_LINKS, MOST_FILES);
        let mut queue: Vec<PathBuf> = protected.iter().rev().filter(|path| tree.is_directory(path)).cloned().collect();
        let mut seen = BTreeSet::new();
        while let Some(directory) = queue.pop() {
            if !seen.insert(directory.clone()) {
                continue;
            }
            // An earlier command may have filled one of them: it must not use up what the others need.
            let mut own = (MOST_DIRECTORIES, MOST_LINKS, MOST_FILES);
            let (directories, links, files) = if protected.contains(&directory) { &mut own } else { &mut shared };
            let inside = is_below(&directory, tops);
            let depth = if inside { DEPTH } else { DEPTH_ELSEWHERE };
            let searched = match *directories {
                0 => None,
                most => tree.search(&directory, &Links { depth, most, skipped: &SKIPPED }).ok(),
            };
            let Some(searched) = searched else {
                followed.stopped.push(directory);
                continue;
            };
            *directories = directories.saturating_sub(searched.directories);
            let (mut whole, is_skipped) = (!searched.stopped || !inside, |path: &Path| {
                let mut names = path.strip_prefix(&directory).unwrap_or(path).iter();
                names.any(|name| SKIPPED.iter().any(|skipped| name == OsStr::new(skipped)))
            });
            for (path, kind) in searched.found.into_iter().filter(|(path, _)| !is_skipped(path)) {
                let left = if kind == EntryKind::Link { &mut *links } else { &mut *files };
                // Git executes no hook of such a name, and every new repository has a dozen.
                let is_sample = path.extension().is_some_and(|ending| ending == "sample");
                if kind != EntryKind::Link && (!inside || is_sample) {
                    continue;
                }
                if *left == 0 {
                    whole = false;
                    continue;
                }
                *left -= 1;
                match kind {
                    EntryKind::Link => queue.extend(followed.link(&path, &directory, tops, tree)),
                    _ if tree.other_names(&path).is_some() => {
                        followed.files.insert(path);
                    }
                    _ => {}
                }
            }
            if !whole {
                followed.stopped.push(directory);
            }
        }
        followed
    }

    /// Adds where a link leads. Returns it if it is a directory to search.
    fn link(&mut self, link: &Path, directory: &Path, tops: &BTreeSet<PathBuf>, tree: &dyn Tree) -> Option<PathBuf> {
        // A link to a whole tree, or out of all of them, and one within its directory.
        let concerns = |real: &PathBuf| {
            is_below(real, tops) && !tops.iter().any(|top| is_under(top, real)) && !is_under(real, directory)
        };
        match tree.resolve(link).or_else(|| tree.shut(link)) {
            Some(real) => {
                let real = Some(real).filter(concerns)?;
                self.links.extend(tree.links(link));
                self.there.insert(real.clone());
                tree.is_directory(&real).then_some(real)
            }
            None => {
                let place = tree.target(link).and_then(|target| tree.place(&target));
                self.absent.extend(place.filter(concerns));
                None
            }
        }
    }
}
