//! The guardian: a small process between the front process and the command. It ends the whole tree, even if the front
//! process is killed by SIGKILL.
//!
//! It is the subreaper of the tree, so setsid or a double fork does not escape it. Like `child` it runs after fork: raw
//! syscalls, no allocation.

mod ended;
mod front;
mod post;
#[cfg(test)]
mod tests;

pub use front::Backstop;
pub use post::{Post, fork_alone};

use super::child::{Arguments, Filter, Group, Launch, Pipes, errno};
use super::descriptors::close_all_but;
use super::keeper::Keeper;
use super::message::Message;
use super::mounts::Mounts;
use super::place::Stub;
use super::progress::Progress;
use super::reap::end_tree;
use super::{check, keeper, message, process};
use crate::operation::Operation;
use ended::{Reaped, reap};
use front::Front;
use post::{PROGRAM_ENDED, fork};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

/// The front process's side of a started command.
pub struct Started {
    /// The guardian's process id. 0 until `PID` has arrived, if the guardian is not a child of this process.
    pub guardian: i32,
    /// Whether the guardian is a child of this process. Otherwise the guardian program reaps it.
    pub is_child: bool,
    /// The guardian program, if that forked the guardian.
    pub program: Option<i32>,
    /// Messages from the guardian.
    pub tree: OwnedFd,
    /// Messages from the command's process, until exec closes its end.
    pub setup: OwnedFd,
    /// How far the set-up came.
    pub progress: Progress,
    /// The mounts of the command, for reports.
    pub mounts: Option<Mounts>,
    /// Set if this process was forked.
    pub(crate) spent: Option<Spent>,
}

/// Memory that is no longer needed. Freed when the guardian has exited: before that it shares this memory, and each page
/// that is written, as freeing does, has to be copied.
pub(crate) struct Spent {
    _arguments: Arguments,
    _filter: Option<Filter>,
}

impl Started {
    /// Lets the command's process go on, if its launch says that it waits.
    pub fn let_go(&self) -> io::Result<()> {
        let go = Message { kind: Message::GO, ..Message::default() };
        loop {
            match message::send(self.setup.as_fd(), &go) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    /// Ends both connections, so that the guardian ends the tree. Closing the sockets is not enough in a program that forks: its
    /// other processes have copies, for as long as they live.
    pub fn hang_up(&self) {
        for socket in [&self.tree, &self.setup] {
            // Fails if the other side is gone.
            let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
        }
    }

    /// Closes the sockets to the guardian, which has reported the end of the tree, or is to end it now.
    pub fn leave(self) -> (Leaving, Progress) {
        self.hang_up();
        if let Some(program) = self.program {
            // Stopped by the command, it would outlive this process.
            let _ = process::kill(program, libc::SIGCONT);
        }
        let guardian = self.is_child.then_some(self.guardian);
        (Leaving { guardian, _spent: self.spent }, self.progress)
    }
}

/// A guardian that is about to exit. It is reaped when this value is dropped at the latest: its exit takes about as long as
/// the report, which can be made meanwhile.
pub struct Leaving {
    /// Its process id, if it is a child of this process and was not reaped yet.
    guardian: Option<i32>,
    _spent: Option<Spent>,
}

impl Leaving {
    /// Waits until it has exited.
    pub fn reap(mut self) -> io::Result<()> {
        self.guardian.take().map_or(Ok(()), |guardian| process::wait(guardian).map(drop))
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        if let Some(guardian) = self.guardian.take() {
            // Fails with ECHILD if the guardian was killed and reaped as one of the tree's orphans.
            let _ = process::wait(guardian);
        }
    }
}

/// How long to sleep for the first message of the guardian. The event loop, which enforces limits, has not started yet.
const FIRST: Duration = Duration::from_millis(1);

/// Forks the guardian, which forks the command.
pub fn start(mut launch: Launch) -> io::Result<Started> {
    launch.must_be_consistent()?;
    let (tree, guardian_end) = message::pair()?;
    let (setup, child_end) = message::pair()?;
    // SAFETY: the new process makes raw syscalls only and never returns from `guard`.
    let pid = check(unsafe { fork() })?;
    if pid == 0 {
        // SAFETY: the OwnedFds are never used or dropped in this process, because `guard` does not return.
        unsafe {
            libc::close(tree.as_raw_fd());
            libc::close(setup.as_raw_fd());
        }
        let post = Post::take(launch.group, None, launch.may_share_memory());
        guard(&launch, guardian_end.as_raw_fd(), child_end.as_raw_fd(), post)
    }
    drop((guardian_end, child_end));
    // Usually both processes are on one processor. Sleep until the guardian has started the command: what this process does next
    // is not needed before the command has installed its filter.
    message::expect(tree.as_fd(), FIRST);
    launch.arguments.unmap();
    let spent = Some(Spent { _arguments: launch.arguments, _filter: launch.filter });
    let (progress, mounts) = (launch.progress, launch.mounts);
    Ok(Started { guardian: pid as i32, is_child: true, program: None, tree, setup, progress, mounts, spent })
}

/// What the command's process needs.
struct Child<'a> {
    launch: &'a Launch,
    front: i32,
    pipes: Pipes,
}

impl Child<'_> {
    fn go(&self) -> ! {
        // SAFETY: the command's process uses only its own socket to the front process.
        unsafe { libc::close(self.front) };
        self.launch.go(&self.pipes)
    }
}

