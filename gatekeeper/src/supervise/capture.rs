//! Captured output: the head and the tail are kept, the middle is counted, and the whole goes to a file where a place
//! for it was given. A pipe that somebody still holds never keeps us waiting.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// What is kept of a stream when nobody says otherwise.
pub const DEFAULT_KEPT: u64 = 1024 * 1024;
/// The most that goes to a file.
pub const LARGEST_FILE: u64 = 256 * 1024 * 1024;
/// Read at once, so that a stream that never ends does not starve the rest of the supervision.
const AT_ONCE: usize = 1024 * 1024;

/// One stream of the command, read through a pipe that never blocks us.
pub struct Stream {
    pipe: Option<File>,
    kept: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    dropped: u64,
    spill: Option<Spill>,
}

/// Where the whole of a stream goes once it is too long.
struct Spill {
    path: PathBuf,
    file: Option<File>,
    room: u64,
    failed: bool,
}

/// What is left of a stream at the end.
pub struct Text {
    pub text: String,
    /// Bytes of its middle that are missing.
    pub missing: u64,
    /// Bytes in all.
    pub total: u64,
    /// Where all of it is.
    pub file: Option<PathBuf>,
}

impl Stream {
    /// A stream, and the end of its pipe that the command writes to.
    pub fn new(kept: u64, spill: Option<PathBuf>) -> io::Result<(Stream, OwnedFd)> {
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&read, true)?;
        let stream = Stream {
            pipe: Some(File::from(read)),
            kept: kept as usize,
            head: Vec::new(),
            tail: VecDeque::new(),
            dropped: 0,
            spill: spill.map(|path| Spill { path, file: None, room: LARGEST_FILE, failed: false }),
        };
        Ok((stream, write))
    }

    /// What to poll, until it has ended.
    pub fn pipe(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(|pipe| pipe.as_fd())
    }

    /// Takes what is there, but not more than a share.
    pub fn drain(&mut self) {
        let mut buffer = [0u8; 65536];
        let mut taken = 0;
        while let Some(pipe) = self.pipe.as_mut().filter(|_| taken < AT_ONCE) {
            match pipe.read(&mut buffer) {
                Ok(0) => self.pipe = None,
                Ok(read) => {
                    taken += read;
                    self.keep(&buffer[..read]);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.pipe = None,
            }
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        let head_room = (self.kept / 2).saturating_sub(self.head.len()).min(bytes.len());
        let (head, rest) = bytes.split_at(head_room);
        self.head.extend_from_slice(head);
        let tail_most = self.kept - self.kept / 2;
        let over = (self.tail.len() + rest.len()).saturating_sub(tail_most);
        if over > 0
            && let Some(spill) = &mut self.spill
        {
            if spill.file.is_none() && !spill.failed {
                // The head may just have grown by a part of these bytes, which are written below.
                let before = self.head.len() - head.len();
                spill.begin(&[&self.head[..before], self.tail.as_slices().0, self.tail.as_slices().1]);
            }
            spill.write(bytes);
        } else if let Some(spill) = self.spill.as_mut().filter(|spill| spill.file.is_some()) {
            spill.write(bytes);
        }
        // Of many bytes only the last can stay.
        let skipped = rest.len().saturating_sub(tail_most);
        self.tail.drain(..(over - skipped).min(self.tail.len()));
        self.tail.extend(&rest[skipped..]);
        self.dropped += over as u64;
    }

    /// What is kept of it. Whoever still holds the pipe holds it in vain.
    pub fn finish(mut self) -> Text {
        self.drain();
        let mut bytes = self.head;
        let kept = bytes.len() + self.tail.len();
        let written = |spill: &Spill| spill.file.is_some() && !spill.failed;
        let file = self.spill.as_ref().filter(|spill| written(spill)).map(|spill| spill.path.clone());
        if self.dropped > 0 {
            let place = match &self.spill {
                Some(Spill { path, room: 0, failed: false, .. }) => {
                    format!("the first {LARGEST_FILE} bytes are in {}", path.display())
                }
                Some(spill) if written(spill) => format!("all of it is in {}", spill.path.display()),
                Some(spill) => format!("{} could not be written", spill.path.display()),
                None => "--spill DIR keeps them".to_owned(),
            };
            bytes.extend_from_slice(format!("\n[... {} bytes left out; {place} ...]\n", self.dropped).as_bytes());
        }
        bytes.extend(self.tail);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Text { text, missing: self.dropped, total: kept as u64 + self.dropped, file }
    }
}

impl Spill {
    /// A new file for this user alone; one that is there already is an error, not a find.
    fn begin(&mut self, so_far: &[&[u8]]) {
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.path) {
            Ok(file) => {
                self.file = Some(file);
                so_far.iter().for_each(|bytes| self.write(bytes));
            }
            Err(_) => self.failed = true,
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        let fits = usize::try_from(self.room).map_or(bytes.len(), |room| room.min(bytes.len()));
        if let Some(file) = self.file.as_mut().filter(|_| fits > 0 && !self.failed) {
            self.failed = file.write_all(&bytes[..fits]).is_err();
            self.room -= fits as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(kept: u64, spill: Option<PathBuf>) -> Stream {
        Stream::new(kept, spill).expect("a pipe").0
    }

    #[test]
    fn head_and_tail_are_kept_and_the_file_has_all_of_it() {
        for step in [1, 3, 7, 64, 1000] {
            let directory = tempfile::tempdir().expect("temporary directory");
            let path = directory.path().join("out");
            let all: Vec<u8> = (0..1000u32).map(|n| b'a' + (n % 26) as u8).collect();
            let mut stream = stream(10, Some(path.clone()));
            all.chunks(step).for_each(|chunk| stream.keep(chunk));
            let text = stream.finish();
            assert_eq!((text.missing, text.total), (990, 1000), "step {step}");
            assert!(text.text.starts_with("abcde\n[... 990 bytes left out; all of it is in "), "{}", text.text);
            assert!(text.text.ends_with(" ...]\nhijkl"), "{}", text.text);
            assert_eq!(std::fs::read(&path).expect("spilled"), all, "step {step}");
        }
    }

    #[test]
    fn what_fits_is_whole_and_makes_no_file() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let path = directory.path().join("out");
        let mut stream = stream(10, Some(path.clone()));
        stream.keep(b"0123456789");
        let text = stream.finish();
        assert_eq!((text.text.as_str(), text.missing, text.file), ("0123456789", 0, None));
        assert!(!path.exists());
    }

    #[test]
    fn nothing_kept_is_all_counted() {
        let mut stream = stream(0, None);
        stream.keep(b"0123456789");
        assert_eq!(stream.finish().missing, 10);
    }
}
