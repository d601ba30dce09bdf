//! How a process becomes a guardian, before it knows which command it will start.
//!
//! In the guardian program that is done while the front process still prepares the launch.

use crate::operation::Operation;
use crate::sys::check;
use crate::sys::child::{Group, errno};
use crate::sys::signals;
use std::io;
use std::os::fd::OwnedFd;

/// A process that has become the guardian of a command to be started: what it needs that does not depend on the command. The guardian
/// program makes it while the front process still prepares the launch.
pub struct Post {
    /// Memory for the command's process, if there is some: the end of its stack.
    pub(super) stack: Option<*mut u8>,
    /// The process id of the guardian program, if that forked this process: when it dies, the tree ends too.
    program: Option<i32>,
}

impl Post {
    /// Takes charge of what will be started below this process. The operation that failed, and its errno.
    pub fn take(group: Group, program: Option<i32>, shares_memory: bool) -> Result<Post, (Operation, i32)> {
        // SAFETY: this is the process that `fork` describes: raw syscalls only. The stack is new memory that only the command uses.
        unsafe {
            // Inherited as SIG_IGN, as some daemons set it, SIGCHLD would not arrive and children would leave no wait status.
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            take_charge(group).map_err(|operation| (operation, errno()))?;
            if !dies_with(program) {
                return Err((Operation::Start, errno()));
            }
            let stack = if shares_memory { new_stack() } else { None };
            if let Some(stack) = stack {
                // The page that the command's process needs first.
                stack.add(STACK - 1).write_volatile(0);
            }
            let stack = stack.map(|stack| stack.add(STACK));
            Ok(Post { stack, program })
        }
    }

    /// Whether the guardian program has ended, after this process was made.
    pub(super) fn is_forsaken(&self) -> bool {
        // SAFETY: getppid takes no pointers.
        self.program.is_some_and(|program| unsafe { libc::getppid() } != program)
    }
}

/// Becomes the subreaper for the whole tree and blocks all signals, so nothing in it can escape or stop us.
unsafe fn take_charge(group: Group) -> Result<(), Operation> {
    // SAFETY: these calls take no pointers.
    unsafe {
        if libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0 {
            return Err(Operation::Start);
        }
        if group == Group::Session && libc::setsid() < 0 {
            return Err(Operation::ProcessGroup);
        }
        signals::block_all().map_err(|_| Operation::Signals)
    }
}

/// The signal that the guardian program's end sends.
pub(super) const PROGRAM_ENDED: i32 = libc::SIGTERM;

/// Asks for `PROGRAM_ENDED` when the guardian program ends. False, with errno set, if that is impossible or it has ended.
unsafe fn dies_with(program: Option<i32>) -> bool {
    let Some(program) = program else { return true };
    // SAFETY: neither call passes memory.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, PROGRAM_ENDED, 0, 0, 0) == 0 && libc::getppid() == program }
}

/// The stack of the command's process until exec, if it shares the guardian's memory.
const STACK: usize = 64 * 1024;

/// Memory for that stack; the guardian ends before it could be used again. Mapped, so that only the pages that are used take time:
/// an array in a frame is touched page by page when the frame is entered. `None` if there is none: then fork.
unsafe fn new_stack() -> Option<*mut u8> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
    // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
    let stack = unsafe { libc::mmap(std::ptr::null_mut(), STACK, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    (stack != libc::MAP_FAILED).then_some(stack.cast())
}

/// fork(2) without the C library's atfork handlers. The child may only make raw syscalls and end by exec or _exit.
pub(super) unsafe fn fork() -> i64 {
    // SAFETY: without CLONE_VM the child has its own copy of all memory, this stack included.
    unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) }
}

/// Forks a process with one thread, which may do in the new process whatever it may do here. The new process gets the socket and the
/// process id of this one; if there is none, the caller gets the socket back.
pub fn fork_alone(socket: OwnedFd, child: fn(OwnedFd, i32) -> !) -> Result<i32, (OwnedFd, io::Error)> {
    // A lock held by another thread would stay locked in the new process.
    if let Err(error) = has_one_thread() {
        return Err((socket, error));
    }
    let own = std::process::id() as i32;
    // SAFETY: this process has one thread, so no lock is held elsewhere, and `child` does not return.
    match check(unsafe { fork() }) {
        Ok(0) => child(socket, own),
        Ok(pid) => Ok(pid as i32),
        Err(error) => Err((socket, error)),
    }
}

/// An error if this process has more than one thread.
fn has_one_thread() -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    // Changes nothing in a process with one thread, and is refused to any other: unshare(2), EINVAL.
    // SAFETY: unshare takes no pointers.
    match check(i64::from(unsafe { libc::unshare(libc::CLONE_THREAD) })) {
        Ok(_) => return Ok(()),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        // An outer sandbox denies the call.
        Err(_) => {}
    }
    // One directory for each thread, and `.` and `..`.
    match std::fs::metadata("/proc/self/task")?.nlink() {
        3 => Ok(()),
        _ => Err(io::Error::from_raw_os_error(libc::EBUSY)),
    }
}
