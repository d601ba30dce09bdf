//! The search for the files that the policy's deny patterns match.

use super::super::linked::{By, Follow};
use super::super::{Places, SYSTEM, Tree};
use super::{EntryKind, Found, KERNEL, Seek, Unlisted, directories, shown};
use crate::plan::refusal::Refusal;
use crate::policy::Policy;
use crate::policy::pattern::{Denied, Pattern, Progress};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// How many files each pattern of the policy matches.
type Counts<'p> = BTreeMap<&'p Path, usize>;
/// Patterns as the policy writes them and parsed, by the directory in which to search.
type ByTop<'p> = BTreeMap<PathBuf, Vec<(&'p Path, Pattern)>>;

impl Found {
    /// Searches for the patterns of the policy, and notes how many files each matches.
    pub(super) fn search_written(&mut self, policy: &Policy, places: &Places, tree: &dyn Tree) -> Result<(), Refusal> {
        let is_pattern = |written: &PathBuf| matches!(Denied::parse(written), Ok(Denied::Pattern(_)));
        if !policy.paths.deny.iter().any(is_pattern) {
            return Ok(());
        }
        let mut counts = Counts::new();
        let mut links = Links { follow: Follow::new(places, tree), open: BTreeSet::new() };
        let by_top = self.patterns_by_top(policy, places, tree, &mut counts, &mut links)?;
        let mut looked = 0;
        for (top, patterns) in &by_top {
            looked += self.search_top(top, patterns, tree, &mut counts, &mut links)?;
        }
        self.note_patterns(&counts, looked);
        let is_denied = |end: PathBuf| end.ancestors().any(|above| self.denied.contains(above));
        links.open.retain(|link| !real(link, tree).is_some_and(is_denied));
        if !links.open.is_empty() {
            let shown = shown(&links.open.into_iter().collect::<Vec<_>>(), 20);
            self.notes.push(format!(
                "a denied pattern matches {shown}: a link to what programs need or to too much else, which stays open"
            ));
            self.incomplete = true;
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
        links: &mut Links<'_>,
    ) -> Result<ByTop<'p>, Refusal> {
        let mut by_top = ByTop::new();
        let written: Vec<PathBuf> =
            policy.paths.write.iter().filter_map(|path| tree.resolve(&places.absolute(path))).collect();
        let hostile = places.hostile(tree, &written);
        for written in &policy.paths.deny {
            let Ok(Denied::Pattern(pattern)) = Denied::parse(written) else { continue };
            // Also match a file whose name is literally the pattern.
            let literal = places.absolute(written);
            let linked = tree.look(&literal).is_some() && !tree.links(&literal).is_empty();
            let literal = if linked { links.end(&literal, tree) } else { real(&literal, tree) };
            counts.insert(written, literal.iter().len());
            self.denied.extend(literal);
            let mut tops = vec![places.absolute(pattern.base())];
            if pattern.is_anywhere() {
                tops.extend(trees(policy, places));
            }
            let reached = tree.reach_all(&tops, &hostile).map_err(|error| Refusal::setup(error.to_string()))?;
            for (top, reached) in tops.into_iter().zip(reached) {
                let Some(top) = reached else {
                    // An earlier command may have taken its own right to enter a directory, and this one would restore it.
                    if let Some(shut) = tree.shut(&top) {
                        *counts.entry(written).or_default() += 1;
                        self.notes.push(format!("all of {} is closed, because it cannot be entered", shut.display()));
                        self.denied.insert(shut);
                    }
                    continue;
                };
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
        links: &mut Links<'_>,
    ) -> Result<usize, Refusal> {
        let seek = Written { patterns: patterns.iter().map(|(_, pattern)| pattern).collect() };
        let searched = tree.search(top, &seek).map_err(|unlisted| refused(patterns, &unlisted))?;
        for (path, kind) in searched.found {
            let at = path.strip_prefix(top).unwrap_or(&path);
            let matched = patterns.iter().filter(|(_, pattern)| is_match(pattern, at));
            matched.for_each(|(written, _)| *counts.entry(*written).or_default() += 1);
            // Reading a link reads its target.
            self.links.extend((kind == EntryKind::Link).then(|| path.clone()));
            self.denied.extend(if kind == EntryKind::Link { links.end(&path, tree) } else { Some(path) });
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
}

/// The trees that the policy names in addition to the working directory.
fn trees(policy: &Policy, places: &Places) -> Vec<PathBuf> {
    let named = policy.paths.write.iter().chain(&policy.paths.also_read).chain(policy.paths.read.iter().flatten());
    let is_systems = |path: &PathBuf| SYSTEM.iter().any(|top| path.starts_with(top));
    let named = named.chain(policy.paths.execute.iter().flatten().filter(|path| !is_systems(path)));
    named.map(|path| places.absolute(path)).filter(|path| path != Path::new("/")).collect()
}

/// The links that patterns match.
struct Links<'a> {
    follow: Follow<'a>,
    /// Those that close nothing.
    open: BTreeSet<PathBuf>,
}

impl Links<'_> {
    /// What to deny because of a link. An earlier command may have made it, so it must not close what no program runs without.
    fn end(&mut self, link: &Path, tree: &dyn Tree) -> Option<PathBuf> {
        let end = real(link, tree)?;
        // No command makes links among the programs.
        let is_systems = SYSTEM.iter().any(|top| link.starts_with(top));
        if is_systems || self.follow.closes(&end, By::Policy) {
            return Some(end);
        }
        self.open.insert(link.to_owned());
        None
    }
}

/// The real path, or the directory on the way to it that an earlier command may have shut.
fn real(path: &Path, tree: &dyn Tree) -> Option<PathBuf> {
    tree.resolve(path).or_else(|| tree.shut(path))
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
