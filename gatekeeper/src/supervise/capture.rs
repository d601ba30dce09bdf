//! Captured output: the head and the tail are kept, the middle is counted.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What is kept of a stream when nobody says otherwise.
pub const DEFAULT_KEPT: u64 = 1024 * 1024;

/// One stream of the command, read through a pipe that never blocks us.
pub struct Stream {
    pipe: Option<File>,
    kept: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    dropped: u64,
}

impl Stream {
    /// A stream, and the end of its pipe that the command writes to.
    pub fn new(kept: u64) -> io::Result<(Stream, OwnedFd)> {
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&read, true)?;
        let stream = Stream {
            pipe: Some(File::from(read)),
            kept: kept as usize,
            head: Vec::new(),
            tail: VecDeque::new(),
            dropped: 0,
        };
        Ok((stream, write))
    }

    /// What to poll, until it has ended.
    pub fn pipe(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(|pipe| pipe.as_fd())
    }

    /// Takes what is there.
    pub fn drain(&mut self) {
        let mut buffer = [0u8; 65536];
        while let Some(pipe) = &mut self.pipe {
            match pipe.read(&mut buffer) {
                Ok(0) => self.pipe = None,
                Ok(read) => self.keep(&buffer[..read]),
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
        self.tail.extend(rest);
        let over = self.tail.len().saturating_sub(self.kept - self.kept / 2);
        self.tail.drain(..over);
        self.dropped += over as u64;
    }

    /// The text, and how many bytes of its middle are missing.
    pub fn finish(mut self) -> (String, u64) {
        self.drain();
        let mut bytes = self.head;
        if self.dropped > 0 {
            bytes.extend_from_slice(format!("\n[... {} bytes left out ...]\n", self.dropped).as_bytes());
        }
        bytes.extend(self.tail);
        (String::from_utf8_lossy(&bytes).into_owned(), self.dropped)
    }
}
