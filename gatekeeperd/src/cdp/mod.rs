//! Chromium's debugging protocol over two pipes: JSON messages, each ended by a NUL byte.
//!
//! The library crates for this protocol speak WebSocket only, and a debugging port is reachable for every process of this
//! machine. A pipe is reachable for us alone. A dozen methods are needed, so they are called by name.
//!
//! Everything that arrives was written by a browser that a page may control: sizes are bounded, every call has a time
//! limit, and a message that cannot be read ends the connection.

mod framing;

pub use framing::LARGEST;

use framing::Framing;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::{mpsc, oneshot, watch};

/// Events that wait for their reader. If there are more, the browser waits.
const WAITING_EVENTS: usize = 1024;
const WAITING_CALLS: usize = 1024;

#[derive(Debug, thiserror::Error, Clone, PartialEq, Eq)]
pub enum CallError {
    #[error("{method} took longer than {} ms", within.as_millis())]
    Timeout { method: &'static str, within: Duration },
    #[error("{method}: {message}")]
    Refused { method: &'static str, message: String },
    #[error("the browser has closed its debugging pipe: {0}")]
    Closed(String),
}

/// One event of the browser or of one of its pages.
#[derive(Debug)]
pub struct Event {
    pub session: Option<String>,
    pub method: String,
    pub params: Value,
}

#[derive(Deserialize)]
struct Message {
    id: Option<u64>,
    #[serde(rename = "sessionId")]
    session: Option<String>,
    method: Option<String>,
    #[serde(default)]
    params: Value,
    #[serde(default)]
    result: Value,
    error: Option<Fault>,
}

#[derive(Deserialize)]
struct Fault {
    #[serde(default)]
    message: String,
}

type Answer = Result<Value, String>;

/// The caller's side of both pipes. Clones share them.
#[derive(Clone)]
pub struct Connection {
    shared: Arc<Shared>,
    to: mpsc::Sender<Vec<u8>>,
}

struct Shared {
    last: AtomicU64,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Answer>>>,
    /// Why the connection ended, once it has.
    closed: watch::Sender<Option<String>>,
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<Answer>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self, why: &str) {
        self.closed.send_if_modified(|closed| closed.is_none() && closed.replace(why.to_owned()).is_none());
        self.waiting().clear();
    }
}

/// Forgets a call whose caller no longer waits.
struct Waiting<'a>(&'a Shared, u64);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting().remove(&self.1);
    }
}

impl Connection {
    /// Takes our ends of the pipes. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// The descriptors are no pipes.
    pub fn new(to: OwnedFd, from: OwnedFd) -> io::Result<(Connection, mpsc::Receiver<Event>)> {
        let (mut sender, receiver) = (Sender::from_owned_fd(to)?, Receiver::from_owned_fd(from)?);
        let (closed, _) = watch::channel(None);
        let shared = Arc::new(Shared { last: AtomicU64::new(0), waiting: Mutex::default(), closed });
        let (to, mut outgoing) = mpsc::channel::<Vec<u8>>(WAITING_CALLS);
        let (events, incoming) = mpsc::channel(WAITING_EVENTS);
        let writing = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Some(message) = outgoing.recv().await {
                if sender.write_all(&message).await.is_err() {
                    return writing.close("it does not read any more");
                }
            }
        });
        let reading = Arc::clone(&shared);
        tokio::spawn(async move {
            let why = read(receiver, &reading, &events).await;
            reading.close(&why);
        });
        Ok((Connection { shared, to }, incoming))
    }

    /// Calls a method of the browser, or of one page if a session is given, and waits for its result.
    pub async fn call(
        &self,
        session: Option<&str>,
        method: &'static str,
        params: Value,
        within: Duration,
    ) -> Result<Value, CallError> {
        let (id, message) = self.message(session, method, &params);
        let (answer, answered) = oneshot::channel();
        self.shared.waiting().insert(id, answer);
        let _waiting = Waiting(&self.shared, id);
        if let Some(why) = self.why_closed() {
            return Err(CallError::Closed(why));
        }
        let called = async {
            self.to.send(message).await.map_err(|_| self.lost())?;
            match answered.await {
                Ok(Ok(result)) => Ok(result),
                Ok(Err(message)) => Err(CallError::Refused { method, message }),
                Err(_) => Err(self.lost()),
            }
        };
        tokio::time::timeout(within, called).await.unwrap_or(Err(CallError::Timeout { method, within }))
    }

    /// Calls a method and does not wait for the result. Never blocks: if the browser does not read, the call is dropped.
    pub fn post(&self, session: Option<&str>, method: &'static str, params: Value) {
        let (_, message) = self.message(session, method, &params);
        let _ = self.to.try_send(message);
    }

    fn message(&self, session: Option<&str>, method: &str, params: &Value) -> (u64, Vec<u8>) {
        let id = self.shared.last.fetch_add(1, Ordering::Relaxed) + 1;
        let mut message = json!({"id": id, "method": method, "params": params});
        if let Some(session) = session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        (id, bytes)
    }

    fn lost(&self) -> CallError {
        CallError::Closed(self.why_closed().unwrap_or_else(|| "it ended".to_owned()))
    }

    /// Why the connection ended, once it has.
    pub fn why_closed(&self) -> Option<String> {
        self.shared.closed.borrow().clone()
    }

    /// Waits until the browser's end of the pipe is closed: no process of the browser is left then.
    pub async fn closed(&self) {
        let _ = self.shared.closed.subscribe().wait_for(Option::is_some).await;
    }
}

/// Passes messages on until the pipe ends, and returns why it ended.
async fn read(mut from: Receiver, shared: &Shared, events: &mpsc::Sender<Event>) -> String {
    let mut framing = Framing::default();
    let mut block = vec![0u8; 64 * 1024];
    loop {
        let count = match from.read(&mut block).await {
            Ok(0) => return "the browser ended".to_owned(),
            Ok(count) => count,
            Err(error) => return error.to_string(),
        };
        framing.push(block.get(..count).unwrap_or_default());
        loop {
            let message = match framing.next() {
                Ok(Some(message)) => message,
                Ok(None) => break,
                Err(error) => return error.to_string(),
            };
            let message: Message = match serde_json::from_slice(&message) {
                Ok(message) => message,
                Err(error) => return format!("a message is not what the protocol describes: {error}"),
            };
            match (message.id, message.method) {
                (Some(id), _) => {
                    if let Some(waiting) = shared.waiting().remove(&id) {
                        let _ = waiting.send(message.error.map_or(Ok(message.result), |fault| Err(fault.message)));
                    }
                }
                (None, Some(method)) => {
                    // Without a reader, events are of no interest.
                    let _ = events.send(Event { session: message.session, method, params: message.params }).await;
                }
                (None, None) => {}
            }
        }
    }
}
