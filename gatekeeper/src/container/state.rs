//! What is kept between commands, below the state directory (0700): for each container a note that it was made completely,
//! and two lock files. `make` is held while a container is made or removed; `use` is shared by everything that runs in it,
//! and its time of change is when the container was last used. The engines cannot change a label of a container.

use super::engine::{About, Engine};
use crate::trust::{self, Hostile};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, futimens, openat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The state directory.
pub struct State {
    pub path: PathBuf,
    directory: OwnedFd,
}

/// A container that was made completely.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    pub engine: Engine,
    pub about: About,
    /// Device and inode of each mount.
    #[serde(default)]
    pub files: Vec<Option<(u64, u64)>>,
    /// prune.idleHours and prune.maxAgeDays of the configuration that used it last.
    #[serde(default)]
    pub prune: Option<(u64, u64)>,
    /// For a browser: the way in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub door: Option<Door>,
}

/// What a client of a browser needs besides its port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Door {
    pub token: String,
    /// The path of the browser's WebSocket.
    pub path: String,
}

/// A lock, until it is dropped.
#[derive(Debug)]
pub struct Lock(OwnedFd);

impl State {
    /// Opens `$XDG_STATE_HOME/gatekeeper/box`, or the same below `~/.local/state`.
    pub fn open() -> Result<State, String> {
        let absolute =
            |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute());
        let base = absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
        let base = base.ok_or("state directory: neither XDG_STATE_HOME nor HOME is an absolute path")?;
        let path = base.join("gatekeeper/box");
        let found = trust::make_directory(&path, &Hostile::here(), Mode::RWXU)
            .map_err(|error| format!("state directory: {error}"))?;
        let own = rustix::process::geteuid().as_raw();
        if found.stat.st_uid != own || found.stat.st_mode & 0o077 != 0 {
            let path = found.real.display();
            return Err(format!("state directory: {path} must belong to this user alone: chmod 700 {path}"));
        }
        let directory = found
            .reopen(OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC)
            .map_err(|error| format!("state directory: {error}"))?;
        Ok(State { path: found.real, directory })
    }

    fn file(&self, name: &str, flags: OFlags) -> Result<OwnedFd, String> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(&self.directory, name, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|error| format!("{}: {error}", self.path.join(name).display()))
    }

    fn lock(&self, name: &str, how: FlockOperation) -> Result<Lock, String> {
        let file = self.file(name, OFlags::RDWR | OFlags::CREATE)?;
        loop {
            match flock(&file, how) {
                Ok(()) => return Ok(Lock(file)),
                Err(Errno::INTR) => {}
                Err(error) => return Err(format!("{}: {error}", self.path.join(name).display())),
            }
        }
    }

    /// Waits until no other process makes or removes this container.
    pub fn making(&self, container: &str) -> Result<Lock, String> {
        self.lock(&format!("{container}.make"), FlockOperation::LockExclusive)
    }

    /// Marks the container as in use, and as used now.
    pub fn using(&self, container: &str) -> Result<Lock, String> {
        let lock = self.lock(&format!("{container}.use"), FlockOperation::LockShared)?;
        lock.used_now();
        Ok(lock)
    }

    /// The use of a container for its removal: `None` while something runs in it. Only while holding `making`.
    pub fn unused(&self, container: &str) -> Option<Lock> {
        self.lock(&format!("{container}.use"), FlockOperation::NonBlockingLockExclusive).ok()
    }

    /// When the container was last used.
    pub fn last_used(&self, container: &str) -> Option<SystemTime> {
        std::fs::symlink_metadata(self.path.join(format!("{container}.use"))).ok()?.modified().ok()
    }

    pub fn note(&self, container: &str) -> Option<Note> {
        let file = self.file(&format!("{container}.json"), OFlags::RDONLY).ok()?;
        let mut text = String::new();
        std::fs::File::from(file).take(1 << 16).read_to_string(&mut text).ok()?;
        serde_json::from_str(&text).ok()
    }

    pub fn write_note(&self, container: &str, note: &Note) -> Result<(), String> {
        let text = serde_json::to_vec(note).map_err(|error| error.to_string())?;
        self.replace(&format!("{container}.json"), &text)
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), String> {
        let fresh = format!("{name}.new");
        let file = self.file(&fresh, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC)?;
        let wrong = |error: std::io::Error| format!("{}: {error}", self.path.join(name).display());
        std::fs::File::from(file).write_all(bytes).map_err(wrong)?;
        rustix::fs::renameat(&self.directory, &fresh, &self.directory, name).map_err(|error| wrong(error.into()))
    }

    /// Marks a container that a changed configuration replaced while commands ran in it. The last of them removes it.
    pub fn mark_replaced(&self, container: &str) {
        let _ = self.file(&format!("{container}.replaced"), OFlags::WRONLY | OFlags::CREATE);
    }

    pub fn is_replaced(&self, container: &str) -> bool {
        rustix::fs::statat(&self.directory, format!("{container}.replaced"), AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Forgets a container. Its lock files stay until no process can hold them: removing a locked file would let two
    /// processes hold the same lock.
    pub fn forget(&self, container: &str) {
        for what in ["json", "replaced"] {
            let _ = rustix::fs::unlinkat(&self.directory, format!("{container}.{what}"), AtFlags::empty());
        }
    }

    /// The key of the hashes in labels, so that a label tells nothing about what was hashed.
    pub fn key(&self) -> Result<[u8; 32], String> {
        let _lock = self.lock("key.lock", FlockOperation::LockExclusive)?;
        let mut key = [0; 32];
        if let Ok(file) = self.file("key", OFlags::RDONLY)
            && std::fs::File::from(file).read_exact(&mut key).is_ok()
        {
            return Ok(key);
        }
        random(&mut key)?;
        self.replace("key", &key)?;
        Ok(key)
    }

    /// The containers that have a note.
    pub fn noted(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.path).into_iter().flatten().flatten();
        let name = |entry: std::fs::DirEntry| entry.file_name().into_string().ok();
        entries.filter_map(|entry| name(entry)?.strip_suffix(".json").map(str::to_owned)).collect()
    }
}

impl Lock {
    pub fn used_now(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let now = rustix::fs::Timespec { tv_sec: now.as_secs() as i64, tv_nsec: i64::from(now.subsec_nanos()) };
        let _ = futimens(&self.0, &rustix::fs::Timestamps { last_access: now, last_modification: now });
    }
}

pub fn random(bytes: &mut [u8]) -> Result<(), String> {
    let mut done = 0;
    while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
        done += rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty())
            .map_err(|error| format!("random numbers: {error}"))?;
    }
    Ok(())
}

pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A leading `~` of the caller's paths, and the home directory of closed paths.
pub fn home() -> Option<PathBuf> {
    std::env::var_os("HOME").map(|home: OsString| PathBuf::from(home)).filter(|home| home.is_absolute())
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// The path of this program on the host, to be bound into containers.
pub fn own_program() -> Result<PathBuf, String> {
    let path =
        std::fs::read_link("/proc/self/exe").map_err(|error| format!("cannot find gatekeeper itself: {error}"))?;
    match Path::new(&path).exists() {
        true => Ok(path),
        false => Err(format!("gatekeeper itself was replaced while it runs ({}); start it again", path.display())),
    }
}
