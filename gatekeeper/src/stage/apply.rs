//! Takes the changes of a stage over into the real tree.
//!
//! Everything is checked before the first change. New contents are synced in the stage or beside their place, and renamed, so
//! no file is ever half written; deletions come last. Each step leaves an entry as it was or as it is in the stage, so after
//! an interruption the same command takes over the rest.

use super::base::Base;
use super::changes::{Change, What};
use super::copied::Both;
use super::kept::Stage;
use super::patch::TORN;
use super::protected::Names;
use super::take::{JOURNAL, Journal, UNFINISHED, Work, beside};
use super::tree::{Dir, Kind, split};
use super::{StageError, patch};
use rustix::fs::{AtFlags, unlinkat};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// What to do with changes of files that decide what other programs run or trust.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protected {
    /// Change nothing at all.
    #[default]
    Refuse,
    /// Leave them in the stage and take the rest.
    Skip,
    Take,
}

/// A change that the real tree does not allow any more.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Conflict {
    pub path: PathBuf,
    pub why: &'static str,
}

/// What `apply` did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Applied {
    /// So many changes were taken, and so many are left in the stage. With none left the stage is gone.
    Done { taken: usize, left: usize },
    /// Nothing was changed: these files changed in the real tree meanwhile.
    Conflicts(Vec<Conflict>),
    /// Nothing was changed: these are protected.
    Protected(Vec<PathBuf>),
}

impl Stage {
    /// Takes all changes, or those at and below `paths`, into the real tree.
    ///
    /// # Errors
    /// A file cannot be read or written. The message says how many changes were made; calling it again makes the rest.
    pub fn apply(mut self, paths: &[PathBuf], protected: Protected) -> Result<Applied, StageError> {
        self.clean_up()?;
        let all = self.scan()?.changes;
        if !all.is_empty() && self.may_be_torn()? {
            let name = self.name();
            return Err(StageError::Unusable(format!(
                "stage {name}: {TORN}; read gatekeeper stage diff {name}, then apply it"
            )));
        }
        let chosen = self.chosen(&all, paths)?;
        let (real, staged) = (self.real()?, self.staged_dir()?);
        let names = Names::new(&self.tree(), self.protected());
        let (refused, taken): (Vec<&Change>, Vec<&Change>) =
            chosen.into_iter().partition(|change| protected != Protected::Take && names.has(change));
        if protected == Protected::Refuse && !refused.is_empty() {
            return Ok(Applied::Protected(refused.iter().map(|change| change.path.clone()).collect()));
        }
        let conflicts = self.conflicts(&taken, &real)?;
        if !conflicts.is_empty() {
            return Ok(Applied::Conflicts(conflicts));
        }
        let count = taken.len();
        let mut work = Work::new(&self, real, staged)?;
        work.run(&taken).map_err(|(path, error)| {
            // Without a path, the error names the stage.
            let at = if path.as_os_str().is_empty() { String::new() } else { format!("{}: ", patch::quoted(&path)) };
            StageError::Unusable(format!(
                "{at}{error}; {} of {count} changes are applied, each as a whole; for the rest, run gatekeeper stage \
                 apply {} again",
                work.done,
                work.stage.name()
            ))
        })?;
        drop(work);
        self.remove_file(JOURNAL);
        let left = all.len() - count;
        if left == 0 {
            self.discard()?;
        } else {
            self.forget(&taken)?;
        }
        Ok(Applied::Done { taken: count, left })
    }

