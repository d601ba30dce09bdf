//! A copy of the working directory, for machines on which no overlay can be mounted.

use super::attributes::Attributes;
use super::base::Text;
use super::content::{self, Hash};
use super::tree::{Dir, Kind, Node};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Timespec, Timestamps, Uid, mkdirat, openat, symlinkat, utimensat};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What a copy was made from, by relative path.
#[derive(Debug, Default, Clone)]
pub struct Copied {
    entries: BTreeMap<PathBuf, Both>,
}

/// A real entry, and its copy as it was before the command ran.
#[derive(Debug, Clone, Copy)]
pub struct Both {
    real: Node,
    copy: Node,
    /// The hash of a directory's access lists and attributes, whose st_ctime changes with every entry in it. Stages of earlier
    /// versions have none.
    dress: Option<Hash>,
}

impl Both {
    pub fn of(real: Node, dir: &Dir, name: &OsStr) -> io::Result<Option<Both>> {
        let Some(copy) = dir.look(name)? else { return Ok(None) };
        let is_dir = copy.kind == Kind::Dir;
        let dress = is_dir.then(|| Attributes::of(dir, name, &copy)).transpose()?.map(|dress| dress.hash());
        Ok(Some(Both { real, copy, dress }))
    }
}

#[derive(Serialize, Deserialize)]
struct Line(Text, Node, Node, #[serde(default)] Option<Hash>);

impl Copied {
    pub fn has(&self, path: &Path) -> bool {
        self.entries.contains_key(path)
    }

    /// The real entry at the time of the copy.
    pub fn origin(&self, path: &Path) -> Option<&Node> {
        self.entries.get(path).map(|both| &both.real)
    }

    /// Whether the command has left the copy of this entry alone.
    pub fn is_untouched(&self, path: &Path, (dir, name, now): (&Dir, &OsStr, &Node)) -> io::Result<bool> {
        let Some(Both { copy, dress, .. }) = self.entries.get(path) else { return Ok(false) };
        if now.kind != Kind::Dir || copy.ctime == now.ctime {
            return Ok(copy.is_same(now));
        }
        if !copy.is_same(now) || (copy.uid, copy.gid) != (now.uid, now.gid) {
            return Ok(false);
        }
        dress.map_or(Ok(true), |dress| Ok(Attributes::of(dir, name, now)?.hash() == dress))
    }

    /// Notes that an entry of the stage was applied: both sides are equal again.
    pub fn renew(&mut self, path: &Path, both: Option<Both>) {
        match both {
            Some(both) => drop(self.entries.insert(path.to_owned(), both)),
            None => drop(self.entries.remove(path)),
        }
    }

    pub fn to_bytes(&self) -> io::Result<Vec<u8>> {
        let lines: Vec<Line> =
            self.entries.iter().map(|(path, it)| Line(path.as_path().into(), it.real, it.copy, it.dress)).collect();
        Ok(serde_json::to_vec(&lines)?)
    }

    pub fn from_bytes(bytes: &[u8]) -> io::Result<Copied> {
        let lines: Vec<Line> = serde_json::from_slice(bytes)?;
        let entries = lines.into_iter().map(|Line(path, real, copy, dress)| (path.into(), Both { real, copy, dress }));
        Ok(Copied { entries: entries.collect() })
    }
}

/// Called with the number of files copied so far, and of all files.
pub type Progress<'a> = &'a dyn Fn(usize, usize);

/// Relative paths that a copy leaves out.
pub type LeftOut = BTreeSet<PathBuf>;

/// Copies a tree of at most `limit` bytes.
pub fn copy(real: &Dir, to: &Dir, limit: u64, left_out: &LeftOut, progress: Progress<'_>) -> io::Result<Copied> {
    let mut total = Total { limit, files: 0, bytes: 0, left_out };
    total.count(real, Path::new(""))?;
    let mut copying = Copying { copied: Copied::default(), done: 0, all: total.files, left_out, progress };
    copying.directory(real, to, Path::new(""))?;
    (progress)(total.files, total.files);
    Ok(copying.copied)
}

struct Total<'a> {
    limit: u64,
    files: usize,
    bytes: u64,
    left_out: &'a LeftOut,
}

