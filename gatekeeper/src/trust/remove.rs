//! Removes a tree that a confined command has filled: as deep as it likes, with names and permissions as it likes. No
//! link is followed, and never more than three directories are open.
//!
//! Each directory that is found is moved up to the top first, so that the depth is never more than two and no path is
//! ever longer than a name.

use rustix::fs::{AtFlags, Dir, Mode, OFlags, fchmod, fstat, openat, renameat, unlinkat};
use rustix::io::Errno;
use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Names that are read at once.
const AT_ONCE: usize = 1024;
/// Another process that goes on making files must not keep us here for ever.
const PATIENCE: Duration = Duration::from_secs(60);
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Removes the directory `name` of `base` with everything below it. Only a directory of this user's own is touched.
pub fn remove_tree(base: BorrowedFd<'_>, name: &OsStr) -> Result<(), Errno> {
    let top = match open_own(base, name) {
        Err(Errno::NOENT) => return Ok(()),
        other => other?,
    };
    let emptied = empty(&top);
    match unlinkat(base, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(emptied.err().unwrap_or(error)),
    }
}

/// A directory that belongs to this user, with the permission to change it given back.
fn open_own(base: BorrowedFd<'_>, name: impl rustix::path::Arg + Copy) -> Result<OwnedFd, Errno> {
    // O_PATH asks for no permission on the directory itself.
    let place =
        openat(base, name, OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let stat = fstat(&place)?;
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(Errno::PERM);
    }
    if stat.st_mode & 0o700 != 0o700 {
        // fchmod does not take O_PATH; its name in /proc leads to this very directory.
        super::reopen(place.as_fd(), DIRECTORY.difference(OFlags::NOFOLLOW))
            .and_then(|directory| fchmod(directory, Mode::RWXU))
            .or_else(|_| chmod_place(&place))?;
    }
    super::reopen(place.as_fd(), DIRECTORY.difference(OFlags::NOFOLLOW))
}

fn chmod_place(place: &OwnedFd) -> Result<(), Errno> {
    use std::os::fd::AsRawFd;
    rustix::fs::chmod(format!("/proc/self/fd/{}", place.as_raw_fd()), Mode::RWXU)
}

fn empty(top: &OwnedFd) -> Result<(), Errno> {
    let until = Instant::now() + PATIENCE;
    let mut moved: u64 = 0;
    loop {
        let entries = names(top)?;
        let mut first_error = None;
        let mut progress = false;
        for name in &entries {
            match remove_entry(top, name, &mut moved) {
                Ok(()) => progress = true,
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        match first_error {
            None if entries.is_empty() => return Ok(()),
            Some(error) if !progress => return Err(error),
            _ if Instant::now() >= until => return Err(Errno::TIMEDOUT),
            _ => {}
        }
    }
}

/// Removes one entry of the top; of a directory first what is in it, and moves its directories up.
fn remove_entry(top: &OwnedFd, name: &CString, moved: &mut u64) -> Result<(), Errno> {
    if !is_directory(top, name)? {
        return Ok(());
    }
    // Mostly it is empty.
    if unlinkat(top, name, AtFlags::REMOVEDIR).is_ok() {
        return Ok(());
    }
    let directory = open_own(top.as_fd(), name.as_c_str())?;
    loop {
        let entries = names(&directory)?;
        if entries.is_empty() {
            return unlinkat(top, name, AtFlags::REMOVEDIR);
        }
        for inner in &entries {
            if !is_directory(&directory, inner)? || unlinkat(&directory, inner, AtFlags::REMOVEDIR).is_ok() {
                continue;
            }
            // A directory can be moved only by who may write to it.
            drop(open_own(directory.as_fd(), inner.as_c_str())?);
            *moved += 1;
            move_up(&directory, inner, top, *moved)?;
        }
    }
}

/// Unlinks it, unless it is a directory.
fn is_directory(within: &OwnedFd, name: &CString) -> Result<bool, Errno> {
    match unlinkat(within, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(false),
        Err(Errno::ISDIR) => Ok(true),
        Err(error) => Err(error),
    }
}

fn move_up(from: &OwnedFd, name: &CString, top: &OwnedFd, number: u64) -> Result<(), Errno> {
    for attempt in 0..16u32 {
        let fresh = format!(".removed-{number:x}-{attempt:x}");
        // Onto an empty directory of that name it may go; anything else of that name is the command's, and stays for its turn.
        match renameat(from, name, top, &fresh) {
            Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => {}
            other => return other,
        }
    }
    Err(Errno::EXIST)
}

fn names(directory: &OwnedFd) -> Result<Vec<CString>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let name = entry?.file_name().to_owned();
        if !matches!(name.as_bytes(), b"." | b"..") {
            names.push(name);
        }
        if names.len() == AT_ONCE {
            break;
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn removed(base: &std::path::Path) -> Result<(), Errno> {
        let held = rustix::fs::open(base, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).expect("own");
        remove_tree(held.as_fd(), OsStr::new("top"))
    }

    #[test]
    fn a_tree_deeper_than_any_path_is_removed() {
        let base = tempfile::tempdir().expect("temporary directory");
        fs::create_dir(base.path().join("top")).expect("new");
        let mut at = rustix::fs::open(base.path().join("top"), DIRECTORY, Mode::empty()).expect("own");
        for _ in 0..8_000 {
            rustix::fs::mkdirat(&at, "deep", Mode::RWXU).expect("new");
            at = openat(&at, "deep", DIRECTORY, Mode::empty()).expect("own");
        }
        removed(base.path()).expect("removed");
        assert!(!base.path().join("top").exists());
    }

    #[test]
    fn links_names_and_permissions_of_the_command_stop_nothing_and_reach_nothing() {
        use std::os::unix::ffi::OsStrExt;
        let base = tempfile::tempdir().expect("temporary directory");
        let outside = base.path().join("outside");
        fs::create_dir(&outside).expect("new");
        fs::write(outside.join("kept"), "x").expect("new");
        let top = base.path().join("top");
        fs::create_dir_all(top.join("a/b/c")).expect("new");
        fs::create_dir_all(top.join(".removed-1-0/x")).expect("new");
        fs::write(top.join(".removed-2-0"), "x").expect("new");
        fs::write(top.join(OsStr::from_bytes(b"\xff\n..")), "x").expect("new");
        std::os::unix::fs::symlink(&outside, top.join("a/b/out")).expect("new");
        std::os::unix::fs::symlink(&outside, top.join("out")).expect("new");
        for many in 0..3000 {
            fs::write(top.join(format!("a/b/c/{many}")), "").expect("new");
        }
        for closed in ["a/b/c", "a/b", "a"] {
            fs::set_permissions(top.join(closed), fs::Permissions::from_mode(0o000)).expect("own");
        }
        removed(base.path()).expect("removed");
        assert!(!top.exists() && outside.join("kept").exists());
        removed(base.path()).expect("what is not there is removed");

        std::os::unix::fs::symlink(&outside, &top).expect("new");
        assert_eq!(removed(base.path()), Err(Errno::NOTDIR), "a link in its place is left alone");
        assert!(outside.join("kept").exists());
    }
}
