//! What a stage changes: compares what the command left with the real tree.

use super::attributes::is_alike;
use super::content::is_equal;
use super::copied::Copied;
use super::tree::{Dir, Kind, Node};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    Added,
    Modified,
    Deleted,
    /// Only the permissions, the owner, access lists or other attributes differ.
    Mode,
    /// A file became a directory or a link, or the reverse, or one of these replaces a special file.
    Type,
}

impl What {
    pub fn word(self) -> &'static str {
        match self {
            What::Added => "added",
            What::Modified => "modified",
            What::Deleted => "deleted",
            What::Mode => "mode",
            What::Type => "type",
        }
    }
}

/// One change.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Change {
    /// Relative to the working directory.
    pub path: PathBuf,
    pub what: What,
    /// What it is in the stage; for a deletion, what was deleted.
    pub kind: Kind,
    pub(super) old: Option<Node>,
    pub(super) new: Option<Node>,
}

impl Change {
    /// What the command had there. A copy that never had the entry was not made from what the real tree has.
    pub(super) fn before(&self) -> Option<Node> {
        self.old.filter(|_| self.what != What::Added)
    }
}

/// Deeper trees are refused: each level takes two descriptors.
const DEEPEST: usize = 200;

/// What a scan found.
#[derive(Debug, Default)]
pub struct Scan {
    /// Sorted by path.
    pub changes: Vec<Change>,
    /// Entries of the stage that equal the real ones: the command opened them for writing and changed nothing.
    pub equal: BTreeMap<PathBuf, Node>,
    /// FIFOs, sockets and devices, which a stage does not keep.
    pub special: Vec<PathBuf>,
    /// The bytes that the stage takes.
    pub size: u64,
}

/// Both sides of a comparison.
pub struct Sides<'a> {
    pub real: &'a Dir,
    pub stage: &'a Dir,
    /// What a copy was made from; `None` for an overlay.
    pub copied: Option<&'a Copied>,
    /// Entries that are known to equal what the stage was started from, whatever the real tree has now.
    pub untouched: &'a dyn Fn(&Path, &Node) -> bool,
}

