//! The run's own directory: private, made when first needed, gone at the end.

use std::cell::OnceCell;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

pub struct RunDir {
    base: PathBuf,
    made: OnceCell<PathBuf>,
    keep: bool,
}

impl RunDir {
    pub fn new(base: PathBuf, keep: bool) -> RunDir {
        RunDir { base, made: OnceCell::new(), keep }
    }

    pub fn path(&self) -> io::Result<&Path> {
        if let Some(path) = self.made.get() {
            return Ok(path);
        }
        let mut random = [0u8; 8];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        let path = self.base.join(format!("gatekeeper-{:016x}", u64::from_ne_bytes(random)));
        // Made here and by nobody else: an existing one is an error, not a find.
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(self.made.get_or_init(|| path))
    }

    /// The command's TMPDIR.
    pub fn tmp(&self) -> io::Result<PathBuf> {
        let tmp = self.path()?.join("tmp");
        fs::DirBuilder::new().mode(0o700).create(&tmp)?;
        Ok(tmp)
    }

    /// A file written once, for the command to read.
    pub fn file(&self, name: &str, contents: &[u8], mode: u32) -> io::Result<PathBuf> {
        use io::Write;
        let path = self.path()?.join(name);
        fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&path)?.write_all(contents)?;
        Ok(path)
    }

    /// An empty file or directory that nobody but root may open, to be mounted over what is hidden.
    pub fn cover(&self, directory: bool) -> io::Result<PathBuf> {
        let path = self.path()?.join(if directory { "cover.d" } else { "cover" });
        if !path.exists() {
            match directory {
                true => fs::DirBuilder::new().create(&path)?,
                false => drop(fs::OpenOptions::new().write(true).create_new(true).open(&path)?),
            }
            fs::set_permissions(&path, fs::Permissions::from_mode(0o000))?;
        }
        Ok(path)
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        if let Some(path) = self.made.get()
            && !self.keep
        {
            remove(path);
        }
    }
}

/// Removes a tree, also where the command took its own permission away.
fn remove(path: &Path) {
    if fs::remove_dir_all(path).is_ok() {
        return;
    }
    let mut stack = vec![path.to_owned()];
    while let Some(directory) = stack.pop() {
        let _ = fs::set_permissions(&directory, fs::Permissions::from_mode(0o700));
        let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
        stack.extend(
            entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()),
        );
    }
    let _ = fs::remove_dir_all(path);
}
