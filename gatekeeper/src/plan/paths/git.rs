//! Git directories: which of them a command may write, and which files in them decide what git executes.
//!
//! A `.git` file names a directory, and files in that directory name another. An earlier command may have written any of
//! them, so the plan trusts none: the directory must have the layout of `git worktree add`, lie outside every tree that
//! commands write, and point back to this working directory.

mod config;
mod named;
mod words;

use super::{Kind, Tree};
pub(super) use named::{Reader, Variables};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// What git executes, or reads to decide what to execute.
const SENSITIVE: &[&str] = &["hooks", "config", "config.worktree", "commondir"];
/// The same in the git directory of a linked worktree.
const OF_A_WORKTREE: &[&str] = &["gitdir", "commondir", "config.worktree"];
/// How many submodules or worktrees to inspect; if there are more, their common directory becomes read-only.
const MOST: usize = 1024;
/// Subdirectories of a git directory that are not git directories.
const PARTS: &[&str] = &[
    "annex",
    "branches",
    "hooks",
    "info",
    "lfs",
    "logs",
    "modules",
    "objects",
    "rebase-apply",
    "rebase-merge",
    "refs",
    "reftable",
    "rr-cache",
    "sequencer",
    "svn",
    "worktrees",
];
/// How deep submodule directories may nest; their names may contain slashes.
const DEEPEST: usize = 8;

/// The directories outside a linked worktree that git has to write: the worktree's git directory and the shared one.
/// `around`: directories that must not become writable this way.
pub(super) fn linked_worktree(cwd: &Path, around: &[PathBuf], hostile: &[PathBuf], tree: &dyn Tree) -> Vec<PathBuf> {
    verified(cwd, around, hostile, tree).unwrap_or_default()
}

fn verified(cwd: &Path, around: &[PathBuf], hostile: &[PathBuf], tree: &dyn Tree) -> Option<Vec<PathBuf>> {
    let dot_git = cwd.join(".git");
    tree.look(&dot_git).filter(|found| found.kind == Kind::File)?;
    let text = tree.text(&dot_git)?;
    let named = text.lines().next()?.strip_prefix("gitdir: ")?.trim_end();
    let own = tree.reach(&cwd.join(named), hostile).ok()??;
    if hostile.iter().any(|top| own.starts_with(top)) {
        return None;
    }
    let worktrees = own.parent().filter(|above| above.ends_with("worktrees"))?;
    let common = worktrees.parent()?;
    // The pointer back. Only a process with write access to the repository can have written it.
    let back = tree.text(&own.join("gitdir"))?;
    let to_common = tree.text(&own.join("commondir"))?;
    let leads_back = tree.resolve(&own.join(back.trim_end())) == Some(dot_git);
    let is_common = tree.resolve(&own.join(to_common.trim_end())).as_deref() == Some(common);
    let is_own = |path: &Path, kind| tree.look(path).is_some_and(|found| found.kind == kind && found.own);
    let parts = ["objects", "refs", "logs"].map(|name| common.join(name));
    let is_repository =
        [&own, &parts[0], &parts[1], &common.to_owned()].iter().all(|path| is_own(path, Kind::Directory))
            && is_own(&common.join("HEAD"), Kind::File);
    let is_home = common.parent().is_none() || around.iter().any(|place| place == common);
    if !leads_back || !is_common || !is_repository || is_home {
        return None;
    }
    // A bare repository may hold its worktrees and other files; then grant only what a commit writes.
    let holds_more = cwd.starts_with(common) || around.iter().any(|place| place.starts_with(common));
    let has_dotfiles = || tree.names(common).iter().flatten().any(|name| name.as_encoded_bytes().starts_with(b"."));
    Some(match holds_more || has_dotfiles() {
        true => {
            std::iter::once(own.clone()).chain(parts.into_iter().filter(|part| is_own(part, Kind::Directory))).collect()
        }
        false => vec![own.clone(), common.to_owned()],
    })
}

/// Whether a directory is a git directory. A command can remove `HEAD`, so files that are read-only to it count too.
pub(super) fn is_git_directory(path: &Path, tree: &dyn Tree) -> bool {
    let is_file = |name: &str| tree.look(&path.join(name)).is_some_and(|found| found.kind == Kind::File);
    let is_repository = || tree.text(&path.join("config")).is_some_and(|text| text.contains("repositoryformatversion"));
    tree.look(&path.join("HEAD")).is_some() || is_file("commondir") || is_file("config") && is_repository()
}

