//! Contents of files: comparing, hashing and copying them.

use super::tree::{Dir, Kind, Node, split};
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use std::cell::Cell;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

pub type Hash = [u8; 32];

const CHUNK: usize = 256 << 10;

pub fn hex(hash: &Hash) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn hash_bytes(bytes: &[u8]) -> Hash {
    Sha256::digest(bytes).into()
}

/// How many bytes of holes are hashed. A command can make a file of terabytes that takes no space, but hours to hash.
pub const MOST_HOLES: u64 = 1 << 30;

/// The hash of a file's bytes, or of a link's target. `None` for anything else, and for a file with more than `holes` bytes in
/// holes; what is hashed is subtracted.
fn hash(dir: &Dir, name: &OsStr, node: &Node, holes: &Cell<u64>) -> io::Result<Option<Hash>> {
    match node.kind {
        Kind::Symlink => Ok(Some(hash_bytes(&dir.target(name)?))),
        Kind::File => hash_file(&dir.file(name)?, holes),
        _ => Ok(None),
    }
}

fn hash_file(file: &File, holes: &Cell<u64>) -> io::Result<Option<Hash>> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; CHUNK];
    let size = Node::of_file(file)?.size;
    let mut at = 0;
    loop {
        let data = next_data(file, at).map_or(size.max(at), |data| data);
        let Some(left) = holes.get().checked_sub(data - at) else { return Ok(None) };
        holes.set(left);
        if data > at {
            buffer.fill(0);
        }
        while at < data {
            let part = usize::try_from(data - at).unwrap_or(CHUNK).min(CHUNK);
            hasher.update(buffer.get(..part).unwrap_or_default());
            at += part as u64;
        }
        // A chunk may reach into the next hole, which is read as zeros.
        match file.read_at(&mut buffer, at)? {
            0 => return Ok(Some(hasher.finalize().into())),
            read => {
                hasher.update(buffer.get(..read).unwrap_or_default());
                at += read as u64;
            }
        }
    }
}

/// Where data begins at or after a place; `None` if only a hole is left. Where the file system cannot tell, all is data.
fn next_data(file: &File, at: u64) -> Option<u64> {
    match seek(file, SeekFrom::Data(at)) {
        Ok(data) => Some(data.max(at)),
        Err(Errno::NXIO) => None,
        Err(_) => Some(at),
    }
}

/// The hash at a relative path.
pub fn hash_at(root: &Dir, path: &Path, node: &Node) -> io::Result<Option<Hash>> {
    hash_within(root, path, node, &Cell::new(MOST_HOLES))
}

/// The same, within a number of bytes in holes for several files.
pub fn hash_within(root: &Dir, path: &Path, node: &Node, holes: &Cell<u64>) -> io::Result<Option<Hash>> {
    let (parent, name) = split(path);
    root.near(parent)?.map_or(Ok(None), |dir| hash(&dir, name, node, holes))
}

/// Whether two entries of the same kind have the same contents. Modes and times are not compared.
pub fn is_equal(one: (&Dir, &OsStr, &Node), other: (&Dir, &OsStr, &Node)) -> io::Result<bool> {
    if one.2.kind != other.2.kind {
        return Ok(false);
    }
    match one.2.kind {
        Kind::Dir => Ok(true),
        Kind::Symlink => Ok(one.0.target(one.1)? == other.0.target(other.1)?),
        Kind::File if one.2.size != other.2.size => Ok(false),
        Kind::File => is_equal_file(&one.0.file(one.1)?, &other.0.file(other.1)?),
        _ => Ok(false),
    }
}

/// Where both have a hole, nothing is read.
fn is_equal_file(one: &File, other: &File) -> io::Result<bool> {
    let (mut here, mut there) = (vec![0; CHUNK], vec![0; CHUNK]);
    let mut at = 0;
    loop {
        let next = [next_data(one, at), next_data(other, at)].into_iter().flatten().min();
        // At the end too, where a file may have grown meanwhile.
        at = next.unwrap_or(Node::of_file(one)?.size.max(at));
        let (read, also) = (fill(one, &mut here, at)?, fill(other, &mut there, at)?);
        if here.get(..read) != there.get(..also) {
            return Ok(false);
        }
        if read == 0 {
            return Ok(true);
        }
        at += read as u64;
    }
}

fn fill(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, at + filled as u64)? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}

/// Copies a file: shares its blocks where the file system can, and keeps holes.
pub fn copy(from: &File, to: &File, size: u64) -> io::Result<()> {
    if rustix::fs::ioctl_ficlone(to, from).is_ok() {
        return Ok(());
    }
    rustix::fs::ftruncate(to, size)?;
    let mut at = 0;
    while at < size {
        let (data, hole) = match seek(from, SeekFrom::Data(at)) {
            // Only a hole is left.
            Err(Errno::NXIO) => break,
            // The file system cannot tell holes from data.
            Err(Errno::INVAL) => (at, size),
            Err(error) => return Err(error.into()),
            Ok(data) => (data, seek(from, SeekFrom::Hole(data)).unwrap_or(size).min(size)),
        };
        copy_range(from, to, data, hole)?;
        at = hole.max(data + 1);
    }
    Ok(())
}

fn copy_range(from: &File, to: &File, mut at: u64, end: u64) -> io::Result<()> {
    let mut buffer = Vec::new();
    while at < end {
        let (mut source, mut goal) = (at, at);
        let wanted = usize::try_from(end - at).unwrap_or(usize::MAX).min(1 << 30);
        let copied = if buffer.is_empty() {
            rustix::fs::copy_file_range(from, Some(&mut source), to, Some(&mut goal), wanted)
        } else {
            Err(Errno::XDEV)
        };
        at += match copied {
            Ok(0) => return Ok(()),
            Ok(copied) => copied as u64,
            // Another file system, or one without the call.
            Err(Errno::XDEV | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM) => {
                buffer.resize(CHUNK, 0);
                let part = buffer.get_mut(..wanted.min(CHUNK)).unwrap_or_default();
                let read = from.read_at(part, at)?;
                if read == 0 {
                    return Ok(());
                }
                to.write_all_at(part.get(..read).unwrap_or_default(), at)?;
                read as u64
            }
            Err(error) => return Err(error.into()),
        };
    }
    Ok(())
}
