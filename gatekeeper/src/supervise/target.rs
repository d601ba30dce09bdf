//! Reads a process whose syscall waits for an answer: its memory, descriptors and paths.
//!
//! All of it is racy, since another thread may change it at any time. That is good enough for reports. A permission may
//! depend only on a descriptor that the supervisor opens, checks and uses itself.

use super::resolve;
use super::status::Status;
use crate::sys;
use crate::trust::place;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

const LONGEST_PATH: usize = 4096;
const PAGE: usize = 4096;
/// How much is read first. Most paths are shorter.
const FIRST: usize = 256;

/// Memory of the program. Its contents are untrusted, and may change between two reads.
pub trait Memory {
    /// Reads into a buffer and returns the number of bytes; fewer than asked for at the end of a mapping.
    fn read(&self, address: u64, into: &mut [u8]) -> io::Result<usize>;

    /// Reads up to `size` bytes; fewer at the end of a mapping.
    fn bytes(&self, address: u64, size: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; size];
        let read = self.read(address, &mut bytes)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    /// Reads so many bytes. EFAULT if the mapping ends before.
    fn exactly(&self, address: u64, size: usize) -> io::Result<Vec<u8>> {
        let bytes = if size == 0 { Vec::new() } else { self.bytes(address, size)? };
        if bytes.len() == size { Ok(bytes) } else { Err(Errno::FAULT.into()) }
    }

    /// Reads a NUL-terminated path.
    fn path(&self, address: u64) -> io::Result<PathBuf> {
        let mut text = Vec::new();
        // Page by page: the page after the end of the string may be unmapped.
        while text.len() < LONGEST_PATH {
            let at = address.checked_add(text.len() as u64).ok_or(io::ErrorKind::InvalidInput)?;
            let mut page = [0u8; PAGE];
            let most = if text.is_empty() { FIRST } else { PAGE };
            let room = (PAGE - (at as usize % PAGE)).min(most);
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
            // An outer sandbox may deny process_vm_readv(2) but not /proc/PID/mem.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
                File::open(format!("/proc/{}/mem", self.tid))?.read_at(into, address)
            }
            other => other,
        }
    }
}

impl Target {
    /// Resolves a path as the process would, and opens it with O_PATH. Of the magic links in /proc only the process's
    /// own are followed.
    pub fn open(&self, directory: i32, path: &Path, follow: bool) -> io::Result<OwnedFd> {
        if let Some((link, rest)) = self.own_link(path) {
            return match rest.as_os_str().is_empty() {
                true => through(&link, follow),
                false => self.below(&through(&link, true)?, &rest, follow),
            };
        }
        if path.is_absolute() {
            // /proc/self must mean the process, not the supervisor.
            let own = ["/proc/self", "/proc/thread-self"].iter().find_map(|own| path.strip_prefix(own).ok());
            let own = own.map(|rest| Path::new("/proc").join(self.tid.to_string()).join(rest));
            return self.at_root(own.as_deref().unwrap_or(path), follow);
        }
        let base = match directory {
            libc::AT_FDCWD => self.link("cwd"),
            _ => self.link(&format!("fd/{directory}")),
        }?;
        if path.as_os_str().is_empty() { Ok(base) } else { self.below(&base, path, follow) }
    }

    /// The path without links, if links that the command may have made lead into /proc. There they mean its own files to it, and
    /// to the supervisor those of the supervisor.
    pub fn own_path(&self, directory: i32, path: &Path) -> Option<PathBuf> {
        let base = match directory {
            _ if path.is_absolute() => PathBuf::new(),
            libc::AT_FDCWD => place(&self.link("cwd").ok()?).ok()?,
            _ => place(&self.link(&format!("fd/{directory}")).ok()?).ok()?,
        };
        let root = kept_root().or_else(|| self.link("root").ok().map(Rc::new))?;
        resolve::leads_into_proc(&root, &base.join(path))
    }

    fn at_root(&self, path: &Path, follow: bool) -> io::Result<OwnedFd> {
        let root = kept_root().map_or_else(|| self.link("root").map(Rc::new), Ok)?;
        Ok(resolve::in_root(&root, path, follow)?)
    }

    /// Keeps the root directory of the process open for all calls that this thread answers. Only for a run in which no process
    /// can change its root. `waits` says whether the call still waits: if not, the thread ID may be that of another process.
    pub(super) fn keep_root(&self, waits: impl FnOnce() -> bool) {
        if kept_root().is_none()
            && let Ok(root) = self.link("root")
            && waits()
        {
            ROOT.set(Some(Rc::new(root)));
        }
    }

