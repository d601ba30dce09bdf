//! The thread that answers notified syscalls: `Clerk` is the event loop's handle to it, `Desk` the state that both
//! share.
//!
//! A syscall names things that the program controls: memory mapped from a file system that hangs, a path on a dead NFS
//! server, a socket whose peer never accepts. Looking at any of them may block. O_NONBLOCK does not help: the program
//! shares the open file description and can clear the flag. So the event loop never looks, and time limit, memory
//! limit, signals and the end of the tree stay in force while one call blocks this thread. Only other notified calls of
//! the same run wait with it.

use super::denials::Denials;
use super::judge::Judge;
use super::lesson::Lesson;
use super::quick::Quick;
use super::rights::Start;
use super::target;
use super::waiting::Waiting;
use crate::plan::table::Table;
use crate::sys::{memory, notify};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

/// How long an ended run waits for this thread to record a call that it has answered. Only a blocked thread takes
/// longer, and the call that blocks it was never answered.
const PATIENCE: Duration = Duration::from_millis(500);
/// SECCOMP_IOCTL_NOTIF_RECV ends when the last process exits since Linux 6.11. The first ABI of Landlock after that is 6, of 6.12.
const ENDS_RECEIVE: i32 = 6;
/// How much later than the last process the thread ends in a program that goes on.
const LATER: Duration = Duration::from_micros(500);
const STACK: usize = 512 * 1024;
/// Memory that a thread needs besides its stack.
const SPARE: usize = 1 << 20;

/// The state that the event loop and the thread share.
pub(super) struct Desk {
    pub(super) judge: Judge,
    pub(super) listener: OwnedFd,
    /// Set once the tree is being killed. Calls get no answer from then on: they wait until they are killed.
    pub(super) ending: AtomicBool,
    pub(super) waiting: Waiting,
    pub(super) lesson: Mutex<Option<Lesson>>,
    /// Used by the thread only.
    pub(super) quick: Mutex<Quick>,
    /// The exact syscall list, once libsandbox.so has loaded it right before main.
    pub(super) at_main: OnceLock<Table>,
    /// What the command started with, once a call is made for it.
    pub(super) start: OnceLock<Start>,
    notes: Mutex<Notes>,
    idle: Condvar,
    /// An eventfd that wakes the event loop to look at the notes.
    news: OwnedFd,
    /// Whether the thread ends without being told to.
    leaves: AtomicBool,
    /// Whether it does so [`LATER`].
    lingers: bool,
}

#[derive(Default)]
pub(super) struct Notes {
    pub(super) denials: Denials,
    /// The denied call for which the run has to be killed.
    pub(super) violated: Option<String>,
    failed: Option<io::Error>,
    busy: bool,
    /// Whether the end of the run waits for this thread to be no longer busy.
    awaited: bool,
}

/// The event loop's handle to the thread.
pub(super) struct Clerk {
    desk: Arc<Desk>,
    stop: OwnedFd,
}

/// What the thread has recorded by the end of a run.
pub(super) struct Record {
    pub(super) denials: Denials,
    pub(super) violated: Option<String>,
    pub(super) lesson: Option<Lesson>,
    /// Whether libsandbox.so loaded its exact syscall list.
    pub(super) reached_main: bool,
    /// Whether every refused read is among the denials.
    pub(super) reads_recorded: bool,
}

/// The name of the thread that makes calls for a command, and by which other processes know that it does.
pub const CLERK: &str = "clerk";

impl Clerk {
    /// Starts the thread. It borrows nothing from the caller, so a blocked thread can be left behind.
    pub(super) fn start(
        judge: Judge,
        lesson: Option<Lesson>,
        listener: OwnedFd,
        command: Option<i32>,
        embedded: bool,
    ) -> io::Result<Clerk> {
        let desk = Arc::new(Desk { lingers: embedded, ..Desk::new(judge, lesson, listener)? });
        memory::must_have(STACK + SPARE);
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (shared, stopped) = (desk.clone(), stop.try_clone()?);
        let thread = std::thread::Builder::new().name(CLERK.to_owned()).stack_size(STACK);
        thread.spawn(move || {
            // Now, because the command waits for its first call to be judged, and would wait for this too.
            command.into_iter().for_each(target::expect);
            if let Err(error) = shared.serve(&stopped) {
                shared.notes().failed = Some(error);
                shared.wake_loop();
            }
        })?;
        Ok(Clerk { desk, stop })
    }

