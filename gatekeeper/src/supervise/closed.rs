//! A quick look at files that are opened for reading: the few closed places are told apart from all else without a walk.
//!
//! Most opens are of libraries and sources by a plain path. One question to the kernel, whether any of its names is a
//! link, then makes the path itself the place, and no other question is needed.

use super::files::{Does, shapes};
use super::foresee::{Foresight, Refused, What};
use super::target::{Memory, Target};
use crate::plan::table::Reads;
use crate::report::Layer;
use crate::sys::notify::Call;
use crate::trust::place;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// Longer paths are looked at in full.
const SHORT: usize = 512;
const PAGE: u64 = 4096;

impl Foresight {
    /// What will be refused of a call; only a glance where a file is opened for reading, and reads are seen by path.
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
            Ok(Some((file, at))) => self.at(call, target, &file, &at),
            Ok(None) => self.look(call, target),
            // It fails by itself.
            Err(_) => None,
        }
    }

    fn at(&self, call: &Call, target: &Target, file: &OwnedFd, at: &Path) -> Option<Refused> {
        // By its descriptor what is closed can be opened unseen: of a directory above it, or only named inside of it.
        let reads = matches!(shapes(call)[0].map(|shape| shape.does), Some(Does::Open { .. }));
        let above = |closed: &PathBuf| closed.starts_with(at) && closed != at;
        let inside = |closed: &PathBuf| !reads && at.starts_with(closed);
        if self.closed.iter().any(|closed| above(closed) || inside(closed)) {
            self.unseen.store(true, std::sync::atomic::Ordering::Relaxed);
        }
        let closed = at.starts_with("/dev") || self.closed.iter().any(|closed| at.starts_with(closed));
        if !closed || !reads {
            return None;
        }
        if self.covered.iter().any(|covered| at.starts_with(covered)) {
            // Its name decides: while somebody outside replaces the file, the cover has no place, or is not there.
            let refused = self.refused(What::Read, Layer::Namespaces, at.to_owned(), at.to_owned());
            return match rustix::process::geteuid().is_root() {
                true => self.look(call, target).or(Some(refused)),
                false => Some(refused),
            };
        }
        self.look_at_file(file, true, false).ok().flatten()
    }

    /// The file, and where it is. `None` where its name means something else to the program than to this process.
    fn opened(
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

/// A path that is read at once; `None` where it is long, or ends in another page.
fn short<'a>(target: &Target, address: u64, room: &'a mut [u8; SHORT]) -> Option<&'a Path> {
    let here = (PAGE - address % PAGE).min(SHORT as u64) as usize;
    let read = target.read(address, room.get_mut(..here)?).ok()?;
    let text = room.get(..read)?;
    let end = text.iter().position(|byte| *byte == 0)?;
    Some(Path::new(OsStr::from_bytes(text.get(..end)?))).filter(|path| !path.as_os_str().is_empty())
}
