//! Which files the policy's deny patterns match, and which files are closed because of their names.
//!
//! The search for the policy's patterns is complete. A directory that the command could use and that cannot be listed
//! refuses the run, because no layer would protect what is in it. The search for the names in `secrets` is bounded.

mod written;

use super::git::Variables;
use super::{PathPlan, Places, Tree, credentials, secrets};
use crate::plan::refusal::Refusal;
use crate::policy::Policy;
use crate::policy::pattern::{Denied, Progress};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    Directory,
    Link,
    Other,
}

/// What a search looks for.
pub trait Seek {
    fn start(&self) -> Vec<Progress>;
    /// Whether an entry matches, and the progress with which to search below it, if at all. `depth`: of its directory.
    fn look(&self, above: &[Progress], depth: usize, name: &OsStr, kind: EntryKind) -> (bool, Option<Vec<Progress>>);
    /// The limit of a search that may be incomplete: it also skips directories that cannot be listed.
    fn most_directories(&self) -> Option<usize>;
}

/// The result of a search.
#[derive(Debug, Default)]
pub struct Searched {
    pub found: Vec<(PathBuf, EntryKind)>,
    /// The number of entries in each directory that holds a match.
    pub beside: BTreeMap<PathBuf, usize>,
    pub directories: usize,
    /// The directories that were listed.
    pub visited: Vec<PathBuf>,
    /// Skipped, because they cannot be listed.
    pub unlisted: Vec<PathBuf>,
    /// Whether the search stopped at its limit.
    pub stopped: bool,
}

/// A directory that cannot be listed, although files in it could be opened.
#[derive(Debug)]
pub struct Unlisted {
    pub directory: PathBuf,
    pub error: io::Error,
}

/// The files found for a run.
#[derive(Debug, Default)]
pub struct Found {
    /// Matched by the policy's patterns.
    pub denied: BTreeSet<PathBuf>,
    /// Closed unless the caller asks for them by name.
    pub closed: BTreeSet<PathBuf>,
    beside: BTreeMap<PathBuf, usize>,
    /// Patterns of the policy that match no file.
    pub unmatched: Vec<PathBuf>,
    /// For the report.
    pub notes: Vec<String>,
    /// Whether the search for `.env` and similar files stopped at its limit, or a link that a pattern matches stays open.
    pub incomplete: bool,
    /// Symbolic links that lead to a closed file. Without them the next run would not find it.
    pub(super) links: Vec<PathBuf>,
    /// What variables say to git.
    pub(super) git: Variables,
}

/// If the directories of the closed files have more entries than this in total, mounts cover the files. Leaving them out
/// of the grants would need a rule for each sibling.
pub const MOST_BESIDE: usize = 500;
/// The most mounts for covers. The kernel removes them one by one when the run ends.
pub const MOST_COVERED: usize = 2000;

/// The kernel's trees. Their entries change all the time, and users store no files there.
pub const KERNEL: &[&str] = &["/proc", "/sys", "/dev"];

impl Found {
    pub fn new(
        policy: &Policy,
        places: &Places,
        variable: &dyn Fn(&str) -> Option<OsString>,
        uid: u32,
        tree: &dyn Tree,
    ) -> Result<Found, Refusal> {
        let mut found = Found { git: Variables::of(variable, places), ..Found::default() };
        found.search_written(policy, places, tree)?;
        found.closed.extend(credentials::in_environment(variable, places, uid, tree));
        if let Some(cwd) = tree.resolve(&places.cwd).filter(|cwd| is_granted(cwd, policy, places, tree)) {
            found.search_work(&cwd, tree);
            if found.closed.contains(&cwd) {
                return Err(Refusal::setup(format!(
                    "{} cannot be listed, so .env and similar files in it cannot be closed: chmod u+rwx it",
                    cwd.display()
                )));
            }
        }
        Ok(found)
    }

