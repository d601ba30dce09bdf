//! The real file system and the facts of this process: with `walk`, the only part of a check that makes system calls.
//!
//! Nothing here blocks or has an effect: only regular files are opened for reading, no terminal becomes the controlling
//! terminal, and descriptors close on exec. A path is opened once, and all facts come from that descriptor.

use super::files::{Facts, Failure, FileType, Files, Opened};
use super::{Caller, Context, Handler, Preload, elf};
use crate::sys::is_shortage;
use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, StatVfsMountFlags, Statx, StatxFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Files as this process sees them. Threads can share it.
#[derive(Default)]
pub struct Disk {
    /// Bytes of files read so far.
    read: Arc<AtomicU64>,
    /// Mount ids and their flags, queried once per mount.
    mounts: Mutex<HashMap<u64, (bool, bool)>>,
    /// The first file that could not be opened for want of descriptors or memory.
    trouble: OnceLock<String>,
}

struct OnDisk {
    file: File,
    facts: Facts,
    read: Arc<AtomicU64>,
}

impl Disk {
    pub fn new() -> Disk {
        Disk::default()
    }

    pub fn bytes_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// What could not be opened for want of descriptors or memory, and looks like a file that nobody can execute.
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.get().map(String::as_str)
    }

    /// The noexec and nosuid flags of the file's mount.
    fn mount_flags(&self, file: &OwnedFd, stat: &Statx) -> (bool, bool) {
        let known = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::MNT_ID);
        let mut mounts = self.mounts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(flags) = mounts.get(&stat.stx_mnt_id).filter(|_| known) {
            return *flags;
        }
        let flags = rustix::fs::fstatvfs(file).map_or(StatVfsMountFlags::empty(), |mount| mount.f_flag);
        let flags = (flags.contains(StatVfsMountFlags::NOEXEC), flags.contains(StatVfsMountFlags::NOSUID));
        if known {
            mounts.insert(stat.stx_mnt_id, flags);
        }
        flags
    }
}

const WANTED: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::MNT_ID);

impl Files for Disk {
    fn open(&self, path: &Path) -> Result<Box<dyn Opened>, Failure> {
        let opened = self.opened(path);
        if let Err(Failure::Other(error)) = &opened
            && is_shortage(error)
        {
            self.trouble.get_or_init(|| format!("{} cannot be opened: {error}", path.display()));
        }
        opened
    }

    fn owner(&self, path: &Path) -> Option<u32> {
        match rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::UID) {
            Ok(stat) if StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::UID) => Some(stat.stx_uid),
            _ => self.open(path).ok().map(|file| file.facts().uid),
        }
    }
}

impl Disk {
    fn opened(&self, path: &Path) -> Result<Box<dyn Opened>, Failure> {
        let before = rustix::fs::statx(CWD, path, AtFlags::empty(), WANTED).map_err(failure)?;
        let mut readable = file_type(&before) == FileType::Regular;
        // Opening a device can have effects, so open only regular files for reading.
        let look = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let opened = match readable {
            true => rustix::fs::open(path, look, Mode::empty()),
            false => Err(Errno::ACCESS),
        };
        let fd = match opened {
            Err(Errno::ACCESS | Errno::PERM) => {
                readable = false;
                rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            }
            other => other,
        }
        .map_err(failure)?;
        let stat = rustix::fs::statx(&fd, "", AtFlags::EMPTY_PATH, WANTED).map_err(failure)?;
        let file_type = file_type(&stat);
        let (noexec, nosuid) = self.mount_flags(&fd, &stat);
        let executable = rustix::fs::accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS).is_ok();
        let facts = Facts {
            file_type,
            mode: u32::from(stat.stx_mode) & 0o7777,
            uid: stat.stx_uid,
            id: (u64::from(stat.stx_dev_major) << 32 | u64::from(stat.stx_dev_minor), stat.stx_ino),
            size: stat.stx_size,
            executable,
            readable: readable && file_type == FileType::Regular,
            noexec,
            nosuid,
            file_caps: executable && file_type == FileType::Regular && has_capabilities(&fd, path, readable),
        };
        Ok(Box::new(OnDisk { file: File::from(fd), facts, read: Arc::clone(&self.read) }))
    }
}

impl Opened for OnDisk {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let count = self.file.read_at(buffer, offset)?;
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }

    fn resolved(&self) -> Option<PathBuf> {
        std::fs::read_link(format!("/proc/self/fd/{}", self.file.as_fd().as_raw_fd())).ok()
    }

    fn into_file(self: Box<Self>) -> Option<File> {
        Some(self.file)
    }
}

fn file_type(stat: &Statx) -> FileType {
    match rustix::fs::FileType::from_raw_mode(stat.stx_mode.into()) {
        rustix::fs::FileType::RegularFile => FileType::Regular,
        rustix::fs::FileType::Directory => FileType::Directory,
        rustix::fs::FileType::Fifo => FileType::Fifo,
        rustix::fs::FileType::CharacterDevice | rustix::fs::FileType::BlockDevice => FileType::Device,
        rustix::fs::FileType::Socket => FileType::Socket,
        _ => FileType::Other,
    }
}

/// An O_PATH descriptor cannot be queried for attributes, so an unreadable file is queried by its path.
fn has_capabilities(fd: &OwnedFd, path: &Path, readable: bool) -> bool {
    let mut nothing: [u8; 0] = [];
    let asked = match readable {
        true => rustix::fs::fgetxattr(fd, "security.capability", &mut nothing[..]),
        false => rustix::fs::getxattr(path, "security.capability", &mut nothing[..]),
    };
    matches!(asked, Ok(_) | Err(Errno::RANGE))
}

fn failure(error: Errno) -> Failure {
    match error {
        Errno::NOENT | Errno::NOTDIR => Failure::NotFound,
        Errno::ACCESS | Errno::PERM => Failure::Denied,
        Errno::LOOP => Failure::Loop,
        Errno::NAMETOOLONG => Failure::TooLong,
        other => Failure::Other(other.into()),
    }
}

impl Caller {
    pub fn of_this_process() -> Caller {
        let mut gids = rustix::process::getgroups().unwrap_or_default();
        gids.push(rustix::process::getegid());
        Caller {
            uid: rustix::process::geteuid().as_raw(),
            gids: gids.into_iter().map(rustix::process::Gid::as_raw).collect(),
        }
    }
}

impl Context {
    /// The context of this process: its PATH, directory and user.
    pub fn of_this_process(preload: Preload) -> Context {
        let cwd = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        Context::of_this_user(preload, std::env::var_os("PATH"), cwd)
    }

    /// The context of this user with another PATH and directory.
    pub fn of_this_user(preload: Preload, path: Option<OsString>, cwd: PathBuf) -> Context {
        Context {
            path,
            cwd,
            caller: Caller::of_this_process(),
            preload,
            handlers: registered_handlers(Path::new(HANDLERS)),
            machine: elf::NATIVE,
            detail: true,
        }
    }
}

/// Where the kernel shows the handlers.
pub const HANDLERS: &str = "/proc/sys/fs/binfmt_misc";

/// The enabled binfmt_misc handlers; none if the file system is not mounted.
pub fn registered_handlers(directory: &Path) -> Vec<Handler> {
    let status = std::fs::read_to_string(directory.join("status")).unwrap_or_default();
    if status.trim() != "enabled" {
        return Vec::new();
    }
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            Handler::parse(&name, &std::fs::read_to_string(entry.path()).ok()?)
        })
        .collect()
}
