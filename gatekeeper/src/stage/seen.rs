//! Whether the command saw what the real tree has now, or the user changed it during the run.
//!
//! A file's st_ctime tells whether the file itself was touched or got its name since the run began. Two cases leave no such
//! trace: a name that is gone, and files in a directory that was moved as a whole. For these overlayfs has a mark: what it
//! copies into the stage carries the file handle of the real file (`user.overlay.origin`), which no command can set.

use super::changes::{Change, Scan, What};
use super::names::Names;
use super::tree::{Dir, Kind, Node, Time, split};
use crate::sys::handle::{self, Handle};
use std::collections::{BTreeSet, HashMap};
use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What overlayfs noted when it copied an entry into the stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The real file.
    File(Handle),
    /// A real file, of which overlayfs noted no handle: its file system has none, or the user may not open files by handle.
    Unnamed,
}

/// The layout of overlayfs's own struct ovl_fb: version, magic, length, flags, type, a UUID of 16 bytes, the handle.
const MAGIC: u8 = 0xfb;
const HANDLE_AT: usize = 21;

impl Origin {
    /// Parses the value of `user.overlay.origin`.
    pub fn parse(value: &[u8]) -> Origin {
        match (value.get(1), value.get(4), value.get(HANDLE_AT..)) {
            (Some(&MAGIC), Some(kind), Some(bytes)) if !bytes.is_empty() => {
                Origin::File(Handle { kind: i32::from(*kind), bytes: bytes.to_vec() })
            }
            _ => Origin::Unnamed,
        }
    }
}

/// What is known from before a run.
#[derive(Clone, Copy)]
pub struct Before<'a> {
    pub since: Time,
    pub names: &'a Names,
}

/// Compares a scan after a run with what the command can have seen.
pub struct Seen<'a> {
    pub real: &'a Dir,
    pub staged: &'a Dir,
    /// The time before the run.
    pub since: Time,
    names: &'a Names,
    pub scan: &'a Scan,
    /// Whether a directory of the real tree is the one that the command saw.
    directories: HashMap<PathBuf, bool>,
    /// The real files that the stage hides or replaces.
    hidden: Option<BTreeSet<Handle>>,
}

impl<'a> Seen<'a> {
    pub fn new(real: &'a Dir, staged: &'a Dir, before: Before<'a>, scan: &'a Scan) -> Seen<'a> {
        let Before { since, names } = before;
        Seen { real, staged, since, names, scan, directories: HashMap::new(), hidden: None }
    }

    /// Whether the command saw, at this path, what the real tree has there now.
    pub fn saw(&mut self, change: &Change) -> io::Result<bool> {
        let (parent, _) = split(&change.path);
        if !self.saw_directory(parent)? {
            return Ok(false);
        }
        match &change.old {
            // A directory's time also changes with each entry in it.
            Some(old) if old.kind != Kind::Dir => Ok(old.ctime <= self.since),
            Some(_) if matches!(change.what, What::Deleted | What::Type) => self.saw_directory(&change.path),
            Some(_) => Ok(true),
            None => self.was_absent(change),
        }
    }

    /// Whether a directory, and each one above it, is the one that the command saw.
    fn saw_directory(&mut self, path: &Path) -> io::Result<bool> {
        if path.as_os_str().is_empty() {
            // The working directory itself is compared when the stage is opened.
            return Ok(true);
        }
        if let Some(known) = self.directories.get(path) {
            return Ok(*known);
        }
        let (parent, name) = split(path);
        let saw = self.saw_directory(parent)? && self.is_the_same(parent, name)?;
        self.directories.insert(path.to_owned(), saw);
        Ok(saw)
    }

    fn is_the_same(&self, parent: &Path, name: &OsStr) -> io::Result<bool> {
        let Some(real) = self.real.near(parent)? else { return Ok(true) };
        match real.look(name)? {
            // Gone, or no directory: this is a change of its own, and what is below it is not in the real tree.
            None => return Ok(true),
            Some(now) if now.kind != Kind::Dir || now.ctime <= self.since => return Ok(true),
            Some(_) => {}
        }
        // An entry was made in it or removed from it, or another directory got its name.
        match self.staged.near(parent)?.map(|staged| staged.origin(name)).transpose()?.flatten() {
            Some(Origin::File(origin)) => Ok(handle_of(&real, name)? == Some(origin)),
            // overlayfs notes no handle for an ordinary user. Whoever gives the name to another directory changes the directory
            // above it.
            Some(Origin::Unnamed) => Ok(real.itself()?.ctime <= self.since),
            None => Ok(false),
        }
    }

    /// Whether nothing had this name when the command made it. What was copied from the real tree either got this name by a
    /// rename in the stage, and then its file is still in the real tree, under a name that the stage hides; or the user has
    /// removed or renamed the file.
    fn was_absent(&mut self, change: &Change) -> io::Result<bool> {
        let (parent, name) = split(&change.path);
        let origin = self.staged.near(parent)?.map(|staged| staged.origin(name)).transpose()?.flatten();
        match (origin, change.kind) {
            // Made by the command, in the place of a real file if there was one.
            (None, _) => Ok(self.names.had(&change.path) != Some(true)),
            // overlayfs renames no directory of the real tree.
            (Some(_), Kind::Dir) => Ok(false),
            (Some(Origin::File(origin)), _) => Ok(self.hidden()?.contains(&origin)),
            (Some(Origin::Unnamed), _) => {
                let hidden = |change: &Change| change.old.is_some_and(|old| old.kind == Kind::File);
                // Another name of a file that the command left as it was.
                let file = |node: &Node| (node.dev, node.ino);
                let linked = || change.new.is_some_and(|new| self.scan.equal.values().any(|it| file(it) == file(&new)));
                Ok(self.scan.changes.iter().any(hidden) || linked())
            }
        }
    }

    fn hidden(&mut self) -> io::Result<&BTreeSet<Handle>> {
        if self.hidden.is_none() {
            let mut found = BTreeSet::new();
            let is_file = |change: &&Change| change.old.is_some_and(|old| old.kind == Kind::File);
            let changed = self.scan.changes.iter().filter(is_file).map(|change| &change.path);
            for path in changed.chain(self.scan.equal.keys()) {
                let (parent, name) = split(path);
                if let Some(real) = self.real.near(parent)? {
                    found.extend(handle_of(&real, name)?);
                }
            }
            self.hidden = Some(found);
        }
        Ok(self.hidden.get_or_insert_default())
    }
}

/// `None` if it is gone, or its file system has no handles.
fn handle_of(dir: &Dir, name: &OsStr) -> io::Result<Option<Handle>> {
    match handle::of(dir.as_fd(), &CString::new(name.as_bytes())?) {
        Err(error) if super::tree::is_absent(&error) => Ok(None),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_of_overlayfs_is_read_and_anything_else_names_no_file() {
        let mut mark = vec![0, 0xfb, 0x1d, 0, 1];
        mark.extend([0; 16]);
        mark.extend([1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(Origin::parse(&mark), Origin::File(Handle { kind: 1, bytes: vec![1, 2, 3, 4, 5, 6, 7, 8] }));
        for wrong in [&b""[..], b"y", &mark[..21], &[0; 40]] {
            assert_eq!(Origin::parse(wrong), Origin::Unnamed, "{wrong:?}");
        }
    }
}
