//! chmod, chown, utime and setxattr and their variants, and on old kernels truncate, performed by the supervisor for the program.
//!
//! Landlock does not restrict them. The supervisor opens the file as the program would find it, judges its real path,
//! and makes the change on that descriptor. The path is resolved only once, so there is no race.

mod arguments;

pub use super::change::LENDS_RIGHTS;
use super::change::{By, Change, apply, lends_rights};
use super::foresee::Foresight;
use super::names::{self, look_at, unique_mount};
use super::quick::Quick;
use super::target::{OTHERS_LINKS, Target};
use crate::sys::notify::{Answer, Call};
use crate::trust::{by_descriptor, place};
use arguments::{Named, read};
use rustix::fs::Statx;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// When the first of these was found, and what was found.
type Known = (Instant, Vec<Seen>);

/// The writable trees, and the protected paths in them. Real paths.
pub struct Writable {
    trees: Vec<PathBuf>,
    protected: Vec<PathBuf>,
    /// Directories on which something else is mounted for the program: a stage, a private directory.
    mounted: Vec<PathBuf>,
    /// The mounts on which a file was found at its path, by thread, with the innermost of the directories above that contains
    /// it. What else may lie on top of a file is among the protected paths, so the other files of that mount in that directory
    /// are found at their paths too.
    mounts: Mutex<Option<Known>>,
}

/// A thread, a mount, and the position of a directory.
type Seen = (i32, u64, usize);

/// How long a mount is remembered.
const FRESH: Duration = Duration::from_millis(10);

/// The result of a change.
pub enum Done {
    Answered(Answer),
    /// The file is in no writable tree; this is what would have been done.
    Refused(PathBuf, Prepared),
    /// Denied whatever the policy grants, for this reason.
    Never(PathBuf, &'static str),
}

/// A change that is ready to be made, on a descriptor.
pub struct Prepared {
    pub file: OwnedFd,
    by: By,
    change: Change,
}

/// What is known from calls a moment ago.
pub type Recent<'a> = (&'a mut Quick, &'a Foresight);

impl Prepared {
    /// Makes the change. What lends rights stays refused.
    pub fn apply(&self) -> io::Result<()> {
        match lends_rights(&self.file, &self.change)? {
            true => Err(io::Error::from_raw_os_error(libc::EPERM)),
            false => apply(&self.file, self.by, &self.change),
        }
    }

