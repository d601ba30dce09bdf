//! Notes what a plan looks at, for [`Facts`].

use super::disk::Disk;
use super::facts::{Facts, mounts};
use super::glance::Glance;
use super::paths::aliases::Mounted;
use super::paths::homes::Homes;
use super::paths::{Inode, Look, Searched, Seek, Tree, Unlisted};
use crate::check::{Facts as FileFacts, Failure, Files, Opened};
use crate::trust::Untrusted;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Instant, SystemTime};

/// What was looked at since it was made.
pub struct Record {
    noted: RefCell<Noted>,
    read: Rc<RefCell<Vec<Content>>>,
    /// Too much to note.
    lost: Cell<bool>,
}

pub(super) struct Noted {
    pub began: SystemTime,
    pub clock: Instant,
    pub mounts: u64,
    /// Each path, and whether the names in it count, if it is a directory.
    pub paths: HashMap<PathBuf, bool>,
    /// Paths that must stay what they are, because rules were made for what is there.
    pub granted: Vec<PathBuf>,
    /// Directories of the kernel, with their names.
    pub listed: Vec<(PathBuf, Vec<OsString>)>,
    pub read: Vec<Content>,
}

/// Bytes of a file that a plan has read.
pub struct Content {
    path: PathBuf,
    bytes: Bytes,
}

enum Bytes {
    /// All of a file that is no link and not large; `None` if it could not be read.
    Small(Option<Vec<u8>>),
    Whole(Vec<u8>),
    /// Parts, with their offsets.
    Parts(Vec<(u64, Vec<u8>)>),
}

/// How many entries of a directory are looked at one by one.
const MANY: usize = 200;

impl Record {
    /// `None` if this kernel does not tell of changed mounts.
    pub fn begin() -> Option<Record> {
        let (began, clock, mounts) = (SystemTime::now(), Instant::now(), mounts::generation()?);
        let noted = Noted {
            began,
            clock,
            mounts,
            paths: HashMap::new(),
            granted: Vec::new(),
            listed: Vec::new(),
            read: Vec::new(),
        };
        Some(Record { noted: RefCell::new(noted), read: Rc::default(), lost: Cell::new(false) })
    }

    /// The facts behind everything that was looked at and behind these paths, unless a change could stay unseen.
    pub fn facts(self, granted: Vec<PathBuf>) -> Option<Facts> {
        let mut noted = self.noted.into_inner();
        noted.granted = granted;
        noted.read.append(&mut self.read.borrow_mut());
        if self.lost.get() { None } else { Facts::of(noted) }
    }

    /// A file that was read as a whole, such as a policy.
    pub fn read(&self, path: &Path) {
        self.note(path, false);
        match fs::read(path) {
            Ok(bytes) => self.keep(path, Bytes::Whole(bytes)),
            Err(_) => self.lost.set(true),
        }
    }

    fn keep(&self, path: &Path, bytes: Bytes) {
        self.noted.borrow_mut().read.push(Content { path: path.to_owned(), bytes });
    }

    fn note(&self, path: &Path, whole: bool) {
        let paths = &mut self.noted.borrow_mut().paths;
        match paths.get_mut(path) {
            Some(known) => *known |= whole,
            None => drop(paths.insert(path.to_owned(), whole)),
        }
    }

    /// A directory that was listed. Those of the kernel have no useful times, so their names are compared.
    fn list(&self, directory: &Path, names: Option<&[OsString]>) {
        let kernel = super::paths::KERNEL.iter().any(|top| *top != "/dev" && directory.starts_with(top));
        match names {
            Some(names) if kernel => {
                self.note(directory, false);
                self.noted.borrow_mut().listed.push((directory.to_owned(), names.to_vec()));
            }
            _ => self.note(directory, true),
        }
    }

    /// A directory whose entries were looked at too. `whole`: and what is in these.
    fn entries(&self, directory: &Path, whole: bool) {
        self.note(directory, true);
        let names = Disk.names(directory).unwrap_or_default();
        if names.len() > MANY {
            self.lost.set(true);
        }
        names.iter().take(MANY).for_each(|name| self.note(&directory.join(name), whole));
    }
}

impl Content {
    pub(super) fn is_same(&self) -> bool {
        match &self.bytes {
            Bytes::Small(bytes) => Disk.contents(&self.path) == *bytes,
            Bytes::Whole(bytes) => fs::read(&self.path).is_ok_and(|now| now == *bytes),
            Bytes::Parts(parts) => {
                let mut options = fs::OpenOptions::new();
                let options = options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
                options.open(&self.path).is_ok_and(|file| parts.iter().all(|part| is_there(&file, part)))
            }
        }
    }
}

fn is_there(file: &File, (offset, bytes): &(u64, Vec<u8>)) -> bool {
    let mut now = vec![0; bytes.len()];
    file.read_exact_at(&mut now, *offset).is_ok() && now == *bytes
}

/// The files that a check opens, with a note of each.
pub struct Noting<'a> {
    pub files: &'a dyn Files,
    pub record: &'a Record,
}

