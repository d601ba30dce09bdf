//! Symbolic links in closed directories, and files there that have other names. A file that is closed by its directory stays readable by the path to which a link in
//! that directory leads, so what the links lead to is closed too. Managers of dotfiles make such links.
//!
//! The search is bounded, because browsers keep thousands of directories in what is closed. Some of these directories were
//! written by an earlier command: its links must not close so much that nothing works, nor use up the search for those of the user.

use super::known::SYSTEM;
use super::patterns::{EntryKind, KERNEL, Seek};
use super::spelling::is_under;
use super::{Places, Tree, is_below};
use crate::policy::pattern::Progress;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Why a directory is closed, which decides how far to search it and what a link in it may close.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum By {
    /// The policy denies it.
    Policy,
    /// It holds credentials.
    Keys,
    /// It holds what a program keeps for itself, such as a browser's profiles.
    Store,
    /// It has the name of a secret, in a tree that commands write.
    Name,
}

/// How far to search.
struct Bounds {
    /// How many names below the directory a link may be.
    depth: usize,
    directories: usize,
    links: usize,
    /// How many files to look at for other names.
    files: usize,
}

impl By {
    /// Of one directory. All of `Name` share one such budget, and all of `Policy` a larger one.
    const fn bounds(self) -> Bounds {
        match self {
            By::Policy => Bounds { depth: usize::MAX, directories: 2000, links: 1000, files: 20_000 },
            By::Keys => Bounds { depth: 3, directories: 500, links: 200, files: 10_000 },
            By::Store => Bounds { depth: 1, directories: 1, links: 200, files: 2000 },
            By::Name => Bounds { depth: 3, directories: 200, links: 200, files: 2000 },
        }
    }
}

/// Places whose files belong to the machine. What everybody may read there is no secret, and programs need it.
const SHARED: &[&str] = &["/etc", "/opt", "/nix", "/gnu", "/snap", "/var/lib"];
/// Below it, each user has a directory in memory, which holds more than keys.
const SESSIONS: &str = "/run/user";

/// What the links lead to.
#[derive(Debug, Default)]
pub(super) struct Linked {
    pub denied: BTreeSet<PathBuf>,
    pub closed: BTreeSet<PathBuf>,
    /// Directories that were not searched to the end.
    stopped: Vec<PathBuf>,
    /// Directories in which not every file was looked at.
    unlooked: Vec<PathBuf>,
    /// Directories to which a link leads, and that hold the working directory or too much else.
    left: BTreeSet<PathBuf>,
    /// Files with other names (hard links).
    pub files: BTreeSet<PathBuf>,
}

impl Linked {
    /// Follows the links in these directories, and in those to which they lead.
    pub(super) fn of(mut directories: Vec<(PathBuf, By)>, places: &Places, tree: &dyn Tree) -> Linked {
        let follow = Follow::new(places, tree);
        let mut linked = Linked::default();
        let mut left = By::Name.bounds();
        let mut left_of_policy = Bounds { depth: usize::MAX, directories: 20_000, links: 10_000, files: 100_000 };
        let mut seen = BTreeSet::new();
        directories.sort_by(|one, other| (other.1, &other.0).cmp(&(one.1, &one.0)));
        while let Some((directory, by)) = directories.pop() {
            // One that is inside another is searched with it, unless it is too deep.
            if !seen.insert(directory.clone()) || !follow.is_searched(&directory) {
                continue;
            }
            let all = match by {
                By::Name => Some(&mut left),
                By::Policy => Some(&mut left_of_policy),
                By::Keys | By::Store => None,
            };
            let most = by.bounds();
            let mut bounds = match &all {
                Some(all) => Bounds {
                    depth: most.depth,
                    directories: most.directories.min(all.directories),
                    links: most.links.min(all.links),
                    files: most.files.min(all.files),
                },
                None => by.bounds(),
            };
            let before = (bounds.directories, bounds.links, bounds.files);
            let ends = follow.links(&directory, &mut bounds);
            if let Some(all) = all {
                all.directories -= before.0 - bounds.directories;
                all.links -= before.1 - bounds.links;
                all.files -= before.2 - bounds.files;
            }
            linked.files.extend(ends.files);
            linked.unlooked.extend((!ends.all_files).then(|| directory.clone()));
            if !ends.whole {
                linked.stopped.push(directory);
            }
            linked.left.extend(ends.reals.iter().filter(|real| follow.leaves(real, by)).cloned());
            for real in ends.reals.into_iter().filter(|real| follow.closes(real, by)) {
                if tree.is_directory(&real) {
                    directories.push((real.clone(), by));
                }
                match by {
                    By::Policy => linked.denied.insert(real),
                    _ => linked.closed.insert(real),
                };
            }
        }
        linked
    }

    /// For the report.
    pub(super) fn notes(&self) -> Vec<String> {
        let left: Vec<PathBuf> = self.left.iter().cloned().collect();
        let notes: [(&[PathBuf], &str, &str); 3] = [
            (&self.stopped, "not all symbolic links in ", " were followed: what the others lead to may stay readable"),
            (
                &self.unlooked,
                "not all files in ",
                " were looked at: others may stay readable by other names (hard links)",
            ),
            (
                &left,
                "symbolic links in closed directories lead to ",
                ", which stays open because too much else is in it",
            ),
        ];
        let said = notes.into_iter().filter(|(paths, ..)| !paths.is_empty());
        said.map(|(paths, before, after)| format!("{before}{}{after}", super::shown(paths, 20))).collect()
    }
}

