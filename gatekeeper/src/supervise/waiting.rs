//! Connections that block, each made on its own thread, and the signals that interrupt them.
//!
//! The filter has SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV: while we hold a call, only a fatal signal ends it. That is right for
//! calls that take microseconds, but connect(2) can wait for minutes, and programs interrupt it with SIGALRM, Ctrl-C or Ctrl-Z.
//! So we connect in slices, by a short SO_SNDTIMEO, and look for pending signals between two of them. ERESTARTSYS makes the kernel
//! deliver the signal, and return EINTR or make the call again, as for every interrupted connect (signal(7)). No thread of ours
//! touches the socket after that, so it is in the state in which the kernel leaves it: a connection goes on in the background,
//! and its error stays in SO_ERROR.

use super::clerk::Desk;
use super::connect::Connection;
use super::status::Status;
use crate::sys::notify::{self, Answer, Call};
use std::cell::Cell;
use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The most connections that may wait at the same time. Each holds a thread and two descriptors.
const MOST_WAITING: usize = 128;
/// How long we connect before we look for signals.
pub(super) const SLICE: Duration = Duration::from_millis(20);
/// The kernel's own code, which no program sees: "make the call again, unless a handler without SA_RESTART ran".
const ERESTARTSYS: i32 = 512;
/// How many times a signal to a process with several threads has to be found pending before we take it for this thread's. The
/// kernel prefers the first thread of a process.
const PATIENCE: [u8; 2] = [3, 10];

#[derive(Default)]
pub(super) struct Waiting(Mutex<State>);

#[derive(Default)]
struct State {
    threads: usize,
    /// By inode.
    sockets: HashMap<u64, Borrowed>,
}

/// A socket whose send timeout is ours for as long as threads connect it.
struct Borrowed {
    threads: usize,
    /// The program's own.
    timeout: Option<Duration>,
}

impl Waiting {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Takes a thread for a call that waits. `false`: too many calls wait.
    pub(super) fn enter(&self) -> bool {
        let mut state = self.state();
        let free = state.threads < MOST_WAITING;
        state.threads += usize::from(free);
        free
    }

    /// Gives the thread back.
    pub(super) fn leave(&self) {
        self.state().threads -= 1;
    }

    /// Sets our send timeout and returns the program's. `None`: too many connections wait.
    fn begin(&self, connection: &Connection) -> io::Result<Option<Option<Duration>>> {
        let mut state = self.state();
        if state.threads >= MOST_WAITING {
            return Ok(None);
        }
        let inode = connection.inode()?;
        let timeout = match state.sockets.get_mut(&inode) {
            Some(borrowed) => {
                borrowed.threads += 1;
                borrowed.timeout
            }
            None => {
                let timeout = connection.send_timeout()?;
                connection.set_send_timeout(Some(timeout.map_or(SLICE, |timeout| timeout.min(SLICE))))?;
                state.sockets.insert(inode, Borrowed { threads: 1, timeout });
                timeout
            }
        };
        state.threads += 1;
        Ok(Some(timeout))
    }

    /// Restores the program's send timeout, unless the program has set another one meanwhile.
    fn end(&self, connection: &Connection) {
        let mut state = self.state();
        state.threads -= 1;
        let Ok(inode) = connection.inode() else { return };
        let Some(borrowed) = state.sockets.get_mut(&inode) else { return };
        borrowed.threads -= 1;
        if borrowed.threads == 0 {
            if connection.send_timeout().is_ok_and(|now| now == Some(SLICE)) {
                let _ = connection.set_send_timeout(borrowed.timeout);
            }
            state.sockets.remove(&inode);
        }
    }
}

