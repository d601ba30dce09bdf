//! Protection that outlasts a change from outside.
//!
//! When a process outside replaces or removes a file, the kernel takes away what is mounted over it in every namespace:
//! `git config` writes a new file and renames it over `.git/config`, editors save in the same way. The guardian therefore
//! watches the directories in which the protected names stand, and a short-lived process mounts again, in the command's
//! own namespaces, what is missing there. Where that fails, the tree is ended.
//!
//! The watch is F_NOTIFY of fcntl(2): one signal for whatever happens in a directory, with no queue that could run over.
//! Together with it the list of the command's mounts is polled, which tells when one is gone.
//! Closing an inotify descriptor waits for the kernel to be done with it, 10 ms and more at the end of every run.
//!
//! Runs after fork: raw syscalls on memory prepared before, no allocation.

use super::child::{Launch, errno};
use super::guardian::tell;
use super::message::Message;
use super::mounts::{Mount, Mounts};
use super::process;
use std::ffi::{CStr, CString};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// What the kernel sends when something happens in a watched directory.
pub(super) const SIGNAL: i32 = libc::SIGIO;

/// The names whose protection ends when they are replaced, by directory.
#[derive(Default)]
pub struct Watched {
    pub directories: Vec<Directory>,
    pub names: Vec<Name>,
}

pub struct Directory {
    path: CString,
    /// Whether it is itself one of the names. What is not has to stay where it is.
    named: bool,
    fd: AtomicI32,
}

pub struct Name {
    /// Its place among the directories.
    directory: usize,
    name: CString,
    /// By which reports call it: its place among the mounts, or in the list that was watched.
    at: usize,
    found: [AtomicU64; 3],
}

/// Device, inode and time of birth, because inodes are used again; zeroes for what is not there.
type Identity = [u64; 3];

impl Directory {
    pub fn new(path: CString, named: bool) -> Directory {
        Directory { path, named, fd: AtomicI32::new(-1) }
    }

    fn fd(&self) -> RawFd {
        self.fd.load(Ordering::Relaxed)
    }

    /// Watches what is at the path now.
    fn watch(&self) -> bool {
        // DN_CREATE, DN_DELETE, DN_RENAME, and DN_MULTISHOT: not only once.
        let events: libc::c_ulong = 0x4 | 0x8 | 0x10 | 0x8000_0000;
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        close(self.fd());
        // SAFETY: the path is NUL-terminated; F_NOTIFY takes a number.
        unsafe {
            let fd = libc::open(self.path.as_ptr(), flags);
            let watches = fd >= 0 && libc::fcntl(fd, libc::F_NOTIFY, events) == 0;
            self.fd.store(if watches { fd } else { close(fd) }, Ordering::Relaxed);
            watches
        }
    }

    /// Whether it is still what stands at its path.
    fn stays(&self) -> bool {
        identity(self.fd(), c"") == identity(libc::AT_FDCWD, &self.path)
    }

    /// Watches again what took its place. False where it has to stay in its place and did not.
    fn follow(&self) -> bool {
        let gone = || matches!(errno(), libc::ENOENT | libc::ENOTDIR);
        self.fd() >= 0 && self.stays() || self.named && (self.watch() || gone())
    }
}

impl Name {
    pub fn new(directory: usize, name: CString, at: usize) -> Name {
        Name { directory, name, at, found: [const { AtomicU64::new(0) }; 3] }
    }

    /// Looks at it, and whether it is another than the last time.
    fn changed(&self, directories: &[Directory]) -> bool {
        let directory = directories.get(self.directory).map_or(-1, Directory::fd);
        let now = if directory < 0 { [0; 3] } else { identity(directory, &self.name) };
        let before = [0, 1, 2].map(|part: usize| {
            self.found.get(part).zip(now.get(part)).map_or(0, |(found, now)| found.swap(*now, Ordering::Relaxed))
        });
        before != now
    }
}

fn identity(directory: RawFd, name: &CStr) -> Identity {
    // SAFETY: the name is NUL-terminated; the kernel fills a local of its own type.
    unsafe {
        let mut stat: libc::statx = std::mem::zeroed();
        let flags = libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH;
        let wanted = libc::STATX_INO | libc::STATX_BTIME;
        if libc::statx(directory, name.as_ptr(), flags, wanted, &mut stat) != 0 {
            return [0; 3];
        }
        let device = u64::from(stat.stx_dev_major) << 32 | u64::from(stat.stx_dev_minor);
        let born = (stat.stx_btime.tv_sec as u64).wrapping_mul(1_000_000_000);
        [device, stat.stx_ino, born.wrapping_add(stat.stx_btime.tv_nsec.into())]
    }
}

