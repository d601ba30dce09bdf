//! The directory of all stages, and one stage in it: its description, its lock and its records.

use super::base::Bases;
use super::copied::{self, Copied, LeftOut, Progress};
use super::files::{
    ABOUT, BASES, COPIED, COPY, LOCK, UPPER, WORK, boot, check_private, damaged, forget_volatile, holder_of, holds,
    now, open_part, open_tree, parse, precise_now, read, read_lock, refuse_mounts, refuse_overlap, remove_below, said,
    write_lock,
};
use super::kept::{Description, Held, Stage};
use super::lifted::{self, Lifts};
use super::names::Names;
use super::tree::{Dir, Node, Time};
use super::{StageError, check_name, means};
use crate::plan::disk::Disk;
use crate::plan::paths::Tree;
use crate::report::StageMeans;
use crate::request::Staging;
use crate::sys;
use crate::trust::{self, Hostile};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, mkdirat, openat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub(super) const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const BELOW: &str = "gatekeeper/stages";

/// How a copy is made.
pub struct Copying<'a> {
    /// What the command must not read: nothing could cover it in a copy that is not mounted.
    pub left_out: &'a dyn Fn() -> Result<LeftOut, StageError>,
    pub progress: Progress<'a>,
}

/// All stages of this user.
#[derive(Debug)]
pub struct Store {
    pub(super) directory: OwnedFd,
    /// Its real path.
    pub path: PathBuf,
}

impl Store {
    /// Opens the store, and makes it if it is not there. `state` is XDG_STATE_HOME.
    pub fn open(state: Option<&OsStr>, home: Option<&Path>, hostile: &Hostile) -> Result<Store, StageError> {
        let path = Store::wanted(state, home)?;
        let failed = |error: io::Error| StageError::io(format!("{}", path.display()), error);
        let found = trust::make_directory(&path, hostile, Mode::RWXU).map_err(|error| match error {
            trust::Untrusted::Io { .. } => {
                let hint = "set XDG_STATE_HOME to a directory that you may write";
                StageError::Unusable(format!("the directory of stages: {error}; {hint}"))
            }
            other => StageError::Unusable(other.to_string()),
        })?;
        let directory = found.reopen(OFlags::RDONLY | OFlags::DIRECTORY).map_err(|error| failed(error.into()))?;
        check_private(&directory, &found.real)?;
        Ok(Store { directory, path: found.real })
    }

    /// The same for a run in this working directory. Makes nothing in it.
    pub fn open_beside(
        tree: &Path,
        state: Option<&OsStr>,
        home: Option<&Path>,
        hostile: &Hostile,
    ) -> Result<Store, StageError> {
        refuse_overlap(&Store::wanted(state, home)?, tree)?;
        Store::open(state, home, hostile)
    }

    /// The store of this process's user.
    pub fn of_this_process() -> Result<Store, StageError> {
        let home = std::env::var_os("HOME").map(PathBuf::from);
        Store::open(std::env::var_os("XDG_STATE_HOME").as_deref(), home.as_deref(), &Hostile::here())
    }

    fn wanted(state: Option<&OsStr>, home: Option<&Path>) -> Result<PathBuf, StageError> {
        if let Some(state) = state.map(Path::new).filter(|state| state.is_absolute()) {
            return Ok(state.join(BELOW));
        }
        let known = || Disk.homes().own.into_iter().next();
        let home = home.filter(|home| home.is_absolute()).map(Path::to_owned).or_else(known);
        let none = || StageError::Unusable("stages need a home directory: set HOME or XDG_STATE_HOME".to_owned());
        Ok(home.ok_or_else(none)?.join(".local/state").join(BELOW))
    }

    /// The names of all stages.
    pub fn names(&self) -> Result<Vec<String>, StageError> {
        let directory = self.directory.try_clone().map_err(|error| StageError::io("stages", error))?;
        let names = Dir::new(directory, true).names().map_err(|error| StageError::io("stages", error))?;
        Ok(names
            .into_iter()
            .filter_map(|name| name.into_string().ok())
            .filter(|name| check_name(name).is_ok())
            .collect())
    }

    /// Opens a stage that exists.
    pub fn stage(&self, name: &str) -> Result<Stage, StageError> {
        check_name(name)?;
        let command = sys::start::arguments().join(OsStr::new(" "));
        let locked = self.locked(name, false, said(&command.to_string_lossy()))?;
        lifted::restore(&locked.directory)?;
        let about = read(&locked.directory, ABOUT)?.ok_or_else(|| StageError::Missing(name.to_owned()))?;
        let mut stage = self.opened(name, locked, parse(name, &about)?)?;
        // What cannot be recorded cannot be compared either, and `diff` and `apply` say why. Discarding still works.
        let _ = stage.catch_up();
        Ok(stage)
    }