/// Whether git executes what is at this path of a git directory, or reads it to decide what to execute: there, and in those of
/// submodules and linked worktrees. A link on the way to such a file is as good as the file.
pub fn is_sensitive(inside: &Path, is_link: bool) -> bool {
    let among = |names: &[&str], name: &OsStr| names.iter().any(|known| name == *known);
    let mut names = inside.iter();
    match names.next().and_then(OsStr::to_str) {
        // The name of a submodule may have any number of parts.
        Some("modules") => is_link || names.any(|name| among(SENSITIVE, name) || among(OF_A_WORKTREE, name)),
        Some("worktrees") => is_link || names.nth(1).is_some_and(|name| among(OF_A_WORKTREE, name)),
        Some(name) => SENSITIVE.contains(&name),
        None => false,
    }
}

/// The git directory that a `.git` file names, and the directory that it shares with other worktrees. For what to protect,
/// never for what to grant: nothing of it is verified.
fn pointed(dot_git: &Path, tree: &dyn Tree) -> Option<(PathBuf, PathBuf)> {
    let text = tree.text(dot_git)?;
    let own = dot_git.parent()?.join(text.lines().next()?.strip_prefix("gitdir: ")?.trim_end());
    let common = tree.text(&own.join("commondir")).map(|common| own.join(common.trim_end()));
    Some((own.clone(), common.unwrap_or(own)))
}

/// The sensitive files of git directories.
pub(super) struct Sensitive<'a> {
    tree: &'a dyn Tree,
    /// Existing files that must stay unchanged.
    pub there: Vec<PathBuf>,
    /// Absent files that git would trust if a command created them.
    pub absent: Vec<PathBuf>,
    /// What the configurations name.
    pub named: Reader<'a>,
    /// Directories in which a `.git` was looked for.
    seen: BTreeSet<PathBuf>,
}