impl Watched {
    /// False with errno set where not all of it can be watched.
    fn begin(&self) -> bool {
        let watches = self.directories.iter().all(Directory::watch);
        self.changed();
        watches
    }

    /// The first name that is another than the last time.
    fn changed(&self) -> Option<usize> {
        // Each is looked at, so that each is known for the next time.
        self.names.iter().fold(None, |first, name| {
            let changed = name.changed(&self.directories);
            first.or(changed.then_some(name.at))
        })
    }

    /// The smallest of its descriptors from a number on.
    pub(super) fn next_from(&self, number: RawFd) -> Option<RawFd> {
        self.directories.iter().map(Directory::fd).filter(|fd| *fd >= number.max(0)).min()
    }
}

/// What the guardian holds of it. A descriptor that is not there is -1.
pub(super) struct Keeper {
    watches: bool,
    /// The command's end of a socket, by which its namespaces come; the guardian's own.
    pub(super) commands: RawFd,
    pub(super) own: RawFd,
    user: RawFd,
    mount: RawFd,
    /// The list of the command's mounts.
    pub(super) list: RawFd,
}

impl Keeper {
    /// Before the command is forked, so that nothing happens unseen.
    pub(super) fn begin(launch: &Launch, front: RawFd) -> Keeper {
        let mut keeper = Keeper { watches: false, commands: -1, own: -1, user: -1, mount: -1, list: -1 };
        let Some(watched) = &launch.watched else { return keeper };
        let mut ends = [-1; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: the kernel writes two descriptors into `ends`.
        keeper.watches = watched.begin()
            && (launch.mounts.is_none() || unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) == 0 });
        if !keeper.watches {
            tell(front, Message { kind: Message::UNWATCHED, a: errno(), ..Message::default() });
        }
        [keeper.own, keeper.commands] = ends;
        keeper
    }

    /// The guardian alone has this end from now on.
    pub(super) fn let_go(&mut self) {
        self.commands = close(self.commands);
    }

    /// Takes the namespaces of the command's process, when they come or it is gone without; and what happened meanwhile.
    pub(super) fn take_namespaces(&mut self, launch: &Launch, front: RawFd) -> bool {
        let mut byte = 0u8;
        let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
        let mut control = [0u64; 8];
        // SAFETY: all pointers are to live locals of the sizes given.
        unsafe {
            let mut header: libc::msghdr = std::mem::zeroed();
            header.msg_iov = &raw mut part;
            header.msg_iovlen = 1;
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = size_of_val(&control) as _;
            let read = libc::recvmsg(self.own, &mut header, libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT);
            let first = libc::CMSG_FIRSTHDR(&header);
            if read == 1 && !first.is_null() && (*first).cmsg_type == libc::SCM_RIGHTS {
                let fds = libc::CMSG_DATA(first).cast::<i32>();
                self.mount = fds.read_unaligned();
                self.list = fds.add(1).read_unaligned();
                if (*first).cmsg_len >= libc::CMSG_LEN(3 * size_of::<i32>() as u32) as _ {
                    self.user = fds.add(2).read_unaligned();
                }
            }
        }
        self.own = close(self.own);
        self.hear(launch, front, false)
    }

    /// The smallest descriptor that it keeps, from a number on.
    pub(super) fn next_from(&self, launch: &Launch, number: RawFd) -> Option<RawFd> {
        let own = [self.own, self.user, self.mount, self.list].into_iter().filter(|fd| *fd >= number.max(0)).min();
        let watched = launch.watched.as_ref().and_then(|watched| watched.next_from(number));
        own.into_iter().chain(watched).min()
    }

    /// Something happened in one of the directories, or a mount is gone for certain. False: a name stays unprotected, and
    /// the tree has to be ended.
    pub(super) fn hear(&self, launch: &Launch, front: RawFd, lost: bool) -> bool {
        // Without its namespaces the command has no mounts yet; when they come, all of it is looked at.
        if !self.watches || launch.mounts.is_some() && self.mount < 0 {
            return true;
        }
        let Some(watched) = &launch.watched else { return true };
        let began = micros();
        let Some(at) = watched.changed().or(lost.then_some(0)) else { return true };
        let Some(mounts) = &launch.mounts else {
            tell_lost(front, at, 0);
            return false;
        };
        if !watched.directories.iter().all(Directory::follow) {
            tell_lost(front, at, libc::ESTALE);
            return false;
        }
        // What stands in new directories is known from now on.
        watched.changed();
        self.renew(mounts, front, began)
    }

    /// Mounts again what is missing, by a process that enters the command's namespaces.
    fn renew(&self, mounts: &Mounts, front: RawFd, began: i64) -> bool {
        // SAFETY: a plain fork without a signal at its end, which the guardian would take for one of the command's; the
        // new process makes raw syscalls only and ends with _exit. The status is a local.
        unsafe {
            let helper = libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) as i32;
            if helper == 0 {
                let entered = (self.user < 0 || libc::setns(self.user, libc::CLONE_NEWUSER) == 0)
                    && libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) == 0
                    && libc::setns(self.mount, libc::CLONE_NEWNS) == 0;
                if !entered {
                    tell_lost(front, 0, errno());
                }
                libc::_exit(i32::from(!(entered && renew_all(mounts, front, began))));
            }
            if helper < 0 {
                tell_lost(front, 0, errno());
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
                tell(front, Message { kind: Message::RENEWED, a: at as i32, usage: [micros() - began, 0, 0] });
            }
            Renewed::Gone => tell(front, Message { kind: Message::GONE, a: at as i32, ..Message::default() }),
            Renewed::Lost => {
                tell_lost(front, at, errno());
                return false;
            }
        }
    }
    true
}

