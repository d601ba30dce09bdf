//! What must stay unchanged inside writable trees: files that decide what other programs run or trust, and the links that
//! lead to such files.

use super::followed::Followed;
use super::git::{Reader, Sensitive};
use super::{CREDENTIALS, Found, Inode, Kind, PROTECTED, PathPlan, Places, STARTUP, Tree, aliases, is_below};
use crate::plan::refusal::Refusal;
use crate::policy::Policy;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What is known of a run's files besides their names.
pub(super) struct Kept<'a> {
    /// What the caller named as writable, which is not protected.
    pub asked: &'a [PathBuf],
    /// What was found in the working directory and in the caller's environment.
    pub found: &'a Found,
    /// Secrets that the caller asked to read.
    pub opened: &'a [PathBuf],
}

impl PathPlan {
    /// Finds the protected files that exist, and those that a command could create.
    pub(super) fn protect(
        &mut self,
        policy: &Policy,
        places: &Places,
        writable: &[PathBuf],
        known: &Kept<'_>,
        tree: &dyn Tree,
    ) {
        // The run's own directory for temporary files is new.
        if writable.iter().all(|top| Some(top) == places.tmp.as_ref()) {
            return;
        }
        let homes = places.homes(tree).own;
        let tops: BTreeSet<PathBuf> = writable.iter().cloned().collect();
        let is_inside = |path: &Path| is_below(path, &tops);
        let startup = startup_files(&homes, &tops);
        let bases = bases(places, &homes, writable, tree);
        let mut git = Sensitive::new(tree, Reader::new(tree, &homes, &known.found.git));
        git.of_bases(&bases);
        let mut names: Vec<PathBuf> =
            bases.iter().flat_map(|base| PROTECTED.iter().map(move |entry| base.join(entry))).collect();
        names.extend(startup.iter().cloned());
        // With its own authority, a command could pose as the next run's hosts, for whoever is on the way to them.
        let authorities = policy.network.upstream_ca.iter().map(|path| places.absolute(path));
        for path in policy.sources.iter().cloned().chain(authorities) {
            names.extend(places.copied(&path));
            names.push(path);
        }
        names.extend(git.there.into_iter().chain(git.named.there));
        let no_hooks = git.named.no_hooks;
        names.extend(no_hooks.iter().filter(|path| is_inside(path)).cloned());
        names.extend(known.opened.iter().cloned());

        let may_appear = |name: &PathBuf| {
            startup.contains(name)
                || no_hooks.contains(name)
                || homes.iter().any(|home| is_inside(home) && name.starts_with(home))
        };
        let (mut found, mut links) = (BTreeSet::new(), BTreeSet::new());
        for name in names {
            match (tree.look(&name), tree.resolve(&name)) {
                (Some(_), real) => {
                    if real.as_ref() != Some(&name) {
                        links.extend(tree.links(&name));
                    }
                    found.extend(real.or_else(|| tree.shut(&name)));
                }
                // An earlier command may have made its directory inaccessible, and this one would open it again.
                (None, _) => match tree.shut(&name) {
                    Some(closed) => drop(found.insert(closed)),
                    None if may_appear(&name) => self.open.push(name),
                    None => {}
                },
            }
        }
        // If a command removes the link to a secret that lies elsewhere, the next run no longer recognises the secret.
        let secrets = homes.iter().flat_map(|home| CREDENTIALS.iter().map(move |name| home.join(name)));
        for name in secrets.chain(known.found.links.iter().cloned()).filter(|name| is_inside(name)) {
            links.extend(tree.links(&name));
        }
        let followed = Followed::of(&found, &tops, tree);
        found.extend(followed.there);
        links.extend(followed.links);
        found.extend(under_other_mounts(&found, &is_inside, tree));
        let kept = |path: &PathBuf| is_inside(path) && !known.asked.contains(path);
        self.keep(found, links, &kept);
        self.unwanted = git.absent.into_iter().chain(git.named.absent).filter(kept).collect();
        self.open.extend(followed.absent.into_iter().filter(kept));
        self.linked = followed.files;
        self.note_unknown(
            "hooks may stay writable that this configuration of git names, which could not be read",
            git.named.unread.into_iter().collect(),
        );
        self.note_unknown(
            "programs may stay writable that these settings of git name by variables or other commands",
            git.named.unclear.into_iter().map(PathBuf::from).collect(),
        );
        self.note_unknown(
            "not all symbolic links in these protected directories were followed, and what the others lead to may stay writable",
            followed.stopped,
        );
        self.open.sort();
        self.open.dedup();
    }

    fn note_unknown(&mut self, what: &str, which: Vec<PathBuf>) {
        if !which.is_empty() {
            self.notes.push(format!("{what}: {}", super::shown(&which, 20)));
            self.incomplete = true;
        }
    }