impl Sides<'_> {
    /// Adds what it finds to `scan`, also if it fails half way.
    pub fn scan(&self, scan: &mut Scan) -> io::Result<()> {
        let whole = self.copied.is_some() || self.stage.is_opaque();
        let level = Level { stage: self.stage, real: Some(self.real), path: Path::new(""), whole, depth: 0 };
        self.compare(&level, scan)?;
        // Compare bytes of the whole path, so that the order is that of the printed names.
        scan.changes.sort_by(|one, other| one.path.as_os_str().cmp(other.path.as_os_str()));
        Ok(())
    }

    fn compare(&self, level: &Level<'_>, scan: &mut Scan) -> io::Result<()> {
        if level.depth > DEEPEST {
            return Err(io::Error::other(format!("{}: more than {DEEPEST} directories deep", level.path.display())));
        }
        let names = level.stage.names().map_err(|error| at(level.path, error))?;
        for name in &names {
            let path = level.path.join(name);
            self.entry(level, name, &path, scan).map_err(|error| at(&path, error))?;
        }
        if let (true, Some(real)) = (level.whole, level.real) {
            for name in real.names()?.iter().filter(|name| names.binary_search(name).is_err()) {
                let path = level.path.join(name);
                self.deleted(real, name, &path, level.depth, scan).map_err(|error| at(&path, error))?;
            }
        }
        Ok(())
    }

    fn entry(&self, level: &Level<'_>, name: &OsStr, path: &Path, scan: &mut Scan) -> io::Result<()> {
        let Some(new) = level.stage.look(name)? else { return Ok(()) };
        let old = level.real.map(|real| real.look(name)).transpose()?.flatten();
        scan.size += new.blocks * 512;
        if matches!(new.kind, Kind::Whiteout | Kind::Other) {
            if new.kind == Kind::Other {
                scan.special.push(path.to_owned());
            }
            return match (level.real, old) {
                (Some(real), Some(_)) => self.deleted(real, name, path, level.depth, scan),
                _ => Ok(()),
            };
        }
        let untouched = self.copied.map_or(Ok(false), |it| it.is_untouched(path, (level.stage, name, &new)))?;
        if new.kind != Kind::Dir && (untouched || (self.untouched)(path, &new)) {
            return Ok(());
        }
        if let Some(what) = self.differs(level, name, (path, &new), old.as_ref(), untouched, scan)? {
            scan.changes.push(Change { path: path.to_owned(), what, kind: new.kind, old, new: Some(new) });
        }
        // What a file or link replaces.
        if let (Some(real), Some(Kind::Dir), true) = (level.real, old.map(|old| old.kind), new.kind != Kind::Dir) {
            let below = real.child(name)?;
            self.deleted_below(&below, path, level.depth + 1, scan)?;
        }
        if new.kind == Kind::Dir {
            let stage = level.stage.child(name)?;
            let real = match (level.real, old.map(|old| old.kind)) {
                (Some(real), Some(Kind::Dir)) => Some(real.child(name)?),
                _ => None,
            };
            // overlayfs marks only the topmost directory: the real tree does not show through what is below it either.
            let whole = level.whole || stage.is_opaque();
            let depth = level.depth + 1;
            self.compare(&Level { stage: &stage, real: real.as_ref(), path, whole, depth }, scan)?;
        }
        Ok(())
    }

    fn differs(
        &self,
        level: &Level<'_>,
        name: &OsStr,
        (path, new): (&Path, &Node),
        old: Option<&Node>,
        untouched: bool,
        scan: &mut Scan,
    ) -> io::Result<Option<What>> {
        let (Some(old), Some(real)) = (old.filter(|old| is_seen(old.kind)), level.real) else {
            // Directories of a copy that the user removed meanwhile, and that the command did not touch.
            return Ok((!untouched).then_some(What::Added));
        };
        let is_new = self.copied.is_some_and(|copied| !copied.has(path));
        if old.kind != new.kind {
            return Ok((!untouched).then_some(if is_new { What::Added } else { What::Type }));
        }
        if !is_equal((level.stage, name, new), (real, name, old))? {
            return Ok(Some(if is_new { What::Added } else { What::Modified }));
        }
        let mode = !is_alike((level.stage, name, new), (real, name, old))?;
        if !mode && new.kind != Kind::Dir {
            scan.equal.insert(path.to_owned(), *new);
        }
        Ok((mode && !untouched).then_some(What::Mode))
    }

    /// Adds an entry of the real tree, and everything below it, as deleted. A copy knows what it was made from: what it never
    /// had was not deleted in it.
    fn deleted(&self, real: &Dir, name: &OsStr, path: &Path, depth: usize, scan: &mut Scan) -> io::Result<()> {
        if self.copied.is_some_and(|copied| !copied.has(path)) {
            return Ok(());
        }
        let Some(old) = real.look(name)? else { return Ok(()) };
        let change = Change { path: path.to_owned(), what: What::Deleted, kind: old.kind, old: Some(old), new: None };
        scan.changes.push(change);
        if old.kind == Kind::Dir {
            self.deleted_below(&real.child(name)?, path, depth + 1, scan)?;
        }
        Ok(())
    }

    fn deleted_below(&self, directory: &Dir, path: &Path, depth: usize, scan: &mut Scan) -> io::Result<()> {
        if depth > DEEPEST {
            return Err(io::Error::other(format!("more than {DEEPEST} directories deep")));
        }
        directory.names()?.iter().try_for_each(|name: &OsString| {
            let path = path.join(name);
            self.deleted(directory, name, &path, depth, scan).map_err(|error| at(&path, error))
        })
    }
}

/// The permissions that a stage keeps. Set-user-ID and set-group-ID bits of files are never taken over.
pub fn bits(node: &Node) -> u32 {
    node.mode & if node.kind == Kind::Dir { 0o7777 } else { 0o777 }
}

/// Whether the command saw it: overlayfs shows no whiteouts.
fn is_seen(kind: Kind) -> bool {
    kind != Kind::Whiteout
}

struct Level<'a> {
    stage: &'a Dir,
    real: Option<&'a Dir>,
    path: &'a Path,
    /// Whether names that the stage lacks are deleted.
    whole: bool,
    depth: usize,
}

/// Names the path of an error once.
fn at(path: &Path, error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(_) => io::Error::new(error.kind(), format!("{}: {error}", path.display())),
        None => error,
    }
}