    /// Opens what a magic link of the process leads to.
    pub(super) fn link(&self, name: &str) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        Ok(inside_process(self.tid, |process| rustix::fs::openat(process, name, flags, Mode::empty()))?)
    }

    fn below(&self, base: &OwnedFd, path: &Path, follow: bool) -> io::Result<OwnedFd> {
        match resolve::beneath(base, path, follow) {
            // The path has `..` or an absolute link: resolve it from the root.
            Err(rustix::io::Errno::XDEV) => self.at_root(&place(base)?.join(path), follow),
            other => Ok(other?),
        }
    }

    /// Whether ELOOP means that the path goes through a magic link of another process, rather than in a circle. Follows
    /// the link to find out, but does not use its target.
    pub fn leads_elsewhere(&self, error: &io::Error, directory: i32, path: &Path) -> bool {
        let tid = self.tid;
        let from = match directory {
            _ if path.is_absolute() => format!("/proc/{tid}/root"),
            libc::AT_FDCWD => format!("/proc/{tid}/cwd"),
            _ => format!("/proc/{tid}/fd/{directory}"),
        };
        let whole = Path::new(&from).join(path.strip_prefix("/").unwrap_or(path));
        let circles = || through(&whole, true).is_err_and(|error| error.raw_os_error() == Some(libc::ELOOP));
        error.raw_os_error() == Some(libc::ELOOP) && !circles()
    }

    /// Whether the process finds this file at this path. A descriptor may come from another mount namespace, where the
    /// path means another file.
    pub fn finds(&self, file: &OwnedFd, at: &Path) -> bool {
        let same = || -> io::Result<bool> {
            let (one, other) = (rustix::fs::fstat(file)?, rustix::fs::fstat(self.at_root(at, false)?)?);
            Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
        };
        same().unwrap_or(false)
    }

    /// Splits a path that begins with a magic link of the process itself: the link under the process's own PID, and the
    /// rest.
    fn own_link(&self, path: &Path) -> Option<(PathBuf, PathBuf)> {
        let tid = self.tid;
        let descriptor = |number: &str| PathBuf::from(format!("/proc/{tid}/fd/{number}"));
        if let Ok(name) = path.strip_prefix("/dev") {
            let mut names = name.iter();
            let link = match (names.next()?.to_str()?, names.as_path()) {
                ("stdin", rest) => (descriptor("0"), rest.to_owned()),
                ("stdout", rest) => (descriptor("1"), rest.to_owned()),
                ("stderr", rest) => (descriptor("2"), rest.to_owned()),
                ("fd", _) => (descriptor(number(names.next())?), names.as_path().to_owned()),
                _ => return None,
            };
            return Some(link);
        }
        let mut names = path.strip_prefix("/proc").ok()?.iter();
        match names.next()?.to_str()? {
            "self" | "thread-self" => {}
            word => {
                let process: i32 = word.parse().ok()?;
                if process != tid && self.pid().ok()? != process {
                    return None;
                }
            }
        }
        let mut kind = names.next()?.to_str()?;
        if kind == "task" {
            // Threads share descriptors and directories, unless they were created without CLONE_FILES or CLONE_FS.
            number(names.next())?;
            kind = names.next()?.to_str()?;
        }
        let link = match kind {
            "fd" => descriptor(number(names.next())?),
            "cwd" | "root" | "exe" => PathBuf::from(format!("/proc/{tid}/{kind}")),
            _ => return None,
        };
        Some((link, names.as_path().to_owned()))
    }

    /// The directory that contains the last component of a path, its real path, and that component.
    pub fn parent(&self, directory: i32, path: &Path) -> io::Result<(OwnedFd, PathBuf, OsString)> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let opened = self.open(directory, parent, true)?;
        let at = place(&opened)?;
        Ok((opened, at, name))
    }

    /// The path of an open descriptor.
    pub fn place_of(&self, fd: i32) -> io::Result<PathBuf> {
        std::fs::read_link(format!("/proc/{}/fd/{fd}", self.tid))
    }

    pub fn working_directory(&self) -> io::Result<PathBuf> {
        std::fs::read_link(format!("/proc/{}/cwd", self.tid))
    }

    /// The executable; `None` if this process may not read the link.
    pub fn exe(&self) -> Option<PathBuf> {
        std::fs::read_link(format!("/proc/{}/exe", self.tid)).ok()
    }

    /// Duplicates one of its descriptors into this process. By the thread's own pidfd where the kernel has one (Linux 6.9): the
    /// first thread of the process may have exited, or have another table of descriptors.
    pub fn descriptor(&self, fd: i32) -> io::Result<OwnedFd> {
        match self.copied(fd) {
            Err(Errno::BADF) => Err(Errno::BADF.into()),
            Err(_) => {
                let process = sys::process::pidfd_open(self.pid()?)?;
                sys::process::pidfd_getfd(process.as_fd(), fd)
            }
            Ok(copied) => Ok(copied),
        }
    }

    /// The same by the thread's own pidfd, which is remembered. Fails where the kernel has none for this thread, or where an
    /// outer sandbox forbids it.
    pub(super) fn copied(&self, fd: i32) -> rustix::io::Result<OwnedFd> {
        let errno = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::INVAL);
        with_known(self.tid, |known| {
            if known.thread.is_none() {
                known.thread = Some(sys::process::thread_open(known.tid).map_err(errno)?);
            }
            let Some(thread) = &known.thread else { return Err(Errno::SRCH) };
            sys::process::pidfd_getfd(thread.as_fd(), fd).map_err(errno)
        })
    }

    /// The PID of the thread's process. pidfd_open(2) takes no thread IDs.
    pub fn pid(&self) -> io::Result<i32> {
        Status::of(self.tid)?.number("Tgid").ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    pub fn comm(&self) -> String {
        let comm = std::fs::read(format!("/proc/{}/comm", self.tid)).unwrap_or_default();
        String::from_utf8_lossy(&comm).trim_end().to_owned()
    }
}