    /// Records the protected files and links, without those that a cover or a read-only directory already protects.
    fn keep(&mut self, found: BTreeSet<PathBuf>, links: BTreeSet<PathBuf>, kept: &dyn Fn(&PathBuf) -> bool) {
        let covered = &self.covered;
        let is_hidden = |path: &PathBuf| covered.iter().any(|covered| path.starts_with(covered));
        self.protected = found.into_iter().filter(|path| kept(path) && !is_hidden(path)).collect();
        let protected = &self.protected;
        let is_read_only = |path: &PathBuf| protected.iter().any(|place| path.starts_with(place));
        self.links = links.into_iter().filter(|path| kept(path) && !is_hidden(path) && !is_read_only(path)).collect();
    }

    /// Notes files that are closed or protected by one name and have others. An earlier command may have made a hard
    /// link, and only a search of the whole file system would find it. `closed`: files in closed directories.
    pub(super) fn note_hard_links(&mut self, closed: &BTreeSet<PathBuf>, tree: &dyn Tree) {
        let mut linked = with_other_names(self.hidden.iter().chain(closed), tree);
        linked.extend(with_other_names(self.protected.iter().chain(&self.linked), tree));
        self.note_unknown(
            "have other names (hard links), through which they may stay readable or writable",
            linked.into_iter().collect(),
        );
    }
}

/// Those of these files that have names besides these. Programs such as GnuPG link files within their own directory.
fn with_other_names<'a>(paths: impl Iterator<Item = &'a PathBuf>, tree: &dyn Tree) -> BTreeSet<PathBuf> {
    let mut inodes: BTreeMap<(u64, u64), (usize, BTreeSet<&Path>)> = BTreeMap::new();
    for path in paths {
        if let Some(Inode { device, number, names }) = tree.look(path).and_then(|found| found.linked) {
            inodes.entry((device, number)).or_insert_with(|| (names, BTreeSet::new())).1.insert(path);
        }
    }
    // Under another mount, a name is the same one.
    let is_same = |one: &Path, other: &Path| {
        let above = one.parent().zip(other.parent());
        one.file_name() == other.file_name() && above.is_some_and(|(one, other)| tree.is_same(one, other))
    };
    let has_others = |(names, known): &(usize, BTreeSet<&Path>)| {
        let known: Vec<&Path> = known.iter().copied().collect();
        let distinct =
            known.iter().enumerate().filter(|(at, one)| !known[..*at].iter().any(|other| is_same(one, other)));
        distinct.count() < *names
    };
    let others = inodes.into_values().filter(has_others);
    others.flat_map(|(_, known)| known).map(Path::to_owned).collect()
}

/// The directories in which to look for `PROTECTED` names and git directories.
fn bases(places: &Places, homes: &[PathBuf], writable: &[PathBuf], tree: &dyn Tree) -> BTreeSet<PathBuf> {
    // Nothing is below a file, and a policy may list thousands.
    let holds = |path: &&PathBuf| tree.look(path).is_none_or(|found| !matches!(found.kind, Kind::File | Kind::Other));
    let writable = writable.iter().filter(holds).cloned();
    let work = tree.resolve(&places.cwd).into_iter().chain(places.copy.clone());
    work.chain(homes.iter().cloned()).chain(writable).collect()
}

/// The start-up files inside writable trees. With ~/.config as the working directory, only the part of home in it.
fn startup_files(homes: &[PathBuf], writable: &BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
    let is_deeper = |path: &PathBuf| path.parent().is_some_and(|above| is_below(above, writable));
    let startup = homes.iter().flat_map(|home| STARTUP.iter().map(|entry| home.join(entry)));
    startup.filter(|path| is_deeper(path) && !writable.contains(path)).collect()
}

/// The same files under other mounts that are writable too.
fn under_other_mounts(found: &BTreeSet<PathBuf>, is_inside: &dyn Fn(&Path) -> bool, tree: &dyn Tree) -> Vec<PathBuf> {
    let mounts = if found.iter().any(|path| is_inside(path)) { tree.mounts() } else { Vec::new() };
    let others = found.iter().flat_map(|path| aliases::of(path, &mounts));
    others.filter(|(other, is)| is_inside(other) && tree.is_same(other, is)).map(|(other, _)| other).collect()
}

/// Refuses links in trees that commands write, for the paths of the policy that layers other than Landlock use.
pub fn refuse_links(
    policy: &Policy,
    places: &Places,
    paths: Option<&PathPlan>,
    tree: &dyn Tree,
) -> Result<(), Refusal> {
    let isolation = policy.bubblewrap.extra_read.iter().chain(&policy.bubblewrap.extra_write);
    let mut used = policy.network.unix.iter().chain(isolation).peekable();
    if used.peek().is_none() {
        return Ok(());
    }
    let written: Vec<PathBuf> = paths.iter().flat_map(|paths| paths.writable()).collect();
    let hostile = places.hostile(tree, &written);
    for path in used {
        tree.reach(&places.absolute(path), &hostile).map_err(|error| Refusal::setup(error.to_string()))?;
    }
    Ok(())
}
