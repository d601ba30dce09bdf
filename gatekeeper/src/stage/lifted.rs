//! Permissions that were lifted to look into a stage, noted before, so that the next command restores them if this process is
//! killed: they are part of what the command left.

use super::StageError;
use super::base::Text;
use super::files::read;
use super::tree::{Dir, split};
use rustix::fs::{AtFlags, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

const LIFTED: &str = "lifted.json";

/// One line of the file: a path relative to the directory of the stage, its mode before and meanwhile.
#[derive(Serialize, Deserialize)]
struct Line(Text, u32, u32);

/// The notes of this process. The file is removed with the last directory that is open.
#[derive(Debug)]
pub struct Lifts {
    /// The directory of the stage.
    directory: OwnedFd,
    file: Mutex<Option<File>>,
}

impl Lifts {
    pub fn new(directory: &OwnedFd) -> io::Result<Lifts> {
        Ok(Lifts { directory: directory.try_clone()?, file: Mutex::default() })
    }

    /// Notes a mode that is about to change.
    pub fn note(&self, path: &Path, before: u32, lifted: u32) -> io::Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if file.is_none() {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            *file = Some(File::from(openat(&self.directory, LIFTED, flags, Mode::RUSR | Mode::WUSR)?));
        }
        let mut line = serde_json::to_vec(&Line(path.into(), before, lifted))?;
        line.push(b'\n');
        file.as_mut().map_or(Ok(()), |file| file.write_all(&line))
    }
}

impl Drop for Lifts {
    fn drop(&mut self) {
        if self.file.get_mut().is_ok_and(|file| file.is_some()) {
            let _ = unlinkat(&self.directory, LIFTED, AtFlags::empty());
        }
    }
}

/// Restores what a killed process left lifted. The caller holds the lock of the stage.
pub(super) fn restore(directory: &OwnedFd) -> Result<(), StageError> {
    let Some(notes) = read(directory, LIFTED)? else { return Ok(()) };
    let root = directory.try_clone().map_err(|error| StageError::io("stage", error))?;
    let root = Dir::new(root, true);
    // What is below a directory comes after it, and needs its permissions. The last line may be cut.
    let lines = notes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice::<Line>(line).ok());
    for Line(path, before, lifted) in lines.collect::<Vec<_>>().into_iter().rev() {
        let path = PathBuf::from(path);
        let (parent, name) = split(&path);
        let found = root.at(parent).and_then(|dir| dir.map_or(Ok(()), |dir| dir.restore(name, before, lifted)));
        found.map_err(|error| StageError::io(path.display().to_string(), error))?;
    }
    match unlinkat(directory, LIFTED, AtFlags::empty()) {
        // A process that was ending has removed it meanwhile.
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(StageError::io("stage", error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_a_killed_process_lifted_is_restored() {
        let top = tempfile::tempdir().expect("temporary directory");
        let directory: OwnedFd = File::open(top.path()).expect("there").into();
        let set = |path: &str, mode: u32| {
            fs::set_permissions(top.path().join(path), fs::Permissions::from_mode(mode)).expect("own");
        };
        let mode = |path: &str| fs::metadata(top.path().join(path)).expect("there").permissions().mode() & 0o7777;
        fs::create_dir_all(top.path().join("upper/a/b")).expect("new");
        fs::write(top.path().join("upper/f"), "").expect("new");
        let killed = Lifts::new(&directory).expect("open");
        for (path, before, lifted) in [("upper/a", 0, 0o700), ("upper/a/b", 0o2010, 0o2710), ("upper/f", 0, 0o400)] {
            killed.note(Path::new(path), before, lifted).expect("writable");
            set(path, lifted);
        }
        killed.note(Path::new("upper/gone/x"), 0, 0o700).expect("writable");
        // Changed since, by a command.
        set("upper/f", 0o600);
        std::mem::forget(killed);
        restore(&directory).expect("restored");
        assert_eq!((mode("upper/f"), mode("upper/a")), (0o600, 0));
        set("upper/a", 0o700);
        assert_eq!(mode("upper/a/b"), 0o2010);
        assert!(!top.path().join(LIFTED).exists());
        set("upper/a/b", 0o700);
    }
}
