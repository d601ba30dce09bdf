//! Makes changes in the real tree, in an order that never leaves half a file.

use super::StageError;
use super::attributes::Attributes;
use super::base::Text;
use super::changes::{Change, What, bits};
use super::content;
use super::copied::set_times;
use super::kept::Stage;
use super::moving::Moving;
use super::tree::{Dir, Kind, Node, is_absent, split};
use crate::trust::by_descriptor;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid, mkdirat, openat, renameat, symlinkat, unlinkat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) const JOURNAL: &str = "applying.json";

/// The mode of a new directory until everything in it is done.
pub(super) const UNFINISHED: u32 = 0o700;

/// Written before files are made beside the real ones, so that the next `apply` can remove them.
#[derive(Serialize, Deserialize)]
pub(super) struct Journal {
    pub token: String,
    pub directories: Vec<Text>,
    /// Directories that it makes, and entries whose type it changes. If it is killed, they may be there half done, and are
    /// then no conflicts.
    #[serde(default)]
    pub made: Vec<Text>,
}

pub(super) fn beside(token: &str) -> String {
    format!(".gatekeeper-{token}-")
}

fn token() -> Result<String, StageError> {
    let mut bytes = [0u8; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| StageError::io("getrandom", error))?;
    Ok(format!("{:016x}", u64::from_ne_bytes(bytes)))
}

pub(super) struct Work<'a> {
    pub stage: &'a Stage,
    real: Dir,
    staged: Dir,
    token: String,
    pub done: usize,
    next: usize,
}

/// How many files to write before they are synced and renamed. Syncing waits for what every other program has written too, so
/// it happens seldom; and if the disk is full, that shows before the first file is replaced.
const BATCH: usize = 100_000;
/// Up to so many files, syncing each is cheaper than syncing the file system.
const FEW: usize = 8;

/// New contents on disk, under another name.
enum Ready {
    /// The file of the stage itself.
    InTheStage,
    Beside(OsString),
}

type Step = Result<(), (PathBuf, io::Error)>;

impl<'a> Work<'a> {
    pub fn new(stage: &'a Stage, real: Dir, staged: Dir) -> Result<Work<'a>, StageError> {
        Ok(Work { stage, real, staged, token: token()?, done: 0, next: 0 })
    }

    pub fn run(&mut self, changes: &[&Change]) -> Step {
        let types: BTreeSet<&Path> =
            changes.iter().filter(|change| change.what == What::Type).map(|change| change.path.as_path()).collect();
        let below_type = |path: &Path| path.ancestors().any(|above| types.contains(above));
        let is = |what: What| move |change: &&&Change| change.what == what;
        self.keep_journal(changes).map_err(|error| (PathBuf::new(), error))?;
        let (later, now): (Vec<&Change>, Vec<&Change>) = changes
            .iter()
            .copied()
            .filter(|change| change.what != What::Deleted)
            .partition(|change| below_type(&change.path));
        self.make(&now)?;
        for change in changes.iter().filter(is(What::Deleted)).rev() {
            self.each(change, Work::delete)?;
        }
        for change in later.iter().filter(|change| change.what == What::Type) {
            self.clear(change).map_err(|error| (change.path.clone(), error))?;
        }
        self.make(&later)?;
        for change in changes.iter().rev().filter(|change| change.kind == Kind::Dir && change.what != What::Deleted) {
            self.finish_directory(change).map_err(|error| (change.path.clone(), error))?;
        }
        self.sync_names(changes)
    }

    fn keep_journal(&self, changes: &[&Change]) -> io::Result<()> {
        let made = changes.iter().filter(|change| change.what != What::Deleted && change.kind != Kind::Dir);
        let parents: BTreeSet<&Path> = made.map(|change| split(&change.path).0).collect();
        let is_made =
            |change: &&&Change| change.what == What::Type || change.what == What::Added && change.kind == Kind::Dir;
        let made = changes.iter().filter(is_made).map(|change| Text::from(change.path.as_path())).collect();
        let directories = parents.into_iter().map(Text::from).collect();
        let journal = Journal { token: self.token.clone(), directories, made };
        self.stage.put(JOURNAL, &serde_json::to_vec(&journal)?).map_err(io::Error::other)
    }

    fn each(&mut self, change: &Change, step: fn(&Self, &Change) -> io::Result<()>) -> Step {
        step(self, change).map_err(|error| (change.path.clone(), error))?;
        self.done += 1;
        Ok(())
    }

    /// Makes directories, then files in batches.
    fn make(&mut self, changes: &[&Change]) -> Step {
        for change in changes.iter().filter(|change| change.kind == Kind::Dir) {
            self.each(change, Work::make_directory)?;
        }
        // A file with several names is replaced instead: the others keep their permissions.
        let in_place = |change: &Change| change.what == What::Mode && change.old.is_some_and(|old| old.names == 1);
        let (same, files): (Vec<&&Change>, Vec<&&Change>) =
            changes.iter().filter(|change| change.kind != Kind::Dir).partition(|change| in_place(change));
        for change in same {
            self.each(change, Work::change_mode)?;
        }
        for batch in files.chunks(BATCH) {
            let mut ready = Vec::new();
            let mut result = self.write_batch(batch, &mut ready);
            for (change, ready) in batch.iter().zip(&ready) {
                if result.is_err() {
                    break;
                }
                result = self.rename(change, ready).map_err(|error| (change.path.clone(), error));
                self.done += usize::from(result.is_ok());
            }
            if result.is_err() {
                batch.iter().zip(&ready).for_each(|(change, ready)| drop(self.remove(change, ready)));
                return result;
            }
        }
        Ok(())
    }

    fn write_batch(&mut self, batch: &[&&Change], ready: &mut Vec<Ready>) -> Step {
        let sync = batch.len() <= FEW;
        for change in batch {
            let failed = |error| (change.path.clone(), error);
            if Moving::new(self.stage, &self.real, &self.staged).prepare(change, sync).map_err(failed)? {
                ready.push(Ready::InTheStage);
                continue;
            }
            let name = self.next_name();
            ready.push(Ready::Beside(name.clone()));
            self.write(change, &name, sync).map_err(failed)?;
        }
        if !sync {
            rustix::fs::syncfs(&self.real).map_err(|error| (PathBuf::from("."), error.into()))?;
        }
        Ok(())
    }

    fn next_name(&mut self) -> OsString {
        self.next += 1;
        format!("{}{}", beside(&self.token), self.next).into()
    }

    /// Waits until the names are on disk too, before the stage forgets them.
    fn sync_names(&self, changes: &[&Change]) -> Step {
        let parents: BTreeSet<&Path> = changes.iter().map(|change| split(&change.path).0).collect();
        // A directory that was removed is a name in the one above it; one that shut itself cannot be opened.
        let sync =
            |path: &Path| self.real.at(path).and_then(|dir| dir.map_or(Ok(()), |dir| Ok(rustix::fs::fsync(&dir)?)));
        if changes.len() <= FEW && parents.into_iter().all(|path| sync(path).is_ok()) {
            return Ok(());
        }
        rustix::fs::syncfs(&self.real).map_err(|error| (PathBuf::from("."), error.into()))
    }

    fn parent<'p>(&self, root: &Dir, path: &'p Path) -> io::Result<(Arc<Dir>, &'p OsStr)> {
        let (parent, name) = split(path);
        Ok((root.near(parent)?.ok_or_else(|| io::Error::from(Errno::NOENT))?, name))
    }