/// How many of the threads that this thread looked at last are remembered.
const REMEMBERED: usize = 3;

/// Descriptors of a thread that makes calls. They stand for that one thread: once it is gone, every use fails with ESRCH, also
/// if another one got its number.
struct Known {
    tid: i32,
    /// Its directory in /proc.
    directory: OwnedFd,
    /// Its pidfd, opened when it is needed first.
    thread: Option<OwnedFd>,
}

thread_local! {
    static KNOWN: RefCell<Vec<Known>> = const { RefCell::new(Vec::new()) };
    static ROOT: RefCell<Option<Rc<OwnedFd>>> = const { RefCell::new(None) };
}

/// The root directory of every process whose calls this thread answers, if none of them can change it.
pub(super) fn kept_root() -> Option<Rc<OwnedFd>> {
    ROOT.with_borrow(Clone::clone)
}

/// Opens /proc/PID of a process that is about to make calls. If the process has ended, another one may have its number: then no call
/// comes from that number until the other one has ended, and /proc/PID is opened again for the first call after that.
pub(super) fn expect(pid: i32) {
    let _ = inside_process(pid, |_| Ok(()));
}

/// Looks something up in /proc/TID.
fn inside_process<T>(tid: i32, mut look: impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    with_known(tid, |known| look(known.directory.as_fd()))
}

fn with_known<T>(tid: i32, mut look: impl FnMut(&mut Known) -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    KNOWN.with_borrow_mut(|all| {
        if let Some(at) = all.iter().position(|known| known.tid == tid)
            && let Some(known) = all.get_mut(at)
        {
            match look(known) {
                Err(Errno::SRCH) => drop(all.swap_remove(at)),
                other => return other,
            }
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(format!("/proc/{tid}"), flags, Mode::empty())?;
        let mut known = Known { tid, directory, thread: None };
        let found = look(&mut known);
        if all.len() >= REMEMBERED {
            all.remove(0);
        }
        all.push(known);
        found
    })
}

/// Opens a magic link of /proc: its target or, without `follow`, the link itself.
fn through(link: &Path, follow: bool) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
    Ok(rustix::fs::open(link, flags, Mode::empty())?)
}

pub const OTHERS_LINKS: &str = "links in /proc that lead to files of other processes are not followed";

fn number(name: Option<&OsStr>) -> Option<&str> {
    name?.to_str().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// A path for a report, with invalid UTF-8 replaced.
pub fn shown(path: &Path) -> String {
    String::from_utf8_lossy(OsStr::as_bytes(path.as_os_str())).into_owned()
}
