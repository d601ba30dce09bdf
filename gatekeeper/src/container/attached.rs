//! The way into a container: starts the gatekeeper inside by the engine's `exec`, and passes what it and the caller say to
//! each other.

use super::boxed::Boxed;
use super::engine::complaint;
use super::front::Running;
use super::listing::take_away;
use super::seen::{Compared, Seen, compare};
use super::state::{Lock, Note};
use super::streams::{Input, Streams, feed};
use super::wire::{self, Kind};
use crate::audit::{Audit, Entry};
use crate::report::Report;
use std::io::{self, Read};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::mpsc::{Receiver, channel, sync_channel};
use std::sync::{Mutex, PoisonError};

pub struct Front {
    /// Of the container.
    pub name: String,
    pub note: Note,
    pub using: Lock,
    child: Child,
    pub running: Running,
    output: ChildStdout,
    seen: Seen,
    complaints: Receiver<Vec<u8>>,
}

/// How often a container that is not there is made: once more, if another process removed it just then.
const TRIES: usize = 3;

impl Front {
    /// Starts the gatekeeper inside; makes the container if there is none. A warm container costs no other call of the engine.
    pub fn start(boxed: &Boxed, streams: &mut dyn Streams) -> Result<Front, String> {
        let (mut last, mut given_up) = (String::new(), None::<String>);
        let mut noted = boxed.noted()?;
        for _ in 0..TRIES {
            let (note, using) = match noted.take() {
                Some(noted) => noted,
                None => {
                    let told = Mutex::new(Vec::new());
                    let made =
                        boxed.ensure(&|text| told.lock().unwrap_or_else(PoisonError::into_inner).push(text.to_owned()));
                    let told = told.into_inner().unwrap_or_else(PoisonError::into_inner);
                    told.iter().for_each(|text| streams.warning(text));
                    let (note, using, _) = made?;
                    (note, using)
                }
            };
            let engine = note.engine.clone();
            match Front::attach(boxed, note, using) {
                Ok(front) => {
                    given_up.iter().for_each(|text| streams.warning(text));
                    return Ok(front);
                }
                Err(error) => last = error,
            }
            // It runs, but nothing can be started in it: its workspace may be gone.
            if engine.is_running(&boxed.name) == Ok(Some(true))
                && take_away(&boxed.state, &engine, &boxed.name, false) == Ok(true)
            {
                given_up = Some(format!("{last}; the container was made anew"));
            }
        }
        Err(last)
    }