    /// Becomes readable when `heard` has news.
    pub(super) fn news(&self) -> BorrowedFd<'_> {
        self.desk.news.as_fd()
    }

    /// Whether the run has to be killed for a denied call; an error if the thread failed.
    pub(super) fn heard(&self) -> io::Result<bool> {
        let _ = rustix::io::read(&self.desk.news, &mut [0u8; 8]);
        let mut notes = self.desk.notes();
        notes.failed.take().map_or(Ok(notes.violated.is_some()), Err)
    }

    /// Leaves calls unanswered from now on: their processes are about to be killed.
    pub(super) fn no_more_answers(&self) {
        self.desk.ending.store(true, Ordering::SeqCst);
    }

    /// Takes over what the thread has recorded. It stops when this handle is dropped.
    pub(super) fn finish(self) -> Record {
        let mut notes = self.desk.notes();
        notes.awaited = true;
        let waited = self.desk.idle.wait_timeout_while(notes, PATIENCE, |notes| notes.busy);
        let (mut notes, _) = waited.unwrap_or_else(|poisoned| poisoned.into_inner());
        Record {
            denials: std::mem::take(&mut notes.denials),
            violated: notes.violated.take(),
            reached_main: self.desk.at_main.get().is_some(),
            reads_recorded: self.desk.judge.foresight.sees_reads(),
            lesson: self.desk.lesson.try_lock().ok().and_then(|mut lesson| lesson.take()),
        }
    }
}

impl Drop for Clerk {
    fn drop(&mut self) {
        // Waking a thread on another processor takes 10 us, at the end of a run for which the caller waits.
        if !self.desk.leaves.load(Ordering::SeqCst) {
            let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        }
    }
}

impl Desk {
    pub(super) fn new(judge: Judge, lesson: Option<Lesson>, listener: OwnedFd) -> io::Result<Desk> {
        Ok(Desk {
            judge,
            listener,
            ending: AtomicBool::new(false),
            waiting: Waiting::default(),
            lesson: Mutex::new(lesson),
            quick: Mutex::default(),
            at_main: OnceLock::new(),
            start: OnceLock::new(),
            notes: Mutex::default(),
            idle: Condvar::new(),
            news: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            leaves: AtomicBool::new(false),
            lingers: false,
        })
    }

    pub(super) fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(super) fn wake_loop(&self) {
        let _ = rustix::io::write(&self.news, &1u64.to_ne_bytes());
    }

    fn serve(self: &Arc<Desk>, stop: &OwnedFd) -> io::Result<()> {
        // Once the program makes notified calls, wait for the next one in the kernel's receive: poll is another syscall for
        // each call. Kernels that do not end this wait when the last process exits always poll.
        let waits = self.judge.plan.landlock.as_ref().is_some_and(|landlock| landlock.abi >= ENDS_RECEIVE);
        let mut received = false;
        loop {
            let polls = !(waits && received);
            if polls && !self.poll(stop)? {
                return Ok(());
            }
            let call = match notify::receive(self.listener.as_fd()) {
                Ok(call) => call,
                Err(_) => return Ok(()),
            };
            // None: its process died, or there are no more processes, which poll tells.
            received = call.is_some();
            let Some(call) = call else { continue };
            // Set before the call is answered: if the program exits right after our answer, `finish` must find this thread
            // busy or the denial recorded.
            self.notes().busy = true;
            let judged = self.judge(&call);
            let mut notes = self.notes();
            notes.busy = false;
            // Waking is a syscall, also if nothing waits.
            if notes.awaited {
                self.idle.notify_all();
            }
            drop(notes);
            judged?;
        }
    }

    /// Waits for a call. `false`: the thread has to stop.
    fn poll(&self, stop: &OwnedFd) -> io::Result<bool> {
        let mut polled = [PollFd::new(stop, PollFlags::IN), PollFd::new(&self.listener, PollFlags::IN)];
        loop {
            match poll(&mut polled, None) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other?,
            };
            let [stop, listener] = &polled;
            if stop.revents().is_empty() && listener.revents().contains(PollFlags::IN) {
                return Ok(true);
            }
            if stop.revents().is_empty() {
                // POLLHUP: the last process under the filter has exited.
                self.leaves.store(true, Ordering::SeqCst);
                if self.lingers {
                    // The end of a thread takes longer than the guardian needs to report the end of the command, and the front
                    // process to report it; both may wait for this processor. A program that exits now has to wait for its
                    // threads: there this one ends while the command's memory is freed.
                    std::thread::sleep(LATER);
                }
            }
            return Ok(false);
        }
    }
}