impl Total<'_> {
    fn count(&mut self, real: &Dir, path: &Path) -> io::Result<()> {
        for name in real.names()? {
            let path = path.join(&name);
            let node = real.look(&name)?.filter(|_| !self.left_out.contains(&path));
            let Some(node) = node else { continue };
            self.files += 1;
            self.bytes += node.size.min(node.blocks * 512);
            if self.bytes > self.limit {
                let limit = crate::policy::print::size(self.limit);
                let limit = limit.trim_matches('"');
                return Err(io::Error::other(format!(
                    "the working directory holds more than {limit}, and no overlay can be mounted here, so all of it \
                     would be copied; raise the limit with --stage-limit, or see gatekeeper doctor"
                )));
            }
            if node.kind == Kind::Dir {
                self.count(&real.child(&name).map_err(|error| named(&path, error))?, &path)?;
            }
        }
        Ok(())
    }
}

struct Copying<'a> {
    copied: Copied,
    done: usize,
    all: usize,
    left_out: &'a LeftOut,
    progress: Progress<'a>,
}

/// How often to copy a file again that changes meanwhile.
const TRIES: usize = 5;

impl Copying<'_> {
    fn directory(&mut self, real: &Dir, to: &Dir, path: &Path) -> io::Result<()> {
        for name in real.names()? {
            let path = path.join(&name);
            if self.left_out.contains(&path) {
                continue;
            }
            self.entry(real, to, &name, &path).map_err(|error| named(&path, error))?;
            self.done += 1;
            if self.done.is_multiple_of(256) {
                (self.progress)(self.done, self.all);
            }
        }
        Ok(())
    }

    fn entry(&mut self, real: &Dir, to: &Dir, name: &OsStr, path: &Path) -> io::Result<()> {
        let Some(mut before) = real.look(name)? else { return Ok(()) };
        match before.kind {
            Kind::Dir => {
                mkdirat(to, name, Mode::RWXU)?;
                let (from, into) = (real.child(name)?, to.child(name)?);
                self.directory(&from, &into, path)?;
                dress(real, name, &before, into.as_fd())?;
                rustix::fs::fchmod(&into, Mode::from_raw_mode(before.mode))?;
                set_times(to, name, &before)?;
            }
            Kind::Symlink => symlinkat(OsStr::from_bytes(&real.target(name)?), to, name)?,
            Kind::File => {
                for _ in 0..TRIES {
                    copy_file(real, to, name, &before)?;
                    match real.look(name)? {
                        Some(after) if after.is_same(&before) => break,
                        Some(after) => before = after,
                        None => break,
                    }
                }
            }
            Kind::Whiteout | Kind::Other => return Ok(()),
        }
        if let Some(both) = Both::of(before, to, name)? {
            self.copied.entries.insert(path.to_owned(), both);
        }
        Ok(())
    }
}

fn copy_file(real: &Dir, to: &Dir, name: &OsStr, node: &Node) -> io::Result<()> {
    let from = real.file(name)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let copy = File::from(openat(to, name, flags, Mode::RUSR | Mode::WUSR)?);
    content::copy(&from, &copy, node.size)?;
    dress(real, name, node, copy.as_fd())?;
    rustix::fs::fchmod(&copy, Mode::from_raw_mode(node.mode & 0o777))?;
    set_times(to, name, node)
}

/// The owner, if this user may give files away, and the attributes.
fn dress(real: &Dir, name: &OsStr, node: &Node, copy: BorrowedFd<'_>) -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        rustix::fs::fchown(copy, Some(Uid::from_raw(node.uid)), Some(Gid::from_raw(node.gid)))?;
    }
    Attributes::of(real, name, node)?.give(copy)
}

/// Gives an entry the modification time of another.
pub fn set_times(dir: &Dir, name: &OsStr, node: &Node) -> io::Result<()> {
    let (tv_sec, tv_nsec) = node.mtime;
    let keep = Timespec { tv_sec: 0, tv_nsec: libc::UTIME_OMIT };
    let times = Timestamps { last_access: keep, last_modification: Timespec { tv_sec, tv_nsec } };
    Ok(utimensat(dir, name, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

fn named(path: &Path, error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(_) => io::Error::new(error.kind(), format!("{}: {error}", path.display())),
        None => error,
    }
}
