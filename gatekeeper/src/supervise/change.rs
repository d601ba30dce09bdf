//! A change of mode, owner, times, attributes or length, and how it is made on a descriptor.

use super::length::Length;
use crate::sys::notify;
use crate::trust::by_descriptor;
use rustix::fs::{AtFlags, Gid, Mode, Timestamps, Uid, XattrFlags};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// The change, read from the program's memory once.
pub(super) enum Change {
    Mode(u32),
    Owner(u32, u32),
    Times(Timestamps),
    SetAttribute(CString, Vec<u8>, u32),
    RemoveAttribute(CString),
    Length(Length),
}

/// How the program names the file, and so what `file` is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// A copy of the program's descriptor.
    Descriptor,
    /// An O_PATH descriptor.
    Path { follow: bool },
}

pub const LENDS_RIGHTS: &str = "set-user-ID and set-group-ID bits and file capabilities are refused on every file";

/// Whether the change makes a program run with the rights of its owner or group, or with capabilities. The command
/// itself has no_new_privs and cannot use them, but other users could: a set-user-ID file left by root's command would
/// make every user root. On a directory set-group-ID only sets the group of new files.
pub(super) fn lends_rights(file: &OwnedFd, change: &Change) -> io::Result<bool> {
    match change {
        Change::Mode(mode) if mode & 0o6000 == 0 => Ok(false),
        Change::Mode(mode) => {
            let before = rustix::fs::fstat(file)?.st_mode;
            let added = mode & 0o6000 & !before;
            Ok(added != 0 && !rustix::fs::FileType::from_raw_mode(before).is_dir())
        }
        Change::SetAttribute(name, ..) => Ok(name.to_bytes() == b"security.capability"),
        _ => Ok(false),
    }
}

pub(super) fn apply(file: &OwnedFd, by: By, change: &Change) -> io::Result<()> {
    match change {
        Change::Owner(uid, gid) => {
            let uid = (*uid != u32::MAX).then(|| Uid::from_raw(*uid));
            let gid = (*gid != u32::MAX).then(|| Gid::from_raw(*gid));
            match by {
                By::Descriptor => rustix::fs::fchown(file, uid, gid)?,
                By::Path { .. } => rustix::fs::chownat(file, "", uid, gid, AtFlags::EMPTY_PATH)?,
            }
        }
        Change::Length(length) => length.set(file)?,
        Change::SetAttribute(name, ..) | Change::RemoveAttribute(name) if is_privileged(name) => {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        _ if by == By::Descriptor => apply_to_open(file, change)?,
        _ => apply_by_path(file, by == By::Path { follow: true }, change)?,
    }
    Ok(())
}

/// Makes a change on the program's own descriptor, as the program would.
fn apply_to_open(file: &OwnedFd, change: &Change) -> io::Result<()> {
    match change {
        Change::Mode(mode) => rustix::fs::fchmod(file, Mode::from_raw_mode(mode & 0o7777))?,
        Change::Times(times) => rustix::fs::futimens(file, times)?,
        Change::SetAttribute(name, value, flags) => {
            rustix::fs::fsetxattr(file, name.as_c_str(), value, attribute_flags(*flags)?)?;
        }
        Change::RemoveAttribute(name) => rustix::fs::fremovexattr(file, name.as_c_str())?,
        // `apply` makes these itself.
        Change::Owner(..) | Change::Length(_) => {}
    }
    Ok(())
}

fn apply_by_path(file: &OwnedFd, follow: bool, change: &Change) -> io::Result<()> {
    let path = by_descriptor(file);
    match change {
        Change::Mode(mode) => {
            if !follow && is_link(file)? {
                return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
            }
            // Before Linux 6.6, and in outer sandboxes that do not know the call.
            if notify::change_mode(file.as_fd(), mode & 0o7777).is_err() {
                rustix::fs::chmod(&path, Mode::from_raw_mode(mode & 0o7777))?;
            }
        }
        // utimensat(2) takes AT_EMPTY_PATH only since Linux 5.8. Before that, there is no way for a link.
        Change::Times(times) => match rustix::fs::utimensat(file, "", times, AtFlags::EMPTY_PATH) {
            Err(rustix::io::Errno::INVAL) if !is_link(file)? => {
                rustix::fs::utimensat(rustix::fs::CWD, &path, times, AtFlags::empty())?;
            }
            other => other?,
        },
        Change::SetAttribute(name, value, flags) => {
            rustix::fs::setxattr(&path, name.as_c_str(), value, attribute_flags(*flags)?)?;
        }
        Change::RemoveAttribute(name) => rustix::fs::removexattr(&path, name.as_c_str())?,
        // `apply` makes these itself.
        Change::Owner(..) | Change::Length(_) => {}
    }
    Ok(())
}

fn attribute_flags(flags: u32) -> io::Result<XattrFlags> {
    XattrFlags::from_bits(flags).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))
}

/// Attributes that need capabilities, which root's command has dropped but this process still has.
fn is_privileged(name: &CStr) -> bool {
    let name = name.to_bytes();
    name.starts_with(b"trusted.") || name.starts_with(b"security.") && name != b"security.capability"
}

fn is_link(file: &OwnedFd) -> io::Result<bool> {
    let stat = rustix::fs::fstat(file)?;
    Ok(rustix::fs::FileType::from_raw_mode(stat.st_mode).is_symlink())
}