impl<'a> Sensitive<'a> {
    pub(super) fn new(tree: &'a dyn Tree, named: Reader<'a>) -> Sensitive<'a> {
        Sensitive { tree, there: Vec::new(), absent: Vec::new(), named, seen: BTreeSet::new() }
    }

    /// Adds the files of the git directories in and around these directories.
    pub(super) fn of_bases(&mut self, bases: &BTreeSet<PathBuf>) {
        for base in bases {
            self.of_tree(base);
            // The git directory of a linked worktree is one of the writable trees itself.
            if is_git_directory(base, self.tree) {
                self.of_directory(base);
            }
            self.around(base);
        }
    }

    /// Adds the files of a working tree, whose `.git` may be a directory, a link or a file.
    pub(super) fn of_tree(&mut self, top: &Path) {
        let (tree, dot_git) = (self.tree, top.join(".git"));
        match tree.look(&dot_git).map(|found| found.kind) {
            Some(Kind::Directory) => self.of_directory(&dot_git),
            Some(Kind::Link) if tree.is_directory(&dot_git) => self.of_directory(&dot_git),
            Some(_) => {
                self.configured(&dot_git, top);
                self.there.push(dot_git);
            }
            None => {}
        }
    }

    /// Adds what the configurations of the repositories around a working tree name. Their own files are not in it.
    pub(super) fn around(&mut self, top: &Path) {
        for above in top.ancestors().skip(1) {
            if !self.seen.insert(above.to_owned()) {
                return;
            }
            let dot_git = above.join(".git");
            // Git obeys no repository of another user (safe.directory).
            if self.tree.look(&dot_git).is_some_and(|found| found.own) {
                self.configured(&dot_git, above);
            }
        }
    }

    /// Adds what the configuration of a working tree names.
    fn configured(&mut self, dot_git: &Path, top: &Path) {
        let (own, common) = match self.tree.is_directory(dot_git) {
            true => (dot_git.to_owned(), dot_git.to_owned()),
            false => match pointed(dot_git, self.tree) {
                Some(pointed) => pointed,
                None => return,
            },
        };
        let files = [common.join("config"), common.join("config.worktree"), own.join("config.worktree")];
        self.named.repository(&files, &own, vec![top.to_owned()]);
    }

    /// Adds the files of a git directory.
    pub(super) fn of_directory(&mut self, git: &Path) {
        let tree = self.tree;
        let mut tops: Vec<PathBuf> =
            git.parent().filter(|_| git.ends_with(".git")).map(Path::to_owned).into_iter().collect();
        let mut files = vec![git.join("config"), git.join("config.worktree")];
        let mut left = MOST;
        let worktrees = self.entries(&git.join("worktrees"), MOST).unwrap_or_default();
        for own in &worktrees {
            let is_there = |path: &PathBuf| tree.look(path).is_some() || tree.shut(path).is_some();
            self.there.extend(OF_A_WORKTREE.iter().map(|name| own.join(name)).filter(is_there));
            let back = tree.text(&own.join("gitdir")).map(|back| own.join(back.trim_end()));
            tops.extend(back.as_deref().and_then(Path::parent).map(Path::to_owned));
            files.push(own.join("config.worktree"));
        }
        self.look_at(git, files, tops, DEEPEST, &mut left);
        for own in worktrees {
            self.modules(&own.join("modules"), DEEPEST, &mut left);
        }
    }

    /// `files`: its configuration; `tops`: its working trees.
    fn look_at(&mut self, git: &Path, files: Vec<PathBuf>, tops: Vec<PathBuf>, deeper: usize, left: &mut usize) {
        for path in SENSITIVE.iter().map(|name| git.join(name)) {
            match self.tree.look(&path).is_some() {
                true => self.there.push(path),
                // Git reads config.worktree only if the read-only configuration enables it.
                false if path.ends_with("config.worktree") && !has_worktree_config(git, self.tree) => {}
                false if path.ends_with("hooks") || path.ends_with("config") => {}
                false => self.absent.push(path),
            }
        }
        self.named.repository(&files, git, tops);
        self.modules(&git.join("modules"), deeper, left);
    }

    /// Adds the git directories of submodules. Each directory is treated both as a git directory and as a part of a longer
    /// submodule name, because a command can remove `HEAD` from one or add it to the other.
    fn modules(&mut self, directory: &Path, deeper: usize, left: &mut usize) {
        let Some(entries) = self.entries(directory, if deeper == 0 { 0 } else { *left }) else { return };
        for path in entries {
            *left = left.saturating_sub(1);
            let is = |name| self.tree.look(&path.join(name)).is_some_and(|found| found.kind == Kind::File);
            if is("HEAD") || is("config") {
                self.look_at(
                    &path,
                    vec![path.join("config"), path.join("config.worktree")],
                    Vec::new(),
                    deeper - 1,
                    left,
                );
            }
            self.modules(&path, deeper - 1, left);
        }
    }

    /// The subdirectories that may be git directories. If the directory cannot be listed, or has too many entries, which a
    /// command may have caused, all of it becomes read-only.
    fn entries(&mut self, directory: &Path, most: usize) -> Option<Vec<PathBuf>> {
        let tree = self.tree;
        tree.look(directory).filter(|found| found.kind == Kind::Directory)?;
        let is_part = |path: &PathBuf| {
            !path.file_name().is_some_and(|name| PARTS.iter().any(|part| name == *part))
                && tree.look(path).is_some_and(|found| found.kind == Kind::Directory)
        };
        let entries = tree.entries(directory).map(|entries| entries.into_iter().filter(is_part).collect::<Vec<_>>());
        let few = entries.filter(|entries| entries.len() <= most && tree.shut(&directory.join("HEAD")).is_none());
        if few.is_none() {
            self.there.push(directory.to_owned());
        }
        few
    }
}

fn has_worktree_config(git: &Path, tree: &dyn Tree) -> bool {
    // Assume the setting in a configuration that is too long to read.
    tree.text(&git.join("config")).is_none_or(|text| text.to_ascii_lowercase().contains("worktreeconfig"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_submodules_and_worktrees_are_sensitive_and_what_a_commit_writes_is_not() {
        for name in
            ["config", "hooks/pre-commit", "commondir", "config.worktree", "modules/m/config", "modules/a/b/hooks/x"]
                .into_iter()
                .chain([
                    "modules/m/commondir",
                    "modules/m/modules/n/config",
                    "worktrees/w/gitdir",
                    "worktrees/w/commondir",
                ])
        {
            assert!(is_sensitive(Path::new(name), false), "{name}");
        }
        for name in
            ["HEAD", "index", "refs/heads/config", "logs/refs/heads/hooks", "modules/m/HEAD", "modules/m/objects/aa/bb"]
                .into_iter()
                .chain(["worktrees/w/HEAD", "worktrees/config/index", "modules", "worktrees/w", ""])
        {
            assert!(!is_sensitive(Path::new(name), false), "{name}");
        }
        assert!(is_sensitive(Path::new("modules/m"), true) && is_sensitive(Path::new("worktrees"), true));
    }
}
