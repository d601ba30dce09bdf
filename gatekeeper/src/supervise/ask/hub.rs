//! The questions of a run: which ones wait, who waits for them, and what was approved for the rest of the run.
//!
//! Any thread may ask. One thread of the hub hands out decisions, counts the time, and notices calls that no longer wait.
//! The hub knows nothing about calls or terminals: a [`Waiter`] gets the decision, an [`Answerer`] gives it.

use super::approved::{Approved, Subject};
use crate::audit::{self, Audit, Kind};
use crate::report::{Asked, Because, Decision, Question};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

/// Questions that are asked at the same time. Further ones wait until one of these is answered.
pub const MOST_ASKED: usize = 64;
/// Calls that wait, for the same question or for others. Each holds up to two descriptors of the supervisor, which usually may
/// have 1024, so there is an end: further ones are denied.
const MOST_WAITING: usize = 300;
/// The most questions that the report keeps.
const MOST_KEPT: usize = 1000;
/// How often to look whether a call was interrupted.
const SLICE: Duration = Duration::from_millis(20);
/// The queue may be long, and is looked through only at every tenth look.
const SELDOM: u64 = 10;
const STACK: usize = 512 * 1024;

/// Gives the answers: a terminal, a descriptor, a callback.
pub trait Answerer: Send + Sync {
    /// Shows a question. Must not block: the answer comes through `reply`, from any thread.
    fn ask(&self, question: &Question, reply: Reply);

    /// The question needs no answer any more.
    fn withdrawn(&self, id: u64);

    /// The command runs below this process, until this time.
    fn started(&self, _guardian: i32, _until: Option<Instant>) {}

    /// Whether the command is stopped because a question is on the terminal.
    fn holds(&self) -> bool {
        false
    }

    /// No more questions will come.
    fn finish(&self) {}
}

/// Waits for a decision.
pub trait Waiter: Send {
    /// Whether it no longer waits. A call that a signal interrupted is answered here.
    fn gone(&mut self) -> bool;

    fn decided(self: Box<Self>, decision: Decision);
}

/// A question before it has a number, and what an answer of `run` approves.
pub struct Draft {
    pub question: Question,
    pub subjects: Vec<Subject>,
}

/// The handle by which a question is answered. Dropping it leaves the question to the time limit.
#[derive(Clone)]
pub struct Reply {
    hub: Weak<Hub>,
    id: u64,
}

impl Reply {
    pub fn decide(&self, decision: Decision) {
        self.settle(decision, Because::Answer);
    }

    /// Denies it, because the answer could not be read or nobody can answer.
    pub fn deny(&self, because: Because) {
        self.settle(Decision::Deny, because);
    }

    /// Denies every question that is asked from now on, without asking.
    pub fn close(&self) {
        if let Some(hub) = self.hub.upgrade() {
            hub.state().closed = true;
            hub.wake();
        }
    }

    fn settle(&self, decision: Decision, because: Because) {
        if let Some(hub) = self.hub.upgrade() {
            hub.state().settled.push((self.id, decision, because));
            hub.wake();
        }
    }
}

pub struct Hub {
    state: Mutex<State>,
    /// An eventfd that wakes the thread.
    bell: OwnedFd,
    patience: Duration,
    answerer: Arc<dyn Answerer>,
    audit: Option<Arc<Audit>>,
}

#[derive(Default)]
struct State {
    last: u64,
    asked: Vec<Entry>,
    queue: VecDeque<Entry>,
    settled: Vec<(u64, Decision, Because)>,
    approved: Approved,
    /// Nobody answers any more: everything is denied without asking.
    closed: bool,
    /// The run has ended.
    over: bool,
    log: Vec<Asked>,
}

struct Entry {
    draft: Draft,
    since: Instant,
    waiters: Vec<Box<dyn Waiter>>,
}

