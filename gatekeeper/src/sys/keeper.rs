//! Keeps files protected when a process outside replaces them.
//!
//! When a file is replaced or removed, the kernel drops the mounts over it in every other mount namespace (Linux 3.18 and
//! newer). That happens all the time: `git config` writes a new file and renames it over `.git/config`, and editors save
//! in the same way. So the guardian watches the directories of the protected names, and polls the command's mountinfo,
//! which reports POLLPRI when a mount disappears (proc_pid_mounts(5)). A short-lived process then enters the command's
//! namespaces and mounts again what is missing. If that fails, the guardian ends the tree.
//!
//! Runs after fork: raw syscalls on memory prepared before, no allocation.

mod watch;

pub use watch::{Directory, Name, Watched};

use super::child::{Launch, errno};
use super::guardian::send;
use super::message::{self, Message};
use super::mounts::{Mount, Mounts};
use super::{process, set_errno};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

/// The signal that F_NOTIFY sends when something changes in a watched directory.
pub(super) const SIGNAL: i32 = libc::SIGIO;

/// The guardian's descriptors for the watch; -1 for one that is not open.
pub(super) struct Keeper {
    watches: bool,
    /// The command's end of the socket through which it sends its namespaces.
    pub(super) commands: RawFd,
    /// The guardian's end of that socket.
    pub(super) own: RawFd,
    user: RawFd,
    mount: RawFd,
    /// The command's /proc/self/mountinfo.
    pub(super) list: RawFd,
}

impl Keeper {
    /// Starts watching. Called before the command is forked, so that no change is missed.
    pub(super) fn begin(launch: &Launch, front: RawFd) -> Keeper {
        let mut keeper = Keeper { watches: false, commands: -1, own: -1, user: -1, mount: -1, list: -1 };
        let Some(watched) = &launch.watched else { return keeper };
        let mut ends = [-1; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: the kernel writes two descriptors into `ends`, which has room for two.
        keeper.watches = watched.begin()
            && (launch.mounts.is_none() || unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) == 0 });
        if !keeper.watches {
            send(front, Message { kind: Message::UNWATCHED, a: errno(), ..Message::default() });
        }
        [keeper.own, keeper.commands] = ends;
        keeper
    }

    /// Closes the command's end of the socket, which the command has inherited.
    pub(super) fn let_go(&mut self) {
        self.commands = close(self.commands);
    }

    /// Receives the namespaces of the command's process, or learns that it ended without sending them. Then checks for
    /// changes that happened in the meantime; false as for `check_names`.
    pub(super) fn take_namespaces(&mut self, launch: &Launch, front: RawFd) -> bool {
        let mut byte = [0u8; 1];
        // SAFETY: `poll` has just reported this descriptor, and only the line below the receive closes it.
        let socket = unsafe { BorrowedFd::borrow_raw(self.own) };
        if let Ok((1, [mount, list, user])) = message::receive_rights(socket, &mut byte, RecvFlags::DONTWAIT) {
            let raw = |fd: Option<OwnedFd>| fd.map_or(-1, IntoRawFd::into_raw_fd);
            (self.mount, self.list, self.user) = (raw(mount), raw(list), raw(user));
        }
        self.own = close(self.own);
        self.check_names(launch, front, false)
    }

    /// The smallest of its descriptors that is not below `number`.
    pub(super) fn next_from(&self, launch: &Launch, number: RawFd) -> Option<RawFd> {
        let own = [self.own, self.user, self.mount, self.list].into_iter().filter(|fd| *fd >= number.max(0)).min();
        let watched = launch.watched.as_ref().and_then(|watched| watched.next_from(number));
        own.into_iter().chain(watched).min()
    }

    /// Looks for replaced names after a change in a watched directory, or after a mount disappeared (`lost`), and
    /// protects them again. False: a name stays unprotected, and the tree has to end.
    pub(super) fn check_names(&self, launch: &Launch, front: RawFd, lost: bool) -> bool {
        // Until the command has sent its namespaces it has no mounts. `take_namespaces` checks every name then.
        if !self.watches || launch.mounts.is_some() && self.mount < 0 {
            return true;
        }
        let Some(watched) = &launch.watched else { return true };
        let began = micros();
        let Some(at) = watched.changed().or(lost.then_some(0)) else { return true };
        let Some(mounts) = &launch.mounts else {
            send_lost(front, at, 0);
            return false;
        };
        if !watched.directories.iter().all(Directory::follow) {
            send_lost(front, at, libc::ESTALE);
            return false;
        }
        // Remember the names in directories that were replaced.
        watched.changed();
        self.renew(mounts, front, began)
    }

    /// Mounts again what is missing, in a process that enters the command's namespaces.
    fn renew(&self, mounts: &Mounts, front: RawFd, began: i64) -> bool {
        // SAFETY: without CLONE_VM the new process has its own memory, makes raw syscalls only and ends with _exit. It is
        // cloned without an exit signal, because the guardian takes SIGCHLD for news of the command.
        unsafe {
            let helper = libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) as i32;
            if helper == 0 {
                let entered = (self.user < 0 || libc::setns(self.user, libc::CLONE_NEWUSER) == 0)
                    && libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) == 0
                    && libc::setns(self.mount, libc::CLONE_NEWNS) == 0;
                if !entered {
                    send_lost(front, 0, errno());
                }
                libc::_exit(i32::from(!(entered && renew_all(mounts, front, began))));
            }
            if helper < 0 {
                send_lost(front, 0, errno());
            }
            helper > 0 && process::wait_for_helper(helper) == 0
        }
    }
}

