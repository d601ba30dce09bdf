//! One stage: its description, its records and what it changes.

use super::StageError;
use super::base::{Bases, Text};
use super::changes::{Change, Scan, Sides};
use super::copied::Copied;
use super::files::{
    ABOUT, BASES, COPIED, COPY, UPPER, WORK, boot, coarse_now, open_part, open_tree, precise_now, read, remove_below,
    write, write_lock,
};
use super::lifted::Lifts;
use super::means;
use super::names::Names;
use super::seen::Before;
use super::store::Store;
use super::tree::{Dir, Node, Time};
use crate::plan::{StageSource, Staged};
use crate::report::{StageMeans, StageReport};
use rustix::fs::{AtFlags, FlockOperation, Mode, flock, unlinkat};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What is stored about a stage.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Description {
    pub(super) schema: u32,
    pub(super) tree: Text,
    pub(super) dev: u64,
    pub(super) ino: u64,
    /// When the working directory was made: a new one may get the inode of one that was removed. `None` if the file system does
    /// not tell.
    #[serde(default)]
    pub(super) born: Option<Time>,
    pub(super) means: StageMeans,
    pub(super) why_not_overlay: Option<String>,
    /// Whether a copy is mounted over the working directory.
    pub(super) mounted: bool,
    /// Seconds since 1970.
    pub(super) created: i64,
    /// The boot in which commands wrote in it, or in which its changes were printed since.
    #[serde(default)]
    pub(super) boot: String,
    /// Commands wrote in it in an earlier boot too, and its changes were not printed since.
    #[serde(default)]
    pub(super) unseen: bool,
    /// Relative paths that a run protected.
    pub(super) protected: Vec<Text>,
}

impl Description {
    /// Whether this is the working directory for which the stage was made.
    pub(super) fn is_of(&self, real: &Dir, node: &Node) -> bool {
        let is_other = |born: Time| real.born().is_some_and(|now| now != born);
        (self.dev, self.ino) == (node.dev, node.ino) && !self.born.is_some_and(is_other)
    }
}

/// One stage, locked as long as this value lives.
#[derive(Debug)]
pub struct Stage {
    pub(super) name: String,
    pub(super) directory: OwnedFd,
    pub(super) store: OwnedFd,
    pub(super) path: PathBuf,
    pub(super) store_path: PathBuf,
    /// `None` without the lock. Dropped before the lock, which protects its file.
    pub(super) lifts: Option<Arc<Lifts>>,
    pub(super) lock: File,
    /// What the lock says about this process.
    pub(super) holder: String,
    /// When the run began whose changes are not recorded yet.
    pub(super) running: Option<Time>,
    pub(super) about: Description,
    pub(super) bases: Bases,
    pub(super) copied: Option<Copied>,
    /// Whether its changes were printed since it was opened.
    pub(super) printed: AtomicBool,
}