    /// The changes at and below these paths, with the new directories above them.
    fn chosen<'a>(&self, all: &'a [Change], paths: &[PathBuf]) -> Result<Vec<&'a Change>, StageError> {
        if paths.is_empty() {
            return Ok(all.iter().collect());
        }
        let mut wanted = BTreeSet::new();
        for path in paths {
            let inside = self.inside(path)?;
            let mut found = false;
            for (at, change) in all.iter().enumerate() {
                let above = inside.starts_with(&change.path) && change.kind == Kind::Dir;
                if change.path.starts_with(&inside) {
                    found = true;
                    wanted.insert(at);
                } else if above && matches!(change.what, What::Added | What::Type) {
                    wanted.insert(at);
                }
            }
            if !found {
                return Err(StageError::Unusable(format!(
                    "stage {} changes nothing at {}",
                    self.name(),
                    path.display()
                )));
            }
        }
        // What a chosen file replaces goes with it.
        let replaced: Vec<&Path> = wanted
            .iter()
            .filter_map(|at| all.get(*at))
            .filter(|change| change.what == What::Type)
            .map(|change| change.path.as_path())
            .collect();
        let goes =
            |change: &Change| change.what == What::Deleted && replaced.iter().any(|top| change.path.starts_with(top));
        let also: Vec<usize> = all.iter().enumerate().filter(|(_, change)| goes(change)).map(|(at, _)| at).collect();
        wanted.extend(also);
        Ok(wanted.into_iter().filter_map(|at| all.get(at)).collect())
    }

    /// A path of the caller's relative to the working directory of the stage.
    fn inside(&self, path: &Path) -> Result<PathBuf, StageError> {
        let tree = self.tree();
        let here = std::env::current_dir().ok().filter(|here| here.starts_with(&tree));
        let whole = here.unwrap_or_else(|| tree.clone()).join(path);
        let mut parts: Vec<&OsStr> = Vec::new();
        for part in whole.components() {
            match part {
                Component::Normal(name) => parts.push(name),
                Component::ParentDir => drop(parts.pop()),
                _ => {}
            }
        }
        let whole: PathBuf = Path::new("/").join(parts.iter().collect::<PathBuf>());
        whole.strip_prefix(&tree).map(Path::to_owned).map_err(|_| {
            StageError::Unusable(format!(
                "{} is not in {}, the directory of stage {}",
                path.display(),
                tree.display(),
                self.name()
            ))
        })
    }

    /// Removes applied changes from the stage.
    fn forget(&mut self, taken: &[&Change]) -> Result<(), StageError> {
        let (real, staged) = (self.real()?, self.staged_dir()?);
        for change in taken.iter().rev() {
            let (parent, name) = split(&change.path);
            let failed = |error| StageError::io(change.path.display().to_string(), error);
            if let Some(copied) = &mut self.copied {
                let both = both(&real, &staged, &change.path).map_err(failed)?;
                copied.renew(&change.path, both);
            } else if staged.is_opaque_above(&change.path).map_err(failed)? {
                // Where the real tree does not show through, the entry stays, as one that equals the real one.
                let node =
                    staged.at(parent).and_then(|dir| dir.map(|dir| dir.look(name)).transpose()).map_err(failed)?;
                self.bases.forget(&change.path);
                if let Some(node) = node.flatten() {
                    self.bases.keep_equal(&change.path, node);
                }
                continue;
            } else if let Some(dir) = staged.at(parent).map_err(failed)? {
                // A directory goes with its last entry; whiteouts and files are single names.
                let is_dir = dir.look(name).map_err(failed)?.is_some_and(|node| node.kind == Kind::Dir);
                let flags = if is_dir { AtFlags::REMOVEDIR } else { AtFlags::empty() };
                match dir.permitted(|| unlinkat(&dir, name, flags)) {
                    Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => {}
                    Err(error) => return Err(failed(error.into())),
                }
            }
            self.bases.forget(&change.path);
        }
        self.save()
    }

    /// Removes what a killed `apply` left beside the real files, and notes what it left half done.
    pub(super) fn clean_up(&mut self) -> Result<(), StageError> {
        let Some(bytes) = self.file(JOURNAL)? else { return Ok(()) };
        let Ok(journal) = serde_json::from_slice::<Journal>(&bytes) else { return Ok(()) };
        let real = self.real()?;
        for parent in journal.directories {
            let parent = PathBuf::from(parent);
            let failed = |error| StageError::io(parent.display().to_string(), error);
            let Some(dir) = real.at(&parent).map_err(failed)? else { continue };
            let mark = beside(&journal.token);
            for name in dir.names().map_err(failed)?.iter().filter(|name| name.as_bytes().starts_with(mark.as_bytes()))
            {
                let _ = unlinkat(&dir, name, AtFlags::empty());
            }
        }
        for path in journal.made.into_iter().map(PathBuf::from) {
            let (parent, name) = split(&path);
            let failed = |error| StageError::io(path.display().to_string(), error);
            let Some(dir) = real.at(parent).map_err(failed)? else { continue };
            match dir.look(name).map_err(failed)? {
                None => self.bases.set(&path, Base::Absent),
                Some(node) if node.kind == Kind::Dir && node.mode == UNFINISHED => {
                    self.bases.set(&path, Base::There(node, None, None));
                }
                Some(_) => {}
            }
        }
        // What it took over is no change any more. The next command that changes it starts from what is there now.
        let scan = self.scan()?;
        self.bases.keep_only(&scan.changes);
        self.save()?;
        self.remove_file(JOURNAL);
        Ok(())
    }
}

/// An entry that is in the real tree and in the copy.
fn both(real: &Dir, staged: &Dir, path: &Path) -> io::Result<Option<Both>> {
    let (parent, name) = split(path);
    let (Some(real), Some(staged)) = (real.at(parent)?, staged.at(parent)?) else { return Ok(None) };
    real.look(name)?.map_or(Ok(None), |node| Both::of(node, &staged, name))
}
