//! Which files the policy's deny patterns match, and which files are closed because of their names.
//!
//! The search for the policy's patterns is complete. A directory that the command could use and that cannot be listed
//! refuses the run, because no layer would protect what is in it. The search for the names in `secrets` is bounded.

use super::git::Variables;
use super::{PathPlan, Places, Tree, credentials, secrets};
use crate::plan::refusal::Refusal;
use crate::policy::Policy;
use crate::policy::pattern::{Denied, Pattern, Progress};
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
    /// Whether the search for `.env` and similar files stopped at its limit.
    pub stopped: bool,
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

/// How many files each pattern of the policy matches.
type Counts<'p> = BTreeMap<&'p Path, usize>;
/// Patterns as the policy writes them and parsed, by the directory in which to search.
type ByTop<'p> = BTreeMap<PathBuf, Vec<(&'p Path, Pattern)>>;

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
        self.stopped |= searched.stopped;
        let links = searched.found.iter().filter(|(_, kind)| *kind == EntryKind::Link);
        self.links.extend(links.map(|(path, _)| path.clone()));
        let real = searched.found.into_iter().filter_map(|(path, kind)| match kind {
            // An earlier command may have made the link, so it must not close a directory or a part of the system.
            EntryKind::Link => {
                let real = tree.resolve(&path)?;
                let system = super::SYSTEM.iter().any(|system| real.starts_with(system));
                (!system && !tree.is_directory(&real)).then_some((path, real))
            }
            _ => Some((path.clone(), path)),
        });
        self.closed.extend(secrets::keep_secrets(real.collect(), tree));
        self.beside.extend(searched.beside);
    }

    /// Searches for the patterns of the policy, and notes how many files each matches.
    fn search_written(&mut self, policy: &Policy, places: &Places, tree: &dyn Tree) -> Result<(), Refusal> {
        let mut counts = Counts::new();
        let by_top = self.patterns_by_top(policy, places, tree, &mut counts)?;
        let mut looked = 0;
        for (top, patterns) in &by_top {
            looked += self.search_top(top, patterns, tree, &mut counts)?;
        }
        if !counts.is_empty() {
            self.note_patterns(&counts, looked);
        }
        Ok(())
    }

    /// The patterns of the policy, by the real directories in which to search for them.
    fn patterns_by_top<'p>(
        &mut self,
        policy: &'p Policy,
        places: &Places,
        tree: &dyn Tree,
        counts: &mut Counts<'p>,
    ) -> Result<ByTop<'p>, Refusal> {
        let mut by_top = ByTop::new();
        for written in &policy.paths.deny {
            let Ok(Denied::Pattern(pattern)) = Denied::parse(written) else { continue };
            // Also match a file whose name is literally the pattern.
            let literal = tree.resolve(&places.absolute(written));
            counts.insert(written, literal.iter().len());
            self.denied.extend(literal);
            let mut tops = vec![places.absolute(pattern.base())];
            if pattern.is_anywhere() {
                tops.extend(trees(policy, places));
            }
            for top in tops.iter().filter_map(|top| tree.resolve(top)) {
                if KERNEL.iter().any(|kernel| top.starts_with(kernel)) {
                    return Err(Refusal::setup(format!(
                        "deny pattern {}: patterns do not work in {}; name a path there without wildcards",
                        written.display(),
                        top.display()
                    )));
                }
                by_top.entry(top).or_default().push((written, pattern.clone()));
            }
        }
        Ok(by_top)
    }

    /// Searches one directory for its patterns. Returns how many directories it has read.
    fn search_top<'p>(
        &mut self,
        top: &Path,
        patterns: &[(&'p Path, Pattern)],
        tree: &dyn Tree,
        counts: &mut Counts<'p>,
    ) -> Result<usize, Refusal> {
        let seek = Written { patterns: patterns.iter().map(|(_, pattern)| pattern).collect() };
        let searched = tree.search(top, &seek).map_err(|unlisted| refused(patterns, &unlisted))?;
        for (path, kind) in searched.found {
            let at = path.strip_prefix(top).unwrap_or(&path);
            let matched = patterns.iter().filter(|(_, pattern)| is_match(pattern, at));
            matched.for_each(|(written, _)| *counts.entry(*written).or_default() += 1);
            // Reading a link reads its target.
            self.links.extend((kind == EntryKind::Link).then(|| path.clone()));
            self.denied.extend(if kind == EntryKind::Link { tree.resolve(&path) } else { Some(path) });
        }
        self.beside.extend(searched.beside);
        Ok(searched.directories)
    }

    fn note_patterns(&mut self, counts: &Counts<'_>, looked: usize) {
        let unmatched = counts.iter().filter(|(_, count)| **count == 0);
        self.unmatched.extend(unmatched.map(|(written, _)| written.to_path_buf()));
        let shown = counts.iter().map(|(written, count)| match count {
            0 => format!("{} matches nothing", written.display()),
            count => format!("{} matches {count}", written.display()),
        });
        self.notes.push(format!(
            "denied patterns, in {}: {}; files that the command creates under these names are not closed",
            directories(looked),
            shown.collect::<Vec<_>>().join(", ")
        ));
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

/// The trees that the policy names in addition to the working directory.
fn trees(policy: &Policy, places: &Places) -> Vec<PathBuf> {
    let named = policy.paths.write.iter().chain(&policy.paths.also_read).chain(policy.paths.read.iter().flatten());
    let is_systems = |path: &PathBuf| super::SYSTEM.iter().any(|top| path.starts_with(top));
    let named = named.chain(policy.paths.execute.iter().flatten().filter(|path| !is_systems(path)));
    named.map(|path| places.absolute(path)).filter(|path| path != Path::new("/")).collect()
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

struct Written<'a> {
    patterns: Vec<&'a Pattern>,
}

impl Seek for Written<'_> {
    fn start(&self) -> Vec<Progress> {
        self.patterns.iter().map(|pattern| pattern.start()).collect()
    }

    fn look(&self, above: &[Progress], _: usize, name: &OsStr, kind: EntryKind) -> (bool, Option<Vec<Progress>>) {
        let mut below = Vec::new();
        for (pattern, progress) in self.patterns.iter().zip(above) {
            let (matched, next) = pattern.step(*progress, name);
            if matched && (kind != EntryKind::Other || !pattern.is_for_directories()) {
                return (true, None);
            }
            if kind == EntryKind::Directory {
                below.push(next);
            }
        }
        (false, below.iter().any(|progress| *progress != 0).then_some(below))
    }

    fn most_directories(&self) -> Option<usize> {
        None
    }
}

/// Whether a path relative to the search's top matches.
fn is_match(pattern: &Pattern, path: &Path) -> bool {
    let mut progress = pattern.start();
    let mut matched = false;
    for name in path.iter() {
        (matched, progress) = pattern.step(progress, name);
    }
    matched
}

fn refused(patterns: &[(&Path, Pattern)], unlisted: &Unlisted) -> Refusal {
    let shown: Vec<_> = patterns.iter().map(|(written, _)| written.display().to_string()).collect();
    Refusal::setup(format!(
        "deny pattern {}: {} cannot be listed ({}), so matches in it cannot be closed; make it readable, or deny the \
         whole directory by its path",
        shown.join(", "),
        unlisted.directory.display(),
        unlisted.error
    ))
}