impl Stage {
    /// Opens a stage of this user by its name.
    ///
    /// # Errors
    /// There is no such stage, or a run uses it.
    pub fn open(name: &str) -> Result<Stage, StageError> {
        Store::of_this_process()?.stage(name)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The real path of its working directory.
    pub fn tree(&self) -> PathBuf {
        self.about.tree.clone().into()
    }

    pub fn means(&self) -> StageMeans {
        self.about.means
    }

    /// Throws the stage away. The real tree stays as it is.
    ///
    /// # Errors
    /// A file of the stage cannot be removed.
    pub fn discard(mut self) -> Result<(), StageError> {
        // Files that a killed `apply` wrote beside the real ones are known to this stage only.
        let _ = self.clean_up();
        let failed = |error: io::Error| StageError::io(format!("stage {}", self.name), error);
        // Without its description it is no stage any more, also if the rest cannot be removed.
        unlinkat(&self.directory, ABOUT, AtFlags::empty()).map_err(|error| failed(error.into()))?;
        remove_below(&self.store, &self.name).map_err(failed)
    }

    /// What the stage changes, sorted by path.
    ///
    /// # Errors
    /// A file of the stage or of the real tree cannot be read.
    pub fn changes(&self) -> Result<Vec<Change>, StageError> {
        Ok(self.scan()?.changes)
    }

    pub(super) fn scan(&self) -> Result<Scan, StageError> {
        let mut scan = Scan::default();
        self.scan_into(&mut scan)?;
        Ok(scan)
    }

    pub(super) fn scan_into(&self, scan: &mut Scan) -> Result<(), StageError> {
        let (real, staged) = (self.real()?, self.staged_dir()?);
        let untouched = |path: &Path, node: &Node| self.bases.is_untouched(path, node);
        let sides = Sides { real: &real, stage: &staged, copied: self.copied.as_ref(), untouched: &untouched };
        sides.scan(scan).map_err(|error| StageError::io(format!("stage {}", self.name), error))
    }

    /// The real tree.
    pub(super) fn real(&self) -> Result<Dir, StageError> {
        let tree = self.tree();
        let real = open_tree(&tree)?;
        let node = real.itself().map_err(|error| StageError::io(tree.display().to_string(), error))?;
        if !self.about.is_of(&real, &node) {
            return Err(StageError::Replaced { name: self.name.clone(), tree });
        }
        Ok(real)
    }

    /// What the command changed.
    pub(super) fn staged_dir(&self) -> Result<Dir, StageError> {
        let part = if self.about.means == StageMeans::Overlay { UPPER } else { COPY };
        open_part(&self.directory, part, self.lifts.clone())
            .map_err(|error| StageError::io(format!("stage {}", self.name), error))
    }

    pub(super) fn protected(&self) -> Vec<PathBuf> {
        self.about.protected.iter().cloned().map(PathBuf::from).collect()
    }

    pub(super) fn file(&self, name: &str) -> Result<Option<Vec<u8>>, StageError> {
        read(&self.directory, name)
    }

    pub(super) fn put(&self, name: &str, bytes: &[u8]) -> Result<(), StageError> {
        write(&self.directory, name, bytes).map_err(|error| StageError::io(format!("stage {}", self.name), error))
    }

    pub(super) fn remove_file(&self, name: &str) {
        let _ = unlinkat(&self.directory, name, AtFlags::empty());
    }

    /// Records what a run changed that was killed before it could do so itself.
    pub(super) fn catch_up(&mut self) -> Result<(), StageError> {
        match self.running {
            Some(since) => self.settle(since, &Names::default()).map(drop),
            None => Ok(()),
        }
    }

    /// Records what a run changed, which began at `since` with these names in the real tree. Returns the number of changes.
    fn settle(&mut self, since: Time, names: &Names) -> Result<usize, StageError> {
        let scan = self.scan()?;
        let (real, staged) = (self.real()?, self.staged_dir()?);
        let failed = |error| StageError::io(format!("stage {}", self.name), error);
        // If the clock was set back, no time tells what changed since: all of it may have.
        let since = if precise_now() < since { Time::default() } else { since };
        let before = Before { since, names };
        let known = self.bases.clone();
        self.bases.record(&scan, (&real, &staged), before, self.copied.as_ref()).map_err(failed)?;
        if self.bases != known {
            self.save()?;
        }
        self.set_running(None)?;
        Ok(scan.changes.len())
    }

    /// Notes since when a run's changes are not recorded. The kernel's clock for files is past that time once the lock file's
    /// st_ctime is.
    pub(super) fn set_running(&mut self, since: Option<Time>) -> Result<(), StageError> {
        self.running = since;
        write_lock(&self.lock, &self.holder, since)
            .map_err(|error| StageError::io(format!("stage {}", self.name), error))
    }

    pub(super) fn save(&mut self) -> Result<(), StageError> {
        let failed = |error| StageError::io(format!("stage {}", self.name), error);
        self.put(BASES, &self.bases.to_bytes().map_err(failed)?)?;
        match &self.copied {
            Some(copied) => self.put(COPIED, &copied.to_bytes().map_err(failed)?),
            None => Ok(()),
        }
    }

    /// Whether a start of the machine lies between the command and now, and the changes were not printed since. Commands write
    /// without waiting for the disk, so files may then be empty or cut.
    pub(crate) fn may_be_torn(&self) -> Result<bool, StageError> {
        Ok(!self.printed.load(Ordering::Relaxed) && (self.about.unseen || self.about.boot != boot()?))
    }

    /// Notes that the caller has seen the changes as they are now.
    pub(super) fn note_printed(&self) -> Result<(), StageError> {
        if self.may_be_torn()? {
            let seen = Description { boot: boot()?, unseen: false, ..self.about.clone() };
            self.describe_as(&seen)?;
            self.printed.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    pub(super) fn describe(&self) -> Result<(), StageError> {
        self.describe_as(&self.about)
    }

    fn describe_as(&self, about: &Description) -> Result<(), StageError> {
        let bytes = serde_json::to_vec(about).map_err(|error| StageError::io("stage", io::Error::from(error)))?;
        self.put(ABOUT, &bytes)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // Released here, not when the last copy of the descriptor closes: the guardian has one and ends a moment later.
        let _ = flock(&self.lock, FlockOperation::NonBlockingUnlock);
    }
}

/// A stage in use by a run.
#[derive(Debug)]
pub struct Held {
    pub(super) stage: Stage,
    /// Whether this run made it.
    pub(super) fresh: bool,
    pub(super) since: Time,
    pub(super) names: Names,
}

impl Held {
    pub fn staged(&self) -> Staged {
        let path = &self.stage.path;
        let source = match (self.stage.about.means, self.stage.about.mounted) {
            (StageMeans::Overlay, _) => StageSource::Overlay { upper: path.join(UPPER), work: path.join(WORK) },
            (StageMeans::Copy, true) => StageSource::Copy(path.join(COPY)),
            (StageMeans::Copy, false) => StageSource::Elsewhere(path.join(COPY)),
        };
        Staged { name: self.stage.name.clone(), tree: self.stage.tree(), source, store: self.stage.store_path.clone() }
    }

    /// Why no overlay was mounted.
    pub fn why_not_overlay(&self) -> Option<&str> {
        self.stage.about.why_not_overlay.as_deref()
    }

    /// A second descriptor of the lock, for the guardian.
    pub fn lock(&self) -> io::Result<OwnedFd> {
        Ok(self.stage.lock.try_clone()?.into())
    }

    /// Waits until the kernel's clock has moved on since the stage was opened, at most some milliseconds. A file that
    /// changes from now on has a later st_ctime than every file that changed before.
    pub fn wait_for_clock(&self) {
        let lock = &self.stage.lock;
        let local = means::is_local(lock);
        let stamped = || local && Node::of_file(lock).is_ok_and(|node| node.ctime > self.since);
        for _ in 0..100 {
            // The first look makes the kernel (6.13 and newer) stamp the next change with its precise clock, and no later
            // change of any file gets an earlier stamp.
            if stamped() || coarse_now() > self.since {
                return;
            }
            if rustix::fs::fchmod(lock, Mode::RUSR | Mode::WUSR).is_ok() && stamped() {
                return;
            }
            std::thread::sleep(Duration::from_micros(300));
        }
    }

    /// Records what the run changed. A stage that was made for a command that never started is removed.
    pub fn finish(
        mut self,
        ran: bool,
        protected: &[PathBuf],
    ) -> Result<Option<StageReport>, (StageReport, StageError)> {
        if !ran && self.fresh {
            let _ = self.stage.discard();
            return Ok(None);
        }
        let tree = self.stage.tree();
        let known = self.stage.about.protected.len();
        for path in protected.iter().filter_map(|path| path.strip_prefix(&tree).ok()) {
            let text = Text::from(path);
            if !self.stage.about.protected.contains(&text) {
                self.stage.about.protected.push(text);
            }
        }
        let (name, means) = (self.stage.name.clone(), self.stage.about.means);
        let described = match self.stage.about.means == StageMeans::Copy && !self.stage.about.mounted {
            // Only Landlock keeps the command from what is beside such a copy, so nothing there is taken as it is now.
            true => self.stage.save().and_then(|()| self.stage.describe()),
            false if self.stage.about.protected.len() > known => self.stage.describe(),
            false => Ok(()),
        };
        let report = |changes: usize| StageReport { name: name.clone(), changes: changes as u64, means };
        match described.and_then(|()| self.stage.settle(self.since, &self.names)) {
            Ok(changes) => Ok(Some(report(changes))),
            Err(error) => {
                let mut scan = Scan::default();
                let _ = self.stage.scan_into(&mut scan);
                Err((report(scan.changes.len()), error))
            }
        }
    }
}
