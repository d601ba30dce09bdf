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
}

impl Head {
    pub fn none() -> Head {
        Head { count: 0, hash: NONE.to_owned(), inode: 0, size: 0 }
    }

    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }

    /// The head in a file; `None` if that is empty.
    pub fn read(file: &File) -> io::Result<Option<Head>> {
        let mut bytes = [0u8; 512];
        let read = file.read_at(&mut bytes, 0)?;
        let text = bytes.get(..read).unwrap_or_default();
        if text.is_empty() {
            return Ok(None);
        }
        let wrong =
            |_| io::Error::other("the file with the ending .head is not a head; move it away with the audit file");
        serde_json::from_slice(text).map(Some).map_err(wrong)
    }

    /// The line to continue from, and whether the file was rotated since it was written.
    pub fn last(known: Option<Head>, file: &File, stat: &Stat) -> io::Result<(Head, bool)> {
        let size = stat.st_size as u64;
        match known {
            None if size == 0 => Ok((Head::none(), false)),
            // The head was lost. The chain goes on; `verify` then has no proof of the end before this line.
            None => Ok((tail(file, size)?.unwrap_or_else(Head::none), false)),
            Some(head) if head.inode == stat.st_ino && head.size == size => Ok((head, false)),
            Some(head) if head.inode != stat.st_ino || size == 0 => Ok((head, size == 0)),
            // A writer was killed between the line and the head.
            Some(head) => match tail(file, size)? {
                Some(tail) if size > head.size && tail.count == head.count + 1 => Ok((tail, false)),
                // Changed from outside: the chain goes on from what was written, so that `verify` finds the place.
                _ => Ok((head, false)),
            },
        }
    }
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
    Ok(Some(Head { count, hash: hash(line), inode: 0, size }))
}
