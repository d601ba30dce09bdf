//! A function of the program that embeds the library answers the questions.

use super::hub::{Answerer, Reply};
use crate::report::{Because, Decision, Question};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

/// Decides one question.
pub type Decide = dyn Fn(Question) -> Pin<Box<dyn Future<Output = Decision> + Send>> + Send + Sync;

/// Each question is decided on a thread, so a slow answer delays no other one.
pub struct Callback(pub Arc<Decide>);

impl Answerer for Callback {
    fn ask(&self, question: &Question, reply: Reply) {
        let (decide, question, theirs) = (self.0.clone(), question.clone(), reply.clone());
        let thread = std::thread::Builder::new().name("question".to_owned());
        let spawned = thread.spawn(move || {
            // A panic in the function leaves the guard, which denies.
            let guard = Unanswered(Some(theirs));
            let decision = wait_for(decide(question));
            guard.answer(decision);
        });
        if spawned.is_err() {
            reply.deny(Because::Closed);
        }
    }

    fn withdrawn(&self, _: u64) {}
}

struct Unanswered(Option<Reply>);

impl Unanswered {
    fn answer(mut self, decision: Decision) {
        if let Some(reply) = self.0.take() {
            reply.decide(decision);
        }
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        if let Some(reply) = self.0.take() {
            reply.deny(Because::Invalid);
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn wait_for<T>(mut future: Pin<Box<dyn Future<Output = T> + Send>>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}