impl Files for Noting<'_> {
    fn open(&self, path: &Path) -> Result<Box<dyn Opened>, Failure> {
        self.record.note(path, false);
        let file = self.files.open(path)?;
        let facts = file.facts();
        let me = rustix::process::geteuid();
        // Only what another user owns, and this one cannot write, keeps its bytes until its time of change moves.
        let settled = !me.is_root() && facts.uid == 0 && facts.mode & 0o022 == 0;
        if settled {
            return Ok(file);
        }
        let mut read = self.record.read.borrow_mut();
        read.push(Content { path: path.to_owned(), bytes: Bytes::Parts(Vec::new()) });
        Ok(Box::new(Reading { file, read: self.record.read.clone(), at: read.len() - 1 }))
    }
}

/// An open file whose reads are noted.
struct Reading {
    file: Box<dyn Opened>,
    read: Rc<RefCell<Vec<Content>>>,
    at: usize,
}

impl Opened for Reading {
    fn facts(&self) -> &FileFacts {
        self.file.facts()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let count = self.file.read_at(buffer, offset)?;
        if let Some(Content { bytes: Bytes::Parts(parts), .. }) = self.read.borrow_mut().get_mut(self.at) {
            parts.push((offset, buffer.get(..count).unwrap_or_default().to_vec()));
        }
        Ok(count)
    }

    fn resolved(&self) -> Option<PathBuf> {
        self.file.resolved()
    }

    fn into_file(self: Box<Self>) -> Option<File> {
        self.file.into_file()
    }
}

/// The tree that a plan looks at, with a note of each place.
pub struct Noticed<'a> {
    pub tree: &'a Glance,
    pub record: &'a Record,
}

impl Noticed<'_> {
    fn reached(&self, path: &Path, hostile: &[PathBuf]) {
        self.record.note(path, false);
        hostile.iter().for_each(|tree| self.record.note(tree, false));
    }
}

impl Tree for Noticed<'_> {
    fn trouble(&self) -> Option<String> {
        self.tree.trouble()
    }

    fn resolve(&self, path: &Path) -> Option<PathBuf> {
        self.record.note(path, false);
        self.tree.resolve(path)
    }

    fn reach(&self, path: &Path, hostile: &[PathBuf]) -> Result<Option<PathBuf>, Untrusted> {
        self.reached(path, hostile);
        self.tree.reach(path, hostile)
    }

    fn reach_all(&self, paths: &[PathBuf], hostile: &[PathBuf]) -> Result<Vec<Option<PathBuf>>, Untrusted> {
        paths.iter().for_each(|path| self.reached(path, hostile));
        self.tree.reach_all(paths, hostile)
    }

    fn links(&self, path: &Path) -> Vec<PathBuf> {
        self.record.note(path, false);
        self.tree.links(path)
    }

    fn target(&self, path: &Path) -> Option<PathBuf> {
        self.record.note(path, false);
        self.tree.target(path)
    }

    fn look(&self, path: &Path) -> Option<Look> {
        self.record.note(path, false);
        self.tree.look(path)
    }

    /// Of thousands of files, only those that have several names are noted. A confined command cannot give one to a closed file.
    fn other_names(&self, path: &Path) -> Option<Inode> {
        let linked = self.tree.look(path)?.linked;
        linked.iter().for_each(|_| self.record.note(path, false));
        linked
    }

    fn entries(&self, directory: &Path) -> Option<Vec<PathBuf>> {
        self.record.list(directory, None);
        self.tree.entries(directory)
    }

    fn names(&self, directory: &Path) -> Option<Vec<OsString>> {
        let names = self.tree.names(directory);
        self.record.list(directory, names.as_deref());
        names
    }

    fn is_directory(&self, path: &Path) -> bool {
        self.record.note(path, false);
        self.tree.is_directory(path)
    }

    fn is_same(&self, one: &Path, other: &Path) -> bool {
        self.record.note(one, false);
        self.record.note(other, false);
        self.tree.is_same(one, other)
    }

    fn is_closed(&self, path: &Path) -> bool {
        let closed = self.tree.is_closed(path);
        // A directory is closed by its own mode, or by those of all entries.
        if self.tree.is_directory(path) {
            self.record.entries(path, true)
        } else {
            self.record.note(path, true)
        }
        closed
    }

    fn shut(&self, path: &Path) -> Option<PathBuf> {
        self.record.note(path, true);
        self.tree.shut(path)
    }

    fn contents(&self, path: &Path) -> Option<Vec<u8>> {
        self.record.note(path, false);
        let bytes = self.tree.contents(path);
        self.record.keep(path, Bytes::Small(bytes.clone()));
        bytes
    }

    fn search(&self, top: &Path, seek: &dyn Seek) -> Result<Searched, Unlisted> {
        self.record.note(top, true);
        let searched = self.tree.search(top, seek)?;
        searched.visited.iter().chain(&searched.unlisted).for_each(|directory| self.record.note(directory, true));
        Ok(searched)
    }

    fn homes(&self) -> Homes {
        self.record.read(Path::new("/etc/passwd"));
        self.record.entries(Path::new("/home"), false);
        self.tree.homes()
    }

    fn mounts(&self) -> Vec<Mounted> {
        // The record has their generation.
        self.tree.mounts()
    }
}
