//! Captured output. The head and the tail of a stream are kept, the middle is counted, and with --spill all of it is
//! written to a file. A background process that keeps the pipe open does not delay the end of the run.

use crate::trust::{self, Hostile, Untrusted};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, openat};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How much of a stream is kept by default.
pub const DEFAULT_KEPT: u64 = 1024 * 1024;
/// The most that goes to a file.
pub const LARGEST_FILE: u64 = 256 * 1024 * 1024;
/// The most to read at once, so that an endless stream does not starve the event loop.
const AT_ONCE: usize = 1024 * 1024;

/// stdout or stderr of the command, read through a non-blocking pipe.
pub struct Stream {
    pipe: Option<File>,
    kept: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    dropped: u64,
    spill: Option<Spill>,
}

/// The directory for streams that are too long to keep. Held open, so that a directory which replaces it is never
/// written to.
#[derive(Debug, Clone)]
pub struct SpillTo {
    /// `None` if it does not exist, which is reported only once there is something to write.
    directory: Option<Arc<OwnedFd>>,
    path: PathBuf,
    name: String,
}

impl SpillTo {
    /// Opens the directory. Inside `hostile` trees a symbolic link anywhere in the path is an error.
    pub fn open(path: &Path, hostile: &Hostile) -> Result<SpillTo, Untrusted> {
        let directory = match trust::walk(path, hostile) {
            Ok(found) => Some(Arc::new(found.file)),
            Err(error) if error.is_missing() => None,
            Err(error) => return Err(error),
        };
        let mut random = [0u8; 8];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
            .map_err(|error| Untrusted::io(path, error))?;
        // Unique among runs.
        let name = format!("gatekeeper-{:016x}", u64::from_ne_bytes(random));
        Ok(SpillTo { directory, path: path.to_owned(), name })
    }

    fn stream(&self, stream: &str) -> Spill {
        let name = format!("{}.{stream}", self.name);
        let path = self.path.join(&name);
        Spill {
            directory: self.directory.clone(),
            name,
            path,
            file: None,
            linked: false,
            room: LARGEST_FILE,
            failed: false,
        }
    }
}

/// The file that gets a whole stream once it is too long. It is unnamed (O_TMPFILE) until the command has ended, so
/// that the command cannot change it. On file systems without O_TMPFILE it has its name from the start.
struct Spill {
    directory: Option<Arc<OwnedFd>>,
    name: String,
    path: PathBuf,
    file: Option<File>,
    linked: bool,
    room: u64,
    failed: bool,
}

/// What was kept of a stream.
pub struct Text {
    pub text: String,
    /// The same bytes as base64, if they are no UTF-8.
    pub base64: Option<String>,
    /// Bytes missing from the middle.
    pub missing: u64,
    /// Length of the stream.
    pub total: u64,
    /// The file with the whole stream.
    pub file: Option<PathBuf>,
}

impl Stream {
    /// Creates a stream. Also returns the end of the pipe that the command writes to.
    pub fn new(kept: u64, spill: Option<(&SpillTo, &str)>) -> io::Result<(Stream, OwnedFd)> {
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&read, true)?;
        let stream = Stream {
            pipe: Some(File::from(read)),
            kept: kept as usize,
            head: Vec::new(),
            tail: VecDeque::new(),
            dropped: 0,
            spill: spill.map(|(to, stream)| to.stream(stream)),
        };
        Ok((stream, write))
    }

    /// The descriptor to poll, until the stream has ended.
    pub fn pipe(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(|pipe| pipe.as_fd())
    }

    /// Reads what is available, up to [`AT_ONCE`].
    pub fn drain(&mut self) {
        self.drain_to(&mut |_| {});
    }

    /// The same, and calls `with` for each part.
    pub fn drain_to(&mut self, with: &mut dyn FnMut(&[u8])) {
        let mut buffer = [0u8; 65536];
        let mut taken = 0;
        while let Some(pipe) = self.pipe.as_mut().filter(|_| taken < AT_ONCE) {
            match pipe.read(&mut buffer) {
                Ok(0) => self.pipe = None,
                Ok(read) => {
                    taken += read;
                    self.keep(&buffer[..read]);
                    with(&buffer[..read]);
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
                // Part of `bytes` may just have been added to the head; `spill.write` below writes all of `bytes`.
                let before = self.head.len() - head.len();
                spill.begin(&[&self.head[..before], self.tail.as_slices().0, self.tail.as_slices().1]);
            }
            spill.write(bytes);
        } else if let Some(spill) = self.spill.as_mut().filter(|spill| spill.file.is_some()) {
            spill.write(bytes);
        }
        // Only the last `tail_most` bytes can stay.
        let skipped = rest.len().saturating_sub(tail_most);
        self.tail.drain(..(over - skipped).min(self.tail.len()));
        self.tail.extend(&rest[skipped..]);
        self.dropped += over as u64;
    }

    /// Closes the stream, even if a process still holds the other end of the pipe, and returns what was kept.
    pub fn finish(mut self) -> Text {
        self.drain();
        self.spill.iter_mut().for_each(Spill::finish);
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
                None => "--output SIZE keeps more, `gatekeeper run --spill DIR` all".to_owned(),
            };
            bytes.extend_from_slice(format!("\n[... {} bytes left out; {place} ...]\n", self.dropped).as_bytes());
        }
        bytes.extend(self.tail);
        let total = kept as u64 + self.dropped;
        match String::from_utf8(bytes) {
            Ok(text) => Text { text, base64: None, missing: self.dropped, total, file },
            Err(error) => {
                let bytes = error.as_bytes();
                let (text, base64) = (String::from_utf8_lossy(bytes).into_owned(), BASE64_STANDARD.encode(bytes));
                Text { text, base64: Some(base64), missing: self.dropped, total, file }
            }
        }
    }
}

