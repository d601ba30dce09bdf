//! The real file system, as a `Tree`. Read-only.

use super::listing;
use super::paths::aliases::{self, Mounted};
use super::paths::homes::{self, Homes};
use super::paths::spelling::{is_plain, last};
use super::paths::{Inode, Kind, Look, Searched, Seek, Tree, Unlisted};
use crate::sys::is_shortage;
use crate::trust::{self, Hostile, Untrusted};
use rustix::fs::{Access, AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

pub struct Disk;

/// Larger than the configuration of a git repository with thousands of branches.
const LARGEST: u64 = 256 * 1024;
/// For the lines of some hundred mounts.
const ROOM: usize = 16 * 1024;
/// How many entries of /home to consider besides those in /etc/passwd.
const MANY: usize = 1000;
/// The size of the buffer for listings.
const PIECE: usize = 2048;
/// Most directories that a plan lists have no more entries.
const USUAL: usize = 32;
const LISTED: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl Tree for Disk {
    fn resolve(&self, path: &Path) -> Option<PathBuf> {
        // Most paths do not exist, and access(2) says so in one call.
        rustix::fs::access(path, Access::EXISTS).ok()?;
        fs::canonicalize(path).ok()
    }

    fn reach(&self, path: &Path, hostile: &[PathBuf]) -> Result<Option<PathBuf>, Untrusted> {
        reach_beside(path, &known(hostile))
    }

    fn reach_all(&self, paths: &[PathBuf], hostile: &[PathBuf]) -> Result<Vec<Option<PathBuf>>, Untrusted> {
        reach_all(paths, hostile, &|real, directory, name| {
            let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
            (!FileType::from_raw_mode(stat.st_mode).is_symlink()).then_some(real)
        })
    }

    fn links(&self, path: &Path) -> Vec<PathBuf> {
        let mut links = Vec::new();
        let Ok(mut at) = std::path::absolute(path) else { return links };
        // The kernel follows at most 40 links.
        while links.len() < 40 {
            let Some(link) = first_link(&at) else { break };
            let (Ok(target), Some(above)) = (fs::read_link(&link), link.parent()) else { break };
            let (Ok(rest), Ok(above)) = (at.strip_prefix(&link), fs::canonicalize(above)) else { break };
            let (target, rest) = (above.join(target), rest.to_owned());
            links.extend(link.file_name().map(|name| above.join(name)));
            // `..` after a symbolic link leaves the link's target, so only the file system can resolve it.
            let target = match target.components().any(|part| part == Component::ParentDir) {
                true => real_up_to_the_end(&target),
                false => Some(target),
            };
            let Some(target) = target else { break };
            at = if rest.as_os_str().is_empty() { target } else { target.join(rest) };
        }
        links
    }

    fn target(&self, path: &Path) -> Option<PathBuf> {
        let link = self.links(path).pop()?;
        Some(link.parent()?.join(fs::read_link(&link).ok()?))
    }

    fn look(&self, path: &Path) -> Option<Look> {
        let stat = rustix::fs::lstat(path).ok()?;
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Directory,
            FileType::Symlink => Kind::Link,
            _ => Kind::Other,
        };
        let own = stat.st_uid == rustix::process::geteuid().as_raw();
        let public = stat.st_mode & 0o004 != 0;
        Some(Look { kind, own, linked: linked(&stat, kind), public })
    }

    fn is_same(&self, one: &Path, other: &Path) -> bool {
        let known = |stat: &Stat| {
            let kind = FileType::from_raw_mode(stat.st_mode);
            // Containers hide a file by mounting a device over it.
            (kind.is_dir() || kind.is_file()).then_some((stat.st_dev, stat.st_ino))
        };
        let of = |path| rustix::fs::lstat(path).ok().as_ref().and_then(known);
        of(one).is_some_and(|one| of(other) == Some(one))
    }

    fn entries(&self, directory: &Path) -> Option<Vec<PathBuf>> {
        entries(directory).ok()
    }

    fn names(&self, directory: &Path) -> Option<Vec<OsString>> {
        names(directory).ok()
    }

    fn is_closed(&self, path: &Path) -> bool {
        let closed = |path: &Path| {
            let Ok(stat) = rustix::fs::stat(path) else { return false };
            let me = rustix::process::geteuid();
            let refused = |how| rustix::fs::accessat(CWD, path, how, AtFlags::EACCESS) == Err(Errno::ACCESS);
            !me.is_root() && stat.st_uid != me.as_raw() && refused(Access::READ_OK) && refused(Access::EXEC_OK)
        };
        // Or it can be listed, but holds nothing that this user may read.
        let holds_nothing = || {
            let mut entries = fs::read_dir(path).ok()?;
            let foreign = fs::metadata(path).is_ok_and(|meta| meta.uid() != rustix::process::geteuid().as_raw());
            (foreign && entries.all(|entry| entry.is_ok_and(|entry| closed(&entry.path())))).then_some(())
        };
        closed(path) || holds_nothing().is_some()
    }

    fn shut(&self, path: &Path) -> Option<PathBuf> {
        let is_refused =
            |path: &Path, follow: AtFlags| rustix::fs::statat(CWD, path, follow).err() == Some(Errno::ACCESS);
        if !is_refused(path, AtFlags::empty()) {
            return None;
        }
        let mut ways = vec![path.to_owned()];
        ways.extend(self.links(path).iter().filter_map(|link| Some(link.parent()?.join(fs::read_link(link).ok()?))));
        let way = ways.into_iter().find(|way| is_refused(way, AtFlags::SYMLINK_NOFOLLOW))?;
        let closed = way.ancestors().skip(1).find(|above| !is_refused(above, AtFlags::SYMLINK_NOFOLLOW))?;
        let closed = fs::canonicalize(closed).ok()?;
        self.look(&closed).filter(|found| found.own && found.kind == Kind::Directory).map(|_| closed)
    }

    fn is_directory(&self, path: &Path) -> bool {
        path.is_dir()
    }

    fn contents(&self, path: &Path) -> Option<Vec<u8>> {
        contents(path).ok()?
    }

    fn homes(&self) -> Homes {
        homes().unwrap_or_default()
    }

    fn search(&self, top: &Path, seek: &dyn Seek) -> Result<Searched, Unlisted> {
        super::search::search(top, seek)
    }

    fn mounts(&self) -> Vec<Mounted> {
        mounts().unwrap_or_default()
    }
}

