//! Background commands: they survive the call that started them, and end with the server.

use crate::container::{Running, Streams};
use crate::report::Report;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How much output is kept until the next poll, per stream; older bytes are dropped and counted.
const KEPT: usize = 256 << 10;
/// How many commands may run at once, and how many that have ended are remembered.
const MOST: usize = 32;

#[derive(Default)]
pub struct Jobs(Mutex<(u64, BTreeMap<u64, Arc<Job>>)>);

/// One command.
pub struct Job {
    id: u64,
    command: Vec<String>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    input: Option<Sender<Vec<u8>>>,
    running: Option<Running>,
    killed: bool,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    dropped: usize,
    report: Option<Value>,
}

impl Jobs {
    fn all(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, Arc<Job>>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new command, and its standard input. `None` if too many run.
    pub fn start(&self, command: Vec<String>) -> Option<(u64, Arc<Job>, Receiver<Vec<u8>>)> {
        let mut all = self.all();
        if all.1.len() >= MOST {
            let ended = all.1.iter().find(|(_, job)| job.inner().report.is_some()).map(|(id, _)| *id)?;
            all.1.remove(&ended);
        }
        all.0 += 1;
        let id = all.0;
        let (send, receive) = channel();
        let inner = Mutex::new(Inner { input: Some(send), ..Inner::default() });
        let job = Arc::new(Job { id, command, inner });
        all.1.insert(id, Arc::clone(&job));
        Some((id, job, receive))
    }

    pub fn get(&self, id: u64) -> Option<Arc<Job>> {
        self.all().1.get(&id).cloned()
    }

    pub fn list(&self) -> Value {
        let entry =
            |job: &Arc<Job>| json!({"id": job.id, "command": job.command, "running": job.inner().report.is_none()});
        self.all().1.values().map(entry).collect()
    }

    pub fn end_all(&self) {
        self.all().1.values().for_each(|job| job.kill());
    }
}

impl Job {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn streams(job: &Arc<Job>) -> impl Streams + use<> {
        Kept(Arc::clone(job))
    }

    /// The command is about to start; one that was killed before does not.
    pub fn runs(&self, running: Running) {
        let mut inner = self.inner();
        if inner.killed {
            running.end();
        }
        inner.running = Some(running);
    }

    pub fn finish(&self, report: &Report) {
        let mut inner = self.inner();
        inner.input = None;
        inner.running = None;
        inner.report = Some(serde_json::to_value(report).unwrap_or(Value::Null));
    }

    pub fn write(&self, bytes: Vec<u8>) {
        let _ = self.inner().input.as_ref().map(|input| input.send(bytes));
    }

    pub fn end_input(&self) {
        self.inner().input = None;
    }

    pub fn kill(&self) {
        let mut inner = self.inner();
        inner.killed = true;
        inner.input = None;
        inner.running.iter().for_each(Running::end);
    }

    /// The output since the last poll, and the report if the command has ended.
    pub fn poll(&self) -> Value {
        let mut inner = self.inner();
        let text = |bytes: &mut Vec<u8>| String::from_utf8_lossy(&std::mem::take(bytes)).into_owned();
        json!({
            "id": self.id,
            "running": inner.report.is_none(),
            "stdout": text(&mut inner.stdout),
            "stderr": text(&mut inner.stderr),
            "dropped": std::mem::take(&mut inner.dropped),
            "report": inner.report,
        })
    }
}

struct Kept(Arc<Job>);

impl Kept {
    fn keep(&self, bytes: &[u8], stream: fn(&mut Inner) -> &mut Vec<u8>) {
        let mut inner = self.0.inner();
        stream(&mut inner).extend_from_slice(bytes);
        let over = stream(&mut inner).len().saturating_sub(KEPT);
        stream(&mut inner).drain(..over);
        inner.dropped += over;
    }
}

impl Streams for Kept {
    fn stdout(&mut self, bytes: &[u8]) {
        self.keep(bytes, |inner| &mut inner.stdout);
    }

    fn stderr(&mut self, bytes: &[u8]) {
        self.keep(bytes, |inner| &mut inner.stderr);
    }

    fn warning(&mut self, _: &str) {}
}
