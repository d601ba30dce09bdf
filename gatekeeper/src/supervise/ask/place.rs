//! Where a call leads: the file that it names, or the directory and the name of an entry, as descriptors.
//!
//! The path was copied from the program's memory once. It is resolved once, from the program's own root, working directory
//! or descriptor, or through the mounts outside if the program runs inside bubblewrap. The question, the approval and the
//! action all use what was found. A link, a rename or a mount that comes later changes nothing.

use super::view::Eyes;
use crate::supervise::files::{Does, Named};
use crate::trust::place;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, fstat, openat2, readlinkat, statat};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The kernel's limit on symbolic links (path_resolution(7)).
const MOST_LINKS: usize = 40;

pub enum Place {
    File(OwnedFd),
    Entry { parent: OwnedFd, name: OsString },
}

pub struct Located {
    pub named: Named,
    pub place: Place,
    /// The real path.
    pub at: PathBuf,
}

impl Located {
    /// An error means that the call will fail anyway.
    pub fn find(named: Named, eyes: &Eyes<'_>) -> io::Result<Located> {
        let (directory, path) = (named.directory, named.path.as_path());
        let entry = |(parent, at, name): (OwnedFd, PathBuf, OsString)| {
            let at = at.join(&name);
            (Place::Entry { parent, name }, at)
        };
        let file = |file: OwnedFd| Ok::<_, io::Error>((place(&file)?, file)).map(|(at, file)| (Place::File(file), at));
        let (place, at) = match named.does {
            Does::Open { create, .. } => match eyes.open(directory, path, named.follow) {
                Err(error) if create && error.raw_os_error() == Some(libc::ENOENT) => {
                    entry(absent(eyes, directory, path, named.follow)?)
                }
                found => file(found?)?,
            },
            Does::Link if named.follow => file(eyes.open(directory, path, true)?)?,
            Does::OpenUnnamed | Does::Change | Does::Execute => file(eyes.open(directory, path, named.follow)?)?,
            Does::Make | Does::Replace | Does::Remove | Does::Move | Does::Link => entry(eyes.parent(directory, path)?),
        };
        Ok(Located { named, place, at })
    }

    /// The directory whose contents the call changes, or the file itself.
    pub fn descriptor(&self) -> &OwnedFd {
        match &self.place {
            Place::File(file) => file,
            Place::Entry { parent, .. } => parent,
        }
    }

    /// The kind of the file; `None` if there is none yet.
    pub fn kind(&self) -> Option<FileType> {
        let stat = match &self.place {
            Place::File(file) => fstat(file),
            Place::Entry { parent, name } => statat(parent, OsStr::new(name), AtFlags::SYMLINK_NOFOLLOW),
        };
        stat.ok().map(|stat| FileType::from_raw_mode(stat.st_mode))
    }

    /// The path as the program wrote it, if it leads elsewhere.
    pub fn named_otherwise(&self) -> Option<PathBuf> {
        let written = &self.named.path;
        // `at` ends with a plain relative path; for an absolute one it is the same.
        (!written.as_os_str().is_empty() && !self.at.ends_with(plain(written))).then(|| written.clone())
    }
}

/// A path without `.`, as far as that is possible without looking.
fn plain(path: &Path) -> PathBuf {
    path.components().filter(|part| !matches!(part, std::path::Component::CurDir)).collect()
}

/// The directory and the name that open(2) with O_CREAT would create, through links that lead to nothing.
fn absent(eyes: &Eyes<'_>, directory: i32, path: &Path, follow: bool) -> io::Result<(OwnedFd, PathBuf, OsString)> {
    let (mut parent, mut at, mut name) = eyes.parent(directory, path)?;
    for _ in 0..MOST_LINKS {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let found = match openat2(&parent, &name, flags, Mode::empty(), how) {
            Err(rustix::io::Errno::NOENT) => return Ok((parent, at, name)),
            found => found?,
        };
        if !FileType::from_raw_mode(fstat(&found)?.st_mode).is_symlink() || !follow {
            return Ok((parent, at, name));
        }
        let to = PathBuf::from(OsString::from_vec(readlinkat(&found, "", Vec::new())?.into_bytes()));
        // A relative link starts in the directory that holds it.
        (parent, at, name) = eyes.parent(libc::AT_FDCWD, &at.join(to))?;
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}