impl Hub {
    /// Starts the thread that hands out decisions.
    pub fn start(answerer: Arc<dyn Answerer>, patience: Duration, audit: Option<Arc<Audit>>) -> io::Result<Arc<Hub>> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let hub = Arc::new(Hub { state: Mutex::default(), bell, patience, answerer, audit });
        let serving = hub.clone();
        std::thread::Builder::new().name("asker".to_owned()).stack_size(STACK).spawn(move || serving.serve())?;
        Ok(hub)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn wake(&self) {
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// Whether all of this was approved for the run.
    pub fn approves(
        &self,
        subjects: &[Subject],
        closed: &dyn Fn(&std::path::Path) -> Option<std::path::PathBuf>,
    ) -> bool {
        let state = self.state();
        !subjects.is_empty() && subjects.iter().all(|subject| state.approved.covers(subject, closed))
    }

    pub fn started(&self, guardian: i32, until: Option<Instant>) {
        self.answerer.started(guardian, until);
    }

    pub fn holds(&self) -> bool {
        self.answerer.holds()
    }

    /// Asks, and has the waiter wait. A question that waits already is not asked again: its answer holds for both.
    pub fn ask(self: &Arc<Hub>, draft: Draft, waiter: Box<dyn Waiter>) {
        let mut state = self.state();
        if state.closed || state.over || state.waiting() >= MOST_WAITING {
            drop(state);
            return waiter.decided(Decision::Deny);
        }
        let State { asked, queue, .. } = &mut *state;
        if let Some(same) = asked.iter_mut().chain(queue).find(|entry| same(&entry.draft, &draft)) {
            same.waiters.push(waiter);
            return;
        }
        state.queue.push_back(Entry { draft, since: Instant::now(), waiters: vec![waiter] });
        drop(state);
        self.wake();
    }

    fn serve(self: Arc<Hub>) {
        for turn in 0u64.. {
            let idle = {
                let state = self.state();
                if state.over {
                    return;
                }
                state.asked.is_empty() && state.queue.is_empty()
            };
            let wait = (!idle).then(|| Timespec { tv_sec: 0, tv_nsec: SLICE.as_nanos() as i64 });
            let mut polled = [PollFd::new(&self.bell, PollFlags::IN)];
            let _ = poll(&mut polled, wait.as_ref());
            let _ = rustix::io::read(&self.bell, &mut [0u8; 8]);
            self.settle();
            self.withdraw(turn % SELDOM == 0);
            self.issue();
        }
    }

    /// Hands out what was decided, and denies what has waited too long.
    fn settle(&self) {
        let mut done = Vec::new();
        let mut state = self.state();
        let mut settled = std::mem::take(&mut state.settled);
        let late = state.asked.iter().filter(|entry| entry.since.elapsed() >= self.patience);
        settled.extend(late.map(|entry| (entry.draft.question.id, Decision::Deny, Because::Timeout)));
        for (id, decision, because) in settled {
            let Some(at) = state.asked.iter().position(|entry| entry.draft.question.id == id) else { continue };
            let entry = state.asked.remove(at);
            let decision = self.noted(&entry.draft.question, decision, because);
            if decision == Decision::Run {
                entry.draft.subjects.iter().for_each(|subject| state.approved.add(subject));
            }
            state.note(&entry.draft.question, decision, because);
            done.push((entry, decision, because));
        }
        if state.closed {
            let unasked: Vec<Entry> = state.queue.drain(..).collect();
            done.extend(unasked.into_iter().map(|entry| (entry, Decision::Deny, Because::Answer)));
        }
        drop(state);
        for (entry, decision, because) in done {
            if because == Because::Timeout {
                self.answerer.withdrawn(entry.draft.question.id);
            }
            entry.waiters.into_iter().for_each(|waiter| waiter.decided(decision));
        }
    }

    /// Notes a question and its answer in the audit trail. What cannot be noted is denied.
    fn noted(&self, question: &Question, decision: Decision, because: Because) -> Decision {
        let Some(audit) = &self.audit else { return decision };
        let word = |value: serde_json::Result<serde_json::Value>| value.unwrap_or_default();
        let line = audit::Entry::decided(Kind::Asked, decision != Decision::Deny)
            .with("syscall", question.syscall.as_str())
            .with("access", question.access.word())
            .with("path", question.path.clone())
            .with("host", question.host.clone())
            .with("method", question.method.clone())
            .with("answer", word(serde_json::to_value(decision)))
            .with("because", word(serde_json::to_value(because)))
            .with("rule", question.rule.as_str());
        match audit.note(line.with("pid", question.pid).with("comm", question.comm.as_str())) {
            Ok(()) => decision,
            Err(_) => Decision::Deny,
        }
    }

    /// Withdraws the questions for which nothing waits any more.
    fn withdraw(&self, queued_too: bool) {
        let left = |entry: &mut Entry| {
            entry.waiters.retain_mut(|waiter| !waiter.gone());
            !entry.waiters.is_empty()
        };
        let mut state = self.state();
        let (kept, gone): (Vec<Entry>, Vec<Entry>) =
            state.asked.drain(..).map(|mut entry| (left(&mut entry), entry)).fold(Default::default(), sorted);
        state.asked = kept;
        if queued_too {
            state.queue.retain_mut(left);
        }
        for entry in &gone {
            state.note(&entry.draft.question, Decision::Deny, Because::Withdrawn);
            self.noted(&entry.draft.question, Decision::Deny, Because::Withdrawn);
        }
        drop(state);
        gone.iter().for_each(|entry| self.answerer.withdrawn(entry.draft.question.id));
    }

    /// Asks what waits in the queue, as far as there is room.
    fn issue(self: &Arc<Hub>) {
        loop {
            let mut state = self.state();
            if state.asked.len() >= MOST_ASKED {
                return;
            }
            let Some(mut entry) = state.queue.pop_front() else { return };
            state.last += 1;
            entry.draft.question.id = state.last;
            entry.since = Instant::now();
            let question = entry.draft.question.clone();
            state.asked.push(entry);
            drop(state);
            self.answerer.ask(&question, Reply { hub: Arc::downgrade(self), id: question.id });
        }
    }

    /// Ends the thread. Nothing was asked, and the answerer serves another run.
    pub fn abandon(&self) {
        let mut state = self.state();
        (state.over, state.closed) = (true, true);
        drop(state);
        self.wake();
    }

    /// Ends the questions with the run, and returns all that were asked.
    pub fn finish(&self) -> Vec<Asked> {
        let mut state = self.state();
        let open: Vec<Entry> = state.asked.drain(..).collect();
        for entry in &open {
            state.note(&entry.draft.question, Decision::Deny, Because::Withdrawn);
            self.noted(&entry.draft.question, Decision::Deny, Because::Withdrawn);
        }
        state.queue.clear();
        (state.over, state.closed) = (true, true);
        let log = std::mem::take(&mut state.log);
        drop(state);
        open.iter().for_each(|entry| self.answerer.withdrawn(entry.draft.question.id));
        self.wake();
        self.answerer.finish();
        log
    }
}

impl State {
    fn waiting(&self) -> usize {
        self.asked.iter().chain(&self.queue).map(|entry| entry.waiters.len()).sum()
    }

    fn note(&mut self, question: &Question, decision: Decision, because: Because) {
        if self.log.len() < MOST_KEPT {
            self.log.push(Asked { question: question.clone(), decision, because });
        }
    }
}

/// Whether two questions ask the same. The process may differ: a program that starts itself ten times asks once.
fn same(one: &Draft, other: &Draft) -> bool {
    let plain = |draft: &Draft| Question { id: 0, pid: 0, ..draft.question.clone() };
    // Paths that are not UTF-8 may look the same in the question.
    one.subjects == other.subjects && plain(one) == plain(other)
}

fn sorted((mut kept, mut gone): (Vec<Entry>, Vec<Entry>), (keep, entry): (bool, Entry)) -> (Vec<Entry>, Vec<Entry>) {
    if keep {
        kept.push(entry)
    } else {
        gone.push(entry)
    }
    (kept, gone)
}
