//! Chooses how a new stage holds changes, by trying.

use super::tree::{Dir, Time};
use crate::plan::disk;
use crate::report::StageMeans;
use crate::sys::probe::{self, Attempt};
use crate::sys::stage::Source;
use rustix::fs::StatVfsMountFlags;
use std::ffi::CString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// File systems of this kernel: st_ctime is the kernel's own clock, so that it tells what changed since a run began.
const LOCAL: [i64; 11] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683e, // Btrfs
    0x0102_1994, // tmpfs
    0x794c_7630, // overlayfs
    0xf2f5_2010, // F2FS
    0xca45_1a4e, // bcachefs
    0x2fc1_2fc1, // ZFS
    0x7371_7368, // SquashFS
    0xe0f5_e1e2, // EROFS
    0x3153_464a, // JFS
];

/// The means, and why an overlay was not possible.
pub struct Chosen {
    pub means: StageMeans,
    pub why_not_overlay: Option<String>,
}

/// Mounts inside the working directory. An overlay does not show them, and a copy would mix file systems.
pub fn mounts_below(tree: &Path) -> io::Result<Vec<PathBuf>> {
    let inside = |mounted: &PathBuf| mounted.starts_with(tree) && mounted != tree;
    let mut points: Vec<PathBuf> = disk::mounts()?.into_iter().map(|mounted| mounted.at).filter(inside).collect();
    points.sort();
    Ok(points)
}

/// Tries an overlay of these directories.
pub fn choose(tree: &Path, real: &Dir, upper: &Path, work: &Path) -> io::Result<Chosen> {
    let copy = |why: String| Chosen { means: StageMeans::Copy, why_not_overlay: Some(why) };
    if !is_local(real) {
        return Ok(copy("the working directory is on a file system with another clock".to_owned()));
    }
    let node = real.itself()?;
    // As on ext4 with inodes of 128 bytes. Within a second, no time tells what changed first.
    let whole = |time: Time| time.1 == 0;
    if whole(node.ctime) && whole(node.mtime) && !rustix::fs::fstatvfs(real)?.f_flag.contains(StatVfsMountFlags::RDONLY)
    {
        return Ok(copy("the file system of the working directory keeps times in whole seconds".to_owned()));
    }
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    // In a user namespace only this user and group exist, and overlayfs cannot copy a file of another up.
    if !uid.is_root() && (node.uid, node.gid) != (uid.as_raw(), gid.as_raw()) {
        return Ok(copy("the working directory belongs to another user or group".to_owned()));
    }
    let source = Source::Overlay { upper: text(upper)?, work: text(work)? };
    match probe::stage(&text(tree)?, &source)? {
        Attempt::Works => Ok(Chosen { means: StageMeans::Overlay, why_not_overlay: None }),
        Attempt::Failed { step, errno } => {
            let what = if step < 2 { "no mount namespace can be created" } else { "no overlay can be mounted" };
            Ok(copy(format!("{what}: {}", io::Error::from_raw_os_error(errno))))
        }
        Attempt::Killed(_) => Ok(copy("an outer sandbox kills processes that create namespaces".to_owned())),
    }
}

/// Whether the times of this file's file system are of this kernel's clock.
pub fn is_local(file: impl AsFd) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|stat| LOCAL.contains(&stat.f_type))
}

/// Whether a copy can be mounted over the working directory.
pub fn can_mount(tree: &Path, copy: &Path) -> io::Result<bool> {
    Ok(probe::stage(&text(tree)?, &Source::Copy(text(copy)?))?.works())
}

fn text(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}