/// The names of a file, if it has several.
pub(super) fn linked(stat: &Stat, kind: Kind) -> Option<Inode> {
    let (device, number, names) = (stat.st_dev, stat.st_ino, stat.st_nlink as usize);
    (kind == Kind::File && names > 1).then_some(Inode { device, number, names })
}

/// Takes a file or directory that is not there, or that this user may not see, as empty.
fn or_nothing<T: Default>(error: io::Error) -> io::Result<T> {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => Ok(T::default()),
        _ => Err(error),
    }
}

/// `Tree::contents`, and why a file could not be read.
pub(super) fn contents(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut options = fs::OpenOptions::new();
    // O_NONBLOCK: a FIFO in its place must not block us.
    let file = options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_NOFOLLOW).open(path)?;
    if !file.metadata()?.is_file() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes)?;
    Ok(Some(bytes).filter(|bytes| bytes.len() as u64 <= LARGEST))
}

/// `Tree::entries`, and why a directory could not be listed.
pub(super) fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let opened = rustix::fs::open(directory, LISTED, Mode::empty())?;
    let mut entries = Vec::with_capacity(USUAL);
    listing::each(&opened, &mut [MaybeUninit::uninit(); PIECE], |name, listed| {
        if !listing::type_of(&opened, name, listed).is_some_and(FileType::is_symlink) {
            entries.push(directory.join(listing::text(name)));
        }
    });
    Ok(entries)
}

/// `Tree::names`, and why a directory could not be listed.
pub(super) fn names(directory: &Path) -> io::Result<Vec<OsString>> {
    let opened = match rustix::fs::open(directory, LISTED, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(Vec::new()),
        opened => opened?,
    };
    let mut names = Vec::with_capacity(USUAL);
    let failed = listing::each(&opened, &mut [MaybeUninit::uninit(); PIECE], |name, _| {
        names.push(listing::text(name).to_owned());
    });
    failed.map_or(Ok(names), |error| Err(error.into()))
}

