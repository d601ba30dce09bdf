//! Where a run takes place: home, working directory and private temporary directory.

use super::homes::Homes;
use super::tree::Tree;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    pub home: Option<PathBuf>,
    pub cwd: PathBuf,
    /// The private temporary directory, if the profile gives one.
    pub tmp: Option<PathBuf>,
    /// Trees that other runs of the same session may write.
    pub also_written: Vec<PathBuf>,
    /// Whether the working directory is staged. A git directory elsewhere would not be, so it is not writable.
    pub staged: bool,
    /// The copy of the working directory in which the command works instead, where no stage can be mounted.
    pub copy: Option<PathBuf>,
}

/// The file next to the private temporary directory that describes the sandbox to the command.
pub const SUMMARY: &str = "summary";

impl Places {
    pub fn summary(&self) -> Option<PathBuf> {
        self.tmp.as_ref().map(|tmp| tmp.with_file_name(SUMMARY))
    }

    /// The absolute form of a policy's path, which may be relative to the working directory or start with `~`.
    pub fn absolute(&self, path: &Path) -> PathBuf {
        if path.is_absolute() {
            return path.to_owned();
        }
        match (path.strip_prefix("~"), &self.home) {
            (Ok(rest), Some(home)) => home.join(rest),
            _ => self.cwd.join(path),
        }
    }

    /// The directory in which the command works.
    pub fn work(&self) -> &Path {
        self.copy.as_deref().unwrap_or(&self.cwd)
    }

    /// The name in the copy of a real path in the working directory.
    pub fn copied(&self, path: &Path) -> Option<PathBuf> {
        let rest = path.strip_prefix(&self.cwd).ok()?;
        let copy = self.copy.as_ref()?;
        Some(if rest.as_os_str().is_empty() { copy.clone() } else { copy.join(rest) })
    }

    /// What to close in the copy if these are closed, as far as it is there: with a directory around the working directory, all
    /// of it.
    pub(super) fn copies<'a>(&self, closed: impl IntoIterator<Item = &'a PathBuf>, tree: &dyn Tree) -> Vec<PathBuf> {
        let copied = |path: &PathBuf| self.copied(if self.cwd.starts_with(path) { &self.cwd } else { path });
        let there = |path: PathBuf| if tree.look(&path).is_some() { Some(path) } else { tree.shut(&path) };
        closed.into_iter().filter_map(copied).filter_map(there).collect()
    }

    /// This user's homes, from the environment and the system; for root also the homes of all other users. Never `/`, below
    /// which every path lies.
    pub(super) fn homes(&self, tree: &dyn Tree) -> Homes {
        let mut homes = self.homes_with_keys(tree);
        homes.own.retain(|home| home.parent().is_some());
        homes.others.retain(|home| home.parent().is_some());
        homes
    }

    /// The same, and `/` if it is the home, as for users of a container that its image does not know.
    pub(super) fn homes_with_keys(&self, tree: &dyn Tree) -> Homes {
        let mut homes = tree.homes();
        homes.own.extend(self.home.clone());
        let real = |homes: Vec<PathBuf>| -> Vec<PathBuf> {
            let real: BTreeSet<PathBuf> = homes.iter().filter_map(|home| tree.resolve(home)).collect();
            real.into_iter().collect()
        };
        let own = real(homes.own);
        let others = real(homes.others).into_iter().filter(|home| !own.contains(home)).collect();
        Homes { own, others }
    }

    /// The trees in which commands of this or an earlier run write: `written`, the working directory and the session's
    /// trees. Never `/`, below which every path lies.
    pub fn hostile(&self, tree: &dyn Tree, written: &[PathBuf]) -> Vec<PathBuf> {
        let work = tree.resolve(&self.cwd).into_iter().chain(self.copy.clone());
        let all = work.chain(self.session(tree)).chain(written.iter().cloned());
        all.filter(|top| top.parent().is_some()).collect()
    }

    /// Real paths of the trees that other runs of the session may write.
    pub(super) fn session(&self, tree: &dyn Tree) -> Vec<PathBuf> {
        self.also_written.iter().filter_map(|top| tree.resolve(top)).collect()
    }
}
