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
/// Interrupted sockets to remember. A program that makes more of them gets EISCONN where it expects success.
const MOST_INTERRUPTED: usize = 1024;

#[derive(Default)]
pub(super) struct Waiting(Mutex<State>);

#[derive(Default)]
struct State {
    threads: usize,
    calls: Vec<Waiter>,
    /// Inodes of sockets whose call was interrupted while our thread was still connecting them.
    interrupted: HashSet<u64>,
}

struct Waiter {
    id: u64,
    tid: i32,
    socket: u64,
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
        {
            let mut state = self.waiting.state();
            if state.threads >= MOST_WAITING {
                return again();
            }
            state.threads += 1;
            state.calls.push(Waiter { id: call.id, tid: call.tid, socket, checks: 0 });
        }
        let (desk, id) = (self.clone(), call.id);
        let thread = std::thread::Builder::new().stack_size(64 * 1024).spawn(move || {
            let answer = connection.make();
            desk.connected(id, socket, answer);
        });
        if thread.is_err() {
            // RLIMIT_NPROC is reached: pass on the kernel's EAGAIN.
            self.waiting.state().forget(id);
            return again();
        }
        Ok(())
    }

    fn connected(&self, id: u64, socket: u64, answer: Answer) {
        let mut state = self.waiting.state();
        state.forget(id);
        // The call was interrupted and made again, and the thread of the first try connected the socket meanwhile. The kernel
        // answers 0 to that, because it knows that the same connection was in progress.
        let retried = answer == Answer::Errno(libc::EISCONN) && state.interrupted.remove(&socket);
        let answer = if retried { Answer::Value(0) } else { answer };
        // Answer with the lock held: `interrupt_signalled` must not mark a socket as interrupted after it was answered.
        let _ = notify::answer(self.listener.as_fd(), id, answer);
    }

    /// Answers the waiting connections of threads that have a signal to handle.
    pub(super) fn interrupt_signalled(&self) {
        let mut state = self.waiting.state();
        let State { calls, interrupted, .. } = &mut *state;
        calls.retain_mut(|waiter| {
            let gone = !notify::still_waits(self.listener.as_fd(), waiter.id);
            if !gone && !waiter.has_signal() {
                return true;
            }
            if !gone {
                let _ = notify::answer(self.listener.as_fd(), waiter.id, Answer::Errno(ERESTARTSYS));
            }
            // Kernels before 5.19 interrupt the call themselves.
            if interrupted.len() < MOST_INTERRUPTED {
                interrupted.insert(waiter.socket);
            }
            false
        });
    }
}

impl State {
    /// A thread has ended; its call is answered or was interrupted before.
    fn forget(&mut self, id: u64) {
        self.threads -= 1;
        self.calls.retain(|waiter| waiter.id != id);
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