    fn attach(boxed: &Boxed, note: Note, using: Lock) -> Result<Front, String> {
        let inside: Vec<String> =
            boxed.made.mounts.iter().skip(1).map(|mount| mount.inside.to_string_lossy().into_owned()).collect();
        let inside: Vec<&str> = inside.iter().map(String::as_str).collect();
        let words: Vec<&str> = std::iter::once("serve").chain(inside.iter().copied()).collect();
        let mut command = note.engine.exec(&boxed.name, &boxed.made, &words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let wrong = |error: io::Error| format!("{}: {error}", note.engine.program.display());
        let mut child = command.spawn().map_err(wrong)?;
        let missing = || format!("{}: no pipe", note.engine.program.display());
        let (stdin, mut output, mut stderr) = match (child.stdin.take(), child.stdout.take(), child.stderr.take()) {
            (Some(stdin), Some(stdout), Some(stderr)) => (stdin, stdout, stderr),
            _ => return Err(missing()),
        };
        let (send, complaints) = channel();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = (&mut stderr).take(1 << 16).read_to_end(&mut bytes);
            let _ = send.send(bytes);
            let _ = io::copy(&mut stderr, &mut io::sink());
        });
        let running = Running::by(stdin);
        let first = wire::receive(&mut output);
        if let Ok(Some((Kind::Alive, bytes))) = &first
            && let Ok(seen) = serde_json::from_slice(bytes)
        {
            let name = boxed.name.clone();
            return Ok(Front { name, note, using, child, running, output, seen, complaints });
        }
        running.end();
        let _ = child.kill();
        let _ = child.wait();
        let said = complaints.recv().unwrap_or_default();
        let why = match note.engine.ended(&boxed.name) {
            Some(status) => match super::inside::reason(status, &inside) {
                Some(reason) => format!("; {reason}"),
                None => format!("; its log: {}", note.engine.log(&boxed.name)),
            },
            None => String::new(),
        };
        Err(format!("{} exec: {}{why}", note.engine.kind.name(), complaint(&said)))
    }

    /// Compares the container with its settings. One whose workspace is another directory by now is made anew.
    pub fn with_its_mounts(self, boxed: &Boxed, streams: &mut dyn Streams) -> Result<(Front, Compared), String> {
        let compared = compare(&self.seen, &boxed.made, &self.note.engine, &self.note.about);
        let Some(replaced) = &compared.replaced else { return Ok((self, compared)) };
        let engine = self.note.engine.clone();
        drop(self);
        if !take_away(&boxed.state, &engine, &boxed.name, false)? {
            return Err(format!(
                "in {}, {replaced} any more, and commands run in it; `gatekeeper box rm --force {}` ends them",
                boxed.name, boxed.name
            ));
        }
        streams.warning(&format!("in {}, {replaced} any more: it was made anew", boxed.name));
        let front = Front::start(boxed, streams)?;
        let compared = compare(&front.seen, &boxed.made, &front.note.engine, &front.note.about);
        match &compared.replaced {
            // Somebody exchanges the directory between the look at it and the mount.
            Some(replaced) => Err(format!("in {}, {replaced}; nothing was run", boxed.name)),
            None => Ok((front, compared)),
        }
    }

    /// Why the engine's command ended without a report.
    pub fn why(&mut self, name: &str) -> String {
        self.running.end();
        let status = self.child.wait();
        let said = self.complaints.recv().unwrap_or_default();
        if !said.trim_ascii().is_empty() {
            return complaint(&said);
        }
        let engine = &self.note.engine;
        match engine.is_running(name) {
            Ok(None) => "the container was removed while the command ran".to_owned(),
            Ok(Some(false)) => format!("the container stopped while the command ran {}", engine.log(name)),
            _ => {
                let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
                format!("it was killed in the container ({} exec: {status})", engine.kind.name())
            }
        }
    }

    /// Writes a line of the audit trail, and tells the gatekeeper inside, which waits for it, or why it could not be written.
    fn note(&self, bytes: &[u8], audit: Option<&Audit>) -> io::Result<()> {
        let wrong = || io::Error::other("what answers in the container is not gatekeeper");
        let audit = audit.ok_or_else(wrong)?;
        let entry = Entry::from_elsewhere(bytes).ok_or_else(wrong)?;
        let written = audit.note(entry.with("container", self.name.as_str()));
        let told = written.map_or_else(|error| error.to_string(), |()| String::new());
        self.running.send(Kind::Written, told.as_bytes())
    }

    /// Passes the streams until the report arrives. `None`: the engine's command ended without one.
    pub fn relay(
        &mut self,
        input: Input,
        streams: &mut dyn Streams,
        audit: Option<&Audit>,
    ) -> io::Result<Option<Report>> {
        let (taken, permits) = sync_channel(1);
        let running = self.running.clone();
        std::thread::spawn(move || feed(input, &running, &permits));
        loop {
            let Some((kind, bytes)) = wire::receive(&mut self.output)? else { return Ok(None) };
            match kind {
                Kind::Stdout => streams.stdout(&bytes),
                Kind::Stderr => streams.stderr(&bytes),
                Kind::Warning => streams.warning(&String::from_utf8_lossy(&bytes)),
                Kind::Taken => drop(taken.try_send(())),
                Kind::Noted => self.note(&bytes, audit)?,
                Kind::Report => {
                    let report = serde_json::from_slice(&bytes).map_err(io::Error::other)?;
                    self.running.end();
                    let _ = self.child.wait();
                    return Ok(Some(report));
                }
                _ => return Err(io::Error::other("what answers in the container is not gatekeeper")),
            }
        }
    }
}

impl Drop for Front {
    /// Leaves nothing behind: the gatekeeper inside ends when its input closes, and with it the engine's command.
    fn drop(&mut self) {
        self.running.end();
        let _ = self.child.wait();
    }
}
