//! Writes gatekeeper's own results: reports, policies, scripts. A new file is renamed over the old one. So gatekeeper
//! never writes through a symbolic or hard link that a command left there, and nothing that the command writes under that
//! name during the run survives.

use super::{Found, Hostile, Untrusted, odd_kind, walk};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, openat, renameat, statat, unlinkat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The destination of one result. The command sees nothing of it before `write`.
#[derive(Debug)]
pub enum Output {
    /// A pipe, a terminal, a device, or a file in a directory that this user may not write.
    Stream(File),
    File(Replaced),
}

#[derive(Debug)]
pub struct Replaced {
    directory: OwnedFd,
    /// The path of `directory` when it was opened.
    real: PathBuf,
    name: OsString,
    /// The mode of the existing file. The new one gets no more permissions than that.
    limit: u32,
}

impl Output {
    /// Opens the destination, so that an error is known before anything runs. An existing file keeps its contents.
    pub fn open(path: &Path, hostile: &Hostile) -> Result<Output, Untrusted> {
        match walk(path, hostile) {
            Ok(found) => Output::over(path, &found, hostile),
            Err(error) if error.is_missing() => {
                let name = path.file_name().ok_or_else(|| Untrusted::io(path, Errno::ISDIR))?;
                let parent = match path.parent() {
                    Some(parent) if !parent.as_os_str().is_empty() => parent,
                    _ => Path::new("."),
                };
                let (file, _) = Replaced::new(path, parent, name, ANY_MODE, hostile)?;
                file.try_out().map_err(|error| Untrusted::io(path, error))?;
                Ok(Output::File(file))
            }
            Err(error) => Err(error),
        }
    }

    /// Opens a destination that exists.
    fn over(path: &Path, found: &Found, hostile: &Hostile) -> Result<Output, Untrusted> {
        let wrong = |error: Errno| Untrusted::io(path, error);
        let stream = |flags: OFlags| {
            found.reopen(OFlags::WRONLY | flags).map(|file| Output::Stream(File::from(file))).map_err(wrong)
        };
        match odd_kind(&found.stat) {
            _ if found.is_directory() => return Err(wrong(Errno::ISDIR)),
            Some(kind) if found.hostile => return Err(Untrusted::Kind { path: found.real.clone(), kind }),
            Some(_) => return stream(OFlags::NOCTTY),
            None if found.nameless => return stream(OFlags::TRUNC),
            None => {}
        }
        let name = found.real.file_name().ok_or_else(|| wrong(Errno::ISDIR))?;
        let parent = found.real.parent().unwrap_or(Path::new("/"));
        let (file, parent) = Replaced::new(path, parent, name, found.stat.st_mode & ANY_MODE, hostile)?;
        match if is_kept(&parent.stat, &found.stat) { Err(Errno::PERM) } else { file.try_out() } {
            Ok(()) => Ok(Output::File(file)),
            // Only the directory is not writable. Outside of hostile trees it is safe to write into the file itself.
            Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) if !found.hostile => stream(OFlags::TRUNC),
            Err(error) => Err(wrong(error)),
        }
    }

    /// Removes the result of an earlier run, so that it cannot be mistaken for this one's.
    pub fn clear(&self) -> io::Result<()> {
        match self {
            Output::Stream(_) => Ok(()),
            Output::File(file) => match unlinkat(&file.directory, &file.name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => Ok(()),
                // A mount point cannot be removed. `write` overwrites its contents.
                Err(Errno::BUSY) => Ok(()),
                Err(error) => Err(error.into()),
            },
        }
    }

    /// Writes the whole result, or nothing. `mode` is for a new file; the umask applies.
    pub fn write(&mut self, bytes: &[u8], mode: u32) -> io::Result<()> {
        match self {
            Output::Stream(stream) => {
                let written = stream.write_all(bytes);
                if written.is_err() {
                    // No result rather than half of one; this works for a file only.
                    let _ = stream.set_len(0);
                }
                written
            }
            Output::File(file) => file.replace(bytes, mode),
        }
    }
}

const ANY_MODE: u32 = 0o7777;

