//! Git directories: which of them a command may write, and what in them decides what git executes.
//!
//! A `.git` file names a directory, and files in that name another. All of them may have been written by an earlier run,
//! so none of them is believed: the directory must look as `git worktree add` makes it, lie outside of every tree that
//! commands write, and name this working directory itself.

use super::{Kind, Tree};
use std::path::{Path, PathBuf};

/// What git executes, or reads to know what to execute.
const SENSITIVE: &[&str] = &["hooks", "config", "config.worktree", "commondir"];
/// The same in the directory of a linked worktree.
const OF_A_WORKTREE: &[&str] = &["gitdir", "commondir", "config.worktree"];
/// Directories of submodules and worktrees that are looked into; more of them are named in the report.
const MOST: usize = 256;
/// Names of submodules may have slashes in them.
const DEEPEST: usize = 8;

/// What a linked worktree needs to write beside itself: its own git directory, and the one that it shares with others.
/// `around` are directories that must not become writable by this.
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
    // The way back, which only what may write to the repository can have written.
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
    // A bare repository has its worktrees inside, and perhaps more: then only what a commit writes.
    let holds_more = cwd.starts_with(common) || around.iter().any(|place| place.starts_with(common));
    let has_dotfiles = || tree.names(common).iter().any(|name| name.as_encoded_bytes().starts_with(b"."));
    Some(match holds_more || has_dotfiles() {
        true => {
            std::iter::once(own.clone()).chain(parts.into_iter().filter(|part| is_own(part, Kind::Directory))).collect()
        }
        false => vec![own.clone(), common.to_owned()],
    })
}

/// What is in and around a git directory.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Sensitive {
    /// There, and to be kept as it is.
    pub there: Vec<PathBuf>,
    /// Not there, and believed by git if a command makes it.
    pub absent: Vec<PathBuf>,
    /// Too much to look at.
    pub skipped: Vec<PathBuf>,
}

impl Sensitive {
    /// Of a working tree: its `.git`, whatever that is.
    pub(super) fn of_tree(&mut self, top: &Path, tree: &dyn Tree) {
        let dot_git = top.join(".git");
        match tree.look(&dot_git).map(|found| found.kind) {
            Some(Kind::Directory) => self.of_directory(&dot_git, tree),
            Some(Kind::Link) if tree.is_directory(&dot_git) => self.of_directory(&dot_git, tree),
            Some(_) => self.there.push(dot_git),
            None => {}
        }
    }

    /// Of a git directory.
    pub(super) fn of_directory(&mut self, git: &Path, tree: &dyn Tree) {
        let mut left = MOST;
        self.look_at(git, tree, DEEPEST, &mut left);
        let worktrees = git.join("worktrees");
        for name in tree.names(&worktrees) {
            if left == 0 {
                self.skipped.push(worktrees);
                return;
            }
            left -= 1;
            let own = worktrees.join(name);
            self.there.extend(OF_A_WORKTREE.iter().map(|name| own.join(name)).filter(|path| tree.look(path).is_some()));
        }
    }

    fn look_at(&mut self, git: &Path, tree: &dyn Tree, deeper: usize, left: &mut usize) {
        for path in SENSITIVE.iter().map(|name| git.join(name)) {
            match tree.look(&path).is_some() {
                true => self.there.push(path),
                // Settings of one worktree count only where the configuration says so, and it is read-only.
                false if path.ends_with("config.worktree") && !has_worktree_config(git, tree) => {}
                false if path.ends_with("hooks") || path.ends_with("config") => {}
                false => self.absent.push(path),
            }
        }
        self.modules(&git.join("modules"), tree, deeper, left);
    }

    /// Git directories of submodules, however their names are nested.
    fn modules(&mut self, directory: &Path, tree: &dyn Tree, deeper: usize, left: &mut usize) {
        let directories = |name| {
            Some(directory.join(name)).filter(|path| tree.look(path).is_some_and(|found| found.kind == Kind::Directory))
        };
        for path in tree.names(directory).into_iter().filter_map(directories) {
            if *left == 0 || deeper == 0 {
                self.skipped.push(path);
                return;
            }
            *left -= 1;
            match tree.look(&path.join("HEAD")).is_some() {
                true => self.look_at(&path, tree, deeper - 1, left),
                false => self.modules(&path, tree, deeper - 1, left),
            }
        }
    }
}

fn has_worktree_config(git: &Path, tree: &dyn Tree) -> bool {
    // A configuration that is too long to be read here is taken for one that says so.
    tree.text(&git.join("config")).is_none_or(|text| text.to_ascii_lowercase().contains("worktreeconfig"))
}
