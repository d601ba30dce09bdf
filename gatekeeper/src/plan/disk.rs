//! The real file system as a plan sees it. Looks only.

use super::paths::{Searched, Seek, Tree, Unlisted};
use rustix::fs::{Access, AtFlags, CWD};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

pub struct Disk;

/// More than any file that git keeps its pointers in.
const SMALL: u64 = 8192;

impl Tree for Disk {
    fn resolve(&self, path: &Path) -> Option<PathBuf> {
        // Most of what is asked for is not there, and this tells so in one call.
        rustix::fs::access(path, Access::EXISTS).ok()?;
        fs::canonicalize(path).ok()
    }

    fn entries(&self, directory: &Path) -> Option<Vec<PathBuf>> {
        let entries = fs::read_dir(directory).ok()?.filter_map(Result::ok);
        let linked = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_symlink());
        Some(entries.filter(|entry| !linked(entry)).map(|entry| entry.path()).collect())
    }

    fn names(&self, directory: &Path) -> Vec<OsString> {
        fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.file_name()).collect()
    }

    fn is_closed(&self, path: &Path) -> bool {
        let closed = |path: &Path| {
            let Ok(stat) = rustix::fs::stat(path) else { return false };
            let me = rustix::process::geteuid();
            let refused = |how| rustix::fs::accessat(CWD, path, how, AtFlags::EACCESS) == Err(Errno::ACCESS);
            !me.is_root() && stat.st_uid != me.as_raw() && refused(Access::READ_OK) && refused(Access::EXEC_OK)
        };
        // A directory that anybody may list can still hold nothing that they may read.
        let holds_nothing = || {
            let mut entries = fs::read_dir(path).ok()?;
            let foreign = fs::metadata(path).is_ok_and(|meta| meta.uid() != rustix::process::geteuid().as_raw());
            (foreign && entries.all(|entry| entry.is_ok_and(|entry| closed(&entry.path())))).then_some(())
        };
        closed(path) || holds_nothing().is_some()
    }

    fn is_directory(&self, path: &Path) -> bool {
        path.is_dir()
    }

    fn text(&self, path: &Path) -> Option<String> {
        let mut options = fs::OpenOptions::new();
        // A FIFO in its place must not hang us.
        let file =
            options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_NOFOLLOW).open(path).ok()?;
        let mut text = String::new();
        file.metadata().ok()?.is_file().then_some(())?;
        file.take(SMALL).read_to_string(&mut text).ok()?;
        Some(text)
    }

    fn search(&self, top: &Path, seek: &dyn Seek) -> Result<Searched, Unlisted> {
        super::search::search(top, seek)
    }
}