/// The bytes of a file. `fs::read` takes three syscalls more.
fn whole(path: &Path) -> io::Result<Vec<u8>> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut bytes = Vec::with_capacity(PIECE);
    loop {
        match rustix::io::read(&file, rustix::buffer::spare_capacity(&mut bytes)) {
            Ok(0) => return Ok(bytes),
            Ok(_) => bytes.reserve(PIECE),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// `Tree::homes`, and why they are not known.
pub(super) fn homes() -> io::Result<Homes> {
    let me = rustix::process::geteuid();
    let text = whole(Path::new("/etc/passwd")).or_else(or_nothing)?;
    let homes = |of: &dyn Fn(u32) -> bool| -> Vec<PathBuf> {
        homes::in_passwd(&text).filter(|(uid, _)| of(*uid)).map(|(_, home)| home.to_owned()).collect()
    };
    let mut own = homes(&|uid| uid == me.as_raw());
    let in_home = || -> io::Result<Vec<PathBuf>> {
        let listed =
            fs::read_dir("/home").map(|entries| entries.flatten().map(|entry| entry.path()).take(MANY).collect());
        listed.or_else(or_nothing)
    };
    if own.is_empty() {
        // Users of a directory service (LDAP, SSSD) are not in /etc/passwd.
        let is_own = |path: &PathBuf| rustix::fs::lstat(path).is_ok_and(|stat| stat.st_uid == me.as_raw());
        own.extend(in_home()?.into_iter().filter(is_own));
    }
    let mut others = if me.is_root() { homes(&|uid| uid != me.as_raw()) } else { Vec::new() };
    if me.is_root() {
        others.extend(in_home()?.into_iter().chain([PathBuf::from("/root")]));
        others.retain(|home| homes::may_hold_keys(home));
    }
    Ok(Homes { own, others })
}

/// `Tree::mounts`, and why they are not known.
pub(crate) fn mounts() -> io::Result<Vec<Mounted>> {
    // The size of files in /proc is not known, and `fs::read` would begin with 32 bytes.
    let mut text = Vec::with_capacity(ROOM);
    let read = fs::File::open("/proc/self/mountinfo").and_then(|mut file| file.read_to_end(&mut text));
    read.map(|_| aliases::parse(&text)).or_else(or_nothing)
}

fn reach_beside(path: &Path, hostile: &Hostile) -> Result<Option<PathBuf>, Untrusted> {
    // Where no part of the path is a link, one call says what the walk would find.
    if is_plain(path) {
        let (flags, way) = (OFlags::PATH | OFlags::CLOEXEC, ResolveFlags::NO_SYMLINKS);
        if rustix::fs::openat2(CWD, path, flags, Mode::empty(), way).is_ok() {
            return Ok(Some(path.to_owned()));
        }
    }
    match trust::walk(path, hostile) {
        Ok(found) => Ok(Some(found.real).filter(|_| !found.nameless)),
        // A path that could not be looked at is not one that is missing: it may be one to deny.
        Err(Untrusted::Io { path, error }) if is_shortage(&error) => Err(Untrusted::Io { path, error }),
        // A dangling link grants nothing.
        Err(Untrusted::Io { .. }) => Ok(None),
        Err(error) => Disk.resolve(path).map_or(Ok(None), |_| Err(error)),
    }
}

/// `Tree::reach_all`. Walks once to the directory of paths that follow each other. `entry` gets the real path of an entry, its
/// directory and its name. It returns that path if it is there and is no link; otherwise the whole path is walked.
pub(super) fn reach_all(
    paths: &[PathBuf],
    hostile: &[PathBuf],
    entry: &dyn Fn(PathBuf, BorrowedFd<'_>, &OsStr) -> Option<PathBuf>,
) -> Result<Vec<Option<PathBuf>>, Untrusted> {
    if paths.is_empty() {
        return Ok(Vec::new());
    }
    let hostile = known(hostile);
    let mut walked: Option<(&Path, trust::Found)> = None;
    let mut reached = Vec::with_capacity(paths.len());
    for path in paths {
        let Some((above, name)) = in_directory(path) else {
            reached.push(reach_beside(path, &hostile)?);
            continue;
        };
        if walked.as_ref().is_none_or(|(before, _)| before.as_os_str() != above.as_os_str()) {
            walked = trust::walk(above, &hostile).ok().map(|found| (above, found));
        }
        let directory = walked.as_ref().map(|(_, directory)| directory).filter(|directory| !directory.nameless);
        let found = directory.and_then(|found| entry(found.real.join(name), found.file.as_fd(), name));
        reached.push(found.map_or_else(|| reach_beside(path, &hostile), |found| Ok(Some(found)))?);
    }
    Ok(reached)
}

/// The directory and the name of a path, if it has no other form than these two joined.
fn in_directory(path: &Path) -> Option<(&Path, &OsStr)> {
    last(path).filter(|(above, _)| above.parent().is_none() || last(above).is_some())
}

/// These trees by device and inode.
fn known(hostile: &[PathBuf]) -> Hostile {
    let mut trees = Hostile::default();
    hostile.iter().for_each(|tree| trees.add(tree));
    trees
}

/// The first component of an absolute path that is a symbolic link, as a path.
fn first_link(path: &Path) -> Option<PathBuf> {
    let mut above: Vec<&Path> = path.ancestors().collect();
    above.reverse();
    above.into_iter().find(|path| path.is_symlink()).map(Path::to_owned)
}

/// The path with its directory resolved; the last name need not exist.
fn real_up_to_the_end(path: &Path) -> Option<PathBuf> {
    match (path.parent(), path.file_name()) {
        (Some(above), Some(name)) => Some(fs::canonicalize(above).ok()?.join(name)),
        _ => fs::canonicalize(path).ok(),
    }
}