    pub fn lends_rights(&self) -> bool {
        lends_rights(&self.file, &self.change).unwrap_or(true)
    }
}

/// Makes the change if the file is in a writable tree. `waits` says whether the call still waits. If not, its process
/// may have died and its PID may be another process's by now, so nothing is changed.
pub fn change(call: &Call, writable: &Writable, recent: Recent<'_>, waits: &dyn Fn() -> bool) -> Done {
    let target = Target { tid: call.tid };
    match try_change(call, &target, writable, recent, waits) {
        Ok(done) => done,
        Err(error) => Done::Answered(Answer::Errno(error.raw_os_error().unwrap_or(libc::EPERM))),
    }
}

fn try_change(
    call: &Call,
    target: &Target,
    writable: &Writable,
    (quick, foresight): Recent<'_>,
    waits: &dyn Fn() -> bool,
) -> io::Result<Done> {
    let holds = |found: &Found| writable.holds(&found.at, &found.file, &found.looks, target);
    let (named, change) = read(call, target)?;
    let near = match &named {
        Named::Descriptor { fd, opened } => Some(by_number(*fd, *opened, target, Some(quick))?),
        Named::Path { directory, path, follow } => {
            let entry = quick.entry(target, *directory, path, foresight, waits);
            let found = entry.map(|(file, at)| Found::new(file, at, By::Path { follow: *follow })).transpose()?;
            found.filter(|found| !(*follow && found.is_link()))
        }
    };
    // What was known a moment ago may be wrong by now, so a refusal needs a full look.
    let (found, held) = match near.filter(&holds) {
        Some(found) => (found, true),
        None => match in_full(named, target)? {
            Ok(found) => {
                let held = holds(&found);
                (found, held)
            }
            Err(path) => return Ok(Done::Never(path, OTHERS_LINKS)),
        },
    };
    let (at, prepared) = (found.at, Prepared { file: found.file, by: found.by, change });
    if lends_rights(&prepared.file, &prepared.change)? {
        return Ok(Done::Never(at, LENDS_RIGHTS));
    }
    if !held {
        return Ok(Done::Refused(at, prepared));
    }
    if !waits() {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    apply(&prepared.file, prepared.by, &prepared.change)?;
    Ok(Done::Answered(Answer::Value(0)))
}

/// Reads and finds what a call changes, and changes nothing. An error for every other call.
pub fn prepare(call: &Call, target: &Target) -> io::Result<(PathBuf, Prepared)> {
    let (named, change) = read(call, target)?;
    let found = in_full(named, target)?.map_err(|_| io::Error::from_raw_os_error(libc::ELOOP))?;
    Ok((found.at, Prepared { file: found.file, by: found.by, change }))
}

/// The same, with another way to find a path. A descriptor counts by the path of its file, which has to lead to the same file.
pub fn prepare_by(
    call: &Call,
    target: &Target,
    open: &dyn Fn(i32, &Path, bool) -> io::Result<OwnedFd>,
) -> io::Result<(PathBuf, Prepared)> {
    let (named, change) = read(call, target)?;
    let (file, follow) = match named {
        Named::Path { directory, path, follow } => (open(directory, &path, follow)?, follow),
        Named::Descriptor { fd, .. } => {
            let own = target.descriptor(fd)?;
            let found = open(libc::AT_FDCWD, &place(&own)?, true)?;
            let inode = |file: &OwnedFd| rustix::fs::fstat(file).map(|stat| (stat.st_dev, stat.st_ino));
            if inode(&own)? != inode(&found)? {
                return Err(io::Error::from_raw_os_error(libc::EBADF));
            }
            (found, true)
        }
    };
    Ok((place(&file)?, Prepared { file, by: By::Path { follow }, change }))
}

/// The file that a call changes.
struct Found {
    file: OwnedFd,
    looks: Statx,
    /// Its real path.
    at: PathBuf,
    by: By,
}

impl Found {
    fn new(file: OwnedFd, at: PathBuf, by: By) -> io::Result<Found> {
        Ok(Found { looks: look_at(file.as_fd())?, file, at, by })
    }

    fn new_at_its_place(file: OwnedFd, by: By) -> io::Result<Found> {
        let at = place(&file)?;
        Found::new(file, at, by)
    }

    fn is_link(&self) -> bool {
        names::is_link(&self.looks)
    }
}

/// Finds the file anew. `Err` with the path if it goes through a link to a file of another process.
fn in_full(named: Named, target: &Target) -> io::Result<Result<Found, PathBuf>> {
    let (directory, path, follow) = match named {
        Named::Descriptor { fd, opened } => return by_number(fd, opened, target, None).map(Ok),
        Named::Path { directory, path, follow } => (directory, path, follow),
    };
    match target.open(directory, &path, follow) {
        Err(error) if target.leads_elsewhere(&error, directory, &path) => Ok(Err(path)),
        opened => opened.and_then(|file| Found::new_at_its_place(file, By::Path { follow })).map(Ok),
    }
}

/// The file of one of the program's descriptors.
fn by_number(fd: i32, opened: bool, target: &Target, quick: Option<&mut Quick>) -> io::Result<Found> {
    let (file, by) = match target.copied(fd) {
        // The change itself fails with EBADF on a descriptor of O_PATH.
        Ok(file) if opened => (file, By::Descriptor),
        Ok(file) => (file, By::Path { follow: false }),
        Err(rustix::io::Errno::BADF) => return Err(io::Error::from_raw_os_error(libc::EBADF)),
        // No pidfd of this thread, or an outer sandbox forbids copies.
        Err(_) => (target.link(&format!("fd/{fd}"))?, By::Path { follow: true }),
    };
    let looks = look_at(file.as_fd())?;
    let at = quick.and_then(|quick| quick.place_of(target.tid, &looks)).map_or_else(|| place(&file), Ok)?;
    Ok(Found { file, looks, at, by })
}

impl Writable {
    pub fn new(trees: Vec<PathBuf>, protected: Vec<PathBuf>, mounted: Vec<PathBuf>) -> Writable {
        // Without `.`, `//` or a slash at the end, so that a comparison of bytes is one of paths.
        let plain = |paths: Vec<PathBuf>| paths.iter().map(|path| path.components().collect()).collect();
        Writable { trees: plain(trees), protected: plain(protected), mounted: plain(mounted), mounts: Mutex::default() }
    }

    /// The innermost tree, or directory on which something is mounted, that contains this path.
    fn innermost(&self, at: &Path) -> Option<usize> {
        let tops = self.trees.iter().chain(&self.mounted).enumerate().filter(|(_, top)| lies_in(at, top));
        tops.max_by_key(|(_, top)| top.as_os_str().len()).map(|(position, _)| position)
    }

    /// Whether the process finds this file at this path.
    fn finds(&self, target: &Target, file: &OwnedFd, looks: &Statx, at: &Path) -> bool {
        let seen = unique_mount(looks).zip(self.innermost(at)).map(|(mount, top)| (target.tid, mount, top));
        let Some(mount) = seen else { return target.finds(file, at) };
        let mut mounts = self.mounts.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let known = mounts.take().filter(|(since, _)| since.elapsed() < FRESH);
        let (since, mut known) = known.unwrap_or_else(|| (Instant::now(), Vec::new()));
        let found = known.contains(&mount) || target.finds(file, at);
        if found && !known.contains(&mount) {
            known.push(mount);
        }
        *mounts = Some((since, known));
        found
    }

    fn holds(&self, at: &Path, file: &OwnedFd, looks: &Statx, target: &Target) -> bool {
        // A pipe, a socket or a deleted file is in no tree.
        let nowhere = || std::fs::metadata(by_descriptor(file)).is_ok_and(|meta| meta.nlink() == 0);
        let within = |trees: &[PathBuf]| trees.iter().any(|top| lies_in(at, top));
        // A descriptor may bypass the read-only mount, so check the protected paths here as well.
        let inside = || within(&self.trees) && !within(&self.protected) && self.finds(target, file, looks, at);
        !at.is_absolute() || inside() || nowhere()
    }
}

/// Whether a path is this directory or below it: [`Path::starts_with`] for paths that are in their shortest form, at a tenth of
/// its time.
fn lies_in(path: &Path, top: &Path) -> bool {
    let rest = path.as_os_str().as_bytes().strip_prefix(top.as_os_str().as_bytes());
    rest.is_some_and(|rest| rest.first().is_none_or(|next| *next == b'/') || top == Path::new("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_remembered_for_the_innermost_directory_only() {
        let writable = Writable::new(vec!["/a".into(), "/b".into()], Vec::new(), vec!["/a/staged".into()]);
        let innermost = |path: &str| writable.innermost(Path::new(path));
        assert_eq!(innermost("/a/file"), innermost("/a/other/file"));
        assert_ne!(innermost("/a/file"), innermost("/b/file"));
        assert_ne!(innermost("/a/file"), innermost("/a/staged/file"));
        assert_eq!(innermost("/c"), None);
    }
}
