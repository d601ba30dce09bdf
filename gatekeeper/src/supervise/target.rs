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

/// What a call's pointers lead to. Nothing in it can be believed, not even that it is the same when read again.
pub trait Memory {
    /// Fills what it can from an address and says how much that is: fewer bytes where the memory ends.
    fn read(&self, address: u64, into: &mut [u8]) -> io::Result<usize>;

    /// Up to `size` bytes from an address; fewer where the memory ends.
    fn bytes(&self, address: u64, size: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; size];
        let read = self.read(address, &mut bytes)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    /// A path as the call was given it.
    fn path(&self, address: u64) -> io::Result<PathBuf> {
        let mut text = Vec::new();
        // Page by page: the string may end just before memory that is not there.
        while text.len() < LONGEST_PATH {
            let at = address.checked_add(text.len() as u64).ok_or(io::ErrorKind::InvalidInput)?;
            let mut page = [0u8; PAGE];
            let room = PAGE - (at as usize % PAGE);
            let read = self.read(at, &mut page[..room])?;
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
}

pub struct Target {
    pub tid: i32,
}

impl Memory for Target {
    fn read(&self, address: u64, into: &mut [u8]) -> io::Result<usize> {
        match sys::process::read_memory(self.tid, address, into) {
            // An outer sandbox refuses the call itself; the file may still do.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
                File::open(format!("/proc/{}/mem", self.tid))?.read_at(into, address)
            }
            other => other,
        }
    }
}

impl Target {
    /// What a path means to the process, as a descriptor that only names the file.
    pub fn open(&self, directory: i32, path: &Path, follow: bool) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::CLOEXEC | if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        Ok(rustix::fs::open(self.walkable(directory, path), flags, Mode::empty())?)
    }

    /// A path of the process's as this process can walk it.
    fn walkable(&self, directory: i32, path: &Path) -> PathBuf {
        let tid = self.tid;
        if path.is_relative() {
            let base = match directory {
                libc::AT_FDCWD => format!("/proc/{tid}/cwd"),
                _ => format!("/proc/{tid}/fd/{directory}"),
            };
            // The base is a link: followed also where the path is empty and nothing else is.
            return if path.as_os_str().is_empty() { PathBuf::from(base + "/.") } else { Path::new(&base).join(path) };
        }
        // Names that mean the process itself must not mean this one.
        let own = |prefix: &str, place: &str| {
            path.strip_prefix(prefix).ok().map(|rest| PathBuf::from(format!("/proc/{tid}{place}")).join(rest))
        };
        own("/proc/self", "")
            .or_else(|| own("/proc/thread-self", ""))
            .or_else(|| own("/dev/fd", "/fd"))
            .or_else(|| own("/dev/stdin", "/fd/0"))
            .or_else(|| own("/dev/stdout", "/fd/1"))
            .or_else(|| own("/dev/stderr", "/fd/2"))
            .unwrap_or_else(|| {
                let mut whole = OsString::from(format!("/proc/{tid}/root"));
                whole.push(path);
                PathBuf::from(whole)
            })
    }

    /// The directory in which a path's last name stands, where that really is, and the name.
    pub fn parent(&self, directory: i32, path: &Path) -> io::Result<(OwnedFd, PathBuf, OsString)> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let opened = self.open(directory, parent, true)?;
        let at = place(&opened)?;
        Ok((opened, at, name))
    }

    /// Where the file of one of its descriptors is.
    pub fn place_of(&self, fd: i32) -> io::Result<PathBuf> {
        std::fs::read_link(format!("/proc/{}/fd/{fd}", self.tid))
    }

    pub fn working_directory(&self) -> io::Result<PathBuf> {
        std::fs::read_link(format!("/proc/{}/cwd", self.tid))
    }

    /// The program that it runs; `None` where this process may not know.
    pub fn exe(&self) -> Option<PathBuf> {
        std::fs::read_link(format!("/proc/{}/exe", self.tid)).ok()
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
