//! A fast check of files that are opened for reading, to recognise the few paths that are closed to reads.
//!
//! Most programs open libraries and sources by paths without symbolic links. For those, one openat2(2) with
//! RESOLVE_NO_SYMLINKS proves that the path is the real path, and nothing else has to be looked up.

use super::files::{Does, shapes};
use super::foresee::Foresight;
use super::refused::{Refused, What};
use super::target::{Memory, Target};
use crate::plan::paths::Access;
use crate::plan::table::Reads;
use crate::report::Layer;
use crate::sys::notify::Call;
use crate::sys::process::read_memory_pair;
use crate::trust::place;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::Ordering;

/// Longer paths get the full check.
const SHORT: usize = 512;
const PAGE: u64 = 4096;

impl Foresight {
    /// Like [`Foresight::look`], but fast for a file that is opened for reading if only reads by path are checked.
    pub fn glance(&self, call: &Call, target: &Target) -> Option<Refused> {
        let (directory, path, flags) = match i64::from(call.number) {
            libc::SYS_openat => (call.args[0] as i32, call.args[1], call.args[2] as i32),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open => (libc::AT_FDCWD, call.args[0], call.args[1] as i32),
            _ => return self.look(call, target),
        };
        let writes = flags & (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC) != 0;
        if writes || self.listed || self.reads != Some(Reads::ByPath) {
            return self.look(call, target);
        }
        let mut room = [0u8; SHORT];
        let Some(path) = short(target, path, &mut room) else { return self.look(call, target) };
        match self.opened(target, directory, path, flags & libc::O_NOFOLLOW == 0) {
            Ok(Some((file, at))) => self.at(call, &file, &at),
            Ok(None) => self.look(call, target),
            // The call will fail anyway.
            Err(_) => None,
        }
    }

    fn at(&self, call: &Call, file: &OwnedFd, at: &Path) -> Option<Refused> {
        let reads = matches!(shapes(call)[0].map(|shape| shape.does), Some(Does::Open { .. }));
        let refused = if reads { self.refused_read(file, at) } else { None };
        if refused.is_none() {
            self.note_way_in(file, at, reads);
        }
        refused
    }

    fn refused_read(&self, file: &OwnedFd, at: &Path) -> Option<Refused> {
        let closed = at.starts_with("/dev") || self.closed.iter().any(|closed| at.starts_with(closed));
        if !closed {
            return None;
        }
        if self.covered.iter().any(|covered| at.starts_with(covered)) {
            // Decide by path: while a process outside replaces the file, the cover is detached or not mounted yet.
            return Some(self.refused(What::Read, Layer::Namespaces, at.to_owned(), at.to_owned()));
        }
        self.look_at_file(file, true, false).ok().flatten()
    }

    /// Notes that the program gets a descriptor through which it can open closed files without a notification: of a directory above
    /// or inside a closed path, or an O_PATH descriptor inside one.
    pub(super) fn note_way_in(&self, file: &OwnedFd, at: &Path, reads: bool) {
        let is_directory =
            || rustix::fs::fstat(file).is_ok_and(|found| FileType::from_raw_mode(found.st_mode).is_dir());
        let above = |closed: &PathBuf| closed.starts_with(at) && closed != at;
        let inside = |closed: &PathBuf| at.starts_with(closed) && (!reads || is_directory());
        let unlisted = || self.listed && is_directory() && !self.granted(at, |access| access != Access::List);
        if self.closed.iter().any(|closed| above(closed) || inside(closed)) || unlisted() {
            self.unseen.store(true, Ordering::Relaxed);
        }
    }

    /// The file and its real path, beneath what is mounted for the program. `None` for paths that mean other files to the program than to this process.
    pub(super) fn opened(
        &self,
        target: &Target,
        directory: i32,
        path: &Path,
        follow: bool,
    ) -> io::Result<Option<(OwnedFd, PathBuf)>> {
        let whole = match path.is_absolute() {
            true => path.to_owned(),
            false if directory == libc::AT_FDCWD => target.working_directory()?.join(path),
            false => target.place_of(directory)?.join(path),
        };
        if !whole.is_absolute() || whole.starts_with("/proc") || whole.starts_with("/dev") {
            return Ok(None);
        }
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let plain = whole.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        match rustix::fs::openat2(rustix::fs::CWD, &whole, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
            Ok(file) if plain => return Ok(Some((file, whole.components().collect()))),
            Ok(file) => {
                let at = place(&file)?;
                return Ok(Some((file, at)));
            }
            Err(rustix::io::Errno::LOOP | rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = if follow { flags } else { flags | OFlags::NOFOLLOW };
        let file = rustix::fs::open(&whole, flags, Mode::empty())?;
        let at = place(&file)?;
        Ok(Some((file, at)))
    }
}

/// Reads a path in one go; `None` if it is too long or continues on the next page.
pub(super) fn short<'a>(target: &Target, address: u64, room: &'a mut [u8; SHORT]) -> Option<&'a Path> {
    let read = target.read(address, room.get_mut(..within_page(address))?).ok()?;
    terminated(room.get(..read)?)
}

/// The same for two paths, with one syscall.
pub(super) fn short_pair<'a>(
    target: &Target,
    addresses: [u64; 2],
    rooms: &'a mut [[u8; SHORT]; 2],
) -> Option<[&'a Path; 2]> {
    let [one, other] = rooms;
    let (one, other) = (one.get_mut(..within_page(addresses[0]))?, other.get_mut(..within_page(addresses[1]))?);
    read_memory_pair(target.tid, addresses, [&mut *one, &mut *other]).ok()?;
    Some([terminated(one)?, terminated(other)?])
}

/// How much of a short path can be read without touching the next page.
fn within_page(address: u64) -> usize {
    (PAGE - address % PAGE).min(SHORT as u64) as usize
}

fn terminated(text: &[u8]) -> Option<&Path> {
    let end = text.iter().position(|byte| *byte == 0)?;
    Some(Path::new(OsStr::from_bytes(text.get(..end)?))).filter(|path| !path.as_os_str().is_empty())
}
