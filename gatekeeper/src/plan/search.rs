//! Searches a tree of the real file system through descriptors, without following links. Reads only directories.

use super::listing;
use super::paths::{EntryKind, KERNEL, Searched, Seek, Unlisted};
use crate::policy::pattern::Progress;
use rustix::fs::{Access, AtFlags, FileType, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// The size of the getdents64 buffer.
const PIECE: usize = 32 * 1024;
const SYSFS_MAGIC: u32 = 0x6265_6572;

struct Pending {
    /// Relative to the top.
    path: PathBuf,
    depth: usize,
    progress: Vec<Progress>,
}

/// Breadth first, so that a search that stops early has seen the directories near the top.
pub fn search(top: &Path, seek: &dyn Seek) -> Result<Searched, Unlisted> {
    let mut searched = Searched::default();
    let within_bounds = seek.most_directories();
    let root = match rustix::fs::open(top, DIRECTORY, Mode::empty()) {
        Ok(root) => root,
        Err(Errno::NOTDIR | Errno::NOENT | Errno::LOOP) => return Ok(searched),
        Err(error) => {
            return skip_unlisted(None, top, error, within_bounds.is_some(), &mut searched).map(|()| searched);
        }
    };
    let mut buffer = Vec::with_capacity(PIECE);
    let mut queue = VecDeque::from([Pending { path: PathBuf::new(), depth: 0, progress: seek.start() }]);
    while let Some(at) = queue.pop_front() {
        if within_bounds.is_some_and(|most| searched.directories >= most) {
            searched.stopped = true;
            break;
        }
        let whole = top.join(&at.path);
        // The top is listed once, before everything below it.
        let opened = (at.depth > 0).then(|| below(&root, &at.path)).transpose();
        let opened = match opened {
            Ok(opened) => opened,
            // Removed or replaced in the meantime.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
            Err(error) => {
                skip_unlisted(Some((&root, &at.path)), &whole, error, within_bounds.is_some(), &mut searched)?;
                searched.visited.push(whole);
                continue;
            }
        };
        let directory = opened.as_ref().unwrap_or(&root);
        if at.depth > 0 && is_kernel(directory, &whole) {
            continue;
        }
        if !can_be_entered(directory) {
            // The names in it can be listed, but not what is below them.
            let at = Some((&root, at.path.as_path()));
            skip_unlisted(at, &whole, Errno::ACCESS, within_bounds.is_some(), &mut searched)?;
        }
        searched.directories += 1;
        let before = searched.found.len();
        let (count, failed) = each_entry(directory, &mut buffer, |name, kind| {
            let (matched, below) = seek.look(&at.progress, at.depth, name, kind);
            if matched {
                searched.found.push((whole.join(name), kind));
            } else if let Some(progress) = below.filter(|_| kind == EntryKind::Directory) {
                queue.push_back(Pending { path: at.path.join(name), depth: at.depth + 1, progress });
            }
        });
        match failed {
            Some(error) if within_bounds.is_none() => {
                return Err(Unlisted { directory: whole, error: error.into() });
            }
            Some(_) => searched.unlisted.push(whole.clone()),
            None => {}
        }
        if searched.found.len() > before {
            searched.beside.insert(whole.clone(), count);
        }
        searched.visited.push(whole);
    }
    Ok(searched)
}

/// Calls `take` for each entry of a directory. Returns the number of entries, and the error that ended the listing early.
fn each_entry(
    directory: &OwnedFd,
    buffer: &mut Vec<u8>,
    mut take: impl FnMut(&OsStr, EntryKind),
) -> (usize, Option<Errno>) {
    let mut count = 0;
    let failed = listing::each(directory, buffer.spare_capacity_mut(), |name, listed| {
        count += 1;
        match listing::type_of(directory, name, listed) {
            Some(FileType::Directory) => take(listing::text(name), EntryKind::Directory),
            Some(FileType::Symlink) => take(listing::text(name), EntryKind::Link),
            Some(_) => take(listing::text(name), EntryKind::Other),
            None => {}
        }
    });
    (count, failed)
}

/// Opens a directory below the top without following links, even if parts of the path were replaced meanwhile.
fn below(root: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    match openat2(root, path, DIRECTORY, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS) {
        // An outer sandbox denies openat2, or the path exceeds PATH_MAX: open it component by component.
        Err(Errno::NOSYS | Errno::PERM | Errno::NAMETOOLONG) => {
            let mut at: Option<OwnedFd> = None;
            let last = path.iter().count().saturating_sub(1);
            for (index, name) in path.iter().enumerate() {
                let flags = if index < last { DIRECTORY | OFlags::PATH } else { DIRECTORY };
                at = Some(openat(at.as_ref().unwrap_or(root), name, flags, Mode::empty())?);
            }
            at.ok_or(Errno::NOENT)
        }
        other => other,
    }
}

/// Decides whether the search may skip a directory that cannot be listed: if the command could not use it either, or if
/// the search need not be complete.
fn skip_unlisted(
    at: Option<(&OwnedFd, &Path)>,
    whole: &Path,
    error: Errno,
    incomplete: bool,
    searched: &mut Searched,
) -> Result<(), Unlisted> {
    if incomplete {
        searched.unlisted.push(whole.to_owned());
        return Ok(());
    }
    let me = rustix::process::geteuid();
    let (from, path) = match at {
        Some((root, path)) => (std::os::fd::AsFd::as_fd(root), path),
        None => (rustix::fs::CWD, whole),
    };
    // The owner could restore the permission with chmod.
    let foreign = match rustix::fs::statat(from, path, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat.st_uid != me.as_raw() || me.is_root(),
        Err(error) => error == Errno::ACCESS,
    };
    let closed = rustix::fs::accessat(from, path, Access::EXEC_OK, AtFlags::EACCESS) == Err(Errno::ACCESS);
    match error == Errno::ACCESS && foreign && closed {
        true => Ok(()),
        false => Err(Unlisted { directory: whole.to_owned(), error: error.into() }),
    }
}

/// Whether this user has the permission to reach what is in a directory, in addition to that of listing it.
fn can_be_entered(directory: &OwnedFd) -> bool {
    !matches!(rustix::fs::statat(directory, ".", AtFlags::empty()), Err(Errno::ACCESS))
}

fn is_kernel(directory: &OwnedFd, whole: &Path) -> bool {
    KERNEL.iter().any(|kernel| Path::new(kernel) == whole)
        || rustix::fs::fstatfs(directory)
            .is_ok_and(|fs| fs.f_type == rustix::fs::PROC_SUPER_MAGIC || fs.f_type as u32 == SYSFS_MAGIC)
}
