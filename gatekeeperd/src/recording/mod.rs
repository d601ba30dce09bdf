//! Screenshots on disk, in a directory outside of every sandbox: none, a ring of the last fifty, or all of them.
//!
//! `DIR/TENANT/SESSION/NUMBER.png`, directories 0700, files 0600. Every directory is opened below the one above it, by
//! descriptor and without following links; a file appears under its name when it is whole.

mod prune;

pub use prune::{Pruned, clean, discard, tidy};

use crate::browser::Picture;
use rustix::fs::{self, AtFlags, FlockOperation, Mode as Bits, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// How many pictures a transient recording keeps.
pub const RING: usize = 50;

/// No picture is longer: it arrived in a message of the browser, as base64.
const LONGEST: u64 = crate::cdp::LARGEST as u64;

/// Fixed for a session when it is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    Off,
    #[default]
    Transient,
    Audit,
}

/// The recording of one session.
pub struct Recorder {
    mode: Mode,
    /// The session's directory, by name and opened. None without recording.
    place: Option<Place>,
    quota: u64,
    state: Mutex<State>,
}

struct Place {
    /// The directory of all recordings.
    root: PathBuf,
    path: PathBuf,
    session: OwnedFd,
    tenant: OwnedFd,
    name: String,
}

#[derive(Default)]
struct State {
    next: u64,
    /// The pictures of a transient recording, with their sizes.
    kept: VecDeque<(String, u64)>,
    closed: bool,
}

/// A name that is one component of a path, and shown in messages.
fn check_name(name: &str) -> io::Result<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    match !name.is_empty() && name.len() <= 128 && name.chars().all(plain) && !name.starts_with('.') {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "the name cannot be part of a path")),
    }
}

/// Opens a directory below another one, and creates it if it is missing.
fn directory(above: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    match fs::mkdirat(above, name, Bits::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(fs::openat(above, name, FOLDER, Bits::empty())?)
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Opens the directory of all recordings, and creates it with 0700 if it is missing.
fn root(path: &Path) -> io::Result<OwnedFd> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    Ok(fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Bits::empty())?)
}

