//! One client: reads its lines, runs what it asks for, at most [`AT_ONCE`] at a time, and writes the answers.
//!
//! The end of its input means that nothing more will be asked: what was asked is carried out and answered. A client that no
//! longer reads the answers has gone, and everything that it asked for ends.

use super::lines::{LONGEST, Read, next_line};
use super::order::{Line, Order, Wrong, parse};
use super::output::{Output, Queued};
use super::questions::Questions;
use super::{Requests, stream};
use crate::report::{Because, Decision, Report};
use crate::sandbox::{Sandbox, cancelled};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use serde_json::{Value, json};
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, BufReader};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// How many commands of one client run at the same time. Further ones wait.
const AT_ONCE: usize = 256;
/// How many of one client's orders wait. When so many do, no further line is read.
const WAITING: usize = 1024;
/// The stack of a thread that only writes.
const SMALL: usize = 128 << 10;

pub(super) struct Session {
    requests: Requests,
    output: Output,
    state: Mutex<State>,
    work: Condvar,
    room: Condvar,
}

#[derive(Default)]
struct State {
    /// What was asked and is not answered yet, by the JSON of its id.
    active: HashMap<String, Active>,
    waiting: VecDeque<Box<Order>>,
    workers: usize,
    idle: usize,
    /// No more orders will come.
    closed: bool,
    /// Nothing reads the answers.
    gone: bool,
}

struct Active {
    /// Writing to it ends the run.
    cancel: OwnedFd,
    cancelled: bool,
    /// If it asks, once it runs.
    questions: Option<Arc<Questions>>,
}

impl Session {
    pub(super) fn new(output: File, requests: Requests) -> Arc<Session> {
        let (state, work, room) = Default::default();
        Arc::new(Session { requests, output: Output::new(output), state, work, room })
    }

