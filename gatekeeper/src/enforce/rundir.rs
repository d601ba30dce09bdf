//! The run directory: a private directory for the files of one run, which the guardian creates if the run needs any and
//! which is removed at the end.
//!
//! It is in a directory that confined commands cannot write and that is held open. No link is followed, and nothing that
//! belongs to another user is removed.

use crate::sys::place::{Make, Place};
use crate::trust::{self, Hostile, remove::remove_tree};
use rustix::fs::{AtFlags, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;
use std::cell::{OnceCell, RefCell};
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const PREFIX: &str = "gatekeeper-";
/// The entry that is the command's TMPDIR.
pub const TMP: &str = "tmp";
/// Tried in this order if TMPDIR is unset or unsafe. XDG_RUNTIME_DIR comes last, because it is often small.
const USUAL: [&str; 2] = ["/tmp", "/var/tmp"];

/// The parent of the run directory.
pub struct Base {
    path: PathBuf,
    directory: Arc<OwnedFd>,
    /// Why TMPDIR was not used.
    pub instead: Option<String>,
}

impl Base {
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Chooses TMPDIR if neither confined commands nor other users can replace entries in it, else one of the usual
    /// directories.
    pub fn choose(asked: Option<&OsStr>, runtime: Option<&OsStr>, hostile: &Hostile) -> Result<Base, String> {
        let mut instead = None;
        let mut last = None;
        let usual = USUAL.map(OsStr::new);
        for path in asked.into_iter().chain(usual).chain(runtime).map(Path::new).filter(|path| path.is_absolute()) {
            let why = match trust::walk(path, hostile) {
                Ok(found) if !found.is_directory() => "it is not a directory".to_owned(),
                Ok(found) if !trust::is_safe_base(&found.stat) => {
                    "other users can replace entries in it (they own it, or may write to it and it is not sticky)"
                        .to_owned()
                }
                Ok(found) if found.hostile => {
                    last = last.or(Some(found));
                    "it is in a tree that confined commands may write".to_owned()
                }
                Ok(found) => {
                    return Ok(Base { path: found.real, directory: Arc::new(found.file), instead });
                }
                Err(error) => error.to_string(),
            };
            if asked == Some(path.as_os_str()) {
                instead = Some(format!("TMPDIR {} is not used: {why}", path.display()));
            }
        }
        // If the policy lets the command write everywhere, there is no better directory. Access goes through descriptors
        // in any case.
        match last {
            Some(found) => Ok(Base { path: found.real, directory: Arc::new(found.file), instead: None }),
            None => {
                Err("no safe directory for temporary files: TMPDIR, /tmp or /var/tmp must belong to root or to this \
                         user, and must be sticky if others may write there"
                    .to_owned())
            }
        }
    }
}

/// The input for choosing a base. The choice is made when one is needed: many runs need none.
pub struct Wanted {
    /// TMPDIR and XDG_RUNTIME_DIR.
    pub asked: Option<OsString>,
    pub runtime: Option<OsString>,
    /// The working directories of this and earlier runs, and the trees that the command may write.
    pub working_directories: Vec<PathBuf>,
    pub writable: Vec<PathBuf>,
}

impl Wanted {
    fn choose(&self) -> Result<Base, String> {
        let mut hostile = Hostile::default();
        self.working_directories.iter().for_each(|path| hostile.add_working_directory(path));
        self.writable.iter().for_each(|path| hostile.add(path));
        Base::choose(self.asked.as_deref(), self.runtime.as_deref(), &hostile)
    }
}

pub struct RunDir {
    wanted: Wanted,
    base: OnceCell<(Result<Base, String>, PathBuf)>,
    name: String,
    keep: bool,
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
    /// Picks a random name. Creates nothing yet.
    pub fn new(wanted: Wanted, keep: bool) -> io::Result<RunDir> {
        let mut random = [0u8; 8];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        let name = format!("{PREFIX}{:016x}", u64::from_ne_bytes(random));
        Ok(RunDir { wanted, base: OnceCell::new(), name, keep, inside: RefCell::new(Vec::new()) })
    }

    /// Its parent and its path. Without a usable parent, `place` fails.
    fn chosen(&self) -> &(Result<Base, String>, PathBuf) {
        self.base.get_or_init(|| {
            let base = self.wanted.choose();
            let path = base.as_ref().map_or(Path::new("/tmp"), |base| &base.path).join(&self.name);
            (base, path)
        })
    }

    /// Why it is not in TMPDIR.
    pub fn instead(&self) -> Option<&str> {
        self.chosen().0.as_ref().ok()?.instead.as_deref()
    }

    /// The command's TMPDIR.
    pub fn tmp(&self) -> PathBuf {
        self.add(TMP, Kind::Directory { mode: 0o700 })
    }

    /// A file for the command to read.
    pub fn file(&self, name: &'static str, contents: Vec<u8>, mode: u32) -> PathBuf {
        self.add(name, Kind::File { mode, contents })
    }

    /// Other contents for a file that was added before; the next try of the run makes it.
    pub fn rewrite(&self, name: &'static str, new: Vec<u8>) {
        for entry in self.inside.borrow_mut().iter_mut().filter(|entry| entry.name == name) {
            if let Kind::File { contents, .. } = &mut entry.kind {
                contents.clone_from(&new);
            }
        }
    }

    /// An empty file or directory that only root may open, to be mounted over what the policy hides.
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
        self.chosen().1.join(name)
    }

    /// Forgets its entries, because the gatekeeper inside bubblewrap creates them.
    pub fn clear(&self) {
        self.inside.borrow_mut().clear();
    }

    /// Its path, if it has any entries.
    pub fn path(&self) -> Option<&Path> {
        (!self.inside.borrow().is_empty()).then(|| self.chosen().1.as_path())
    }

    /// The directory in which it is, or would be.
    pub fn parent(&self) -> Option<&Path> {
        self.chosen().1.parent()
    }

    pub fn keeps(&self) -> bool {
        self.keep
    }

    /// What the guardian has to create, with the Landlock rights on it.
    pub fn place(&self, grants: Vec<(PathBuf, u64)>) -> io::Result<Option<Place>> {
        let inside = self.inside.borrow();
        if inside.is_empty() {
            return Ok(None);
        }
        let (base, path) = self.chosen();
        let base = base.as_ref().map_err(|why| io::Error::other(format!("run directory: {why}")))?;
        let make = |entry: &Entry| {
            let name = CString::new(entry.name)?;
            Ok(match &entry.kind {
                Kind::Directory { mode } => Make::Directory { name, mode: *mode },
                Kind::File { mode, contents } => Make::File { name, mode: *mode, contents: contents.clone() },
            })
        };
        let within = |inner: &Path| {
            let inner = inner.strip_prefix(path).map_err(io::Error::other)?;
            Ok::<_, io::Error>(CString::new(inner.as_os_str().as_bytes())?)
        };
        Ok(Some(Place {
            base: Arc::clone(&base.directory),
            name: CString::new(self.name.as_str())?,
            inside: inside.iter().map(make).collect::<io::Result<_>>()?,
            grants: grants.iter().map(|(path, rights)| Ok((within(path)?, *rights))).collect::<io::Result<_>>()?,
            keep: self.keep,
        }))
    }

    /// Removes it with everything that the command left in it. The error says why it is still there.
    pub fn remove(&self) -> Result<(), Errno> {
        let inside = self.inside.borrow();
        if inside.is_empty() {
            return Ok(());
        }
        let Ok(base) = &self.chosen().0 else { return Ok(()) };
        let name = CString::new(self.name.as_str()).map_err(|_| Errno::INVAL)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = match openat(&base.directory, &name, flags, Mode::empty()) {
            // The set-up failed before it was created, or the command moved it. The guardian, which holds it open, empties it.
            Err(Errno::NOENT) => return Ok(()),
            other => other?,
        };
        // The usual case: it holds only the files that we put there.
        for entry in inside.iter() {
            let flags = match entry.kind {
                Kind::Directory { .. } => AtFlags::REMOVEDIR,
                Kind::File { .. } => AtFlags::empty(),
            };
            let _ = unlinkat(&directory, entry.name, flags);
        }
        match unlinkat(&base.directory, &name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(_) => remove_tree(base.directory.as_fd(), &name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn the_base_lies_where_no_command_writes_and_no_other_user_exchanges_it() {
        let top = tempfile::tempdir().expect("temporary directory");
        let top = top.path().canonicalize().expect("own");
        let at = |name: &str| {
            let path = top.join(name);
            fs::create_dir_all(&path).expect("new");
            path
        };
        let hostile = Hostile::working_directory(&at("work"));
        let chosen = |path: &Path| Base::choose(Some(path.as_os_str()), None, &hostile).expect("/tmp is there");
        let safe = at("tmp");
        assert_eq!((chosen(&safe).path, chosen(&safe).instead), (safe, None));
        symlink("/", at("work").join("link")).expect("new");
        let open = at("open");
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).expect("own");
        for wrong in [at("work"), at("work/tmp"), top.join("work/link"), top.join("nowhere"), open] {
            let base = chosen(&wrong);
            assert!(USUAL.iter().any(|usual| base.path == Path::new(usual)), "{wrong:?}: {:?}", base.path);
            assert!(base.instead.as_deref().is_some_and(|why| why.contains(&*wrong.to_string_lossy())), "{wrong:?}");
        }
    }

    #[test]
    fn a_link_in_the_place_of_the_directory_is_not_followed() {
        let top = tempfile::tempdir().expect("temporary directory");
        let precious = top.path().join("precious");
        fs::create_dir_all(precious.join("tmp")).expect("new");
        let asked = Some(top.path().as_os_str().to_owned());
        let wanted = Wanted { asked, runtime: None, working_directories: Vec::new(), writable: Vec::new() };
        let run_dir = RunDir::new(wanted, false).expect("random");
        run_dir.tmp();
        symlink(&precious, run_dir.path().expect("used")).expect("new");
        assert_eq!(run_dir.remove(), Err(Errno::NOTDIR));
        assert!(precious.join("tmp").exists());
    }
}