impl Desk {
    /// Makes a connection, on a separate thread if it can block: its peer may itself wait for an answer of this thread.
    pub(super) fn connect(self: &Arc<Desk>, call: &Call, connection: Connection) -> io::Result<()> {
        if !connection.waits() {
            return self.answer(call, connection.make(&|connect| connect())).map(drop);
        }
        let again = || self.answer(call, Answer::Errno(libc::EAGAIN)).map(drop);
        let Ok(Some(timeout)) = self.waiting.begin(&connection) else { return again() };
        let connection = Arc::new(connection);
        let (desk, call, theirs) = (self.clone(), *call, connection.clone());
        let thread = std::thread::Builder::new().stack_size(64 * 1024).spawn(move || {
            let answer = desk.wait(&call, &theirs, timeout);
            desk.waiting.end(&theirs);
            drop(theirs);
            if !desk.ending.load(Ordering::SeqCst) {
                let _ = desk.answer(&call, answer);
            }
        });
        if thread.is_err() {
            // RLIMIT_NPROC is reached: pass on the kernel's EAGAIN.
            self.waiting.end(&connection);
            return again();
        }
        Ok(())
    }

    /// Connects until that has succeeded or failed, the program's send timeout is over, or a signal interrupts the call.
    fn wait(&self, call: &Call, connection: &Connection, timeout: Option<Duration>) -> Answer {
        let interrupted = Cell::new(None);
        let answer = connection.make(&|connect| {
            let began = Instant::now();
            let mut signals = Signals::of(call.tid);
            let mut in_progress = None;
            loop {
                let slice = Instant::now();
                let error = match connect() {
                    Err(error) if connection.goes_on(&error) => error,
                    ended => return ended,
                };
                // The first try says EINPROGRESS, the following ones EALREADY.
                let error = io::Error::from_raw_os_error(*in_progress.get_or_insert(error.raw_os_error().unwrap_or(0)));
                if timeout.is_some_and(|timeout| began.elapsed() >= timeout) {
                    return Err(error);
                }
                // A call that no longer waits takes no answer.
                let gone = || !notify::still_waits(self.listener.as_fd(), call.id);
                if let Some(errno) = signals.errno().or_else(|| gone().then_some(libc::EINTR)) {
                    // With a send timeout the kernel does not make the call again.
                    interrupted.set(Some(if timeout.is_some() { libc::EINTR } else { errno }));
                    return Err(io::Error::from_raw_os_error(libc::EINTR));
                }
                // The program may have set O_NONBLOCK or its own timeout meanwhile.
                std::thread::sleep(SLICE.saturating_sub(slice.elapsed()));
            }
        });
        interrupted.get().map_or(answer, Answer::Errno)
    }
}

/// The pending signals of a thread.
pub(super) struct Signals {
    tid: i32,
    checks: u8,
}

impl Signals {
    pub(super) fn of(tid: i32) -> Signals {
        Signals { tid, checks: 0 }
    }

    /// The answer for the thread if it has a signal that it does not block.
    ///
    /// ERESTARTSYS reaches the program if the signal turns out to be another thread's. A signal to a process with several threads
    /// is taken by one of them, and nothing in /proc says by which. So we wait whether another one takes it, which only one that
    /// waits too, or is in vfork, does not do at once; and answer EINTR, which is harmless then.
    pub(super) fn errno(&mut self) -> Option<i32> {
        self.errno_without(0)
    }

    /// The same, with the signals of a set left aside.
    pub(super) fn errno_without(&mut self, aside: u64) -> Option<i32> {
        let status = Status::of(self.tid).ok()?;
        let set = |name: &str| status.words(name)?.next().and_then(|word| u64::from_str_radix(word, 16).ok());
        let (own, shared, blocked) = (set("SigPnd")?, set("ShdPnd")?, set("SigBlk")? | aside);
        if own & !blocked != 0 {
            return Some(ERESTARTSYS);
        }
        if shared & !blocked == 0 {
            self.checks = 0;
            return None;
        }
        if status.number("Threads") == Some(1) {
            return Some(ERESTARTSYS);
        }
        self.checks = self.checks.saturating_add(1);
        let [first, others] = PATIENCE;
        let patience = if status.number("Tgid") == Some(self.tid) { first } else { others };
        (self.checks >= patience).then_some(libc::EINTR)
    }
}