/// Where the command's process starts if it shares the guardian's memory.
extern "C" fn become_command(child: *mut libc::c_void) -> i32 {
    // SAFETY: `guard` passes a `Child` in its own frame, from which it never returns.
    unsafe { &*child.cast::<Child<'_>>() }.go()
}

/// The guardian: starts the command, and ends its tree.
pub fn guard(launch: &Launch, front: i32, child_end: i32, post: Result<Post, (Operation, i32)>) -> ! {
    let post = match post {
        Ok(post) if post.is_forsaken() => fail_with(launch, front, child_end, None, (Operation::Start, libc::ESRCH)),
        Ok(post) => post,
        Err(failure) => fail_with(launch, front, child_end, None, failure),
    };
    // SAFETY: this is the process that `fork` describes: raw syscalls only, and it ends in `fail_with` or `finish`.
    unsafe {
        // Only now: the descriptors of a letter may have taken any number.
        let signals = child_signals();
        if signals < 0 {
            fail_with(launch, front, child_end, None, (Operation::Start, errno()));
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
        let mut stopped = Front::begin(launch);
        let child = Child { launch, front, pipes: Pipes { front: child_end, guardian: me, keeper: keeper.commands } };
        let stack = post.stack.filter(|_| launch.may_share_memory());
        let command = if let Some(top) = stack {
            let child = (&raw const child).cast_mut().cast();
            libc::clone(become_command, top.cast(), libc::CLONE_VM | libc::SIGCHLD, child)
        } else {
            fork() as i32
        };
        if command == 0 {
            child.go();
        }
        if command < 0 {
            fail_with(launch, front, child_end, held.as_ref(), (Operation::Start, errno()));
        }
        // After the fork, so that the command stays in the caller's session. A process group in that session would not do:
        // the command's group would never be orphaned, and SIGTSTP would stop a command that nothing can continue.
        if launch.group == Group::Shared && libc::setsid() < 0 {
            // The command waits for the new session, and is killed when this process ends (PR_SET_PDEATHSIG).
            fail_with(launch, front, child_end, held.as_ref(), (Operation::ProcessGroup, errno()));
        }
        libc::close(child_end);
        send(front, Message { kind: Message::PID, a: command, usage: [me.into(), 0, 0] });
        keeper.let_go();
        stopped.iter_mut().for_each(Front::set_all_timers);
        close_inherited(launch, &keeper, [front, signals], held.as_ref());
        let alone = watch(launch, &mut keeper, stopped.as_mut(), [front, signals], &post, command);
        if alone.is_none() {
            end_tree();
        }
        finish(launch, front, held.as_ref(), stopped, alone)
    }
}

/// Records that an operation failed in the guardian itself, and ends; the command is never executed.
fn fail_with(launch: &Launch, front: i32, child_end: i32, held: Option<&OwnedFd>, failure: (Operation, i32)) -> ! {
    launch.progress.fail(failure.0, failure.1);
    // The front process reads this socket until every writer has closed it, and `finish` waits for the front process.
    // SAFETY: `child_end` is used no more in this process; a forked command has its own copy.
    unsafe { libc::close(child_end) };
    finish(launch, front, held, None, None)
}

/// Reports the end of the tree. Then waits until the front process has cleaned up, or is gone, and removes what is left.
fn finish(launch: &Launch, front: i32, held: Option<&OwnedFd>, stopped: Option<Front>, alone: Option<i32>) -> ! {
    // SAFETY: getrusage and recv fill locals of their size; a CString is NUL-terminated; _exit runs no handlers.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage);
        let (kind, a) = alone.map_or((Message::DONE, 0), |status| (Message::EXITED_ALONE, status));
        send(front, Message { kind, a, usage: summed(&usage) });
        stopped.iter().for_each(Front::end);
        // The front process may wait for this processor, and the end of this one takes longer than all that it still has to do.
        libc::sched_yield();
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

/// A signalfd for changes of children and of watched directories.
unsafe fn child_signals() -> i32 {
    // SAFETY: all zeroes is a valid signal set; signalfd copies it.
    unsafe {
        let mut children: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut children);
        libc::sigaddset(&mut children, libc::SIGCHLD);
        libc::sigaddset(&mut children, keeper::SIGNAL);
        libc::sigaddset(&mut children, PROGRAM_ENDED);
        libc::signalfd(-1, &children, libc::SFD_CLOEXEC)
    }
}

fn summed(usage: &libc::rusage) -> [i64; 3] {
    let micros = |time: libc::timeval| time.tv_sec * 1_000_000 + time.tv_usec;
    [micros(usage.ru_utime), micros(usage.ru_stime), usage.ru_maxrss]
}

/// Returns when the tree has to end: the command has ended, the front process asks for it or is gone, or a protected file
/// is unprotected; the guardian program has ended; or the time limit is long past. `Some` wait status if the command ended and left no other process.
unsafe fn watch(
    launch: &Launch,
    keeper: &mut Keeper,
    mut stopped: Option<&mut Front>,
    [front, signals]: [i32; 2],
    post: &Post,
    command: i32,
) -> Option<i32> {
    // SAFETY: poll, recv and read get locals and their own sizes; all zeroes is a valid siginfo.
    unsafe {
        loop {
            let mut polled = [
                libc::pollfd { fd: front, events: libc::POLLIN, revents: 0 },
                libc::pollfd { fd: signals, events: libc::POLLIN, revents: 0 },
                // poll(2) ignores entries of -1.
                libc::pollfd { fd: keeper.own, events: libc::POLLIN, revents: 0 },
                libc::pollfd { fd: keeper.list, events: libc::POLLPRI, revents: 0 },
            ];
            // Without poll, neither the front nor the signals would ever be heard again.
            let patience = stopped.as_ref().map_or(-1, |front| front.patience());
            if libc::poll(polled.as_mut_ptr(), 4, patience) < 0 && errno() != libc::EINTR {
                return None;
            }
            if stopped.as_mut().is_some_and(|stopped| !stopped.look(front)) {
                return None;
            }
            if polled[3].revents != 0 && !keeper.check_names(launch, front, true) {
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
                if info.ssi_signo == keeper::SIGNAL as u32 && !keeper.check_names(launch, front, false) {
                    return None;
                }
                // Any process of this user may send the signal; only a changed parent means that the program has ended.
                if info.ssi_signo == PROGRAM_ENDED as u32 && post.is_forsaken() {
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

/// Sends a message to the front process. If that is gone, `watch` or `finish` notices.
pub(super) fn send(front: i32, message: Message) {
    let bytes = message.bytes();
    // SAFETY: pointer and length are those of one slice.
    unsafe { libc::send(front, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
}

/// Closes every inherited descriptor: a pipe kept open here would make its reader wait for us. Kept are `own`, the
/// directories of the clean-up, the lock on a stage, and those of the keeper.
fn close_inherited(launch: &Launch, keeper: &Keeper, own: [i32; 2], held: Option<&OwnedFd>) {
    let base = launch.place.iter().map(|place| place.base.as_raw_fd());
    let parents = launch.stubs.iter().map(|stub| stub.parent.as_raw_fd());
    let held = held.into_iter().map(AsRawFd::as_raw_fd);
    let lock = launch.lock.iter().map(AsRawFd::as_raw_fd);
    close_all_but(0, &|from| {
        let kept = own.into_iter().chain(base.clone()).chain(parents.clone()).chain(held.clone()).chain(lock.clone());
        kept.filter(|fd| *fd >= from).chain(keeper.next_from(launch, from)).min()
    });
}
