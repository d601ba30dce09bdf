//! Directories by descriptor. Both sides of a stage are hostile: a command filled the stage, and an earlier one may have
//! filled the real tree. So every name is opened relative to its directory, and no link is followed.

use super::lifted::Lifts;
pub use super::node::{Kind, Node, Time};
use super::seen::Origin;
use rustix::fs::{AtFlags, Dir as Listing, FileType, Mode, OFlags, StatxFlags, fstat, openat, statat, statx};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// An open directory.
#[derive(Debug)]
pub struct Dir {
    file: OwnedFd,
    /// Whether it belongs to a stage, whose permissions may be lifted to look inside.
    own: bool,
    /// Its path below the directory of a stage, and where to note lifted permissions there.
    noted: Option<(PathBuf, Arc<Lifts>)>,
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
        Dir { file, own, noted: None, shut: None, near, dev, hidden }
    }

    /// The directory of a stage. Notes what it lifts.
    pub fn of_stage(file: OwnedFd, lifts: Arc<Lifts>) -> Dir {
        let mut dir = Dir::new(file, true);
        dir.noted = Some((PathBuf::new(), lifts));
        dir
    }

    pub fn child(&self, name: &OsStr) -> io::Result<Dir> {
        match openat(&self.file, name, DIRECTORY, Mode::empty()) {
            Ok(file) => Ok(self.below(file, name, None)),
            Err(Errno::ACCESS) if self.own => {
                let (place, mode) = self.lifted(name, Mode::RWXU)?;
                let file = openat(&place, c".", DIRECTORY, Mode::empty())?;
                Ok(self.below(file, name, Some(mode)))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn below(&self, file: OwnedFd, name: &OsStr, shut: Option<u32>) -> Dir {
        let mut dir = Dir::new(file, self.own);
        dir.noted = self.noted.as_ref().map(|(path, lifts)| (path.join(name), lifts.clone()));
        dir.shut = shut;
        dir
    }

    /// Gives the owner these permissions; returns the file and its mode before.
    fn lifted(&self, name: &OsStr, add: Mode) -> io::Result<(OwnedFd, u32)> {
        let place = openat(&self.file, name, LOOK, Mode::empty())?;
        let before = fstat(&place)?.st_mode & 0o7777;
        let lifted = Mode::from_raw_mode(before) | add;
        if let Some((path, lifts)) = &self.noted {
            lifts.note(&path.join(name), before, lifted.as_raw_mode())?;
        }
        rustix::fs::chmod(crate::trust::by_descriptor(&place), lifted)?;
        Ok((place, before))
    }

    /// Gives an entry back the mode that it had, unless it has another one by now than it was given meanwhile.
    pub fn restore(&self, name: &OsStr, before: u32, lifted: u32) -> io::Result<()> {
        let place = match openat(&self.file, name, LOOK, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(()),
            other => other?,
        };
        match fstat(&place)?.st_mode & 0o7777 == lifted {
            true => Ok(rustix::fs::chmod(crate::trust::by_descriptor(&place), Mode::from_raw_mode(before))?),
            false => Ok(()),
        }
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
        let mut at = self.below(self.file.try_clone()?, OsStr::new(""), None);
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

    /// When it was made, as far as the file system tells. overlayfs tells another time once it has copied a directory.
    pub fn born(&self) -> Option<Time> {
        const OVERLAYFS: i64 = 0x794c_7630;
        let system = rustix::fs::fstatfs(&self.file).ok()?;
        let stat = statx(&self.file, c"", AtFlags::EMPTY_PATH, StatxFlags::BTIME).ok()?;
        let is_told = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
        (is_told && system.f_type as i64 != OVERLAYFS)
            .then(|| (stat.stx_btime.tv_sec, i64::from(stat.stx_btime.tv_nsec)))
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

    /// Makes, renames or removes an entry, also where the command or the user took the write permission from this user's own
    /// directory.
    pub fn permitted<T>(&self, act: impl Fn() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
        let first = act();
        if !matches!(first, Err(Errno::ACCESS)) {
            return first;
        }
        let stat = fstat(&self.file)?;
        let (mode, needed) = (Mode::from_raw_mode(stat.st_mode & 0o7777), Mode::WUSR | Mode::XUSR);
        if stat.st_uid != rustix::process::geteuid().as_raw() || mode.contains(needed) {
            return first;
        }
        if let Some((path, lifts)) = &self.noted {
            lifts.note(path, mode.as_raw_mode(), (mode | needed).as_raw_mode()).map_err(|_| Errno::IO)?;
        }
        let path = crate::trust::by_descriptor(&self.file);
        rustix::fs::chmod(&path, mode | needed)?;
        let done = act();
        rustix::fs::chmod(&path, mode)?;
        done
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
