//! Reading a process that waits for an answer: its memory, its descriptors, its paths.
//!
//! All of it is racy: another of its threads may change what was read. Good for reports. For permission, only what is
//! taken out of its hands counts: a descriptor opened here, checked here, and used here.

use crate::sys;
use rustix::fs::{Mode, OFlags};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const LONGEST_PATH: usize = 4096;
const PAGE: usize = 4096;

pub struct Target {
    pub tid: i32,
}

impl Target {
    /// Up to `size` bytes from an address; fewer where the memory ends.
    pub fn bytes(&self, address: u64, size: usize) -> io::Result<Vec<u8>> {
        let memory = File::open(format!("/proc/{}/mem", self.tid))?;
        let mut bytes = vec![0; size];
        let read = memory.read_at(&mut bytes, address)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    /// A path as the call was given it.
    pub fn path(&self, address: u64) -> io::Result<PathBuf> {
        let memory = File::open(format!("/proc/{}/mem", self.tid))?;
        let mut text = Vec::new();
        // Page by page: the string may end just before memory that is not there.
        while text.len() < LONGEST_PATH {
            let at = address + text.len() as u64;
            let mut page = [0u8; PAGE];
            let room = PAGE - (at as usize % PAGE);
            let read = memory.read_at(&mut page[..room], at)?;
            match page[..read].iter().position(|byte| *byte == 0) {
                Some(end) => {
                    text.extend_from_slice(&page[..end]);
                    return Ok(PathBuf::from(OsString::from_vec(text)));
                }
                None if read == 0 => break,
                None => text.extend_from_slice(&page[..read]),
            }
        }
        Err(io::Error::from(io::ErrorKind::InvalidInput))
    }

    /// What a path means to the process, as a descriptor that only names the file.
    pub fn open(&self, directory: i32, path: &Path, follow: bool) -> io::Result<OwnedFd> {
        let base = if path.is_absolute() {
            format!("/proc/{}/root", self.tid)
        } else if directory == libc::AT_FDCWD {
            format!("/proc/{}/cwd", self.tid)
        } else {
            format!("/proc/{}/fd/{directory}", self.tid)
        };
        let base = rustix::fs::open(base, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        if path.as_os_str().is_empty() {
            return Ok(base);
        }
        let flags = OFlags::PATH | OFlags::CLOEXEC | if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        let relative = path.strip_prefix("/").unwrap_or(path);
        let relative = if relative.as_os_str().is_empty() { Path::new(".") } else { relative };
        // "/proc/self" means the process itself, not this one.
        let own = relative.strip_prefix("proc/self").or_else(|_| relative.strip_prefix("proc/thread-self"));
        let own =
            own.ok().filter(|_| path.is_absolute()).map(|rest| Path::new("proc").join(self.tid.to_string()).join(rest));
        Ok(rustix::fs::openat(base, own.as_deref().unwrap_or(relative), flags, Mode::empty())?)
    }

    /// A copy of one of its descriptors.
    pub fn descriptor(&self, fd: i32) -> io::Result<OwnedFd> {
        use std::os::fd::AsFd;
        let process = sys::process::pidfd_open(self.pid()?)?;
        sys::process::pidfd_getfd(process.as_fd(), fd)
    }

    /// The process of the thread: a pidfd is of processes only.
    pub fn pid(&self) -> io::Result<i32> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.tid))?;
        let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
        line.and_then(|text| text.trim().parse().ok()).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    pub fn comm(&self) -> String {
        let comm = std::fs::read(format!("/proc/{}/comm", self.tid)).unwrap_or_default();
        String::from_utf8_lossy(&comm).trim_end().to_owned()
    }
}

/// Where an open descriptor's file is now.
pub fn place(fd: &OwnedFd) -> io::Result<PathBuf> {
    use std::os::fd::AsRawFd;
    std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

/// The name by which this process can use a file that it only holds by descriptor.
pub fn by_descriptor(fd: &OwnedFd) -> PathBuf {
    use std::os::fd::AsRawFd;
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

/// A path for a report: as it is, with what is no UTF-8 replaced.
pub fn shown(path: &Path) -> String {
    String::from_utf8_lossy(OsStr::as_bytes(path.as_os_str())).into_owned()
}
