//! The guardian: a small process between the front and the command that ends the whole tree, whoever else dies.
//!
//! It is the reaper of everything below it, so that no setsid or double fork gets away, and it outlives a front process
//! killed by SIGKILL. Like `child` it runs after fork: raw syscalls, no allocation.

use super::child::{Group, Launch, Pipes, errno};
use super::keeper::Keeper;
use super::message::Message;
use super::mounts::Mounts;
use super::place::Stub;
use super::progress::Progress;
use super::reap::end_tree;
use super::{check, keeper, message};
use crate::operation::Operation;
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
    /// What was to be mounted for it, for reports.
    pub mounts: Option<Mounts>,
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
    Ok(Started { guardian: pid as i32, tree, setup, progress: launch.progress, mounts: launch.mounts })
}

unsafe fn fork() -> i64 {
    // SAFETY: without CLONE_VM the child gets its own copy of everything; the caller keeps to what a fork allows.
    unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) }
}

fn guard(launch: &Launch, front: i32, child_end: i32) -> ! {
    // SAFETY: the calls pass memory only where locals of the right type are given; the process ends with _exit.
    unsafe {
        // A caller that ignores it, as some daemons do, would leave us without news and without wait statuses.
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        if let Err(operation) = take_charge(launch.group) {
            fail(launch, front, child_end, operation);
        }
        let signals = child_signals();
        if signals < 0 {
            fail(launch, front, child_end, Operation::Start);
        }
        let me = libc::getpid();
        let ruleset = launch.ruleset.as_ref().map(AsRawFd::as_raw_fd);
        let mut held = None;
        if let Some(place) = &launch.place
            && let Err(error) = place.make(ruleset, &mut held)
        {
            fail_with(launch, front, child_end, held.as_ref(), (Operation::RunDirectory, error.raw_os_error()));
        }
        let mut keeper = Keeper::begin(launch, front);
        let command = fork() as i32;
        if command == 0 {
            libc::close(front);
            launch.go(&Pipes { front: child_end, guardian: me, keeper: keeper.commands });
        }
        if command < 0 {
            fail_with(launch, front, child_end, held.as_ref(), (Operation::Start, errno()));
        }
        // Not before: the command stays in the caller's session. Nor a group of its own there: for the kernel somebody could
        // then always continue the command, also where nobody can.
        if launch.group == Group::Shared && libc::setsid() < 0 {
            // The command waits for this, and dies with us.
            fail_with(launch, front, child_end, held.as_ref(), (Operation::ProcessGroup, errno()));
        }
        libc::close(child_end);
        tell(front, Message { kind: Message::PID, a: command, ..Message::default() });
        keeper.let_go();
        // Close every inherited descriptor but the directories of the clean-up and what keeps the mounts: a pipe kept open
        // here would make its reader wait for us.
        let base = launch.place.iter().map(|place| place.base.as_raw_fd());
        let parents = launch.stubs.iter().map(|stub| stub.parent.as_raw_fd());
        let held_at = held.iter().map(AsRawFd::as_raw_fd);
        close_all_but(&|from| {
            let own = [front, signals].into_iter().chain(base.clone()).chain(parents.clone()).chain(held_at.clone());
            own.filter(|fd| *fd >= from).chain(keeper.next_from(launch, from)).min()
        });
        let alone = watch(launch, &mut keeper, front, signals, command);
        if alone.is_none() {
            end_tree();
        }
        finish(launch, front, held.as_ref(), alone)
    }
}

/// Reports an operation of the guardian that failed; nothing is executed.
fn fail(launch: &Launch, front: i32, child_end: i32, operation: Operation) -> ! {
    fail_with(launch, front, child_end, None, (operation, errno()))
}

fn fail_with(launch: &Launch, front: i32, child_end: i32, held: Option<&OwnedFd>, failure: (Operation, i32)) -> ! {
    launch.progress.fail(failure.0, failure.1);
    // The front process reads until nobody can send any more: kept open here, each would wait for the other.
    // SAFETY: closing passes no memory; a command that was forked has a descriptor of its own.
    unsafe { libc::close(child_end) };
    finish(launch, front, held, None)
}

/// The tree has ended. The front process cleans up; should it be gone or go meanwhile, it is done here.
fn finish(launch: &Launch, front: i32, held: Option<&OwnedFd>, alone: Option<i32>) -> ! {
    // SAFETY: the path is NUL-terminated; getrusage and recv fill locals; the process ends here.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage);
        let (kind, a) = alone.map_or((Message::DONE, 0), |status| (Message::EXITED_ALONE, status));
        tell(front, Message { kind, a, usage: summed(&usage) });
        if launch.place.is_some() || launch.cgroup.is_some() || !launch.stubs.is_empty() {
            let mut message = Message::default();
            while libc::recv(front, (&raw mut message).cast(), size_of::<Message>(), 0) > 0 {}
            libc::close(front);
        }
        if let Some(cgroup) = &launch.cgroup {
            libc::rmdir(cgroup.directory.as_ptr());
        }
        if let (Some(place), Some(directory)) = (&launch.place, held) {
            place.remove(directory);
        }
        launch.stubs.iter().for_each(Stub::remove);
        libc::_exit(0)
    }
}

