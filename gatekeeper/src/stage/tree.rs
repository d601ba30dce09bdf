//! Directories by descriptor. Both sides of a stage are hostile: a command filled the stage, and an earlier one may have
//! filled the real tree. So every name is opened relative to its directory, and no link is followed.

use super::seen::Origin;
use rustix::fs::{AtFlags, Dir as Listing, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    File,
    Dir,
    Symlink,
    /// overlayfs's mark for a deleted name: a character device 0:0.
    Whiteout,
    /// A FIFO, a socket or a device. A stage does not keep these.
    Other,
}

impl Kind {
    pub fn word(self) -> &'static str {
        match self {
            Kind::File => "file",
            Kind::Dir => "directory",
            Kind::Symlink => "symbolic link",
            Kind::Whiteout => "whiteout",
            Kind::Other => "special file",
        }
    }

    fn of(stat: &Stat) -> Kind {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Dir,
            FileType::Symlink => Kind::Symlink,
            FileType::CharacterDevice if stat.st_rdev == 0 => Kind::Whiteout,
            _ => Kind::Other,
        }
    }
}

/// Seconds and nanoseconds.
pub type Time = (i64, i64);

/// What is known about one entry without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    pub kind: Kind,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub dev: u64,
    pub ino: u64,
    pub size: u64,
    pub blocks: u64,
    pub mtime: Time,
    pub ctime: Time,
    /// How many names it has; 0 if that was not recorded.
    #[serde(default)]
    pub names: libc::nlink_t,
}

impl Node {
    pub fn of(stat: &Stat) -> Node {
        Node {
            kind: Kind::of(stat),
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            dev: stat.st_dev,
            ino: stat.st_ino,
            size: stat.st_size as u64,
            blocks: stat.st_blocks as u64,
            mtime: (stat.st_mtime, stat.st_mtime_nsec as i64),
            ctime: (stat.st_ctime, stat.st_ctime_nsec as i64),
            names: stat.st_nlink,
        }
    }

    pub fn of_file(file: &File) -> io::Result<Node> {
        Ok(Node::of(&fstat(file)?))
    }

    /// Whether nothing has touched the file in between. A directory's own times change with every entry, so only its kind
    /// and mode count.
    pub fn is_same(&self, other: &Node) -> bool {
        let kept = |node: &Node| (node.dev, node.ino, node.size, node.mtime, node.ctime);
        self.kind == other.kind && self.mode == other.mode && (self.kind == Kind::Dir || kept(self) == kept(other))
    }

    /// The same, but other names of the file may have gone or come, which changes its st_ctime too. Of files with several
    /// names, `apply` changes one after the other.
    pub fn is_same_but_for_names(&self, before: &Node) -> bool {
        let names = before.names != 0 && before.names != self.names;
        self.is_same(before) || names && Node { ctime: before.ctime, ..*self }.is_same(before)
    }
}

/// An open directory.
#[derive(Debug)]
pub struct Dir {
    file: OwnedFd,
    /// Whether it belongs to a stage, whose permissions may be lifted to look inside.
    own: bool,
    /// The mode to restore.
    shut: Option<u32>,
    /// The directory that `near` returned last.
    near: Mutex<Option<(PathBuf, Arc<Dir>)>>,
    dev: OnceLock<u64>,
    hidden: OnceLock<bool>,
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const LOOK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const READ: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

impl Dir {
    /// `own`: a directory of a stage, not of the real tree.
    pub fn new(file: OwnedFd, own: bool) -> Dir {
        let (near, dev, hidden) = (Mutex::default(), OnceLock::new(), OnceLock::new());
        Dir { file, own, shut: None, near, dev, hidden }
    }