enum Renewed {
    /// It was there.
    Kept,
    /// It is there again.
    Again,
    /// There is nothing to protect.
    Gone,
    /// With errno set.
    Lost,
}

/// Files that are replaced while this looks at them are looked at again, so often.
const TRIES: u32 = 100;

fn renew_one(mount: &Mount) -> Renewed {
    let mut renewed = Renewed::Kept;
    for _ in 0..TRIES {
        let Some(place) = mount.find() else {
            return if matches!(errno(), libc::ENOENT | libc::ENOTDIR) { Renewed::Gone } else { Renewed::Lost };
        };
        match (place.is_mounted(), &renewed) {
            // Also after a mount of ours: what was found before may have been moved away meanwhile.
            (Some(true), _) | (None, Renewed::Again) => return renewed,
            _ => {}
        }
        match mount.apply(&place, None) {
            true => renewed = Renewed::Again,
            // It was removed between the look and the mount.
            false if errno() == libc::ENOENT => {}
            false => return Renewed::Lost,
        }
    }
    Renewed::Lost
}

fn tell_lost(front: RawFd, at: usize, error: i32) {
    tell(front, Message { kind: Message::LOST, a: at as i32, usage: [error.into(), 0, 0] });
}

/// The command's process: sends its namespaces to the guardian.
pub(super) fn hand_over(socket: RawFd, user: bool) -> bool {
    let mut byte = 0u8;
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let mut control = [0u64; 8];
    // SAFETY: all pointers are to live locals of the sizes given; each descriptor is closed once.
    unsafe {
        let open = |path: &CStr| libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        let mount = open(c"/proc/self/ns/mnt");
        let list = open(c"/proc/self/mountinfo");
        let own = if user { open(c"/proc/self/ns/user") } else { -1 };
        if mount < 0 || list < 0 || user && own < 0 {
            return false;
        }
        let size = (2 + usize::from(user)) * size_of::<i32>();
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = libc::CMSG_SPACE(size as u32) as _;
        let first = libc::CMSG_FIRSTHDR(&header);
        (*first).cmsg_level = libc::SOL_SOCKET;
        (*first).cmsg_type = libc::SCM_RIGHTS;
        (*first).cmsg_len = libc::CMSG_LEN(size as u32) as _;
        let fds = libc::CMSG_DATA(first).cast::<i32>();
        fds.write_unaligned(mount);
        fds.add(1).write_unaligned(list);
        if user {
            fds.add(2).write_unaligned(own);
        }
        let sent = libc::sendmsg(socket, &header, libc::MSG_NOSIGNAL) == 1;
        let error = errno();
        for fd in [mount, list, own, socket] {
            close(fd);
        }
        *libc::__errno_location() = error;
        sent
    }
}

/// Closes a descriptor, if there is one, and leaves errno as it is.
fn close(fd: RawFd) -> RawFd {
    let error = errno();
    if fd >= 0 {
        // SAFETY: the caller owns the descriptor and forgets it for what is returned here.
        unsafe { libc::close(fd) };
    }
    // SAFETY: errno is always there.
    unsafe { *libc::__errno_location() = error };
    -1
}

fn micros() -> i64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills a local.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec * 1_000_000 + now.tv_nsec / 1000
}
