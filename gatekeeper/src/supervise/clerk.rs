//! The thread that answers notified calls, apart from the loop that keeps the time.
//!
//! A call names things that the program controls: memory on a file system that does not answer, a path on a hung server, a
//! socket whose other side never accepts. Looking at any of them may block, and no flag of ours prevents it, because the
//! program shares the open file and can take the flag back. So the loop never looks: time limit, memory limit, signals and
//! the end of the tree stay in force while a call keeps this thread waiting. What then waits as well are other calls of the
//! same run, which is what the kernel itself would have done to the one that blocked.

use super::denials::Denials;
use super::judge::Judge;
use super::lesson::Lesson;
use crate::plan::table::Table;
use crate::sys::notify;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

/// How long a run that has ended waits for the record of a call that was answered. Only a thread that is blocked takes
/// longer, and the call that blocks it was never answered.
const PATIENCE: Duration = Duration::from_millis(500);
const STACK: usize = 512 * 1024;
/// What a thread takes beside its stack.
const SPARE: usize = 1 << 20;

/// What the loop and the thread share.
pub(super) struct Desk {
    pub(super) judge: Judge,
    pub(super) listener: OwnedFd,
    /// The tree is being ended: calls wait for that and get no answer.
    pub(super) ending: AtomicBool,
    /// Connections that are being made on threads of their own.
    pub(super) connecting: AtomicUsize,
    pub(super) lesson: Mutex<Option<Lesson>>,
    /// The exact list, once main was reached.
    pub(super) at_main: OnceLock<Table>,
    notes: Mutex<Notes>,
    idle: Condvar,
    /// Readable when the loop has something to read in the notes.
    news: OwnedFd,
}

#[derive(Default)]
pub(super) struct Notes {
    pub(super) denials: Denials,
    /// The denied call for which the run is to be killed.
    pub(super) violated: Option<String>,
    failed: Option<io::Error>,
    busy: bool,
}

/// The loop's end of it.
pub(super) struct Clerk {
    desk: Arc<Desk>,
    stop: OwnedFd,
}

/// What is left when a run has ended.
pub(super) struct Left {
    pub(super) denials: Denials,
    pub(super) violated: Option<String>,
    pub(super) lesson: Option<Lesson>,
    /// Whether an exact list came into force.
    pub(super) reached_main: bool,
    /// Whether every read that was refused has been seen.
    pub(super) reads_recorded: bool,
}

impl Clerk {
    /// Starts the thread. It holds nothing of the caller's, so that a blocked one can be left behind.
    pub(super) fn start(judge: Judge, lesson: Option<Lesson>, listener: OwnedFd) -> io::Result<Clerk> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let desk = Arc::new(Desk {
            judge,
            listener,
            ending: AtomicBool::new(false),
            connecting: AtomicUsize::new(0),
            lesson: Mutex::new(lesson),
            at_main: OnceLock::new(),
            notes: Mutex::default(),
            idle: Condvar::new(),
            news: eventfd(0, flags)?,
        });
        // The standard library aborts where a new thread lacks memory; tried here, it is out of memory like every other step.
        drop(std::hint::black_box(Vec::<u8>::with_capacity(STACK + SPARE)));
        let stop = eventfd(0, flags)?;
        let (works_at, stopped) = (desk.clone(), stop.try_clone()?);
        let thread = std::thread::Builder::new().name("clerk".to_owned()).stack_size(STACK);
        thread.spawn(move || {
            if let Err(error) = works_at.serve(&stopped) {
                works_at.notes().failed = Some(error);
                works_at.tell();
            }
        })?;
        Ok(Clerk { desk, stop })
    }

    /// Readable when `heard` has something to say.
    pub(super) fn news(&self) -> BorrowedFd<'_> {
        self.desk.news.as_fd()
    }

    /// Whether the run is to be killed for a call, or an error of the thread.
    pub(super) fn heard(&self) -> io::Result<bool> {
        let _ = rustix::io::read(&self.desk.news, &mut [0u8; 8]);
        let mut notes = self.desk.notes();
        notes.failed.take().map_or(Ok(notes.violated.is_some()), Err)
    }

    /// From now on calls wait for the end of the tree.
    pub(super) fn no_more_answers(&self) {
        self.desk.ending.store(true, Ordering::SeqCst);
    }

    /// Lets the thread go, and takes over what it wrote down.
    pub(super) fn dismiss(self) -> Left {
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        let notes = self.desk.notes();
        let waited = self.desk.idle.wait_timeout_while(notes, PATIENCE, |notes| notes.busy);
        let (mut notes, _) = waited.unwrap_or_else(|poisoned| poisoned.into_inner());
        Left {
            denials: std::mem::take(&mut notes.denials),
            violated: notes.violated.take(),
            reached_main: self.desk.at_main.get().is_some(),
            reads_recorded: self.desk.judge.foresight.sees_reads(),
            lesson: self.desk.lesson.try_lock().ok().and_then(|mut lesson| lesson.take()),
        }
    }
}

impl Desk {
    pub(super) fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(super) fn tell(&self) {
        let _ = rustix::io::write(&self.news, &1u64.to_ne_bytes());
    }

    fn serve(self: &Arc<Desk>, stop: &OwnedFd) -> io::Result<()> {
        loop {
            let mut polled = [PollFd::new(&self.listener, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
            match poll(&mut polled, None) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other?,
            };
            let [listener, stop] = polled.map(|fd| fd.revents());
            if !stop.is_empty() {
                return Ok(());
            }
            if !listener.contains(PollFlags::IN) {
                // The last process under the filter is gone.
                return Ok(());
            }
            // Before the call is taken: who sees the program end after an answer finds the thread busy or the note written.
            self.notes().busy = true;
            let served = self.serve_one();
            self.notes().busy = false;
            self.idle.notify_all();
            if !served? {
                return Ok(());
            }
        }
    }

    /// `false`: nothing more will come.
    fn serve_one(self: &Arc<Desk>) -> io::Result<bool> {
        match notify::receive(self.listener.as_fd()) {
            Ok(Some(call)) => self.judge(&call).map(|()| true),
            Ok(None) => Ok(true),
            Err(_) => Ok(false),
        }
    }
}
