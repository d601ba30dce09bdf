//! Which files the patterns of a policy mean, and which ones are closed by their names without being named.
//!
//! What the policy writes is looked for everywhere, whatever that takes; a directory that the command could use and that
//! cannot be listed ends the run, because nothing would hold what is in it. The names of `secrets` are looked for near.

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

/// What a search through a tree looks for.
pub trait Seek {
    fn start(&self) -> Vec<Progress>;
    /// Whether an entry is one of them, and how the search goes on below it, if it does. `depth`: of its directory.
    fn look(&self, above: &[Progress], depth: usize, name: &OsStr, kind: EntryKind) -> (bool, Option<Vec<Progress>>);
    /// A search that ends after so many directories, and passes by those that cannot be listed.
    fn most_directories(&self) -> Option<usize>;
}

/// What a search found.
#[derive(Debug, Default)]
pub struct Searched {
    pub found: Vec<(PathBuf, EntryKind)>,
    /// How many entries there are in each directory that holds one.
    pub beside: BTreeMap<PathBuf, usize>,
    pub directories: usize,
    /// Passed by, because they cannot be listed.
    pub unlisted: Vec<PathBuf>,
    /// Whether directories were left when the search ended.
    pub stopped: bool,
}

/// A directory that cannot be listed, although files in it could be opened.
#[derive(Debug)]
pub struct Unlisted {
    pub directory: PathBuf,
    pub error: io::Error,
}

/// What was found for a run.
#[derive(Debug, Default)]
pub struct Found {
    /// Meant by the policy's patterns.
    pub denied: BTreeSet<PathBuf>,
    /// Closed unless asked for by name.
    pub closed: BTreeSet<PathBuf>,
    beside: BTreeMap<PathBuf, usize>,
    /// Patterns of the policy that mean no file.
    pub unmatched: Vec<PathBuf>,
    /// For the report.
    pub notes: Vec<String>,
    /// Whether the search for `.env` and its like ended before it was through.
    pub stopped: bool,
    /// Symbolic links by which something closed is known: without them the next run would not close it.
    pub(super) links: Vec<PathBuf>,
}

/// A file in a directory of more entries than these, all of them together, is covered by a mount and not left out of the
/// grants: each entry beside it would need a rule.
pub const MOST_BESIDE: usize = 500;
/// More covers than these are refused: each is a mount, and the kernel takes them away one by one at the end.
pub const MOST_COVERED: usize = 2000;

/// The kernel's own trees: what is in them comes and goes, and none of it is a file that somebody put there.
pub const KERNEL: &[&str] = &["/proc", "/sys", "/dev"];

impl Found {
    pub fn new(
        policy: &Policy,
        places: &Places,
        variable: &dyn Fn(&str) -> Option<OsString>,
        uid: u32,
        tree: &dyn Tree,
    ) -> Result<Found, Refusal> {
        let mut found = Found::default();
        found.search_written(policy, places, tree)?;
        found.closed.extend(credentials::in_environment(variable, uid, tree));
        if let Some(cwd) = tree.resolve(&places.cwd).filter(|cwd| is_granted(cwd, policy, places, tree)) {
            found.search_work(&cwd, tree);
            if found.closed.contains(&cwd) {
                return Err(Refusal::setup(format!(
                    "{} cannot be listed, so .env and its like cannot be closed in it: chmod u+rwx it",
                    cwd.display()
                )));
            }
        }
        Ok(found)
    }