    /// Serves the client until its input has ended and its runs have ended.
    pub(super) fn serve(self: &Arc<Session>, input: File) -> io::Result<()> {
        let done = eventfd(0, EventfdFlags::CLOEXEC)?;
        let output = self.output.copy()?;
        let (session, stop) = (self.clone(), done.try_clone()?);
        let watcher = std::thread::Builder::new().spawn(move || session.watch(&output, &stop))?;
        let read = self.read(input);
        let mut state = locked(&self.state);
        state.closed = true;
        // No more answers come either.
        let asking: Vec<Arc<Questions>> = state.active.values().filter_map(|active| active.questions.clone()).collect();
        drop(state);
        asking.iter().for_each(|questions| questions.close());
        let mut state = locked(&self.state);
        self.work.notify_all();
        while state.workers > 0 {
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        let _ = self.output.finish();
        rustix::io::write(&done, &1u64.to_ne_bytes())?;
        let _ = watcher.join();
        read
    }

    /// Ends everything once nothing reads the answers.
    fn watch(&self, output: &File, stop: &OwnedFd) {
        loop {
            let mut polled = [PollFd::new(output, PollFlags::empty()), PollFd::new(stop, PollFlags::IN)];
            match poll(&mut polled, None) {
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return,
                Ok(_) => {}
            }
            if !polled[0].revents().is_empty() {
                return self.abandon();
            }
            if !polled[1].revents().is_empty() {
                return;
            }
        }
    }

    fn abandon(&self) {
        let mut state = locked(&self.state);
        state.gone = true;
        state.waiting.clear();
        state.active.values_mut().for_each(Active::end);
        self.room.notify_all();
        self.output.close();
    }

    fn read(self: &Arc<Session>, input: File) -> io::Result<()> {
        let mut input = BufReader::with_capacity(1 << 16, input);
        let mut line = Vec::new();
        loop {
            match next_line(&mut input, &mut line)? {
                Read::End => return Ok(()),
                Read::TooLong => {
                    let error = format!("the line is longer than {LONGEST} bytes");
                    self.tell(&json!({"id": null, "error": error}));
                    self.deny_waiting(&Value::Null);
                }
                Read::Line if line.trim_ascii().is_empty() => {}
                Read::Line => match parse(line.trim_ascii()) {
                    Ok(Line::Run(order)) => self.take(order),
                    Ok(Line::Cancel(id)) => self.cancel(&id),
                    Ok(Line::Answer { id, question, decision }) => self.hear(&id, question, decision),
                    Err(Wrong { id, error }) => {
                        self.tell(&json!({"id": id, "error": error}));
                        self.deny_waiting(&id);
                    }
                },
            }
            if locked(&self.state).gone {
                return Ok(());
            }
        }
    }

    /// Puts an order into the queue, and waits until the queue has room for another.
    fn take(self: &Arc<Session>, order: Box<Order>) {
        let id = order.id.clone();
        let mut state = locked(&self.state);
        let error = match (
            state.active.contains_key(&id.to_string()),
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK),
        ) {
            (true, _) => Some("a run with this id has not ended yet".to_owned()),
            (false, Err(error)) => Some(format!("start: {error}; raise ulimit -n")),
            (false, Ok(cancel)) => {
                state.active.insert(id.to_string(), Active { cancel, cancelled: false, questions: None });
                None
            }
        };
        if let Some(error) = error {
            drop(state);
            return self.tell(&json!({"id": id, "error": error}));
        }
        state.waiting.push_back(order);
        if state.idle < state.waiting.len() && state.workers < AT_ONCE {
            let session = self.clone();
            match std::thread::Builder::new().stack_size(512 << 10).spawn(move || session.work()) {
                Ok(_) => state.workers += 1,
                Err(error) if state.workers == 0 => {
                    state.waiting.pop_back();
                    state.active.remove(&id.to_string());
                    drop(state);
                    return self.tell(&json!({"id": id, "error": format!("start: {error}")}));
                }
                // The order waits for one of the others.
                Err(_) => {}
            }
        }
        self.work.notify_one();
        while state.waiting.len() >= WAITING && !state.gone {
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// An answer to a question of a run.
    fn hear(self: &Arc<Session>, id: &Value, question: u64, decision: Decision) {
        let asking = locked(&self.state).active.get(&id.to_string()).map(|active| active.questions.clone());
        let heard = match &asking {
            Some(Some(questions)) => questions.answer(question, decision),
            Some(None) => Err("answer: this run has asked nothing".to_owned()),
            // The run ended meanwhile.
            None => Ok(()),
        };
        if let Err(error) = heard {
            self.tell(&json!({"id": id, "error": error}));
            self.deny_waiting(id);
        }
    }

    /// A line that cannot be understood may have been an answer: what waits is denied, in the run that the line names, or in
    /// all of them if it names none. The client is told first, so that the error comes before the report of a run that this ends.
    fn deny_waiting(&self, id: &Value) {
        let wanted = (!id.is_null()).then(|| id.to_string());
        let state = locked(&self.state);
        let named = |key: &&String| wanted.as_ref().is_none_or(|wanted| wanted == *key);
        let asking =
            state.active.iter().filter(|(key, _)| named(key)).filter_map(|(_, active)| active.questions.clone());
        let asking: Vec<Arc<Questions>> = asking.collect();
        drop(state);
        asking.iter().for_each(|questions| questions.deny(Because::Invalid));
    }

    fn cancel(self: &Arc<Session>, id: &Value) {
        let mut state = locked(&self.state);
        let key = id.to_string();
        let queued = state.waiting.iter().position(|order| order.id == *id);
        let error = match state.active.get_mut(&key) {
            None => "no run with this id",
            Some(active) => {
                active.end();
                let Some(at) = queued else { return };
                state.waiting.remove(at);
                state.active.remove(&key);
                self.room.notify_all();
                "cancelled before it started"
            }
        };
        drop(state);
        self.tell(&json!({"id": id, "error": error}));
    }

    /// Carries out orders until no more will come.
    fn work(self: Arc<Session>) {
        let mut state = locked(&self.state);
        loop {
            if let Some(order) = state.waiting.pop_front() {
                self.room.notify_all();
                drop(state);
                self.carry_out(&order);
                state = locked(&self.state);
            } else if state.closed || state.gone {
                break;
            } else {
                state.idle += 1;
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
        state.workers -= 1;
        self.room.notify_all();
    }

    fn carry_out(self: &Arc<Session>, order: &Order) {
        let key = order.id.to_string();
        let cancel = locked(&self.state).active.get(&key).and_then(|active| active.cancel.try_clone().ok());
        let ended = match ((self.requests)(order), cancel) {
            (Err(error), _) => Err(error),
            (_, None) => Err("start: too few descriptors; raise ulimit -n".to_owned()),
            (Ok(request), Some(cancel)) => {
                let asks = request.ask.is_some();
                let mut sandbox = Sandbox::of(request, order.stdin.clone().into_bytes());
                if asks {
                    let questions = Arc::new(Questions::new(Arc::downgrade(self), order.id.clone()));
                    let mut state = locked(&self.state);
                    let (gone, closed) = (state.gone, state.closed);
                    if let Some(active) = state.active.get_mut(&key) {
                        active.questions = Some(questions.clone());
                    }
                    drop(state);
                    if gone || closed {
                        questions.close();
                    }
                    sandbox = sandbox.asking(questions);
                }
                Ok(if order.stream {
                    stream::run(sandbox, cancel, &|event| self.send(&order.id, event))
                } else {
                    sandbox.run_until(cancel)
                })
            }
        };
        // The id is free again when the client reads the answer.
        let active = locked(&self.state).active.remove(&key);
        let is_cancelled = active.is_some_and(|active| active.cancelled);
        match ended {
            Ok(report) => self.report(&order.id, if is_cancelled { cancelled(report) } else { report }),
            Err(error) => self.answer(&json!({"id": order.id, "error": error})),
        }
    }

    pub(super) fn send(&self, id: &Value, mut event: Value) {
        if let Some(event) = event.as_object_mut() {
            event.shift_insert(0, "id".to_owned(), id.clone());
        }
        self.answer(&event);
    }

    fn report(&self, id: &Value, report: Report) {
        #[derive(serde::Serialize)]
        struct Answer<'a> {
            id: &'a Value,
            report: Report,
        }
        let line = serde_json::to_vec(&Answer { id, report });
        self.write(line.unwrap_or_else(|error| json!({"id": id, "error": error.to_string()}).to_string().into_bytes()));
    }

    fn answer(&self, answer: &Value) {
        self.write(answer.to_string().into_bytes());
    }

    /// Writes one line. Waits if the client does not read; then its commands wait too.
    fn write(&self, line: Vec<u8>) {
        if self.output.write(line).is_err() {
            self.abandon();
        }
    }

    /// Answers from the thread that reads. It does not wait for the client to read: the client may read nothing before it has sent its next
    /// order, and then both would wait.
    fn tell(self: &Arc<Session>, answer: &Value) {
        if self.output.queue(answer.to_string().into_bytes()) == Queued::WithoutWriter {
            let session = self.clone();
            let writer = std::thread::Builder::new().stack_size(SMALL).spawn(move || session.write_queued());
            if writer.is_err() {
                self.output.has_no_writer();
                if self.output.flush().is_err() {
                    self.abandon();
                }
            }
        }
    }

    /// Writes what the reading thread answers.
    fn write_queued(&self) {
        while self.output.wait() {
            if self.output.flush().is_err() {
                return self.abandon();
            }
        }
    }
}

impl Active {
    fn end(&mut self) {
        self.cancelled = true;
        let _ = rustix::io::write(&self.cancel, &1u64.to_ne_bytes());
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
