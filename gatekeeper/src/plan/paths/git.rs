//! Git directories: which of them a command may write, and which files in them decide what git executes.
//!
//! A `.git` file names a directory, and files in that directory name another. An earlier command may have written any of
//! them, so the plan trusts none: the directory must have the layout of `git worktree add`, lie outside every tree that
//! commands write, and point back to this working directory.

use super::{Kind, Tree};
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

/// The sensitive files of a git directory.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Sensitive {
    /// Existing files that must stay unchanged.
    pub there: Vec<PathBuf>,
    /// Absent files that git would trust if a command created them.
    pub absent: Vec<PathBuf>,
}

impl Sensitive {
    /// Adds the files of a working tree, whose `.git` may be a directory, a link or a file.
    pub(super) fn of_tree(&mut self, top: &Path, tree: &dyn Tree) {
        let dot_git = top.join(".git");
        match tree.look(&dot_git).map(|found| found.kind) {
            Some(Kind::Directory) => self.of_directory(&dot_git, tree),
            Some(Kind::Link) if tree.is_directory(&dot_git) => self.of_directory(&dot_git, tree),
            Some(_) => self.there.push(dot_git),
            None => {}
        }
    }

    /// Adds the files of a git directory.
    pub(super) fn of_directory(&mut self, git: &Path, tree: &dyn Tree) {
        let mut left = MOST;
        self.look_at(git, tree, DEEPEST, &mut left);
        let worktrees = git.join("worktrees");
        let Some(entries) = self.entries(&worktrees, MOST, tree) else { return };
        for own in entries {
            let is_there = |path: &PathBuf| tree.look(path).is_some() || tree.shut(path).is_some();
            self.there.extend(OF_A_WORKTREE.iter().map(|name| own.join(name)).filter(is_there));
        }
    }

    fn look_at(&mut self, git: &Path, tree: &dyn Tree, deeper: usize, left: &mut usize) {
        for path in SENSITIVE.iter().map(|name| git.join(name)) {
            match tree.look(&path).is_some() {
                true => self.there.push(path),
                // Git reads config.worktree only if the read-only configuration enables it.
                false if path.ends_with("config.worktree") && !has_worktree_config(git, tree) => {}
                false if path.ends_with("hooks") || path.ends_with("config") => {}
                false => self.absent.push(path),
            }
        }
        self.there.extend(tree.text(&git.join("config")).iter().flat_map(|text| named_by(text, git)));
        self.modules(&git.join("modules"), tree, deeper, left);
    }

    /// Adds the git directories of submodules. Each directory is treated both as a git directory and as a part of a longer
    /// submodule name, because a command can remove `HEAD` from one or add it to the other.
    fn modules(&mut self, directory: &Path, tree: &dyn Tree, deeper: usize, left: &mut usize) {
        let Some(entries) = self.entries(directory, if deeper == 0 { 0 } else { *left }, tree) else { return };
        for path in entries {
            *left = left.saturating_sub(1);
            let is = |name| tree.look(&path.join(name)).is_some_and(|found| found.kind == Kind::File);
            if is("HEAD") || is("config") {
                self.look_at(&path, tree, deeper - 1, left);
            }
            self.modules(&path, tree, deeper - 1, left);
        }
    }

    /// The subdirectories that may be git directories. If the directory cannot be listed, or has too many entries, which a
    /// command may have caused, all of it becomes read-only.
    fn entries(&mut self, directory: &Path, most: usize, tree: &dyn Tree) -> Option<Vec<PathBuf>> {
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

/// The hook directories and further files that a git configuration names.
fn named_by(text: &str, git: &Path) -> Vec<PathBuf> {
    let (mut section, mut named) = (String::new(), Vec::new());
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line.to_ascii_lowercase();
        }
        let Some((key, value)) = line.rsplit(']').next().unwrap_or(line).split_once('=') else { continue };
        let value = value.trim().trim_matches('"');
        match key.trim().to_ascii_lowercase().as_str() {
            // Relative to the top of the working tree.
            "hookspath" if section.starts_with("[core") => {
                named.extend(git.parent().filter(|_| git.ends_with(".git")).map(|top| top.join(value)))
            }
            "path" if section.starts_with("[include") => named.push(git.join(value)),
            _ => {}
        }
    }
    named
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

    #[test]
    fn a_configuration_names_hooks_and_included_files() {
        let text = "[core]\n\tbare = false\n\thooksPath = .husky\n[include]\n path = \"../more\"\n[remote \"path\"]\n\turl = x\n\
                    [includeIf \"gitdir:/x\"]\n\tpath = /etc/other\n[alias] path = no\n";
        let named = named_by(text, Path::new("/p/.git"));
        assert_eq!(named, ["/p/.husky", "/p/.git/../more", "/etc/other"].map(PathBuf::from));
        assert_eq!(named_by("[core] hookspath = hooks", Path::new("/bare")), Vec::<PathBuf>::new());
    }
}
