//! Carries out an approved call in the program's place, on descriptors that the supervisor opened before it asked.

use super::place::{Located, Place};
use crate::supervise::connect::Connection;
use crate::supervise::metadata;
use crate::supervise::status::Status;
use crate::supervise::target::{Memory, Target};
use crate::sys::notify::{Answer, Call};
use crate::sys::{process, socket};
use crate::trust::by_descriptor;
use rustix::fs::{AtFlags, FileType, MemfdFlags, Mode, OFlags, RenameFlags, ResolveFlags, SealFlags};
use rustix::net::{Shutdown, SocketAddrUnix};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

/// A call, decoded and copied: nothing of the program's memory is read again.
pub enum Action {
    Open {
        place: Place,
        flags: i32,
        mode: u32,
    },
    /// Opens a copy of a file for reading.
    Show {
        file: OwnedFd,
        close_on_exec: bool,
    },
    Truncate {
        file: Place,
        length: u64,
    },
    MakeDirectory {
        at: Place,
        mode: u32,
    },
    MakeNode {
        at: Place,
        mode: u32,
    },
    Symlink {
        to: PathBuf,
        at: Place,
    },
    Remove {
        at: Place,
        directory: bool,
    },
    Rename {
        from: Place,
        to: Place,
        flags: u32,
    },
    Link {
        from: Place,
        to: Place,
    },
    Bind {
        socket: OwnedFd,
        at: Place,
    },
    Change(metadata::Prepared),
    Connect(Connection),
    Listen {
        socket: OwnedFd,
        backlog: i32,
    },
}

/// What the program gets.
pub enum Done {
    Answer(Answer),
    Descriptor { file: OwnedFd, close_on_exec: bool },
}

impl Action {
    /// Decodes a call that names files. `None`: the supervisor cannot carry it out.
    pub fn of_files(call: &Call, target: &Target, located: Vec<Located>) -> io::Result<Option<Action>> {
        let args = &call.args;
        let word = |at: usize| args[at] as u32;
        let mut places = located.into_iter().map(|located| located.place);
        let (Some(first), second) = (places.next(), places.next()) else { return Ok(None) };
        Ok(Some(match (i64::from(call.number), second) {
            #[cfg(target_arch = "x86_64")]
            (libc::SYS_open, _) => Action::Open { place: first, flags: args[1] as i32, mode: word(2) },
            #[cfg(target_arch = "x86_64")]
            (libc::SYS_creat, _) => {
                let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
                Action::Open { place: first, flags, mode: word(1) }
            }
            (libc::SYS_openat, _) => Action::Open { place: first, flags: args[2] as i32, mode: word(3) },
            (libc::SYS_truncate, _) => Action::Truncate { file: first, length: args[1] },
            #[cfg(target_arch = "x86_64")]
            (libc::SYS_mkdir, _) => Action::MakeDirectory { at: first, mode: word(1) },
            (libc::SYS_mkdirat, _) => Action::MakeDirectory { at: first, mode: word(2) },
            #[cfg(target_arch = "x86_64")]
            (libc::SYS_mknod, _) => return Ok(node(first, word(1))),
            (libc::SYS_mknodat, _) => return Ok(node(first, word(2))),
            #[cfg(target_arch = "x86_64")]
            (libc::SYS_symlink, _) => Action::Symlink { to: target.path(args[0])?, at: first },
            (libc::SYS_symlinkat, _) => Action::Symlink { to: target.path(args[0])?, at: first },
            #[cfg(target_arch = "x86_64")]
            (libc::SYS_unlink, _) => Action::Remove { at: first, directory: false },
            #[cfg(target_arch = "x86_64")]
            (libc::SYS_rmdir, _) => Action::Remove { at: first, directory: true },
            (libc::SYS_unlinkat, _) => {
                Action::Remove { at: first, directory: args[2] as i32 & libc::AT_REMOVEDIR != 0 }
            }
            #[cfg(target_arch = "x86_64")]
            (libc::SYS_rename, Some(to)) => Action::Rename { from: first, to, flags: 0 },
            (libc::SYS_renameat, Some(to)) => Action::Rename { from: first, to, flags: 0 },
            // A whiteout is a device.
            (libc::SYS_renameat2, Some(to)) if word(4) & !(libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE) == 0 => {
                Action::Rename { from: first, to, flags: word(4) }
            }
            #[cfg(target_arch = "x86_64")]
            (libc::SYS_link, Some(to)) => Action::Link { from: first, to },
            (libc::SYS_linkat, Some(to)) => Action::Link { from: first, to },
            (libc::SYS_bind, _) => Action::Bind { socket: target.descriptor(args[0] as i32)?, at: first },
            _ => return Ok(None),
        }))
    }