    /// Throws a stage away, also one whose files cannot be read.
    pub fn discard(&self, name: &str) -> Result<(), StageError> {
        match self.stage(name) {
            Ok(stage) => stage.discard(),
            Err(StageError::Io { .. }) => {
                let locked = self.locked(name, false, said("stage discard"))?;
                let failed = |error: io::Error| StageError::io(format!("stage {name}"), error);
                remove_below(&self.directory, name).map_err(failed)?;
                drop(locked);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Opens a stage for a run, or makes it.
    pub fn hold(&self, asked: &Staging, tree: &Path, command: &str, copying: &Copying<'_>) -> Result<Held, StageError> {
        check_name(&asked.name)?;
        refuse_overlap(&self.path, tree)?;
        let name = &asked.name;
        let locked = self.locked(name, true, said(command))?;
        lifted::restore(&locked.directory)?;
        let real = open_tree(tree)?;
        let node = real.itself().map_err(|error| StageError::io(tree.display().to_string(), error))?;
        let boot = boot()?;
        let (fresh, mut stage) = match read(&locked.directory, ABOUT)? {
            Some(about) => (false, self.opened(name, locked, parse(name, &about)?)?),
            None => match self.make(asked, tree, (&real, &node), locked, &boot, copying) {
                Ok(stage) => (true, stage),
                Err(error) => {
                    let _ = remove_below(&self.directory, name);
                    return Err(error);
                }
            },
        };
        if stage.tree() != tree {
            return Err(StageError::OtherTree { name: name.clone(), tree: stage.tree(), asked: tree.to_owned() });
        }
        if !stage.about.is_of(&real, &node) {
            return Err(StageError::Replaced { name: name.clone(), tree: tree.to_owned() });
        }
        if !fresh {
            refuse_mounts(tree)?;
            stage.catch_up()?;
            stage.clean_up()?;
        }
        // A copy knows what it was made from.
        let names = if stage.about.means == StageMeans::Overlay { Names::of(&real) } else { Names::default() };
        if stage.about.boot != boot {
            stage.about.boot = boot;
            stage.about.unseen = true;
            stage.describe()?;
        }
        if stage.about.means == StageMeans::Overlay {
            forget_volatile(&stage.directory).map_err(|error| StageError::io(format!("stage {name}"), error))?;
        }
        let since = precise_now();
        stage.set_running(Some(since))?;
        Ok(Held { stage, fresh, since, names })
    }

    fn make(
        &self,
        asked: &Staging,
        tree: &Path,
        (real, node): (&Dir, &Node),
        locked: Locked,
        boot: &str,
        copying: &Copying<'_>,
    ) -> Result<Stage, StageError> {
        refuse_mounts(tree)?;
        let directory = &locked.directory;
        let path = self.path.join(&asked.name);
        let failed = |error: io::Error| StageError::io(format!("stage {}", asked.name), error);
        // What a killed run left half made.
        for part in [UPPER, WORK, COPY] {
            remove_below(directory, part).map_err(failed)?;
        }
        for part in [UPPER, WORK] {
            mkdirat(directory, part, Mode::RWXU).map_err(|error| failed(error.into()))?;
        }
        let mode = Mode::from_raw_mode(node.mode);
        rustix::fs::chmodat(directory, UPPER, mode, AtFlags::empty()).map_err(|error| failed(error.into()))?;
        let chosen = means::choose(tree, real, &path.join(UPPER), &path.join(WORK)).map_err(failed)?;
        let (mut copied, mut mounted) = (None, false);
        if chosen.means == StageMeans::Copy {
            for part in [UPPER, WORK] {
                remove_below(directory, part).map_err(failed)?;
            }
            mkdirat(directory, COPY, Mode::RWXU).map_err(|error| failed(error.into()))?;
            mounted = means::can_mount(tree, &path.join(COPY)).map_err(failed)?;
            let to = open_part(directory, COPY, None).map_err(failed)?;
            let left_out = if mounted { LeftOut::new() } else { (copying.left_out)()? };
            let made = copied::copy(real, &to, asked.limit, &left_out, copying.progress);
            copied = match made {
                Ok(made) => Some(made),
                Err(error) => {
                    let _ = remove_below(directory, COPY);
                    return Err(failed(error));
                }
            };
            rustix::fs::fchmod(&to, mode).map_err(|error| failed(error.into()))?;
        }
        let about = Description {
            schema: 1,
            tree: tree.into(),
            dev: node.dev,
            ino: node.ino,
            born: real.born(),
            means: chosen.means,
            why_not_overlay: chosen.why_not_overlay,
            mounted,
            created: now(),
            boot: boot.to_owned(),
            unseen: false,
            protected: Vec::new(),
        };
        let mut stage = self.opened_with(&asked.name, locked, about, Bases::default(), copied)?;
        stage.save()?;
        stage.describe()?;
        Ok(stage)
    }

    /// Opens and locks the directory of a stage.
    fn locked(&self, name: &str, make: bool, holder: String) -> Result<Locked, StageError> {
        let failed = |error: io::Error| StageError::io(format!("stage {name}"), error);
        for _ in 0..TRIES {
            if make
                && let Err(error) = mkdirat(&self.directory, name, Mode::RWXU)
                && error != Errno::EXIST
            {
                return Err(failed(error.into()));
            }
            let directory = match openat(&self.directory, name, DIRECTORY, Mode::empty()) {
                Err(Errno::NOENT) if !make => return Err(StageError::Missing(name.to_owned())),
                Err(Errno::NOENT) => continue,
                other => other.map_err(|error| failed(error.into()))?,
            };
            check_private(&directory, &self.path.join(name))?;
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let lock = match openat(&directory, LOCK, flags, Mode::RUSR | Mode::WUSR) {
                // Discarded in between.
                Err(Errno::NOENT) => continue,
                other => File::from(other.map_err(|error| failed(error.into()))?),
            };
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                // The tree of a killed run ends within moments, and the lock with it.
                Err(Errno::WOULDBLOCK) if !holds(&lock) => {
                    std::thread::sleep(PAUSE);
                    continue;
                }
                Err(Errno::WOULDBLOCK) => {
                    return Err(StageError::InUse { name: name.to_owned(), holder: holder_of(&lock) });
                }
                Err(error) => return Err(failed(error.into())),
            }
            // Another process may have discarded the stage while we waited.
            let linked = rustix::fs::fstat(&lock).is_ok_and(|stat| stat.st_nlink > 0);
            if linked && rustix::fs::fstat(&directory).is_ok_and(|stat| stat.st_nlink > 0) {
                let (_, running) = read_lock(&lock);
                write_lock(&lock, &holder, running).map_err(failed)?;
                return Ok(Locked { directory, lock, holder, running });
            }
        }
        Err(StageError::InUse { name: name.to_owned(), holder: "processes of a run that was killed".to_owned() })
    }

    pub(super) fn opened(&self, name: &str, locked: Locked, about: Description) -> Result<Stage, StageError> {
        let directory = &locked.directory;
        let failed = |error: io::Error| StageError::io(damaged(name), error);
        let bases = read(directory, BASES)?.map(|bytes| Bases::from_bytes(&bytes)).transpose().map_err(failed)?;
        let copied = read(directory, COPIED)?.map(|bytes| Copied::from_bytes(&bytes)).transpose().map_err(failed)?;
        self.opened_with(name, locked, about, bases.unwrap_or_default(), copied)
    }

    fn opened_with(
        &self,
        name: &str,
        locked: Locked,
        about: Description,
        bases: Bases,
        copied: Option<Copied>,
    ) -> Result<Stage, StageError> {
        let store = self.directory.try_clone().map_err(|error| StageError::io("stages", error))?;
        let path = self.path.join(name);
        let store_path = self.path.clone();
        let Locked { directory, lock, holder, running } = locked;
        let lifts = Lifts::new(&directory).map_err(|error| StageError::io(format!("stage {name}"), error))?;
        let (name, lifts, printed) = (name.to_owned(), Some(Arc::new(lifts)), false.into());
        Ok(Stage {
            name,
            directory,
            store,
            path,
            store_path,
            lock,
            holder,
            running,
            about,
            bases,
            copied,
            lifts,
            printed,
        })
    }
}

/// The directory of a stage, and its lock.
pub(super) struct Locked {
    pub directory: OwnedFd,
    pub lock: File,
    pub holder: String,
    /// When the run began that was killed before it could record its changes.
    pub running: Option<Time>,
}

const TRIES: usize = 40;
const PAUSE: Duration = Duration::from_millis(50);
