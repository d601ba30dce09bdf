//! What is known about one entry of a tree without reading it.

use rustix::fs::{FileType, Stat, fstat};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;

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