    pub fn child(&self, name: &OsStr) -> io::Result<Dir> {
        match openat(&self.file, name, DIRECTORY, Mode::empty()) {
            Ok(file) => Ok(Dir::new(file, self.own)),
            Err(Errno::ACCESS) if self.own => {
                let (place, mode) = self.lifted(name, Mode::RWXU)?;
                let file = openat(&place, c".", DIRECTORY, Mode::empty())?;
                let mut dir = Dir::new(file, true);
                dir.shut = Some(mode);
                Ok(dir)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Gives the owner these permissions; returns the file and its mode before.
    fn lifted(&self, name: &OsStr, add: Mode) -> io::Result<(OwnedFd, u32)> {
        let place = openat(&self.file, name, LOOK, Mode::empty())?;
        let before = fstat(&place)?.st_mode & 0o7777;
        rustix::fs::chmod(crate::trust::by_descriptor(&place), Mode::from_raw_mode(before) | add)?;
        Ok((place, before))
    }

    /// Calls a function with a path of an entry of the stage, while its owner may read it. user.* attributes are readable only
    /// where the file is, even through a descriptor, and the command may have taken that permission away.
    pub fn readable<T>(&self, name: &OsStr, read: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
        if !self.own {
            return Err(Errno::ACCESS.into());
        }
        let (place, mode) = self.lifted(name, Mode::RUSR)?;
        let path = crate::trust::by_descriptor(&place);
        let result = read(&path);
        rustix::fs::chmod(&path, Mode::from_raw_mode(mode))?;
        result
    }

    /// The directory at a relative path; `None` if a component is missing or no directory.
    pub fn at(&self, path: &Path) -> io::Result<Option<Dir>> {
        let mut at = Dir::new(self.file.try_clone()?, self.own);
        for part in path.components() {
            let Component::Normal(name) = part else { continue };
            at = match at.child(name) {
                Ok(next) => next,
                Err(error) if is_absent(&error) => return Ok(None),
                Err(error) => return Err(error),
            };
        }
        Ok(Some(at))
    }

    /// The same, for reading only: a directory is opened once for all its entries in a row.
    pub fn near(&self, path: &Path) -> io::Result<Option<Arc<Dir>>> {
        let mut near = self.near.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, dir)) = near.as_ref().filter(|(at, _)| at == path) {
            return Ok(Some(dir.clone()));
        }
        let found = self.at(path)?.map(Arc::new);
        *near = found.clone().map(|dir| (path.to_owned(), dir));
        Ok(found)
    }

    /// The names in it, sorted.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in Listing::read_from(&self.file)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name));
            }
        }
        names.sort();
        Ok(names)
    }

    /// At most so many names, in no order, and whether each is a directory. `None` if there are more.
    pub fn entries(&self, most: usize) -> io::Result<Option<Vec<(OsString, bool)>>> {
        let mut entries = Vec::new();
        for entry in Listing::read_from(&self.file)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            if entries.len() == most {
                return Ok(None);
            }
            entries.push((OsString::from_vec(name.to_vec()), entry.file_type().is_dir()));
        }
        Ok(Some(entries))
    }

    /// What an entry is; `None` if there is none.
    pub fn look(&self, name: &OsStr) -> io::Result<Option<Node>> {
        match statat(&self.file, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(Node::of(&stat))),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub fn descriptor(&self) -> &OwnedFd {
        &self.file
    }

    pub fn itself(&self) -> io::Result<Node> {
        Ok(Node::of(&fstat(&self.file)?))
    }

    /// Opens a regular file for reading.
    pub fn file(&self, name: &OsStr) -> io::Result<File> {
        let file = match openat(&self.file, name, READ, Mode::empty()) {
            Err(Errno::ACCESS) if self.own => {
                let (place, mode) = self.lifted(name, Mode::RUSR)?;
                let opened = crate::trust::reopen(place.as_fd(), READ.difference(OFlags::NOFOLLOW));
                rustix::fs::chmod(crate::trust::by_descriptor(&place), Mode::from_raw_mode(mode))?;
                opened?
            }
            other => other?,
        };
        match FileType::from_raw_mode(fstat(&file)?.st_mode).is_file() {
            true => Ok(File::from(file)),
            false => Err(io::Error::other("it is no longer a regular file")),
        }
    }

    /// The target of a symbolic link.
    pub fn target(&self, name: &OsStr) -> io::Result<Vec<u8>> {
        Ok(rustix::fs::readlinkat(&self.file, name, Vec::new())?.into_bytes())
    }

    /// Whether a directory above this path replaces the real one.
    pub fn is_opaque_above(&self, path: &Path) -> io::Result<bool> {
        for above in path.ancestors().skip(1) {
            if self.at(above)?.is_some_and(|dir| dir.is_opaque()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether this directory is on this file system. Found out once.
    pub fn is_on(&self, dev: u64) -> io::Result<bool> {
        let mut own = self.dev.get();
        if own.is_none() {
            let found = self.itself()?.dev;
            own = Some(self.dev.get_or_init(|| found));
        }
        Ok(own == Some(&dev))
    }

    /// Whether the real tree does not show through here, as `find` says. Found out once.
    pub fn is_hidden_below(&self, find: impl FnOnce() -> io::Result<bool>) -> io::Result<bool> {
        match self.hidden.get() {
            Some(known) => Ok(*known),
            None => {
                let found = find()?;
                Ok(*self.hidden.get_or_init(|| found))
            }
        }
    }

    /// What overlayfs noted about an entry that it copied into the stage; `None` if the command made the entry itself. Links
    /// have no such note.
    pub fn origin(&self, name: &OsStr) -> io::Result<Option<Origin>> {
        let mut value = [0u8; 256];
        let path = crate::trust::by_descriptor(&self.file).join(name);
        let mut read = rustix::fs::lgetxattr(path, ORIGIN, &mut value[..]);
        if read == Err(Errno::ACCESS) && self.own {
            read = self.readable(name, |path| Ok(rustix::fs::getxattr(path, ORIGIN, &mut value[..])))?;
        }
        match read {
            Ok(length) => Ok(Some(Origin::parse(value.get(..length).unwrap_or_default()))),
            Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOENT | Errno::PERM) => Ok(None),
            Err(Errno::RANGE) => Ok(Some(Origin::Unnamed)),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether overlayfs marked this directory as one that replaces the real one.
    pub fn is_opaque(&self) -> bool {
        let mut value = [0u8; 1];
        matches!(rustix::fs::fgetxattr(&self.file, OPAQUE, &mut value[..]), Ok(1)) && value == *b"y"
    }

    /// Lets the real directory show through. If that fails, the mark stays.
    pub fn uncover(&self) {
        let _ = rustix::fs::fremovexattr(&self.file, OPAQUE);
    }
}

const OPAQUE: &str = "user.overlay.opaque";
const ORIGIN: &str = "user.overlay.origin";

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        if let Some(mode) = self.shut {
            let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            let _ = rustix::fs::chmod(path, Mode::from_raw_mode(mode));
        }
    }
}

pub fn is_absent(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP))
}

/// The directory and the last name of a relative path.
pub fn split(path: &Path) -> (&Path, &OsStr) {
    (path.parent().unwrap_or(Path::new("")), path.file_name().unwrap_or(OsStr::from_bytes(b".")))
}