    /// Searches the working directory for `.env` and similar files.
    pub(super) fn search_work(&mut self, cwd: &Path, tree: &dyn Tree) {
        let Ok(searched) = tree.search(cwd, &secrets::Secrets) else { return };
        let mut note = format!("looked for .env and similar files in {} ", directories(searched.directories));
        note.push_str(&match searched.stopped {
            true => "and stopped there".to_owned(),
            false => format!("to a depth of {}", secrets::DEPTH),
        });
        if !searched.unlisted.is_empty() {
            note.push_str(&format!(", {} could not be listed", searched.unlisted.len()));
        }
        // An earlier command may have made it unreadable. This one could chmod it, or open a file in it by name.
        let own = |path: &PathBuf| tree.look(path).is_some_and(|found| found.own);
        self.closed.extend(searched.unlisted.into_iter().filter(own));
        self.notes.push(note);
        self.incomplete |= searched.stopped;
        let links = searched.found.iter().filter(|(_, kind)| *kind == EntryKind::Link);
        self.links.extend(links.map(|(path, _)| path.clone()));
        let real = searched.found.into_iter().filter_map(|(path, kind)| match kind {
            // An earlier command may have made the link, so it must not close a directory or a part of the system.
            EntryKind::Link => match tree.resolve(&path) {
                Some(real) => {
                    let system = super::SYSTEM.iter().any(|system| real.starts_with(system));
                    (!system && !tree.is_directory(&real)).then_some((path, real))
                }
                None => tree.shut(&path).map(|shut| (path, shut)),
            },
            _ => Some((path.clone(), path)),
        });
        self.closed.extend(secrets::keep_secrets(real.collect(), tree));
        self.beside.extend(searched.beside);
    }

    /// The files closed by name, without those that the caller asked for and those above the working directory.
    pub(super) fn closed_but<'a>(
        &'a self,
        asked: &'a [&PathBuf],
        cwd: Option<&'a Path>,
    ) -> impl Iterator<Item = &'a PathBuf> {
        let kept = move |path: &&PathBuf| !asked.contains(path) && !cwd.is_some_and(|cwd| cwd.starts_with(path));
        self.closed.iter().filter(kept)
    }

    /// Which of these files, none in a writable tree, to cover instead of leaving them out.
    pub(super) fn crowded(&self, files: &BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
        let parents: BTreeSet<&Path> = files.iter().filter_map(|file| file.parent()).collect();
        let rules: usize = parents.iter().filter_map(|parent| self.beside.get(*parent)).sum();
        if rules <= MOST_BESIDE || files.len() > MOST_COVERED {
            return BTreeSet::new();
        }
        files
            .iter()
            .filter(|file| file.parent().is_some_and(|parent| self.beside.contains_key(parent)))
            .cloned()
            .collect()
    }
}

/// Refuses a plan with more covers than can be mounted.
pub fn check_count(paths: &PathPlan) -> Result<(), Refusal> {
    match paths.covered.len() {
        ..=MOST_COVERED => Ok(()),
        count => Err(Refusal::setup(format!(
            "the policy closes {count} files inside writable trees, and at most {MOST_COVERED} are possible; deny their \
             directories instead, or make fewer directories writable"
        ))),
    }
}

/// The denied paths without wildcards.
pub fn plain(policy: &Policy) -> Vec<PathBuf> {
    let plain = |path: &PathBuf| match Denied::parse(path) {
        Ok(Denied::Path(path)) => Some(path),
        Ok(Denied::Pattern(_)) => None,
        // Cannot happen: `Policy::resolve` has checked it.
        Err(_) => Some(path.clone()),
    };
    policy.paths.deny.iter().filter_map(plain).collect()
}

/// The first `most` paths, and how many more there are.
pub fn shown(paths: &[PathBuf], most: usize) -> String {
    let mut text = paths.iter().take(most).map(|path| path.display().to_string()).collect::<Vec<_>>().join(" ");
    if let Some(more) = paths.len().checked_sub(most).filter(|more| *more > 0) {
        text.push_str(&format!(" and {more} more"));
    }
    text
}

fn directories(count: usize) -> String {
    match count {
        1 => "1 directory".to_owned(),
        count => format!("{count} directories"),
    }
}

/// Whether the command can read anything in its working directory.
fn is_granted(cwd: &Path, policy: &Policy, places: &Places, tree: &dyn Tree) -> bool {
    let Some(read) = &policy.paths.read else { return true };
    let writes = policy.profiles.contains(&crate::policy::Profile::Write);
    let named = read.iter().chain(&policy.paths.also_read).chain(&policy.paths.write);
    let named = named.chain(policy.paths.execute.iter().flatten());
    let touches = |path: PathBuf| cwd.starts_with(&path) || path.starts_with(cwd);
    writes || named.filter_map(|path| tree.resolve(&places.absolute(path))).any(touches)
}