/// Reaper of everything below, out of reach of signals.
unsafe fn take_charge(group: Group) -> Result<(), Operation> {
    // SAFETY: the only memory passed is a signal set of this frame.
    unsafe {
        if libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0 {
            return Err(Operation::Start);
        }
        if group == Group::Session && libc::setsid() < 0 {
            return Err(Operation::ProcessGroup);
        }
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        match libc::sigprocmask(libc::SIG_SETMASK, &all, std::ptr::null_mut()) {
            0 => Ok(()),
            _ => Err(Operation::Signals),
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
        libc::sigaddset(&mut children, keeper::SIGNAL);
        libc::signalfd(-1, &children, libc::SFD_CLOEXEC)
    }
}

fn summed(usage: &libc::rusage) -> [i64; 3] {
    let micros = |time: libc::timeval| time.tv_sec * 1_000_000 + time.tv_usec;
    [micros(usage.ru_utime), micros(usage.ru_stime), usage.ru_maxrss]
}

/// Returns when the tree is to be ended: the command has, the front process asks for it, or it is gone. The wait status
/// of a command that nobody is left of is all there is to tell.
unsafe fn watch(launch: &Launch, keeper: &mut Keeper, front: i32, signals: i32, command: i32) -> Option<i32> {
    // SAFETY: the poll set, the siginfo buffer and the message are locals of the sizes given.
    unsafe {
        loop {
            let mut polled = [
                libc::pollfd { fd: front, events: libc::POLLIN, revents: 0 },
                libc::pollfd { fd: signals, events: libc::POLLIN, revents: 0 },
                // Left out where it is -1.
                libc::pollfd { fd: keeper.own, events: libc::POLLIN, revents: 0 },
                libc::pollfd { fd: keeper.list, events: libc::POLLPRI, revents: 0 },
            ];
            libc::poll(polled.as_mut_ptr(), 4, -1);
            if polled[3].revents != 0 && !keeper.hear(launch, front, true) {
                return None;
            }
            if polled[2].revents != 0 && !keeper.take_namespaces(launch, front) {
                return None;
            }
            if polled[0].revents != 0 {
                let mut message = Message::default();
                let read = libc::recv(front, (&raw mut message).cast(), size_of::<Message>(), libc::MSG_DONTWAIT);
                if read <= 0 || message.kind == Message::KILL {
                    return None;
                }
            }
            if polled[1].revents != 0 {
                let mut info: libc::signalfd_siginfo = std::mem::zeroed();
                libc::read(signals, (&raw mut info).cast(), size_of::<libc::signalfd_siginfo>());
                if info.ssi_signo == keeper::SIGNAL as u32 && !keeper.hear(launch, front, false) {
                    return None;
                }
            }
            match reap(front, command) {
                Reaped::Running => {}
                Reaped::Ended => return None,
                Reaped::Alone(status) => return Some(status),
            }
        }
    }
}

/// What is left of the tree.
enum Reaped {
    Running,
    /// The command has ended, and was told of; others have not.
    Ended,
    /// It has ended with this status, and there is nobody else.
    Alone(i32),
}

/// Takes every state change there is.
unsafe fn reap(front: i32, command: i32) -> Reaped {
    let mut ended = None;
    // SAFETY: the kernel fills the status and usage locals.
    unsafe {
        loop {
            let mut status = 0;
            let mut usage: libc::rusage = std::mem::zeroed();
            let pid = libc::wait4(-1, &mut status, libc::WNOHANG | libc::WUNTRACED, &mut usage);
            if pid <= 0 {
                return match ended {
                    None => Reaped::Running,
                    Some(Message { a: status, .. }) if pid < 0 => Reaped::Alone(status),
                    Some(message) => {
                        tell(front, message);
                        Reaped::Ended
                    }
                };
            }
            if pid != command {
                continue;
            }
            let told = |kind| Message { kind, a: status, usage: summed(&usage) };
            if libc::WIFSTOPPED(status) {
                tell(front, told(Message::STOPPED));
            } else {
                ended = Some(told(Message::EXITED));
            }
        }
    }
}

pub(super) fn tell(front: i32, message: Message) {
    // SAFETY: pointer and size are those of one live value.
    unsafe { libc::send(front, (&raw const message).cast(), size_of::<Message>(), libc::MSG_NOSIGNAL) };
}

/// Closes every descriptor but those that `next` gives: the smallest to be kept from a number on.
fn close_all_but(next: &dyn Fn(i32) -> Option<i32>) {
    let mut first = 0;
    loop {
        let kept = next(first);
        let last = kept.map_or(i64::from(u32::MAX), |kept| i64::from(kept) - 1);
        if i64::from(first) <= last {
            // SAFETY: no memory is passed.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
        let Some(kept) = kept else { return };
        first = kept + 1;
    }
}
