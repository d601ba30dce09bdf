//! The head of an audit file: how many lines it has, and the hash of the last one.

use super::{NONE, hash};
use rustix::fs::Stat;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The longest line that is looked for at the end of a file.
const TAIL: u64 = 256 * 1024;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// The number of the last line. It goes on counting when the file is rotated.
    pub count: u64,
    /// The hash of the last line.
    pub hash: String,
    /// The file that this is the head of, and its size.
    pub inode: u64,
    pub size: u64,
    /// The last of the lines that are being appended. A line that is newer than the head is the writer's own only if it is this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Next>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Next {
    pub count: u64,
    pub hash: String,
}

impl Head {
    pub fn none() -> Head {
        Head { count: 0, hash: NONE.to_owned(), inode: 0, size: 0, next: None }
    }

    pub fn write(&self, file: &File) -> io::Result<()> {
        let text = serde_json::to_string(self).map_err(io::Error::other)? + "\n";
        file.write_all_at(text.as_bytes(), 0)?;
        file.set_len(text.len() as u64)
    }

    /// The head in a file; `None` if that is empty.
    pub fn read(file: &File) -> io::Result<Option<Head>> {
        let mut bytes = [0u8; 512];
        let read = file.read_at(&mut bytes, 0)?;
        let text = first_line(bytes.get(..read).unwrap_or_default());
        if text.is_empty() {
            return Ok(None);
        }
        let wrong =
            |_| io::Error::other("the file with the ending .head is not a head; move it away with the audit file");
        serde_json::from_slice(text).map(Some).map_err(wrong)
    }

    /// The line to continue from, and whether the file was rotated since it was written. One that was `made` now may have the
    /// inode number of the old one, if that was compressed and removed.
    pub fn last(known: Option<Head>, file: &File, stat: &Stat, made: bool) -> io::Result<(Head, bool)> {
        let size = stat.st_size as u64;
        match known {
            None if size == 0 => Ok((Head::none(), false)),
            Some(head) if made => {
                let rotated = head.count > 0;
                Ok((head, rotated))
            }
            // The head was lost. The chain goes on; `verify` then has no proof of the end before this line.
            None => Ok((tail(file, size)?.unwrap_or_else(Head::none), false)),
            // Empty: a writer that began it after a rotation was interrupted.
            Some(head) if head.inode == stat.st_ino && head.size == size => {
                let rotated = size == 0 && head.count > 0;
                Ok((head, rotated))
            }
            Some(head) if head.inode != stat.st_ino => Ok((head, size == 0)),
            // A writer was killed between the line and the head.
            Some(head) => match tail(file, size)? {
                Some(tail) if head.announces(tail.count, &tail.hash) => Ok((tail, false)),
                // Changed from outside: the chain goes on from what was written, so that `verify` finds the place.
                _ => Ok((head, false)),
            },
        }
    }

    /// Whether this line was being written when the head was.
    pub fn announces(&self, count: u64, hash: &str) -> bool {
        self.next.as_ref().is_some_and(|next| next.count == count && next.hash == hash)
    }

    /// Where the file ends, if a writer could write only a part of a line: it was killed, or the disk was full.
    pub fn before_half_a_line(&self, file: &File, stat: &Stat) -> io::Result<Option<u64>> {
        let size = stat.st_size as u64;
        if self.inode != stat.st_ino || size <= self.size || size - self.size > TAIL {
            return Ok(None);
        }
        // With the end of the line before.
        let from = self.size.saturating_sub(1);
        let mut bytes = vec![0u8; (size - from) as usize];
        file.read_exact_at(&mut bytes, from)?;
        let half = if self.size == 0 { Some(&bytes[..]) } else { bytes.strip_prefix(b"\n") };
        Ok(half.filter(|half| !half.contains(&b'\n')).map(|_| self.size))
    }
}

/// A head is one line. A writer that was killed may have left the end of a longer one behind it.
pub fn first_line(text: &[u8]) -> &[u8] {
    text.split_inclusive(|byte| *byte == b'\n').next().unwrap_or_default()
}

/// The last line of a file, as a head.
fn tail(file: &File, size: u64) -> io::Result<Option<Head>> {
    let from = size.saturating_sub(TAIL);
    let mut bytes = vec![0u8; (size - from) as usize];
    file.read_exact_at(&mut bytes, from)?;
    let text = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    let line = text.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(line) else { return Ok(None) };
    let Some(count) = value["seq"].as_u64() else { return Ok(None) };
    Ok(Some(Head { count, hash: hash(line), inode: 0, size, next: None }))
}