    /// `.env` and its like.
    pub(super) fn search_work(&mut self, cwd: &Path, tree: &dyn Tree) {
        let Ok(searched) = tree.search(cwd, &secrets::Secrets) else { return };
        let mut note = format!("looked for .env and its like in {} ", directories(searched.directories));
        note.push_str(&match searched.stopped {
            true => "and stopped there".to_owned(),
            false => format!("to a depth of {}", secrets::DEPTH),
        });
        if !searched.unlisted.is_empty() {
            note.push_str(&format!(", {} could not be listed", searched.unlisted.len()));
        }
        // An earlier command may have made it so; this one would open it again, or open what is in it by name.
        let own = |path: &PathBuf| tree.look(path).is_some_and(|found| found.own);
        self.closed.extend(searched.unlisted.into_iter().filter(own));
        self.notes.push(note);
        self.stopped |= searched.stopped;
        let links = searched.found.iter().filter(|(_, kind)| *kind == EntryKind::Link);
        self.links.extend(links.map(|(path, _)| path.clone()));
        let real = searched.found.into_iter().filter_map(|(path, kind)| match kind {
            // A link that an earlier command has put there closes a file, and no part of the system.
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

    fn search_written(&mut self, policy: &Policy, places: &Places, tree: &dyn Tree) -> Result<(), Refusal> {
        let mut by_top: BTreeMap<PathBuf, Vec<(&Path, Pattern)>> = BTreeMap::new();
        let mut counts: BTreeMap<&Path, usize> = BTreeMap::new();
        for written in &policy.paths.deny {
            let Ok(Denied::Pattern(pattern)) = Denied::parse(written) else { continue };
            // A file whose name is the pattern letter by letter is meant as well.
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
                        "deny pattern {}: nothing is looked for in {}; name a path there without wildcards",
                        written.display(),
                        top.display()
                    )));
                }
                by_top.entry(top).or_default().push((written, pattern.clone()));
            }
        }
        let mut looked = 0;
        for (top, patterns) in &by_top {
            let seek = Written { patterns: patterns.iter().map(|(_, pattern)| pattern).collect() };
            let searched = tree.search(top, &seek).map_err(|unlisted| refused(patterns, &unlisted))?;
            looked += searched.directories;
            for (path, kind) in searched.found {
                let at = path.strip_prefix(top).unwrap_or(&path);
                let matched = patterns.iter().filter(|(_, pattern)| is_match(pattern, at));
                matched.for_each(|(written, _)| *counts.entry(*written).or_default() += 1);
                // What a link leads to is what would be read by its name.
                self.links.extend((kind == EntryKind::Link).then(|| path.clone()));
                self.denied.extend(if kind == EntryKind::Link { tree.resolve(&path) } else { Some(path) });
            }
            self.beside.extend(searched.beside);
        }
        if counts.is_empty() {
            return Ok(());
        }
        let unmatched = counts.iter().filter(|(_, count)| **count == 0);
        self.unmatched.extend(unmatched.map(|(written, _)| written.to_path_buf()));
        let shown = counts.iter().map(|(written, count)| match count {
            0 => format!("{} matches nothing", written.display()),
            count => format!("{} matches {count}", written.display()),
        });
        self.notes.push(format!(
            "denied patterns, in {}: {}; files made later under these names are the command's own",
            directories(looked),
            shown.collect::<Vec<_>>().join(", ")
        ));
        Ok(())
    }

    /// Those of the built-in names that were not asked for; never what the working directory is in.
    pub(super) fn closed_but<'a>(
        &'a self,
        asked: &'a [&PathBuf],
        cwd: Option<&'a Path>,
    ) -> impl Iterator<Item = &'a PathBuf> {
        let kept = move |path: &&PathBuf| !asked.contains(path) && !cwd.is_some_and(|cwd| cwd.starts_with(path));
        self.closed.iter().filter(kept)
    }

    /// Of these files, none of them in a writable tree: those that are better covered than left out.
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

/// More covers than can be made are told before anything runs.
pub fn check_count(paths: &PathPlan) -> Result<(), Refusal> {
    match paths.covered.len() {
        ..=MOST_COVERED => Ok(()),
        count => Err(Refusal::setup(format!(
            "{count} files are to be closed inside writable trees, and at most {MOST_COVERED} can be; deny the directories \
             that they are in, or make fewer directories writable"
        ))),
    }
}

/// Paths that have no wildcards, as a policy lists them to be denied.
pub fn plain(policy: &Policy) -> Vec<PathBuf> {
    let plain = |path: &PathBuf| match Denied::parse(path) {
        Ok(Denied::Path(path)) => Some(path),
        Ok(Denied::Pattern(_)) => None,
        // Judged when the policy was resolved.
        Err(_) => Some(path.clone()),
    };
    policy.paths.deny.iter().filter_map(plain).collect()
}

/// A few of many paths, and how many more there are.
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

/// The trees that the caller names beside the working directory.
fn trees(policy: &Policy, places: &Places) -> Vec<PathBuf> {
    let named = policy.paths.write.iter().chain(&policy.paths.also_read).chain(policy.paths.read.iter().flatten());
    named.map(|path| places.absolute(path)).filter(|path| path != Path::new("/")).collect()
}

/// Whether a run can read anything in its working directory.
fn is_granted(cwd: &Path, policy: &Policy, places: &Places, tree: &dyn Tree) -> bool {
    let Some(read) = &policy.paths.read else { return true };
    let writes = policy.profiles.contains(&crate::policy::Profile::Write);
    let named = read.iter().chain(&policy.paths.also_read).chain(&policy.paths.write);
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

/// Whether a whole path below the search's top is matched.
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
        "deny pattern {}: {} cannot be listed ({}), so what matches in it cannot be closed; make it readable, or deny it \
         as a whole by its path",
        shown.join(", "),
        unlisted.directory.display(),
        unlisted.error
    ))
}
