//! The run's own directory: private, named before anything exists, made by the guardian when something is to be in it,
//! gone at the end. Nothing here follows a symbolic link or removes what this user did not make.

use crate::sys::place::{Make, Place, Sweep};
use rustix::fs::{Mode, OFlags};
use std::cell::RefCell;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const PREFIX: &str = "gatekeeper-";
/// The word by which gatekeeper is told to remove a run's directory and do nothing else.
pub const SWEEP: &str = "__sweep";

pub struct RunDir {
    path: PathBuf,
    keep: bool,
    /// The gatekeeper program that sweeps.
    helper: Option<PathBuf>,
    inside: RefCell<Vec<Entry>>,
}

struct Entry {
    name: &'static str,
    kind: Kind,
}

enum Kind {
    Directory { mode: u32 },
    File { mode: u32, contents: Vec<u8> },
}

impl RunDir {
    /// A name below `base` that nobody can have taken on purpose. Nothing is made.
    pub fn new(base: &Path, keep: bool, helper: Option<&Path>) -> io::Result<RunDir> {
        let mut random = [0u8; 8];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        let name = format!("{PREFIX}{:016x}", u64::from_ne_bytes(random));
        Ok(RunDir { path: base.join(name), keep, helper: helper.map(Path::to_owned), inside: RefCell::new(Vec::new()) })
    }

    /// The command's TMPDIR.
    pub fn tmp(&self) -> PathBuf {
        self.add("tmp", Kind::Directory { mode: 0o700 })
    }

    /// A file for the command to read.
    pub fn file(&self, name: &'static str, contents: Vec<u8>, mode: u32) -> PathBuf {
        self.add(name, Kind::File { mode, contents })
    }

    /// An empty file or directory that nobody but root may open, to be mounted over what is hidden.
    pub fn cover(&self, directory: bool) -> PathBuf {
        match directory {
            true => self.add("cover.d", Kind::Directory { mode: 0 }),
            false => self.add("cover", Kind::File { mode: 0, contents: Vec::new() }),
        }
    }

    fn add(&self, name: &'static str, kind: Kind) -> PathBuf {
        let mut inside = self.inside.borrow_mut();
        if !inside.iter().any(|entry| entry.name == name) {
            inside.push(Entry { name, kind });
        }
        self.path.join(name)
    }

    /// Where it is, if there is anything in it.
    pub fn path(&self) -> Option<&Path> {
        (!self.inside.borrow().is_empty()).then_some(&self.path)
    }

    pub fn keeps(&self) -> bool {
        self.keep
    }

    /// What the guardian has to make, with the Landlock rights on it.
    pub fn place(&self, grants: Vec<(PathBuf, u64)>) -> io::Result<Option<Place>> {
        let inside = self.inside.borrow();
        if inside.is_empty() {
            return Ok(None);
        }
        let make = |entry: &Entry| {
            let path = cstring(&self.path.join(entry.name))?;
            Ok(match &entry.kind {
                Kind::Directory { mode } => Make::Directory { path, mode: *mode },
                Kind::File { mode, contents } => Make::File { path, mode: *mode, contents: contents.clone() },
            })
        };
        let words = vec![c"gatekeeper".to_owned(), CString::new(SWEEP)?, cstring(&self.path)?];
        Ok(Some(Place {
            directory: cstring(&self.path)?,
            inside: inside.iter().map(make).collect::<io::Result<_>>()?,
            grants: grants.iter().map(|(path, rights)| Ok((cstring(path)?, *rights))).collect::<io::Result<_>>()?,
            sweep: match &self.helper {
                Some(helper) if !self.keep => Some(Sweep::new(cstring(helper)?, words)),
                _ => None,
            },
        }))
    }

    /// A directory of the run's own for nothing but that the guardian, when it has to, removes these with it.
    pub fn place_for_stubs(&self, stubs: &[PathBuf]) -> io::Result<Option<Place>> {
        self.inside.borrow_mut().clear();
        if stubs.is_empty() {
            return Ok(None);
        }
        self.add("stubs", Kind::Directory { mode: 0o700 });
        let place = self.place(Vec::new())?;
        let mut words = vec![c"gatekeeper".to_owned(), CString::new(SWEEP)?, cstring(&self.path)?];
        words.extend(stubs.iter().map(|stub| cstring(stub)).collect::<io::Result<Vec<_>>>()?);
        let helper = self.helper.as_deref().map(cstring).transpose()?;
        Ok(place.map(|place| Place { sweep: helper.map(|helper| Sweep::new(helper, words)), ..place }))
    }

    /// Removes it, with whatever the command left in it.
    pub fn remove(&self) {
        let inside = self.inside.borrow();
        if inside.is_empty() {
            return;
        }
        // Mostly it holds what we put there and nothing else.
        for entry in inside.iter() {
            let path = self.path.join(entry.name);
            let _ = match entry.kind {
                Kind::Directory { .. } => fs::remove_dir(path),
                Kind::File { .. } => fs::remove_file(path),
            };
        }
        if fs::remove_dir(&self.path).is_err() {
            remove_tree(&self.path);
        }
    }
}

fn cstring(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

/// `gatekeeper __sweep DIRECTORY`: removes a run's directory whose front process was killed, and nothing that is not one.
pub fn sweep(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix(PREFIX));
    let named = name.is_some_and(|hex| hex.len() == 16 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
    if !named || !path.is_absolute() {
        return false;
    }
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
    let stat = rustix::fs::open(path, flags, Mode::empty()).and_then(rustix::fs::fstat);
    let ours = stat.is_ok_and(|stat| stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_mode & 0o077 == 0);
    if ours {
        remove_tree(path);
    }
    ours && !path.exists()
}

/// Removes a tree, also where the command took its own permission away.
fn remove_tree(path: &Path) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_private_directory_of_the_right_name_is_swept() {
        let base = tempfile::tempdir().expect("temporary directory");
        let at = |name: &str| base.path().join(name);
        let wrong = at("gatekeeper-notes");
        fs::create_dir(&wrong).expect("new");
        assert!(!sweep(&wrong));
        assert!(wrong.exists());

        let open = at("gatekeeper-00000000000000aa");
        fs::create_dir(&open).expect("new");
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).expect("own");
        assert!(!sweep(&open));
        assert!(open.exists());

        let link = at("gatekeeper-00000000000000bb");
        std::os::unix::fs::symlink(&wrong, &link).expect("new");
        assert!(!sweep(&link));
        assert!(wrong.exists() && link.symlink_metadata().is_ok());

        let right = at("gatekeeper-00000000000000cc");
        fs::create_dir_all(right.join("tmp/deep/deeper")).expect("new");
        std::os::unix::fs::symlink(&wrong, right.join("tmp/out")).expect("new");
        fs::set_permissions(right.join("tmp/deep"), fs::Permissions::from_mode(0o000)).expect("own");
        fs::set_permissions(&right, fs::Permissions::from_mode(0o700)).expect("own");
        assert!(sweep(&right));
        assert!(!right.exists() && wrong.exists());
    }
}
