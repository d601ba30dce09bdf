//! An in-memory file system for tests and fuzzing.

use super::Caller;
use super::files::{Facts, Failure, FileType, Files, Opened};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The contents of a file; cheap to clone.
#[derive(Clone, Debug)]
pub enum Content {
    Static(&'static [u8]),
    Shared(Arc<[u8]>),
}

impl Deref for Content {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Content::Static(bytes) => bytes,
            Content::Shared(bytes) => bytes,
        }
    }
}

impl From<Vec<u8>> for Content {
    fn from(bytes: Vec<u8>) -> Content {
        Content::Shared(bytes.into())
    }
}

/// One file: contents and metadata.
#[derive(Clone, Debug)]
pub struct Bytes {
    pub facts: Facts,
    pub content: Content,
}

impl Bytes {
    /// An executable owned by root, mode 0755.
    pub fn program(content: impl Into<Content>) -> Bytes {
        let content = content.into();
        let facts = Facts {
            file_type: FileType::Regular,
            mode: 0o755,
            uid: 0,
            id: (0, 0),
            size: content.len() as u64,
            executable: true,
            readable: true,
            noexec: false,
            nosuid: false,
            file_caps: false,
        };
        Bytes { facts, content }
    }

    pub fn library(content: &'static [u8]) -> Bytes {
        let mut file = Bytes::program(Content::Static(content));
        file.facts.mode = 0o644;
        file
    }

    pub fn mode(mut self, mode: u32) -> Bytes {
        self.facts.mode = mode;
        self
    }

    pub fn owner(mut self, uid: u32) -> Bytes {
        self.facts.uid = uid;
        self
    }

    pub fn with(mut self, change: impl FnOnce(&mut Facts)) -> Bytes {
        change(&mut self.facts);
        self
    }
}

impl Opened for Bytes {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|offset| self.content.get(offset..)).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        Ok(count)
    }

    fn embedded(&self) -> Option<&'static [u8]> {
        match self.content {
            Content::Static(bytes) => Some(bytes),
            Content::Shared(_) => None,
        }
    }

    fn resolved(&self) -> Option<PathBuf> {
        None
    }

    fn into_file(self: Box<Self>) -> Option<File> {
        None
    }
}

#[derive(Clone, Debug)]
enum Entry {
    File(Bytes),
    Symlink(PathBuf),
}

/// A tree of files as one caller sees it.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    entries: BTreeMap<PathBuf, Entry>,
    caller: Caller,
}

impl Memory {
    pub fn new(caller: Caller) -> Memory {
        Memory { entries: BTreeMap::new(), caller }
    }

    pub fn put(&mut self, path: impl Into<PathBuf>, mut file: Bytes) -> &mut Memory {
        file.facts.id = (1, self.entries.len() as u64 + 1);
        self.entries.insert(path.into(), Entry::File(file));
        self
    }

    pub fn link(&mut self, path: impl Into<PathBuf>, target: impl Into<PathBuf>) -> &mut Memory {
        self.entries.insert(path.into(), Entry::Symlink(target.into()));
        self
    }

    /// Whether the mode grants this caller the bit (4 read, 1 execute). Root may execute if any execute bit is set.
    fn may(&self, facts: &Facts, bit: u32) -> bool {
        match self.caller.uid {
            0 => bit == 4 || facts.mode & 0o111 != 0,
            uid if uid == facts.uid => facts.mode >> 6 & bit != 0,
            _ => facts.mode & bit != 0,
        }
    }
}

impl Files for Memory {
    fn open(&self, path: &Path) -> Result<Box<dyn Opened>, Failure> {
        let mut path = path.to_owned();
        for _ in 0..40 {
            match self.entries.get(&path) {
                None => return Err(Failure::NotFound),
                Some(Entry::Symlink(target)) => path = path.parent().unwrap_or(Path::new("/")).join(target),
                Some(Entry::File(file)) => {
                    let mut file = file.clone();
                    file.facts.executable &= self.may(&file.facts, 1);
                    file.facts.readable &= self.may(&file.facts, 4);
                    return Ok(Box::new(file));
                }
            }
        }
        Err(Failure::Loop)
    }
}
