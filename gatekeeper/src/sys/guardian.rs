//! The guardian: a small process between the front and the command that ends the whole tree, whoever else dies.
//!
//! It is the reaper of everything below it, so that no setsid or double fork gets away, and it outlives a front process
//! killed by SIGKILL. Like `child` it runs after fork: raw syscalls, no allocation.

use super::child::{GROUP, Group, Launch, SIGNALS, START, errno};
use super::message::Message;
use super::progress::Progress;
use super::{check, message};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// What the front process keeps of a started command.
pub struct Started {
    /// Its child; to be waited for once `DONE` has come.
    pub guardian: i32,
    /// Messages of the guardian.
    pub tree: OwnedFd,
    /// Messages of the command's process until exec closes it.
    pub setup: OwnedFd,
    /// How far it came.
    pub progress: Progress,
}

/// Forks the guardian, which forks the command.
pub fn start(launch: Launch) -> io::Result<Started> {
    let (tree, guardian_end) = message::pair()?;
    let (setup, child_end) = message::pair()?;
    // SAFETY: a plain fork by number: no handler of the C library runs. The new process makes raw syscalls only.
    let pid = check(unsafe { fork() })?;
    if pid == 0 {
        // SAFETY: closing what belongs to the front process; the values are never used again in this one.
        unsafe {
            libc::close(tree.as_raw_fd());
            libc::close(setup.as_raw_fd());
        }
        guard(&launch, guardian_end.as_raw_fd(), child_end.as_raw_fd())
    }
    Ok(Started { guardian: pid as i32, tree, setup, progress: launch.progress })
}

unsafe fn fork() -> i64 {
    // SAFETY: without CLONE_VM the child gets its own copy of everything; the caller keeps to what a fork allows.
    unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) }
}

fn guard(launch: &Launch, front: i32, child_end: i32) -> ! {
    // SAFETY: the calls pass memory only where locals of the right type are given; the process ends with _exit.
    unsafe {
        if let Err(step) = take_charge(launch.group) {
            fail(launch, step);
        }
        let signals = child_signals();
        if signals < 0 {
            fail(launch, START);
        }
        let me = libc::getpid();
        let command = fork() as i32;
        if command == 0 {
            libc::close(front);
            launch.go(child_end, me);
        }
        libc::close(child_end);
        if command < 0 {
            fail(launch, START);
        }
        tell(front, Message { kind: Message::PID, a: command, ..Message::default() });
        // Not a single descriptor of the caller's stays open here, so that no pipe waits for the guardian.
        close_all_but(front, signals);
        watch(front, signals, command);
        end_tree();
        tell(front, Message { kind: Message::DONE, ..Message::default() });
        libc::_exit(0)
    }
}

/// Reaper of everything below, out of reach of a SIGKILL to the caller's process group, and of every other signal.
unsafe fn take_charge(group: Group) -> Result<(), i32> {
    // SAFETY: the only memory passed is a signal set of this frame.
    unsafe {
        if libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0 {
            return Err(START);
        }
        let grouped = match group {
            Group::Session => libc::setsid(),
            Group::Shared(_) => libc::setpgid(0, 0),
        };
        if grouped < 0 {
            return Err(GROUP);
        }
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        match libc::sigprocmask(libc::SIG_SETMASK, &all, std::ptr::null_mut()) {
            0 => Ok(()),
            _ => Err(SIGNALS),
        }
    }
}

/// Without it the end of the command would go unnoticed.
unsafe fn child_signals() -> i32 {
    // SAFETY: the signal set is of this frame.
    unsafe {
        let mut children: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut children);
        libc::sigaddset(&mut children, libc::SIGCHLD);
        libc::signalfd(-1, &children, libc::SFD_CLOEXEC)
    }
}

/// Notes which step failed and ends; no command was started.
fn fail(launch: &Launch, step: i32) -> ! {
    launch.progress.fail(step, errno());
    // SAFETY: _exit runs no handlers of the program that was forked.
    unsafe { libc::_exit(125) }
}

/// Returns when the tree is to be ended: the command has, the front process asks for it, or it is gone.
unsafe fn watch(front: i32, signals: i32, command: i32) {
    // SAFETY: the poll set, the siginfo buffer and the message are locals of the sizes given.
    unsafe {
        loop {
            let mut polled = [
                libc::pollfd { fd: front, events: libc::POLLIN, revents: 0 },
                libc::pollfd { fd: signals, events: libc::POLLIN, revents: 0 },
            ];
            libc::poll(polled.as_mut_ptr(), 2, -1);
            if polled[0].revents != 0 {
                let mut message = Message::default();
                let read = libc::recv(front, (&raw mut message).cast(), size_of::<Message>(), libc::MSG_DONTWAIT);
                if read <= 0 || message.kind == Message::KILL {
                    return;
                }
            }
            if polled[1].revents != 0 {
                let mut info = [0u8; size_of::<libc::signalfd_siginfo>()];
                libc::read(signals, info.as_mut_ptr().cast(), info.len());
            }
            if reap(front, command) {
                return;
            }
        }
    }
}

