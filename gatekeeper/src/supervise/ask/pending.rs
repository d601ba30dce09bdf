//! A call that waits for its answer.

use super::Asking;
use super::act::{Action, Done};
use super::hub::{Draft, Hub, Waiter};
use super::outside::Sent;
use crate::plan::table::Decision as Ruled;
use crate::report::{Decision, Denial};
use crate::supervise::clerk::Desk;
use crate::supervise::waiting::Signals;
use crate::sys::notify::{self, Answer, Call};
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The SIGSTOP that holds the command while a question is on the terminal, as a bit of a signal set.
const SIGSTOP: u64 = 1 << (libc::SIGSTOP - 1);

/// How a call is refused if the answer is no.
pub(super) enum Refusal {
    /// As the path layers refuse it.
    Path { denial: Box<Denial>, errno: i32 },
    /// As the filter refuses it, by `on_violation`.
    Call { ruled: Ruled, path: Option<PathBuf>, host: Option<String> },
    /// By the gatekeeper inside bubblewrap, which sent the call.
    Inside(Sent),
}

impl Refusal {
    pub(super) fn carry_out(self, desk: &Desk, call: &Call) -> io::Result<()> {
        match self {
            Refusal::Path { denial, errno } => {
                // Refused whether or not that can be noted; a trail that broke is reported at the end of the run.
                let _ = desk.note(call, Some(&denial));
                desk.answer_and_record(call, Answer::Errno(errno), [*denial])
            }
            Refusal::Call { ruled, path, host } => desk.deny_found(call, ruled, path, host),
            Refusal::Inside(sent) => {
                sent.refuse();
                Ok(())
            }
        }
    }
}

pub(super) struct Pending {
    desk: Arc<Desk>,
    call: Call,
    action: Action,
    refusal: Refusal,
    /// What has to be approved after this.
    rest: Vec<Draft>,
    signals: Signals,
}

impl Pending {
    pub(super) fn new(desk: Arc<Desk>, call: Call, action: Action, refusal: Refusal, rest: Vec<Draft>) -> Pending {
        let signals = Signals::of(call.tid);
        Pending { desk, call, action, refusal, rest, signals }
    }
}

impl Waiter for Pending {
    fn gone(&mut self) -> bool {
        if !notify::still_waits(self.desk.listener.as_fd(), self.call.id) {
            return true;
        }
        // A signal ends the wait as it ends every call that can be interrupted: the kernel delivers it, and the call fails
        // with EINTR or is made again (signal(7)). Made again, it is asked again.
        let held = self.desk.hub().is_some_and(|hub| hub.holds());
        match self.signals.errno_without(if held { SIGSTOP } else { 0 }) {
            Some(errno) => {
                let _ = self.desk.answer(&self.call, Answer::Errno(errno));
                true
            }
            None => false,
        }
    }

    fn decided(self: Box<Self>, decision: Decision) {
        let mut this = self;
        if decision != Decision::Deny
            && let Some(hub) = this.desk.hub().cloned()
            && let Some(next) = this.rest.pop()
        {
            return hub.ask(next, this);
        }
        let Pending { desk, call, action, refusal, .. } = *this;
        if desk.ending.load(Ordering::SeqCst) {
            return;
        }
        // An error means that the listener is gone, and the run with it.
        let _ = match decision {
            Decision::Once | Decision::Run => desk.carry_out(&call, action),
            Decision::Deny => refusal.carry_out(&desk, &call),
        };
    }
}

/// The opens of FIFOs and devices that block a thread each.
struct Blocked;

static BLOCKED: AtomicUsize = AtomicUsize::new(0);
const MOST_BLOCKED: usize = 64;

impl Blocked {
    fn one_more() -> Option<Blocked> {
        let more = |count: usize| (count < MOST_BLOCKED).then_some(count + 1);
        BLOCKED.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).ok().map(|_| Blocked)
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        BLOCKED.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Desk {
    fn hub(&self) -> Option<&Arc<Hub>> {
        match &self.judge.asking {
            Some(Asking::Here(asking)) => Some(&asking.hub),
            _ => None,
        }
    }

    /// Carries out an approved call and answers it.
    pub(super) fn carry_out(self: &Arc<Desk>, call: &Call, action: Action) -> io::Result<()> {
        let noted = match &action {
            Action::Connect(connection) => self.note_connection(call, connection),
            _ => self.note_made(call),
        };
        if noted.is_err() {
            return self.answer(call, Answer::Errno(libc::EACCES)).map(drop);
        }
        match action {
            Action::Connect(connection) => self.connect(call, connection),
            action if action.blocks() => {
                let (desk, call) = (self.clone(), *call);
                let thread = std::thread::Builder::new().stack_size(64 * 1024);
                // A thread stays blocked after its call was killed, so a program could collect any number of them.
                let spawned = Blocked::one_more().map(|blocked| {
                    thread.spawn(move || {
                        let _ = desk.make(&call, action);
                        drop(blocked);
                    })
                });
                match spawned {
                    Some(Ok(_)) => Ok(()),
                    _ => self.answer(&call, Answer::Errno(libc::EAGAIN)).map(drop),
                }
            }
            action => self.make(call, action),
        }
    }

    fn make(&self, call: &Call, action: Action) -> io::Result<()> {
        match action.carry_out(call, &|| notify::still_waits(self.listener.as_fd(), call.id)) {
            Done::Answer(answer) => self.answer(call, answer).map(drop),
            Done::Descriptor { file, close_on_exec } => {
                match notify::give(self.listener.as_fd(), call.id, file.as_fd(), close_on_exec) {
                    Ok(_) => Ok(()),
                    // The program is at its limit of descriptors.
                    Err(error) => {
                        let errno = error.raw_os_error().unwrap_or(libc::EMFILE);
                        self.answer(call, Answer::Errno(errno)).map(drop)
                    }
                }
            }
        }
    }
}