/// Where links lead, and what of that may be closed.
pub(super) struct Follow<'a> {
    cwd: Option<PathBuf>,
    homes: BTreeSet<PathBuf>,
    tree: &'a dyn Tree,
}

/// What was found in a directory.
#[derive(Default)]
struct Ends {
    /// Where its links lead.
    reals: Vec<PathBuf>,
    /// Files with other names.
    files: Vec<PathBuf>,
    /// Whether these are all links, and all such files.
    whole: bool,
    all_files: bool,
}

impl<'a> Follow<'a> {
    pub(super) fn new(places: &Places, tree: &'a dyn Tree) -> Follow<'a> {
        let homes = places.homes(tree);
        Follow { cwd: tree.resolve(&places.cwd), homes: homes.own.into_iter().chain(homes.others).collect(), tree }
    }

    /// The kernel's links, and the thousands of links between the files of the system, lead to nothing of the user.
    fn is_searched(&self, directory: &Path) -> bool {
        !is_in(directory, KERNEL) && !is_in(directory, SYSTEM) && self.tree.is_directory(directory)
    }

    /// Where the links in a directory lead, without what is in the directory itself, and whether that is all. Takes what it has
    /// used from the bounds.
    fn links(&self, directory: &Path, bounds: &mut Bounds) -> Ends {
        let none = Ends { all_files: true, ..Ends::default() };
        if bounds.directories == 0 {
            return none;
        }
        let Ok(searched) =
            self.tree.search(directory, &Links { depth: bounds.depth, most: bounds.directories, skipped: &[] })
        else {
            return none;
        };
        let (links, files): (Vec<_>, Vec<_>) =
            searched.found.into_iter().partition(|(_, kind)| *kind == EntryKind::Link);
        // The command cannot list them either, but it may know a name. Where the whole directory is closed, it reaches nothing.
        let own = |path: &PathBuf| path != directory && self.tree.look(path).is_some_and(|found| found.own);
        let whole = !searched.stopped && links.len() <= bounds.links && !searched.unlisted.iter().any(own);
        let real = links.iter().take(bounds.links);
        let real = real.filter_map(|(link, _)| self.tree.resolve(link).or_else(|| self.tree.shut(link)));
        let reals = real.filter(|real| !is_under(real, directory)).collect();
        let all_files = files.len() <= bounds.files;
        bounds.directories = bounds.directories.saturating_sub(searched.directories);
        bounds.links = bounds.links.saturating_sub(links.len());
        let looked = files.len().min(bounds.files);
        bounds.files -= looked;
        let linked = |path: &PathBuf| self.tree.other_names(path).is_some();
        let files = files.into_iter().take(looked).map(|(path, _)| path).filter(linked).collect();
        Ends { reals, files, whole, all_files }
    }

    /// Whether to close what a link leads to.
    pub(super) fn closes(&self, real: &Path, by: By) -> bool {
        // Programs, devices, and what holds a home or the working directory.
        let held = self.cwd.iter().chain(&self.homes).any(|place| is_under(place, real));
        if held || real.parent().is_none() || is_in(real, KERNEL) || is_in(real, SYSTEM) {
            return false;
        }
        let directory = self.tree.is_directory(real);
        let shared = is_in(real, SHARED) && (directory || self.tree.look(real).is_none_or(|found| found.public));
        let personal =
            || is_below(real, &self.homes) || real.strip_prefix(SESSIONS).is_ok_and(|rest| rest.iter().count() > 1);
        match by {
            By::Policy => !(directory && (is_in(real, SHARED) || is_wide(real))),
            By::Keys | By::Store => !shared && (!directory || personal() || self.is_private(real) && !is_wide(real)),
            // As with a file of such a name that is a link.
            By::Name => !shared && !directory,
        }
    }

    /// Whether a directory of this user stays open although a link in a directory of credentials leads there.
    fn leaves(&self, real: &Path, by: By) -> bool {
        matches!(by, By::Keys | By::Store)
            && (is_wide(real) || self.cwd.as_ref().is_some_and(|cwd| is_under(cwd, real)))
            && real.parent().is_some()
            && !self.homes.iter().any(|home| is_under(home, real))
            && ![KERNEL, SYSTEM, SHARED].iter().any(|tops| is_in(real, tops))
            && self.tree.is_directory(real)
            && self.is_private(real)
    }

    /// Whether a directory is not one of the system's: it belongs to this user, or not every user may read it. Of a session,
    /// only what is below its directory in memory.
    fn is_private(&self, real: &Path) -> bool {
        !is_in(real, &[SESSIONS]) && self.tree.look(real).is_some_and(|found| found.own || !found.public)
    }
}

/// Whether a directory is right below the root, where the system's own are.
fn is_wide(real: &Path) -> bool {
    real.components().count() <= 2
}

fn is_in(path: &Path, tops: &[&str]) -> bool {
    tops.iter().any(|top| is_under(path, Path::new(top)))
}

/// A search for links and files.
pub(super) struct Links {
    pub depth: usize,
    pub most: usize,
    /// Directories of these names are left out.
    pub skipped: &'static [&'static str],
}

impl Seek for Links {
    fn start(&self) -> Vec<Progress> {
        Vec::new()
    }

    fn look(&self, _: &[Progress], depth: usize, name: &OsStr, kind: EntryKind) -> (bool, Option<Vec<Progress>>) {
        let is_left_out = || self.skipped.iter().any(|skipped| name == OsStr::new(skipped));
        let below = (kind == EntryKind::Directory && depth + 1 < self.depth && !is_left_out()).then(Vec::new);
        (kind != EntryKind::Directory, below)
    }

    fn most_directories(&self) -> Option<usize> {
        Some(self.most)
    }
}