/// Takes every state change there is; true once the command itself has ended.
unsafe fn reap(front: i32, command: i32) -> bool {
    let mut ended = false;
    // SAFETY: the kernel fills the status and usage locals.
    unsafe {
        loop {
            let mut status = 0;
            let mut usage: libc::rusage = std::mem::zeroed();
            let pid = libc::wait4(-1, &mut status, libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED, &mut usage);
            if pid <= 0 {
                return ended;
            }
            if pid != command {
                continue;
            }
            let kind = if libc::WIFSTOPPED(status) {
                Message::STOPPED
            } else if libc::WIFCONTINUED(status) {
                Message::CONTINUED
            } else {
                ended = true;
                Message::EXITED
            };
            let micros = |time: libc::timeval| time.tv_sec * 1_000_000 + time.tv_usec;
            let usage = [micros(usage.ru_utime), micros(usage.ru_stime), usage.ru_maxrss];
            tell(front, Message { kind, a: status, usage });
        }
    }
}

fn tell(front: i32, message: Message) {
    // SAFETY: pointer and size are those of one live value.
    unsafe { libc::send(front, (&raw const message).cast(), size_of::<Message>(), libc::MSG_NOSIGNAL) };
}

/// Kills every child, then the orphans that thereby become children, until there are none.
///
/// Whoever has a kill pending cannot fork any more, so each round leaves fewer.
pub(super) fn end_tree() {
    // SAFETY: the locals passed are of the sizes given.
    unsafe {
        loop {
            let found = for_each_child(&mut |pid| {
                libc::kill(pid, libc::SIGKILL);
            });
            // Wait for one if there are any; the others are dying as well.
            let answer = libc::waitpid(-1, std::ptr::null_mut(), if found { 0 } else { libc::WNOHANG });
            if answer < 0 {
                return;
            }
            while libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) > 0 {}
            if !found && answer == 0 {
                // Children that /proc does not show: nothing more can be done than to look again.
                libc::poll(std::ptr::null_mut(), 0, 1);
            }
        }
    }
}

/// Calls `with` for each child of this process: the kernel's own list where it has one, else a look at all processes.
unsafe fn for_each_child(with: &mut dyn FnMut(i32)) -> bool {
    let mut any = false;
    // SAFETY: reads into a local buffer of the size given; the descriptor is closed once.
    unsafe {
        let fd = libc::open(c"/proc/thread-self/children".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if fd < 0 {
            return for_each_process(&mut |pid, parent, me| {
                if parent == me {
                    any = true;
                    with(pid);
                }
            }) && any;
        }
        let mut buffer = [0u8; 4096];
        let mut pid = 0i32;
        loop {
            let read = libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len());
            let Some(bytes) = usize::try_from(read).ok().filter(|read| *read > 0).and_then(|read| buffer.get(..read))
            else {
                break;
            };
            for byte in bytes {
                if byte.is_ascii_digit() {
                    pid = pid.wrapping_mul(10).wrapping_add(i32::from(byte - b'0'));
                } else if pid > 0 {
                    any = true;
                    with(pid);
                    pid = 0;
                }
            }
        }
        libc::close(fd);
    }
    any
}

/// Walks /proc by getdents64 and reads each parent from its stat file.
unsafe fn for_each_process(with: &mut dyn FnMut(i32, i32, i32)) -> bool {
    // SAFETY: getdents64 fills a local buffer with records whose length field is used to step through it.
    unsafe {
        let me = libc::getpid();
        let proc = libc::open(c"/proc".as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC);
        if proc < 0 {
            return false;
        }
        let mut buffer = [0u64; 1024];
        loop {
            let read = libc::syscall(libc::SYS_getdents64, proc, buffer.as_mut_ptr(), size_of_val(&buffer));
            if read <= 0 {
                break;
            }
            let base = buffer.as_ptr().cast::<u8>();
            let mut at = 0usize;
            while at < read as usize {
                let record = base.add(at);
                let length = record.add(16).cast::<u16>().read_unaligned();
                let name = std::ffi::CStr::from_ptr(record.add(19).cast());
                if let Some(pid) = number(name.to_bytes())
                    && let Some(parent) = parent_of(proc, name)
                {
                    with(pid, parent, me);
                }
                at += usize::from(length).max(1);
            }
        }
        libc::close(proc);
    }
    true
}

fn number(text: &[u8]) -> Option<i32> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    digits.then(|| text.iter().fold(0i32, |n, byte| n.wrapping_mul(10).wrapping_add(i32::from(byte - b'0'))))
}

unsafe fn parent_of(proc: i32, name: &std::ffi::CStr) -> Option<i32> {
    let mut path = [0u8; 24];
    let text = name.to_bytes().iter().chain(b"/stat");
    path.iter_mut().zip(text).for_each(|(to, from)| *to = *from);
    let mut buffer = [0u8; 512];
    // SAFETY: `path` is NUL-terminated (a pid has at most 10 digits); the read goes into a local buffer of that size.
    let read = unsafe {
        let fd = libc::openat(proc, path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC);
        if fd < 0 {
            return None;
        }
        let read = libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len());
        libc::close(fd);
        read
    };
    let bytes = buffer.get(..usize::try_from(read).ok()?)?;
    // The name may hold anything, also a parenthesis: the last one ends it. Then state, then the parent.
    let after = bytes.get(bytes.iter().rposition(|byte| *byte == b')')? + 2..)?;
    number(after.split(|byte| *byte == b' ').nth(1)?)
}

unsafe fn close_all_but(one: i32, other: i32) {
    let (low, high) = (i64::from(one.min(other)), i64::from(one.max(other)));
    for (first, last) in [(0, low - 1), (low + 1, high - 1), (high + 1, i64::from(u32::MAX))] {
        if first <= last {
            // SAFETY: no memory is passed.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
    }
}
