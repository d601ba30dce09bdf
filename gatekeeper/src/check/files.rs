//! The view of the file system that a check needs, as a trait, so that tests can describe odd files without root.
//!
//! Takes paths, gives facts and ranges of bytes. An implementation must not block, open a device or a pipe for reading,
//! or execute anything.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileType {
    Regular,
    Directory,
    Fifo,
    Device,
    Socket,
    Other,
}

impl fmt::Display for FileType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FileType::Regular => "a regular file",
            FileType::Directory => "a directory",
            FileType::Fifo => "a pipe",
            FileType::Device => "a device",
            FileType::Socket => "a socket",
            FileType::Other => "not a regular file",
        })
    }
}

/// The metadata of a file.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    pub file_type: FileType,
    /// Permission bits, including setuid and setgid.
    pub mode: u32,
    pub uid: u32,
    /// Device and inode.
    pub id: (u64, u64),
    pub size: u64,
    /// Whether the permissions let the caller execute it.
    pub executable: bool,
    pub readable: bool,
    pub noexec: bool,
    pub nosuid: bool,
    /// Whether it has the attribute `security.capability`.
    pub file_caps: bool,
}

impl Facts {
    pub fn setuid(&self) -> bool {
        self.mode & 0o4000 != 0
    }

    /// Setgid without group execution meant mandatory locking, and exec ignores it.
    pub fn setgid(&self) -> bool {
        self.mode & 0o2010 == 0o2010
    }
}

/// Why a path could not be opened.
#[derive(Debug)]
pub enum Failure {
    NotFound,
    Denied,
    Loop,
    TooLong,
    Other(io::Error),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::NotFound => f.write_str("no such file"),
            Failure::Denied => f.write_str("permission denied"),
            Failure::Loop => f.write_str("a loop of symbolic links"),
            Failure::TooLong => f.write_str("the name is too long"),
            Failure::Other(error) => error.fmt(f),
        }
    }
}

/// An open file.
pub trait Opened {
    fn facts(&self) -> &Facts;

    /// Reads bytes at an offset; fewer than requested only at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// All bytes, if they are part of this program.
    fn embedded(&self) -> Option<&'static [u8]> {
        None
    }

    /// The real path.
    fn resolved(&self) -> Option<PathBuf>;

    /// The checked descriptor, for execution.
    fn into_file(self: Box<Self>) -> Option<File>;
}

pub trait Files {
    /// Opens an absolute path, following symbolic links.
    fn open(&self, path: &Path) -> Result<Box<dyn Opened>, Failure>;

    /// The owner of what an absolute path leads to; `None` if it cannot be opened.
    fn owner(&self, path: &Path) -> Option<u32> {
        self.open(path).ok().map(|file| file.facts().uid)
    }
}

/// The first page holds nearly everything that the kernel reads of a program.
const PAGE: usize = 4096;

/// The size of the other pieces that are read, and how many to cache. New memory takes more time than another read.
const PIECE: usize = 1024;
const KEPT: usize = 64;

/// How much one check may read of a file, apart from its first page.
const BUDGET: usize = 4 << 20;

/// Bounded reads from a file, with a small cache of pages.
pub struct Pages<'a> {
    file: &'a dyn Opened,
    /// All bytes, if they need not be read.
    embedded: Option<&'static [u8]>,
    head: Cow<'static, [u8]>,
    /// Cached pieces with their offsets; the reader alternates between tables and the names in them.
    kept: RefCell<Vec<(u64, Vec<u8>)>>,
    left: Cell<usize>,
}

impl<'a> Pages<'a> {
    pub fn new(file: &'a dyn Opened) -> io::Result<Pages<'a>> {
        let embedded = file.embedded();
        let head = match embedded {
            Some(bytes) => Cow::Borrowed(&bytes[..bytes.len().min(PAGE)]),
            None => {
                let mut head = vec![0; PAGE];
                let length = read_full(file, &mut head, 0)?;
                head.truncate(length);
                Cow::Owned(head)
            }
        };
        Ok(Pages { file, embedded, head, kept: RefCell::default(), left: Cell::new(BUDGET) })
    }

    pub fn head(&self) -> &[u8] {
        &self.head
    }

    pub fn size(&self) -> u64 {
        self.file.facts().size
    }

    /// Exactly these bytes, or `None` if the file is too short.
    pub fn exact(&self, offset: u64, length: usize) -> Option<Vec<u8>> {
        let bytes = self.up_to(offset, length)?;
        (bytes.len() == length).then_some(bytes)
    }

    /// Up to this many bytes; fewer at the end of the file.
    pub fn up_to(&self, offset: u64, length: usize) -> Option<Vec<u8>> {
        self.view(offset, length, <[u8]>::to_vec)
    }

    /// The same without a copy: calls `with` with the bytes.
    pub fn view<T>(&self, offset: u64, length: usize, with: impl FnOnce(&[u8]) -> T) -> Option<T> {
        if let Some(bytes) = part(&self.head, 0, offset, length) {
            return Some(with(bytes));
        }
        let piece = offset - offset % PIECE as u64;
        // The kernel's file offsets are signed.
        if offset.checked_add(length as u64).is_none_or(|end| end > i64::MAX as u64) {
            return None;
        }
        if let Some(bytes) = self.embedded {
            let from = bytes.get(offset as usize..).unwrap_or_default();
            return from.get(..length.min(from.len())).map(with);
        }
        if offset - piece + length as u64 > PIECE as u64 {
            return self.read(offset, length).map(|bytes| with(&bytes));
        }
        let mut kept = self.kept.borrow_mut();
        let at = match kept.iter().position(|(start, _)| *start == piece) {
            Some(at) => at,
            None => {
                let bytes = self.read(piece, PIECE)?;
                if kept.len() >= KEPT {
                    kept.remove(0);
                }
                kept.push((piece, bytes));
                kept.len() - 1
            }
        };
        let (_, bytes) = kept.get(at)?;
        let from = bytes.get((offset - piece) as usize..).unwrap_or_default();
        from.get(..length.min(from.len())).map(with)
    }

    fn read(&self, offset: u64, length: usize) -> Option<Vec<u8>> {
        self.left.set(self.left.get().checked_sub(length)?);
        let mut bytes = vec![0; length];
        let got = read_full(self.file, &mut bytes, offset).ok()?;
        bytes.truncate(got);
        Some(bytes)
    }
}

/// The range from a buffer that begins at `start`, if the buffer contains all of it.
fn part(bytes: &[u8], start: u64, offset: u64, length: usize) -> Option<&[u8]> {
    let from = usize::try_from(offset.checked_sub(start)?).ok()?;
    bytes.get(from..from.checked_add(length)?)
}

fn read_full(file: &dyn Opened, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset.saturating_add(done as u64)) {
            Ok(0) => break,
            Ok(count) => done += count.min(rest.len()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
