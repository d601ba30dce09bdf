//! The questions of one run, put to the client.
//!
//! An answer that cannot be read, or that names a question which was never asked, means that the client does not follow:
//! everything that waits in that run is denied. An answer that comes too late is ignored.

use super::session::Session;
use crate::report::{Because, Decision, Question};
use crate::supervise::ask::hub::{Answerer, Reply};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

pub(super) struct Questions {
    session: Weak<Session>,
    /// The id of the run.
    run: Value,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: BTreeMap<u64, Reply>,
    last: u64,
    /// The client has gone.
    closed: bool,
}

impl Questions {
    pub(super) fn new(session: Weak<Session>, run: Value) -> Questions {
        Questions { session, run, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, ask: Value) {
        match self.session.upgrade() {
            Some(session) => session.send(&self.run, json!({ "ask": ask })),
            None => self.close(),
        }
    }

    /// Takes an answer. An error if no such question was asked; then everything that waits is to be denied.
    pub(super) fn answer(&self, question: u64, decision: Decision) -> Result<(), String> {
        let mut state = self.state();
        match state.open.remove(&question) {
            Some(reply) => reply.decide(decision),
            None if (1..=state.last).contains(&question) => {}
            None => return Err(format!("answer: no question {question}; everything that waited is denied")),
        }
        Ok(())
    }

    /// Denies everything that waits.
    pub(super) fn deny(&self, because: Because) {
        let open = std::mem::take(&mut self.state().open);
        open.into_values().for_each(|reply| reply.deny(because));
    }

    /// Denies everything, now and later: nobody answers.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.deny(Because::Closed);
    }
}

impl Answerer for Questions {
    fn ask(&self, question: &Question, reply: Reply) {
        let mut state = self.state();
        if state.closed {
            drop(state);
            return reply.deny(Because::Closed);
        }
        state.last = question.id;
        state.open.insert(question.id, reply);
        drop(state);
        self.send(serde_json::to_value(question).unwrap_or_default());
    }

    fn withdrawn(&self, id: u64) {
        if self.state().open.remove(&id).is_some() {
            self.send(json!({"id": id, "withdrawn": true}));
        }
    }
}
