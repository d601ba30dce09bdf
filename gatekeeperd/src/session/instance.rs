//! A running daemon, as others see it: a file in `instances/` that it keeps locked. The kernel drops the lock when the
//! process ends, however it ends, so a lock that can be taken means that the daemon is gone.

use super::SessionError;
use crate::vault::uuid;
use rustix::fs::{FlockOperation, flock};
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

pub struct Instance {
    pub id: String,
    path: PathBuf,
    /// Holds the lock.
    _file: File,
}

impl Instance {
    pub fn begin(state: &Path) -> Result<Instance, SessionError> {
        let directory = state.join("instances");
        let failed = |source| SessionError::File { path: directory.clone(), source };
        private(state).and_then(|()| private(&directory)).map_err(failed)?;
        loop {
            let id = uuid()?;
            let path = directory.join(&id);
            let file = File::options().write(true).create_new(true).mode(0o600).open(&path).map_err(failed)?;
            flock(&file, FlockOperation::LockExclusive).map_err(|errno| failed(errno.into()))?;
            // A reaper may have taken the new file for a dead one before we locked it.
            if file.metadata().map_err(failed)?.nlink() > 0 {
                return Ok(Instance { id, path, _file: file });
            }
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Whether the daemon runs. The file of one that is gone is removed.
pub fn runs(state: &Path, id: &str) -> io::Result<bool> {
    let path = state.join("instances").join(id);
    let file = match File::options().write(true).open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => std::fs::remove_file(&path).map(|()| false),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(true),
        Err(errno) => Err(errno.into()),
    }
}

/// The names in a directory; none if it does not exist.
pub fn entries(directory: &Path) -> io::Result<Vec<String>> {
    match std::fs::read_dir(directory) {
        Ok(entries) => entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Creates a directory for this user alone.
pub fn private(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// This machine and state directory: a store may serve several, and each reaps its own sessions only.
pub fn place(state: &Path) -> String {
    let machine = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let state = std::fs::canonicalize(state).unwrap_or_else(|_| state.to_owned());
    format!("{}/{name}:{}", machine.trim(), state.display())
}