    /// Writes the new contents beside their place.
    fn write(&self, change: &Change, temporary: &OsStr, sync: bool) -> io::Result<()> {
        let Some(new) = &change.new else { return Ok(()) };
        let (to, _) = self.parent(&self.real, &change.path)?;
        let (from, name) = self.parent(&self.staged, &change.path)?;
        if new.kind == Kind::Symlink {
            let target = from.target(name)?;
            to.permitted(|| symlinkat(OsStr::from_bytes(&target), &to, temporary))?;
            return set_times(&to, temporary, new);
        }
        let source = from.file(name)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(to.permitted(|| openat(&to, temporary, flags, Mode::RUSR | Mode::WUSR))?);
        content::copy(&source, &file, new.size)?;
        self.dress(change, new, &Attributes::of(&from, name, new)?, &file)?;
        set_times(&to, temporary, new)?;
        if sync {
            file.sync_all()?;
        }
        Ok(())
    }

    /// Owner, attributes and permissions of a file that was written beside its place.
    fn dress(&self, change: &Change, new: &Node, attributes: &Attributes, file: &File) -> io::Result<()> {
        let (uid, gid) = match (rustix::process::geteuid().is_root(), change.old) {
            (true, _) => (Some(Uid::from_raw(new.uid)), Some(Gid::from_raw(new.gid))),
            (false, Some(old)) => (None, Some(Gid::from_raw(old.gid))),
            (false, None) => (None, None),
        };
        match rustix::fs::fchown(file, uid, gid) {
            // A group that this user is not in: the file keeps the user's own.
            Ok(()) | Err(Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
        attributes.give(file.as_fd())?;
        Ok(rustix::fs::fchmod(file, Mode::from_raw_mode(bits(new)))?)
    }

    /// Moves a file to its place, unless that changed since it was compared.
    fn rename(&mut self, change: &Change, ready: &Ready) -> io::Result<()> {
        let (dir, name) = self.parent(&self.real, &change.path)?;
        let now = dir.look(name)?;
        let expected = match (change.what, change.old) {
            // The deleted directory was removed before.
            (What::Type, Some(Node { kind: Kind::Dir, .. })) => None,
            (_, old) => old,
        };
        let same = match (now, expected) {
            (None, None) => true,
            (Some(now), Some(expected)) => now.is_same_but_for_names(&expected),
            _ => false,
        };
        if !same {
            return Err(io::Error::other("it changed while the stage was applied"));
        }
        let temporary = match ready {
            Ready::Beside(temporary) => temporary.clone(),
            Ready::InTheStage => match renameat(&self.parent(&self.staged, &change.path)?.0, name, &dir, name) {
                // Another mount of the same file system, or another quota; or one of the directories lacks the write permission.
                Err(Errno::XDEV | Errno::ACCESS) => {
                    let temporary = self.next_name();
                    if let Err(error) = self.write(change, &temporary, true) {
                        let _ = dir.permitted(|| unlinkat(&dir, &temporary, AtFlags::empty()));
                        return Err(error);
                    }
                    temporary
                }
                other => return Ok(other?),
            },
        };
        Ok(dir.permitted(|| renameat(&dir, &temporary, &dir, name))?)
    }

    /// Removes what was written beside its place and not renamed.
    fn remove(&self, change: &Change, ready: &Ready) -> io::Result<()> {
        let Ready::Beside(temporary) = ready else { return Ok(()) };
        let (dir, _) = self.parent(&self.real, &change.path)?;
        Ok(dir.permitted(|| unlinkat(&dir, temporary, AtFlags::empty()))?)
    }

    fn make_directory(&self, change: &Change) -> io::Result<()> {
        if change.what == What::Mode {
            return Ok(());
        }
        let (dir, name) = self.parent(&self.real, &change.path)?;
        match dir.permitted(|| mkdirat(&dir, name, Mode::from_raw_mode(UNFINISHED))) {
            Err(Errno::EXIST) if dir.look(name)?.is_some_and(|node| node.kind == Kind::Dir) => return Ok(()),
            other => other?,
        }
        // overlayfs marks every new directory as one that hides the real one. From now on both are one: what is moved out of it
        // shows through.
        if change.what == What::Added
            && let Some(staged) = self.staged.at(&change.path)?
        {
            staged.uncover();
        }
        Ok(())
    }

    /// Permissions and time of a directory, once everything in it is done.
    fn finish_directory(&self, change: &Change) -> io::Result<()> {
        self.change_mode(change)?;
        let (dir, name) = self.parent(&self.real, &change.path)?;
        change.new.as_ref().map_or(Ok(()), |new| set_times(&dir, name, new))
    }

    fn change_mode(&self, change: &Change) -> io::Result<()> {
        let Some(new) = &change.new else { return Ok(()) };
        let (dir, name) = self.parent(&self.real, &change.path)?;
        let place = openat(&dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        if Node::of(&rustix::fs::fstat(&place)?).kind != new.kind {
            return Err(io::Error::other("it changed while the stage was applied"));
        }
        let path = by_descriptor(&place);
        if rustix::process::geteuid().is_root() {
            let (uid, gid) = (Some(Uid::from_raw(new.uid)), Some(Gid::from_raw(new.gid)));
            rustix::fs::chownat(rustix::fs::CWD, &path, uid, gid, AtFlags::empty())?;
        }
        let (from, name) = self.parent(&self.staged, &change.path)?;
        let attributes = Attributes::of(&from, name, new)?;
        let mode = Mode::from_raw_mode(bits(new));
        // Attributes need the permission to write.
        rustix::fs::chmod(&path, mode | Mode::RUSR | Mode::WUSR)?;
        let given = attributes.give(place.as_fd());
        rustix::fs::chmod(&path, mode)?;
        given
    }

    /// Removes what a directory or a file of another type replaces.
    fn clear(&self, change: &Change) -> io::Result<()> {
        match change.old {
            // Its contents were deleted before.
            Some(old) if old.kind == Kind::Dir => self.delete(change),
            // A file is replaced by rename; only a directory needs an empty place.
            Some(_) if change.kind == Kind::Dir => self.delete(change),
            _ => Ok(()),
        }
    }

    fn delete(&self, change: &Change) -> io::Result<()> {
        let (dir, name) = match self.parent(&self.real, &change.path) {
            Err(error) if is_absent(&error) => return Ok(()),
            other => other?,
        };
        let is_dir = change.old.is_some_and(|old| old.kind == Kind::Dir);
        if let (Some(now), Some(old)) = (dir.look(name)?, change.old) {
            let same = if is_dir { now.kind == old.kind } else { now.is_same_but_for_names(&old) };
            if !same {
                return Err(io::Error::other("it changed while the stage was applied"));
            }
        }
        let flags = if is_dir { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        match dir.permitted(|| unlinkat(&dir, name, flags)) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
