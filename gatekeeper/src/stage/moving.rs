//! Takes a file of the stage over by moving it, which needs no copy and no space.
//!
//! The user has read the file that is moved, so nothing may change it afterwards: it has one name and no other descriptor. It
//! also must be what a copy would be: where that is not sure, it is copied.

use super::attributes::OVERLAY;
use super::changes::{Change, bits};
use super::kept::Stage;
use super::tree::{Dir, Kind, Node, split};
use crate::report::StageMeans;
use crate::sys::handle::is_only_one;
use rustix::fs::{Mode, fchmod, flistxattr, fremovexattr, fstat};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;

pub struct Moving<'a> {
    stage: &'a Stage,
    real: &'a Dir,
    staged: &'a Dir,
}

impl<'a> Moving<'a> {
    pub fn new(stage: &'a Stage, real: &'a Dir, staged: &'a Dir) -> Moving<'a> {
        Moving { stage, real, staged }
    }

    /// Gives a file of the stage the permissions that it will have. `false`: it has to be copied.
    pub fn prepare(&self, change: &Change, sync: bool) -> io::Result<bool> {
        let Some(new) = change.new.filter(|new| new.kind == Kind::File) else { return Ok(false) };
        // A copy knows which names it was made from, so nothing may vanish from it.
        if self.stage.means() != StageMeans::Overlay {
            return Ok(false);
        }
        let (parent, name) = split(&change.path);
        let (Some(real), Some(staged)) = (self.real.near(parent)?, self.staged.near(parent)?) else { return Ok(false) };
        if !real.is_on(new.dev)? || staged.is_hidden_below(|| self.staged.is_opaque_above(&change.path))? {
            return Ok(false);
        }
        // An ordinary user cannot always open it; a copy lifts the permissions.
        let Ok(file) = staged.file(name) else { return Ok(false) };
        let stat = fstat(&file)?;
        if stat.st_nlink != 1 || !Node::of(&stat).is_same(&new) || !is_only_one(file.as_fd()) {
            return Ok(false);
        }
        let owned = change.old.is_none_or(|old| (old.uid, old.gid) == (new.uid, new.gid));
        if !owned || !strip(&file)? {
            return Ok(false);
        }
        if new.mode != bits(&new) {
            fchmod(&file, Mode::from_raw_mode(bits(&new)))?;
        }
        if sync {
            file.sync_all()?;
        }
        Ok(true)
    }
}

/// Removes the marks of overlayfs. `false` if it has others than the user's own attributes, such as capabilities or the label of
/// the stage's directory, or they cannot be removed.
fn strip(file: &File) -> io::Result<bool> {
    let mut room = [0u8; 512];
    let length = match flistxattr(file, &mut room[..]) {
        Ok(length) => length,
        Err(Errno::OPNOTSUPP) => 0,
        Err(_) => return Ok(false),
    };
    let names = room.get(..length).unwrap_or_default().split(|byte| *byte == 0).filter(|name| !name.is_empty());
    for name in names {
        if name.starts_with(OVERLAY) {
            if fremovexattr(file, std::ffi::OsStr::from_bytes(name)).is_err() {
                return Ok(false);
            }
        } else if !name.starts_with(b"user.") {
            return Ok(false);
        }
    }
    Ok(true)
}
