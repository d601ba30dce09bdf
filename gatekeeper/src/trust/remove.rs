//! Removes a tree that a confined command has filled, with any depth, names and permissions. Follows no link and has at
//! most three directories open.
//!
//! Each directory is first moved up to the top of the tree. So the tree is never deeper than two levels where this works,
//! and no path is longer than a name. The guardian calls this after fork: no allocation, no lock.

use super::text::StackText;
use rustix::fs::{AtFlags, Mode, OFlags, RawDir, SeekFrom, fchmod, fstat, openat, renameat, seek, unlinkat};
use rustix::io::Errno;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Give up after this time: another process may keep creating files.
const PATIENCE: Duration = Duration::from_secs(60);
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Removes the directory `name` in `base` and everything below it. Fails if the directory belongs to another user.
pub fn remove_tree(base: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    match unlinkat(base, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(_) => {}
    }
    let top = match open_own(base, name) {
        Err(Errno::NOENT) => return Ok(()),
        other => other?,
    };
    let emptied = empty(top.as_fd());
    match unlinkat(base, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(emptied.err().unwrap_or(error)),
    }
}

/// Removes everything in a directory.
pub fn empty(top: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut state = Emptied { top, moved: 0, until: Instant::now() + PATIENCE };
    state.pass_until_empty(top, &mut |state, name| state.remove_entry(name))
}

/// Opens a directory that belongs to this user, and restores its owner's permissions.
fn open_own(base: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let directory = match openat(base, name, DIRECTORY, Mode::empty()) {
        Err(Errno::ACCESS) => reopened(base, name)?,
        other => other?,
    };
    let stat = fstat(&directory)?;
    is_own(stat.st_uid)?;
    if stat.st_mode & 0o700 != 0o700 {
        fchmod(&directory, Mode::RWXU)?;
    }
    Ok(directory)
}

/// Opens a directory whose mode denies that to its owner. O_PATH needs no permission on it, but fchmod refuses such a
/// descriptor, so its mode is changed through /proc/self/fd.
fn reopened(base: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let place = openat(base, name, flags, Mode::empty())?;
    is_own(fstat(&place)?.st_uid)?;
    let path = StackText::new(format_args!("/proc/self/fd/{}", place.as_raw_fd()));
    rustix::fs::chmod(path.as_c_str(), Mode::RWXU)?;
    openat(&place, c".", DIRECTORY, Mode::empty())
}

/// Root also removes files that its command gave to other users.
fn is_own(uid: u32) -> Result<(), Errno> {
    let me = rustix::process::geteuid();
    if me.is_root() || me.as_raw() == uid { Ok(()) } else { Err(Errno::PERM) }
}

struct Emptied<'a> {
    top: BorrowedFd<'a>,
    moved: u64,
    until: Instant,
}

type Act<'s> = dyn FnMut(&mut Emptied<'_>, &CStr) -> Result<(), Errno> + 's;

impl Emptied<'_> {
    /// Applies `act` to every entry, pass after pass, until the directory is empty. An error if a whole pass removed
    /// nothing.
    fn pass_until_empty(&mut self, directory: BorrowedFd<'_>, act: &mut Act<'_>) -> Result<(), Errno> {
        loop {
            let (mut seen, mut acted, mut failed) = (false, false, None);
            let mut buffer = [MaybeUninit::<u8>::uninit(); 8192];
            seek(directory, SeekFrom::Start(0))?;
            let mut entries = RawDir::new(directory, &mut buffer);
            while let Some(entry) = entries.next() {
                let entry = entry?;
                if matches!(entry.file_name().to_bytes(), b"." | b"..") {
                    continue;
                }
                seen = true;
                match act(self, entry.file_name()) {
                    Ok(()) => acted = true,
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
            match failed {
                None if !seen => return Ok(()),
                Some(error) if !acted => return Err(error),
                _ if Instant::now() >= self.until => return Err(Errno::TIMEDOUT),
                _ => {}
            }
        }
    }

    /// Removes one entry of the top directory. If it is a directory, removes its files and moves its directories up first.
    fn remove_entry(&mut self, name: &CStr) -> Result<(), Errno> {
        let top = self.top;
        if is_removed(top, name)? {
            return Ok(());
        }
        let directory = open_own(top, name)?;
        self.pass_until_empty(directory.as_fd(), &mut |state, inner| {
            if is_removed(directory.as_fd(), inner)? {
                return Ok(());
            }
            // To rename a directory needs write permission on it, because its `..` changes.
            drop(open_own(directory.as_fd(), inner)?);
            state.move_up(directory.as_fd(), inner)
        })?;
        unlinkat(top, name, AtFlags::REMOVEDIR)
    }

    fn move_up(&mut self, from: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
        self.moved += 1;
        for attempt in 0..16u32 {
            let fresh = StackText::new(format_args!(".removed-{:x}-{attempt:x}", self.moved));
            // The command may have taken the name. An empty directory is replaced; try another name for anything else,
            // which is removed in its turn.
            match renameat(from, name, self.top, fresh.as_c_str()) {
                Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => {}
                other => return other,
            }
        }
        Err(Errno::EXIST)
    }
}

/// Removes an entry; false if it is a directory that is not empty.
fn is_removed(within: BorrowedFd<'_>, name: &CStr) -> Result<bool, Errno> {
    match unlinkat(within, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::ISDIR) => match unlinkat(within, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(true),
            Err(_) => Ok(false),
        },
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn removed(base: &std::path::Path) -> Result<(), Errno> {
        let held = rustix::fs::open(base, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).expect("own");
        remove_tree(held.as_fd(), c"top")
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
        use std::ffi::OsStr;
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
        assert!(removed(base.path()).is_err(), "a link in its place is left alone");
        assert!(top.symlink_metadata().is_ok());
        assert!(outside.join("kept").exists());
    }
}
