//! Questions and answers as JSON lines, on a socket or a pair of pipes.
//!
//! A line that cannot be read, or that names a question which was never asked, means that the other side does not follow:
//! everything that waits is denied. An answer that comes too late is ignored. If the other side closes its end, everything
//! is denied, now and later.

use super::hub::{Answerer, Reply};
use crate::report::{Because, Decision, Question};
use crate::sys::signals;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::{FileType, OFlags};
use rustix::net::SendFlags;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// The longest answer.
const LONGEST: usize = 64 * 1024;
/// A pipe that polls as writable takes this much without blocking (pipe(7)).
const PIECE: usize = 4096;
/// How much may wait to be read on the other side. A program can have its questions interrupted and asked again all the time.
const MOST_UNREAD: usize = 1 << 20;
/// How long the end of a run waits until the last lines are written.
const FLUSH: Duration = Duration::from_millis(500);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    id: u64,
    decision: Decision,
}

/// The two directions, which may be one descriptor.
struct Ends {
    answers: OwnedFd,
    questions: OwnedFd,
}

pub struct Lines {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    bell: OwnedFd,
    written: Condvar,
}

#[derive(Default)]
struct State {
    waiting: BTreeMap<u64, Reply>,
    last: u64,
    out: Vec<u8>,
    closed: bool,
    over: bool,
}

impl Lines {
    /// Takes one descriptor that can be read and written, or two of which one can be read and the other written.
    pub fn new(mut descriptors: Vec<OwnedFd>) -> Result<Lines, String> {
        let mode = |fd: &OwnedFd| rustix::fs::fcntl_getfl(fd).map(|flags| flags & OFlags::RWMODE);
        let second = (descriptors.len() > 1).then(|| descriptors.pop()).flatten();
        let Some(first) = descriptors.pop() else { return Err("no descriptor".to_owned()) };
        let io = |error: io::Error| error.to_string();
        let ends = match (mode(&first).map_err(|error| io(error.into()))?, second) {
            (OFlags::RDWR, None) => Ends { questions: first.try_clone().map_err(io)?, answers: first },
            (_, None) => {
                return Err("it can only be read or only be written; give a socket, or both ends: --ask-fd READ,WRITE"
                    .to_owned());
            }
            (one, Some(second)) => match (one, mode(&second).map_err(|error| io(error.into()))?) {
                (OFlags::WRONLY, OFlags::RDONLY) => Ends { questions: first, answers: second },
                (OFlags::RDONLY | OFlags::RDWR, OFlags::WRONLY | OFlags::RDWR) => {
                    Ends { answers: first, questions: second }
                }
                _ => return Err("of two descriptors, one has to be readable and the other writable".to_owned()),
            },
        };
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|error| io(error.into()))?;
        let shared = Arc::new(Shared { state: Mutex::default(), bell, written: Condvar::new() });
        let serving = shared.clone();
        let thread = std::thread::Builder::new().name("questions".to_owned()).stack_size(256 * 1024);
        thread.spawn(move || serving.serve(&ends)).map_err(io)?;
        Ok(Lines { shared })
    }
}

impl Answerer for Lines {
    fn ask(&self, question: &Question, reply: Reply) {
        let mut state = self.shared.state();
        if state.closed || state.out.len() > MOST_UNREAD {
            drop(state);
            return reply.deny(Because::Closed);
        }
        state.last = question.id;
        state.waiting.insert(question.id, reply);
        state.write(&serde_json::to_value(question).unwrap_or_default());
        drop(state);
        self.shared.ring();
    }

    fn withdrawn(&self, id: u64) {
        let mut state = self.shared.state();
        if state.waiting.remove(&id).is_some() {
            state.write(&serde_json::json!({"id": id, "withdrawn": true}));
        }
        drop(state);
        self.shared.ring();
    }

    fn finish(&self) {
        let mut state = self.shared.state();
        state.over = true;
        self.shared.ring();
        let unwritten = |state: &mut State| !state.out.is_empty() && !state.closed;
        drop(self.shared.written.wait_timeout_while(state, FLUSH, unwritten));
    }
}

