//! What gatekeeper writes for its caller: reports, policies, scripts. A regular file is replaced as a whole by renaming
//! a fresh one, so neither a link nor a hard link that a command left in its place is written through, and nothing that
//! the command writes there while it runs is left.

use super::{Hostile, Untrusted, odd_kind, walk};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, openat, renameat, statat, unlinkat};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// A place for one result. Nothing of it is visible to a command before `write`.
#[derive(Debug)]
pub enum Output {
    /// A pipe, a terminal, a device, or a file that only its name allows to write.
    Stream(File),
    File(Replaced),
}

#[derive(Debug)]
pub struct Replaced {
    directory: OwnedFd,
    /// Where that was when it was opened.
    real: PathBuf,
    name: OsString,
    /// Permissions of the file that was there, which a new one does not exceed.
    limit: u32,
}

impl Output {
    /// Opens a place, so that what cannot be written is known before anything runs. What is there stays as it is.
    pub fn open(path: &Path, hostile: &Hostile) -> Result<Output, Untrusted> {
        let there = match walk(path, hostile) {
            Ok(found) => Some(found),
            Err(error) if error.is_missing() => None,
            Err(error) => return Err(error),
        };
        let wrong = |error: Errno| Untrusted::io(path, error);
        let (directory, name) = match &there {
            None => (
                path.parent().unwrap_or(Path::new("")).to_owned(),
                path.file_name().ok_or_else(|| wrong(Errno::ISDIR))?,
            ),
            Some(found) if found.is_directory() => return Err(wrong(Errno::ISDIR)),
            Some(found) => match odd_kind(&found.stat) {
                Some(kind) if found.hostile => return Err(Untrusted::Kind { path: found.real.clone(), kind }),
                Some(_) => {
                    return Ok(Output::Stream(File::from(
                        found.reopen(OFlags::WRONLY | OFlags::NOCTTY).map_err(wrong)?,
                    )));
                }
                None if found.nameless => {
                    return Ok(Output::Stream(File::from(
                        found.reopen(OFlags::WRONLY | OFlags::TRUNC).map_err(wrong)?,
                    )));
                }
                None => {
                    let name = found.real.file_name().ok_or_else(|| wrong(Errno::ISDIR))?;
                    (found.real.parent().unwrap_or(Path::new("/")).to_owned(), name)
                }
            },
        };
        let directory = if directory.as_os_str().is_empty() { PathBuf::from(".") } else { directory };
        let parent = walk(&directory, hostile)?;
        if !parent.is_directory() {
            return Err(wrong(Errno::NOTDIR));
        }
        let held =
            parent.reopen(OFlags::RDONLY | OFlags::DIRECTORY).or_else(|_| rustix::io::dup(&parent)).map_err(wrong)?;
        let limit = there.as_ref().map_or(0o7777, |found| found.stat.st_mode & 0o7777);
        let file = Replaced { directory: held, real: parent.real.clone(), name: name.to_owned(), limit };
        let kept = there.as_ref().is_some_and(|found| is_kept(&parent.stat, &found.stat));
        match (if kept { Err(Errno::PERM) } else { file.try_out() }, &there) {
            (Ok(()), _) => Ok(Output::File(file)),
            // The file may be written, its directory not: a name that was made for this, outside of every such tree.
            (Err(Errno::ACCESS | Errno::PERM | Errno::ROFS), Some(found)) if !found.hostile => {
                Ok(Output::Stream(File::from(found.reopen(OFlags::WRONLY | OFlags::TRUNC).map_err(wrong)?)))
            }
            (Err(error), _) => Err(wrong(error)),
        }
    }

    /// Takes away what an earlier run wrote, so that it is not taken for this one's.
    pub fn clear(&self) -> io::Result<()> {
        match self {
            Output::Stream(_) => Ok(()),
            Output::File(file) => match unlinkat(&file.directory, &file.name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => Ok(()),
                // A mount point stays; it is replaced by contents.
                Err(Errno::BUSY) => Ok(()),
                Err(error) => Err(error.into()),
            },
        }
    }

    /// Writes the whole of it, or nothing. `mode` is for a new file, less what the umask takes.
    pub fn write(&mut self, bytes: &[u8], mode: u32) -> io::Result<()> {
        match self {
            Output::Stream(stream) => {
                let written = stream.write_all(bytes);
                if written.is_err() {
                    // No result, rather than half of one. Only a file can be taken back.
                    let _ = stream.set_len(0);
                }
                written
            }
            Output::File(file) => file.replace(bytes, mode),
        }
    }
}

impl Replaced {
    /// Whether a file can be made there: tried, and gone again.
    fn try_out(&self) -> Result<(), Errno> {
        let unnamed = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        match openat(&self.directory, ".", unnamed, Mode::RUSR | Mode::WUSR) {
            // Not every file system has them.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {
                let (name, _) = self.fresh(0o600)?;
                unlinkat(&self.directory, &name, AtFlags::empty())
            }
            other => other.map(drop),
        }
    }

    /// A new file beside the one to be replaced, under a name that nobody has taken on purpose.
    fn fresh(&self, mode: u32) -> Result<(String, File), Errno> {
        let mut random = [0u8; 8];
        if rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty()).is_err() {
            // An outer sandbox refuses it. The name need only be free, which O_EXCL sees to.
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

    /// A command may have moved the directory away and made another in its place, with a result of its own in it.
    fn check_place(&self) -> io::Result<()> {
        let (held, there) = (rustix::fs::fstat(&self.directory)?, rustix::fs::lstat(&self.real)?);
        let is_same = (held.st_dev, held.st_ino) == (there.st_dev, there.st_ino);
        match is_same && std::fs::canonicalize(&self.real)? == self.real {
            true => Ok(()),
            false => Err(io::Error::other(format!(
                "{} was replaced meanwhile, and what is in it now is not from gatekeeper",
                self.real.display()
            ))),
        }
    }

    /// A file that is a mount point, as containers hand in single files: it cannot be replaced, nor can a command.
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

/// Whether a sticky directory keeps this user from replacing what is in it.
fn is_kept(directory: &Stat, file: &Stat) -> bool {
    let me = rustix::process::geteuid();
    let owns = me.is_root() || [directory.st_uid, file.st_uid].contains(&me.as_raw());
    directory.st_mode & libc::S_ISVTX != 0 && !owns
}

/// Writes one file at once, as `Output` does.
pub fn write_file(path: &Path, bytes: &[u8], mode: u32, hostile: &Hostile) -> io::Result<()> {
    Output::open(path, hostile)?.write(bytes, mode)
}
