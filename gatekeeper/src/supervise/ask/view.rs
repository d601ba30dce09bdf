//! Through whose mounts a path is found.

use crate::supervise::resolve;
use crate::supervise::target::Target;
use crate::trust::place;
use rustix::fs::{Mode, OFlags};
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// The program's own.
    Programs,
    /// This gatekeeper's, because the program runs inside bubblewrap: there, most of the file system is read-only or absent.
    /// A path is taken as the program wrote it, and leads where it leads outside.
    Outside,
}

/// Finds the files that a program names.
pub struct Eyes<'a> {
    pub view: View,
    pub target: &'a Target,
}

impl Eyes<'_> {
    pub fn open(&self, directory: i32, path: &Path, follow: bool) -> io::Result<OwnedFd> {
        match self.view {
            View::Programs => self.target.open(directory, path, follow),
            View::Outside => {
                let root = rustix::fs::open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
                Ok(resolve::in_root(&root, &self.written(directory, path)?, follow)?)
            }
        }
    }

    /// The directory that contains the last component of a path, its real path, and that component.
    pub fn parent(&self, directory: i32, path: &Path) -> io::Result<(OwnedFd, PathBuf, OsString)> {
        if self.view == View::Programs {
            return self.target.parent(directory, path);
        }
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let opened = self.open(directory, parent, true)?;
        let at = place(&opened)?;
        Ok((opened, at, name))
    }

    /// The absolute path as the program sees it. The kernel shows the path of a directory as its own namespace has it.
    fn written(&self, directory: i32, path: &Path) -> io::Result<PathBuf> {
        if path.is_absolute() {
            return Ok(path.to_owned());
        }
        let base = match directory {
            libc::AT_FDCWD => self.target.working_directory(),
            _ => self.target.place_of(directory),
        }?;
        // A pipe or a socket; a directory that was removed ends in " (deleted)" and is not found.
        if !base.is_absolute() {
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        }
        Ok(if path.as_os_str().is_empty() { base } else { base.join(path) })
    }
}