impl State {
    fn write(&mut self, value: &serde_json::Value) {
        self.out.extend_from_slice(value.to_string().as_bytes());
        self.out.push(b'\n');
    }

    fn deny_all(&mut self, because: Because) {
        std::mem::take(&mut self.waiting).into_values().for_each(|reply| reply.deny(because));
    }

    /// Handles one answer.
    fn hear(&mut self, line: &[u8]) {
        if line.trim_ascii().is_empty() {
            return;
        }
        // serde takes a list of its values for a struct, too.
        let parsed = line.trim_ascii_start().starts_with(b"{").then(|| serde_json::from_slice::<Line>(line));
        match parsed {
            // Cut off: what follows is not known.
            _ if line.len() > LONGEST => self.deny_all(Because::Invalid),
            Some(Ok(Line { id, decision })) => match self.waiting.remove(&id) {
                Some(reply) => reply.decide(decision),
                // Asked once, and withdrawn or denied by the time limit meanwhile.
                None if (1..=self.last).contains(&id) => {}
                None => self.deny_all(Because::Invalid),
            },
            _ => self.deny_all(Because::Invalid),
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn ring(&self) {
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    fn serve(&self, ends: &Ends) {
        // This thread starts before gatekeeper takes its signals over. One that it gets here would end the process.
        let _ = signals::block_all();
        let is_socket =
            |fd: &OwnedFd| rustix::fs::fstat(fd).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_socket());
        let socket = is_socket(&ends.questions);
        let mut line = Vec::new();
        loop {
            let writes = {
                let state = self.state();
                if state.over && (state.out.is_empty() || state.closed) {
                    return;
                }
                !state.out.is_empty()
            };
            let wanted = if writes { PollFlags::OUT } else { PollFlags::empty() };
            let mut polled = [
                PollFd::new(&self.bell, PollFlags::IN),
                PollFd::new(&ends.answers, PollFlags::IN),
                PollFd::new(&ends.questions, wanted),
            ];
            let _ = poll(&mut polled, None);
            let [bell, answers, questions] = polled.map(|fd| fd.revents());
            if !bell.is_empty() {
                let _ = rustix::io::read(&self.bell, &mut [0u8; 8]);
            }
            let read = answers.is_empty() || self.read(&ends.answers, &mut line);
            let broken = questions.intersects(PollFlags::ERR | PollFlags::NVAL);
            let written = !broken && (!questions.contains(PollFlags::OUT) || self.write(&ends.questions, socket));
            if !read || !written {
                return self.close();
            }
        }
    }

    /// Reads what is there. `false` at the end.
    fn read(&self, answers: &OwnedFd, line: &mut Vec<u8>) -> bool {
        let mut block = [0u8; PIECE];
        let count = match rustix::io::read(answers, &mut block) {
            Ok(count) => count,
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => return true,
            Err(_) => 0,
        };
        let mut state = self.state();
        for byte in block.get(..count).unwrap_or_default() {
            if *byte == b'\n' {
                state.hear(&std::mem::take(line));
            } else if line.len() <= LONGEST {
                line.push(*byte);
            }
        }
        if count == 0 && !line.is_empty() {
            state.hear(&std::mem::take(line));
        }
        count > 0
    }

    /// Writes a piece. `false` if the other side is gone.
    fn write(&self, questions: &OwnedFd, socket: bool) -> bool {
        let mut state = self.state();
        let piece = state.out.get(..PIECE.min(state.out.len())).unwrap_or_default();
        let written = match socket {
            true => rustix::net::send(questions, piece, SendFlags::DONTWAIT | SendFlags::NOSIGNAL),
            false => rustix::io::write(questions, piece),
        };
        match written {
            Ok(count) => {
                state.out.drain(..count);
                self.written.notify_all();
                true
            }
            Err(error) => matches!(error, rustix::io::Errno::AGAIN | rustix::io::Errno::INTR),
        }
    }

    fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.deny_all(Because::Closed);
        self.written.notify_all();
    }
}
