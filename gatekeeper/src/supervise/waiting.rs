//! Connections that block, each made on its own thread, and the signals that interrupt them.
//!
//! The filter has SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV: while we hold a call, only a fatal signal ends it. That is right for
//! calls that take microseconds, but connect(2) can wait for minutes, and programs interrupt it with SIGALRM, Ctrl-C or Ctrl-Z.
//! So we look for pending signals while a connection waits, and answer ERESTARTSYS: the kernel then delivers the signal and
//! returns EINTR or makes the call again, as it does for every interrupted connect (signal(7)).

use super::clerk::Desk;
use super::connect::Connection;
use super::status::Status;
use crate::sys::notify::{self, Answer, Call};
use std::collections::HashSet;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// The most connections that may wait at the same time. Each holds a thread and two descriptors.
const MOST_WAITING: usize = 128;
/// How often a waiting program is checked for signals.
pub(super) const INTERVAL: Duration = Duration::from_millis(20);
/// The kernel's own code, which no program sees: "make the call again, unless a handler without SA_RESTART ran".
const ERESTARTSYS: i32 = 512;
/// How many checks a signal to the whole process has to be pending before we take it for this thread's.
const PATIENCE: u8 = 3;
/// Sockets to remember that were connected while no call waited for them. A program with more of them gets EISCONN.
const MOST_CONNECTED: usize = 1024;

#[derive(Default)]
pub(super) struct Waiting(Mutex<State>);

#[derive(Default)]
struct State {
    attempts: Vec<Attempt>,
    calls: Vec<Waiter>,
    /// Inodes of sockets that an attempt connected after its call was interrupted and before it was made again.
    connected: HashSet<u64>,
}

/// A thread that makes a connection. It goes on if its call is interrupted, as a connection in the kernel does.
struct Attempt {
    /// The call for which it was started.
    id: u64,
    socket: u64,
    /// Where it connects to; `None` if a repeated call needs its own attempt.
    target: Option<Vec<u8>>,
}

/// A call that waits for an attempt.
struct Waiter {
    id: u64,
    tid: i32,
    attempt: u64,
    checks: u8,
}

impl Waiting {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.state().calls.is_empty()
    }
}

impl Desk {
    /// Makes a connection, on a separate thread if it can block: its peer may itself wait for an answer of this thread.
    pub(super) fn connect(self: &Arc<Desk>, call: &Call, connection: Connection) -> io::Result<()> {
        if !connection.waits() {
            return self.answer(call, connection.make()).map(drop);
        }
        let again = || self.answer(call, Answer::Errno(libc::EAGAIN)).map(drop);
        let Ok(socket) = connection.inode() else { return again() };
        let target = connection.target();
        let mut state = self.waiting.state();
        let running = |attempt: &&Attempt| attempt.socket == socket && target.is_some() && attempt.target == target;
        let waiter = |attempt| Waiter { id: call.id, tid: call.tid, attempt, checks: 0 };
        // The call was interrupted and is made again: the attempt goes on, and will answer this one.
        if let Some(attempt) = state.attempts.iter().find(running).map(|attempt| attempt.id) {
            state.calls.push(waiter(attempt));
            return Ok(());
        }
        if state.attempts.len() >= MOST_WAITING {
            return again();
        }
        state.attempts.push(Attempt { id: call.id, socket, target });
        state.calls.push(waiter(call.id));
        let (desk, id) = (self.clone(), call.id);
        let thread = std::thread::Builder::new().stack_size(64 * 1024).spawn(move || {
            let answer = connection.make();
            desk.finish_attempt(id, socket, answer);
        });
        if thread.is_err() {
            // RLIMIT_NPROC is reached: pass on the kernel's EAGAIN.
            state.attempts.retain(|attempt| attempt.id != id);
            state.calls.retain(|waiter| waiter.id != id);
            return again();
        }
        Ok(())
    }

    /// Answers the call that waits for an attempt. If there is none because a signal interrupted it, a socket that is connected now
    /// is remembered: the kernel answers 0, not EISCONN, when such a call is made again.
    fn finish_attempt(&self, id: u64, socket: u64, answer: Answer) {
        let mut state = self.waiting.state();
        state.attempts.retain(|attempt| attempt.id != id);
        let answer = match answer {
            Answer::Errno(libc::EISCONN) if state.connected.remove(&socket) => Answer::Value(0),
            answer => answer,
        };
        // Answer with the lock held: `interrupt_signalled` must not take an answered call for an interrupted one.
        let mut answered = false;
        state.calls.retain(|waiter| {
            let waits = waiter.attempt == id;
            answered |= waits && notify::answer(self.listener.as_fd(), waiter.id, answer).is_ok_and(|taken| taken);
            !waits
        });
        if !answered && answer == Answer::Value(0) && state.connected.len() < MOST_CONNECTED {
            state.connected.insert(socket);
        }
    }

    /// Answers the waiting connections of threads that have a signal to handle.
    pub(super) fn interrupt_signalled(&self) {
        let mut state = self.waiting.state();
        state.calls.retain_mut(|waiter| {
            // Gone: the process died or, before Linux 5.19, the kernel interrupted the call itself.
            if !notify::still_waits(self.listener.as_fd(), waiter.id) {
                return false;
            }
            let interrupted = waiter.has_signal();
            if interrupted {
                let _ = notify::answer(self.listener.as_fd(), waiter.id, Answer::Errno(ERESTARTSYS));
            }
            !interrupted
        });
    }
}

impl Waiter {
    /// Whether the thread has a signal that it does not block. A signal to the whole process counts only if no other thread takes
    /// it within a few checks: ERESTARTSYS without a signal for this thread would reach the program.
    fn has_signal(&mut self) -> bool {
        let Ok(status) = Status::of(self.tid) else { return false };
        let set = |name: &str| status.words(name)?.next().and_then(|word| u64::from_str_radix(word, 16).ok());
        let (Some(own), Some(shared), Some(blocked)) = (set("SigPnd"), set("ShdPnd"), set("SigBlk")) else {
            return false;
        };
        if own & !blocked != 0 {
            return true;
        }
        self.checks = if shared & !blocked != 0 { self.checks.saturating_add(1) } else { 0 };
        self.checks > 0 && (status.number("Threads") == Some(1) || self.checks >= PATIENCE)
    }
}