    /// The same, but an open for reading gets a copy of the file.
    pub fn of_a_copy(self) -> Action {
        match self {
            Action::Open { place: Place::File(file), flags, .. } if flags & libc::O_ACCMODE == libc::O_RDONLY => {
                Action::Show { file, close_on_exec: flags & libc::O_CLOEXEC != 0 }
            }
            action => action,
        }
    }

    /// Whether it may wait for another process: a FIFO waits for its other end, and a device as long as it likes.
    pub fn blocks(&self) -> bool {
        let Action::Open { place: Place::File(file), .. } = self else { return false };
        let kind = rustix::fs::fstat(file).map(|stat| FileType::from_raw_mode(stat.st_mode));
        !kind.is_ok_and(|kind| kind.is_file() || kind.is_dir())
    }

    /// Carries it out. `waits` says whether the call still waits; if not, its process may be another one by now.
    pub fn carry_out(self, call: &Call, waits: &dyn Fn() -> bool) -> Done {
        self.attempt(call, waits)
            .unwrap_or_else(|error| Done::Answer(Answer::Errno(error.raw_os_error().unwrap_or(libc::EPERM))))
    }

    fn attempt(self, call: &Call, waits: &dyn Fn() -> bool) -> io::Result<Done> {
        if !waits() {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        let nothing = Ok(Done::Answer(Answer::Value(0)));
        match self {
            Action::Open { place, flags, mode } => open(call, place, flags, mode),
            Action::Show { file, close_on_exec } => Ok(Done::Descriptor { file: copy(&file)?, close_on_exec }),
            Action::Truncate { file, length } => {
                let Place::File(file) = file else { return missing() };
                let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
                let file = rustix::fs::open(by_descriptor(&file), flags, Mode::empty())?;
                rustix::fs::ftruncate(&file, length)?;
                nothing
            }
            Action::MakeDirectory { at, mode } => {
                let (parent, name) = entry(at)?;
                rustix::fs::mkdirat(&parent, &name, masked(call, mode & 0o1777))?;
                nothing
            }
            Action::MakeNode { at, mode } => {
                let (parent, name) = entry(at)?;
                let permissions = masked(call, mode & 0o1777);
                rustix::fs::mknodat(&parent, &name, FileType::from_raw_mode(mode), permissions, 0)?;
                nothing
            }
            Action::Symlink { to, at } => {
                let (parent, name) = entry(at)?;
                rustix::fs::symlinkat(&to, &parent, &name)?;
                nothing
            }
            Action::Remove { at, directory } => {
                let (parent, name) = entry(at)?;
                let flags = if directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
                rustix::fs::unlinkat(&parent, &name, flags)?;
                nothing
            }
            Action::Rename { from, to, flags } => {
                let ((from, old), (to, new)) = (entry(from)?, entry(to)?);
                rustix::fs::renameat_with(&from, &old, &to, &new, RenameFlags::from_bits_retain(flags))?;
                nothing
            }
            Action::Link { from, to } => {
                let (to, new) = entry(to)?;
                match from {
                    Place::File(file) => {
                        let follow = AtFlags::SYMLINK_FOLLOW;
                        rustix::fs::linkat(rustix::fs::CWD, by_descriptor(&file), &to, &new, follow)?;
                    }
                    Place::Entry { parent, name } => {
                        rustix::fs::linkat(&parent, &name, &to, &new, AtFlags::empty())?;
                    }
                }
                nothing
            }
            Action::Bind { socket, at } => {
                let (parent, name) = entry(at)?;
                masked(call, 0);
                rustix::net::bind(&socket, &SocketAddrUnix::new(by_descriptor(&parent).join(name))?)?;
                nothing
            }
            Action::Change(change) => {
                change.apply()?;
                nothing
            }
            Action::Connect(connection) => Ok(Done::Answer(connection.make(&|connect| connect()))),
            Action::Listen { socket, backlog } => {
                let before = socket::name(socket.as_fd())?;
                rustix::net::listen(&socket, backlog)?;
                // A socket that got its address from a connection may have lost it, and listen on all addresses now.
                if socket::name(socket.as_fd())? != before {
                    rustix::net::shutdown(&socket, Shutdown::Both)?;
                    return Err(io::Error::from_raw_os_error(libc::EPERM));
                }
                nothing
            }
        }
    }
}

/// Only files that lend no rights: a FIFO, a socket, an empty regular file.
fn node(at: Place, mode: u32) -> Option<Action> {
    let plain = matches!(mode & libc::S_IFMT, 0 | libc::S_IFREG | libc::S_IFIFO | libc::S_IFSOCK);
    let mode = if mode & libc::S_IFMT == 0 { mode | libc::S_IFREG } else { mode };
    plain.then_some(Action::MakeNode { at, mode })
}

/// Opens what was found before the question, by its descriptor. A new file is created in the directory that was found then;
/// a link that has been put there meanwhile is not followed.
fn open(call: &Call, place: Place, flags: i32, mode: u32) -> io::Result<Done> {
    let close_on_exec = flags & libc::O_CLOEXEC != 0;
    // The supervisor may lead a session without a terminal, and must not get this one.
    let asked = OFlags::from_bits_retain(flags as u32) | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = match place {
        Place::File(file) => {
            let unnamed = asked.contains(OFlags::TMPFILE);
            let mode = if unnamed { masked(call, mode & 0o1777) } else { Mode::empty() };
            // The descriptor's own link in /proc is a link, and the file exists.
            let flags = asked - (OFlags::NOFOLLOW | OFlags::CREATE | OFlags::EXCL);
            let flags = if unnamed { asked - OFlags::NOFOLLOW } else { flags };
            rustix::fs::open(by_descriptor(&file), flags, mode)?
        }
        Place::Entry { parent, name } => {
            let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
            let flags = asked | OFlags::CREATE;
            rustix::fs::openat2(&parent, &name, flags, masked(call, mode & 0o1777), how)?
        }
    };
    Ok(Done::Descriptor { file, close_on_exec })
}

/// A copy in memory that can only be read.
fn copy(file: &OwnedFd) -> io::Result<OwnedFd> {
    const LONGEST: u64 = 64 << 20;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(by_descriptor(file), flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::from_raw_os_error(libc::EACCES));
    }
    let mut copy = File::from(rustix::fs::memfd_create("copy", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
    if io::copy(&mut file.take(LONGEST + 1), &mut copy)? > LONGEST {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    let copy = OwnedFd::from(copy);
    rustix::fs::fcntl_add_seals(&copy, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(rustix::fs::open(by_descriptor(&copy), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

fn entry(place: Place) -> io::Result<(OwnedFd, OsString)> {
    match place {
        Place::Entry { parent, name } => Ok((parent, name)),
        Place::File(_) => missing(),
    }
}

fn missing<T>() -> io::Result<T> {
    Err(io::Error::from_raw_os_error(libc::ENOENT))
}

/// Takes over the umask of the program for this thread, so that the kernel applies it as to the program's own call, default
/// ACLs included. Where this thread cannot have its own, the bits are taken away here.
fn masked(call: &Call, mode: u32) -> Mode {
    let mask = Status::of(call.tid)
        .ok()
        .and_then(|status| status.words("Umask")?.next().and_then(|word| u32::from_str_radix(word, 8).ok()));
    let mask = mask.unwrap_or(0o077);
    match process::umask_of_thread(mask) {
        true => Mode::from_raw_mode(mode),
        false => Mode::from_raw_mode(mode & !mask),
    }
}