fn renew_all(mounts: &Mounts, front: RawFd, began: i64) -> bool {
    for (at, mount) in mounts.mounts.iter().enumerate() {
        if matches!(mount, Mount::Private { .. }) {
            continue;
        }
        match renew_one(mount) {
            Renewed::Kept => {}
            Renewed::Again => {
                send(front, Message { kind: Message::RENEWED, a: at as i32, usage: [micros() - began, 0, 0] });
            }
            Renewed::Gone => send(front, Message { kind: Message::GONE, a: at as i32, ..Message::default() }),
            Renewed::Lost => {
                send_lost(front, at, errno());
                return false;
            }
        }
    }
    true
}

enum Renewed {
    /// The mount was still in place.
    Kept,
    /// The mount is in place again.
    Again,
    /// The file no longer exists, so there is nothing to protect.
    Gone,
    /// The file is there and cannot be protected; errno is set.
    Lost,
}

/// How often to try again when the file is replaced between the lookup and the mount.
const TRIES: u32 = 100;

fn renew_one(mount: &Mount) -> Renewed {
    let mut renewed = Renewed::Kept;
    for _ in 0..TRIES {
        let Some(place) = mount.find() else {
            return if matches!(errno(), libc::ENOENT | libc::ENOTDIR) { Renewed::Gone } else { Renewed::Lost };
        };
        match (place.is_mounted(), &renewed) {
            // Asked again after our own mount, because the file found before may have been moved away by then.
            (Some(true), _) | (None, Renewed::Again) => return renewed,
            _ => {}
        }
        match mount.apply(&place, None) {
            true => renewed = Renewed::Again,
            // Removed between the lookup and the mount.
            false if errno() == libc::ENOENT => {}
            false => return Renewed::Lost,
        }
    }
    Renewed::Lost
}

fn send_lost(front: RawFd, at: usize, error: i32) {
    send(front, Message { kind: Message::LOST, a: at as i32, usage: [error.into(), 0, 0] });
}

/// Called by the command's process: sends its namespaces to the guardian and closes the socket.
pub(super) fn hand_over(socket: RawFd, user: bool) -> bool {
    // SAFETY: the command's process inherited this end for the hand-over alone, and nothing else there owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    let sent = send_namespaces(socket.as_fd(), user);
    drop(socket);
    if let Err(error) = sent {
        set_errno(error.raw_os_error());
    }
    sent.is_ok()
}

fn send_namespaces(socket: BorrowedFd<'_>, user: bool) -> Result<(), Errno> {
    let open = |path: &CStr| rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let mount = open(c"/proc/self/ns/mnt")?;
    let list = open(c"/proc/self/mountinfo")?;
    if user {
        let user = open(c"/proc/self/ns/user")?;
        return message::send_rights(socket, &[0], &[mount.as_fd(), list.as_fd(), user.as_fd()]);
    }
    message::send_rights(socket, &[0], &[mount.as_fd(), list.as_fd()])
}

/// Closes a descriptor unless it is -1, without changing errno. Returns -1, for the caller to store.
fn close(fd: RawFd) -> RawFd {
    let error = errno();
    if fd >= 0 {
        // SAFETY: the caller owns the descriptor and replaces it by the -1 returned here.
        unsafe { libc::close(fd) };
    }
    set_errno(error);
    -1
}

fn micros() -> i64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec into `now`.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec * 1_000_000 + now.tv_nsec / 1000
}