/// Opens the directories of a tenant and a session, and locks that of the session: the lock says that it is in use. The
/// pruner may remove a directory between its creation and the lock; then it is created anew.
fn begin(root: &OwnedFd, tenant: &str, session: &str) -> io::Result<(OwnedFd, OwnedFd)> {
    let mut tries = 0;
    loop {
        tries += 1;
        let opened = directory(root, tenant).and_then(|above| Ok((directory(&above, session)?, above)));
        match opened {
            Ok((opened, above)) => {
                fs::flock(&opened, FlockOperation::LockShared)?;
                if fs::fstat(&opened)?.st_nlink > 0 {
                    return Ok((opened, above));
                }
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound || tries > 10 => return Err(error),
            Err(_) => {}
        }
    }
}

impl Recorder {
    /// Begins a recording below `dir`. Without recording, nothing is created.
    pub fn new(mode: Mode, dir: &Path, tenant: &str, session: &str) -> io::Result<Recorder> {
        check_name(tenant)?;
        check_name(session)?;
        let place = match mode {
            Mode::Off => None,
            Mode::Transient | Mode::Audit => {
                let (opened, tenant_fd) = begin(&root(dir)?, tenant, session)?;
                let path = dir.join(tenant).join(session);
                let root = dir.to_owned();
                Some(Place { root, path, session: opened, tenant: tenant_fd, name: session.to_owned() })
            }
        };
        if let Some(place) = &place {
            let mode_word = if mode == Mode::Audit { "audit" } else { "transient" };
            // The reaper reads it: a transient recording of a session that is gone may go, an audit one must not.
            write_whole(&place.session, MODE, mode_word.as_bytes())?;
        }
        Ok(Recorder { mode, place, quota: u64::MAX, state: Mutex::default() })
    }

    /// The same recorder with another quota for the whole directory.
    pub fn with_quota(mut self, quota: u64) -> Recorder {
        self.quota = quota;
        self
    }

    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Where the pictures of this session are.
    pub fn directory(&self) -> &Path {
        self.place.as_ref().map_or(Path::new(""), |place| &place.path)
    }

    /// Keeps a picture and returns where it is; `None` without recording.
    ///
    /// When the quota is exhausted, a transient recording leaves the picture out.
    ///
    /// # Errors
    /// It cannot be written, or, in mode audit, the quota is exhausted. The caller must not act unrecorded then.
    pub fn try_keep(&self, picture: &Picture) -> io::Result<Option<PathBuf>> {
        let Some(place) = &self.place else { return Ok(None) };
        let size = picture.png.len() as u64;
        if prune::counted(&place.root)?.saturating_add(size) > self.quota {
            if self.mode == Mode::Audit {
                let full = format!(
                    "the recordings would exceed their quota of {} bytes; the operator can raise --quota or remove recordings",
                    self.quota
                );
                return Err(io::Error::new(io::ErrorKind::QuotaExceeded, full));
            }
            return Ok(None);
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.closed {
            return Ok(None);
        }
        state.next += 1;
        let name = format!("{:06}.png", state.next);
        write_whole(&place.session, &name, &picture.png)?;
        prune::count(&place.root, size, 0);
        if self.mode == Mode::Transient {
            state.kept.push_back((name.clone(), size));
            while state.kept.len() > RING {
                if let Some((old, size)) = state.kept.pop_front()
                    && fs::unlinkat(&place.session, old, AtFlags::empty()).is_ok()
                {
                    prune::count(&place.root, 0, size);
                }
            }
        }
        Ok(Some(place.path.join(name)))
    }

    /// Like [`Recorder::try_keep`], for callers that can go on without.
    pub fn keep(&self, picture: &Picture) -> Option<PathBuf> {
        self.try_keep(picture).ok().flatten()
    }

    /// Ends the recording. Transient pictures are removed; audit pictures stay.
    pub fn close(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut state.closed, true) || self.mode != Mode::Transient {
            return;
        }
        if let Some(place) = &self.place {
            prune::clear(&place.session);
            prune::count(&place.root, 0, state.kept.iter().map(|(_, size)| size).sum());
            let _ = fs::unlinkat(&place.tenant, &place.name, AtFlags::REMOVEDIR);
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.close();
    }
}

/// The file that says how a session is recorded.
const MODE: &str = "mode";

/// Writes a file that appears under its name only when it is whole, readable for this user alone.
fn write_whole(directory: &OwnedFd, name: &str, bytes: &[u8]) -> io::Result<()> {
    let temporary = format!("{name}.part");
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(fs::openat(directory, &temporary, flags, Bits::RUSR | Bits::WUSR)?);
    file.write_all(bytes)?;
    file.sync_data()?;
    fs::renameat(directory, &temporary, directory, name)?;
    Ok(())
}

/// The pictures of a session, in order. For the page's film strip.
pub fn list(dir: &Path, tenant: &str, session: &str) -> io::Result<Vec<String>> {
    let opened = open_session(dir, tenant, session)?;
    let mut names: Vec<String> = opened.map(|opened| prune::names(&opened)).unwrap_or_default();
    names.retain(|name| is_picture(name));
    names.sort();
    Ok(names)
}

/// One picture of a session, if it exists.
pub fn read(dir: &Path, tenant: &str, session: &str, name: &str) -> io::Result<Option<Vec<u8>>> {
    if !is_picture(name) {
        return Ok(None);
    }
    let Some(opened) = open_session(dir, tenant, session)? else { return Ok(None) };
    match fs::openat(&opened, name, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Bits::empty()) {
        Ok(file) => {
            let mut bytes = Vec::new();
            let count = io::Read::read_to_end(&mut io::Read::take(File::from(file), LONGEST + 1), &mut bytes)?;
            match count as u64 > LONGEST {
                true => Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("{name} is longer than any picture"))),
                false => Ok(Some(bytes)),
            }
        }
        // A link is none of ours, and neither is a name that no file can have.
        Err(Errno::NOENT | Errno::LOOP | Errno::NAMETOOLONG) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn open_session(dir: &Path, tenant: &str, session: &str) -> io::Result<Option<OwnedFd>> {
    check_name(tenant)?;
    check_name(session)?;
    let opened = fs::open(dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Bits::empty())
        .and_then(|root| fs::openat(&root, tenant, FOLDER, Bits::empty()))
        .and_then(|tenant| fs::openat(&tenant, session, FOLDER, Bits::empty()));
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn is_picture(name: &str) -> bool {
    let digits = name.strip_suffix(".png").unwrap_or_default();
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
#[path = "recording_tests.rs"]
mod tests;