impl Replaced {
    /// Opens the directory of a destination.
    fn new(
        asked: &Path,
        directory: &Path,
        name: &OsStr,
        limit: u32,
        hostile: &Hostile,
    ) -> Result<(Replaced, Found), Untrusted> {
        let wrong = |error: Errno| Untrusted::io(asked, error);
        let parent = walk(directory, hostile)?;
        if !parent.is_directory() {
            return Err(wrong(Errno::NOTDIR));
        }
        let held = parent
            .reopen(OFlags::RDONLY | OFlags::DIRECTORY)
            .or_else(|_| rustix::io::fcntl_dupfd_cloexec(&parent, 3))
            .map_err(wrong)?;
        Ok((Replaced { directory: held, real: parent.real.clone(), name: name.to_owned(), limit }, parent))
    }

    /// Tries whether a file can be created in the directory, and removes it again.
    fn try_out(&self) -> Result<(), Errno> {
        let unnamed = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        match openat(&self.directory, ".", unnamed, Mode::RUSR | Mode::WUSR) {
            // Not every file system supports O_TMPFILE.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {
                let (name, _) = self.fresh(0o600)?;
                unlinkat(&self.directory, &name, AtFlags::empty())
            }
            other => other.map(drop),
        }
    }

    /// Creates a file with a random name beside the one to be replaced.
    fn fresh(&self, mode: u32) -> Result<(String, File), Errno> {
        let mut random = [0u8; 8];
        if rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty()).is_err() {
            // An outer sandbox may deny getrandom. A predictable name is safe too, because of O_EXCL.
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            random = (now.as_nanos() as u64).to_ne_bytes();
        }
        let name = format!(".gatekeeper-{:016x}", u64::from_ne_bytes(random));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.directory, &name, flags, Mode::from_raw_mode(mode))?;
        Ok((name, File::from(file)))
    }

    fn replace(&self, bytes: &[u8], mode: u32) -> io::Result<()> {
        let (fresh, mut file) = self.fresh(mode & (self.limit | 0o711))?;
        let written =
            file.write_all(bytes).and_then(|()| match renameat(&self.directory, &fresh, &self.directory, &self.name) {
                Err(Errno::BUSY) => self.overwrite(bytes),
                other => Ok(other?),
            });
        if written.is_err() || statat(&self.directory, &fresh, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            let _ = unlinkat(&self.directory, &fresh, AtFlags::empty());
        }
        written.and_then(|()| self.check_place())
    }

    /// Fails if the command moved the directory away and put another in its place, possibly with a forged result.
    fn check_place(&self) -> io::Result<()> {
        let (held, there) = (rustix::fs::fstat(&self.directory)?, rustix::fs::lstat(&self.real)?);
        let is_same = (held.st_dev, held.st_ino) == (there.st_dev, there.st_ino);
        match is_same && std::fs::canonicalize(&self.real)? == self.real {
            true => Ok(()),
            false => Err(io::Error::other(format!(
                "{} was replaced during the run, and the file there now was not written by gatekeeper",
                self.real.display()
            ))),
        }
    }

    /// Overwrites a file that is a mount point, as with a single file bound into a container. rename(2) cannot replace it,
    /// so a command cannot have done so either.
    fn overwrite(&self, bytes: &[u8]) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(&self.directory, &self.name, flags, Mode::empty())?;
        if FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) != FileType::RegularFile {
            return Err(Errno::BUSY.into());
        }
        let mut file = File::from(file);
        file.set_len(0)?;
        file.write_all(bytes)
    }
}

/// Whether the directory is sticky and this user may not replace the file in it.
fn is_kept(directory: &Stat, file: &Stat) -> bool {
    let me = rustix::process::geteuid();
    let owns = me.is_root() || [directory.st_uid, file.st_uid].contains(&me.as_raw());
    directory.st_mode & libc::S_ISVTX != 0 && !owns
}

/// Writes one file in one step, as `Output` does.
pub fn write_file(path: &Path, bytes: &[u8], mode: u32, hostile: &Hostile) -> io::Result<()> {
    Output::open(path, hostile)?.write(bytes, mode)
}