impl Spill {
    /// Creates the file, readable by this user only. An existing file is an error.
    fn begin(&mut self, so_far: &[&[u8]]) {
        match self.create() {
            Ok(file) => {
                self.file = Some(File::from(file));
                so_far.iter().for_each(|bytes| self.write(bytes));
            }
            Err(_) => self.failed = true,
        }
    }

    fn create(&mut self) -> Result<OwnedFd, Errno> {
        let directory = self.directory.as_ref().ok_or(Errno::NOENT)?;
        let (flags, mode) = (OFlags::WRONLY | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR);
        match openat(directory, c".", flags | OFlags::TMPFILE, mode) {
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {
                self.linked = true;
                openat(directory, &self.name, flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW, mode)
            }
            other => other,
        }
    }

    /// Links the unnamed file into the directory.
    fn finish(&mut self) {
        let (Some(file), Some(directory), false) = (&self.file, &self.directory, self.linked) else { return };
        let unnamed = format!("/proc/self/fd/{}", file.as_raw_fd());
        let linked = linkat(CWD, unnamed, directory, &self.name, AtFlags::SYMLINK_FOLLOW);
        self.failed |= linked.is_err();
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

    fn stream(kept: u64, spill: Option<&SpillTo>) -> Stream {
        Stream::new(kept, spill.map(|to| (to, "stdout"))).expect("a pipe").0
    }

    fn spill_to(directory: &tempfile::TempDir) -> SpillTo {
        SpillTo::open(directory.path(), &Hostile::default()).expect("own")
    }

    #[test]
    fn head_and_tail_are_kept_and_the_file_has_all_of_it() {
        for step in [1, 3, 7, 64, 1000] {
            let directory = tempfile::tempdir().expect("temporary directory");
            let all: Vec<u8> = (0..1000u32).map(|n| b'a' + (n % 26) as u8).collect();
            let mut stream = stream(10, Some(&spill_to(&directory)));
            all.chunks(step).for_each(|chunk| stream.keep(chunk));
            let text = stream.finish();
            assert_eq!((text.missing, text.total), (990, 1000), "step {step}");
            assert!(text.text.starts_with("abcde\n[... 990 bytes left out; all of it is in "), "{}", text.text);
            assert!(text.text.ends_with(" ...]\nhijkl"), "{}", text.text);
            assert_eq!(std::fs::read(text.file.expect("spilled")).expect("spilled"), all, "step {step}");
        }
    }

    #[test]
    fn what_fits_is_whole_and_makes_no_file() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let mut stream = stream(10, Some(&spill_to(&directory)));
        stream.keep(b"0123456789");
        let text = stream.finish();
        assert_eq!((text.text.as_str(), text.missing, text.file), ("0123456789", 0, None));
        assert_eq!(directory.path().read_dir().expect("own").count(), 0);
    }

    #[test]
    fn nothing_kept_is_all_counted() {
        let mut stream = stream(0, None);
        stream.keep(b"0123456789");
        assert_eq!(stream.finish().missing, 10);
    }
}
