//! The outer half of a command in a box: starts the gatekeeper inside by the engine's `exec`, passes streams and signals,
//! and completes the report with what the engine enforces.

use super::boxed::Boxed;
use super::engine::complaint;
use super::listing::take_away;
use super::seen::{Compared, Seen, compare};
use super::state::{Lock, Note};
use super::streams::{Input, Streams, feed};
use super::trail;
use super::wire::{self, Kind, Order};
use crate::audit::{Audit, Entry};
use crate::isolate::handover::Handover;
use crate::plan::refusal::Refusal;
use crate::report::{EXIT_SETUP, Layer, LayerReport, LayerStatus, Outcome, Report};
use crate::request::Request;
use std::io::{self, Read};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::mpsc::{Receiver, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// The way to the gatekeeper inside. Dropping the last copy ends the command and every process that it started.
#[derive(Clone)]
pub struct Running(Arc<Mutex<Option<ChildStdin>>>);

impl Running {
    pub(super) fn send(&self, kind: Kind, bytes: &[u8]) -> io::Result<()> {
        let mut stdin = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stdin.as_mut().map_or(Ok(()), |stdin| wire::send(stdin, kind, bytes))
    }

    pub fn signal(&self, number: i32) {
        let _ = self.send(Kind::Signal, &[u8::try_from(number).unwrap_or(0)]);
    }

    /// Ends the command: the gatekeeper inside sees its input close.
    pub fn end(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// Runs a request in a box, with the audit trail that it names. `started` gets the means to send signals, once the command is
/// about to start.
pub fn exec(
    boxed: &Boxed,
    mut request: Request,
    capture: bool,
    input: Input,
    streams: &mut dyn Streams,
    started: &dyn Fn(Running),
) -> Report {
    let began = Instant::now();
    match trail::open(boxed, &mut request) {
        Ok(audit) => {
            let report = audited(boxed, request, audit.as_deref(), capture, input, streams, started);
            crate::run::trail::end(report, audit)
        }
        Err(error) => {
            let words = request.words().iter().map(|word| word.to_string_lossy().into_owned()).collect();
            Refusal::setup(format!("box: {error}")).report(words, began.elapsed())
        }
    }
}

fn audited(
    boxed: &Boxed,
    request: Request,
    audit: Option<&Audit>,
    capture: bool,
    input: Input,
    streams: &mut dyn Streams,
    started: &dyn Fn(Running),
) -> Report {
    let began = Instant::now();
    let words: Vec<String> = request.words().iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let failed = |error: String| Refusal::setup(format!("box: {error}")).report(words.clone(), began.elapsed());
    let attached = Front::start(boxed, streams).and_then(|front| front.with_its_mounts(boxed, streams));
    let (mut front, compared) = match attached {
        Ok(started) => started,
        Err(error) => return failed(error),
    };
    if !compared.broken.is_empty() {
        return failed(format!(
            "{} is not the container that the configuration asks for: {}; nothing was run. Remove it with `gatekeeper box rm {}`",
            boxed.name,
            compared.broken.join("; "),
            boxed.name
        ));
    }
    let mut request = with_environment(request, boxed);
    let limits = &mut request.flags.limits;
    let least = |own: Option<u64>, most: u64| Some(own.filter(|own| *own > 0).map_or(most, |own| own.min(most)));
    if compared.missing.contains(&"memory") {
        limits.memory = least(limits.memory, boxed.made.memory);
    }
    if compared.missing.contains(&"pidsLimit") {
        limits.processes = least(limits.processes, boxed.made.pids);
    }
    let layer = LayerReport {
        layer: Layer::Container,
        status: if compared.missing.is_empty() { LayerStatus::Enforced } else { LayerStatus::Partial },
        detail: compared.detail,
    };
    let handover = Handover { request, blocked: Vec::new(), shares_terminal: false, audit: None }.into_bytes();
    let handover = match handover
        .map_err(|error| error.to_string())
        .and_then(|bytes| String::from_utf8(bytes).map_err(|error| error.to_string()))
    {
        Ok(text) => text,
        Err(error) => return failed(error),
    };
    let order = match serde_json::to_vec(&Order { handover, capture, audited: audit.is_some() }) {
        Ok(order) => order,
        Err(error) => return failed(error.to_string()),
    };
    if let Err(error) = front.running.send(Kind::Order, &order) {
        return failed(format!("{}: {error}", boxed.name));
    }
    started(front.running.clone());
    let mut report = match front.relay(input, streams, audit) {
        Ok(Some(report)) => believed(report),
        other => {
            let why = other.err().map_or_else(|| front.why(&boxed.name), |error| error.to_string());
            // It started, and everything below it dies with it.
            Report {
                exit_code: 128 + libc::SIGKILL,
                signal: Some(libc::SIGKILL),
                error: Some(format!("box: {}: the gatekeeper inside ended without a report: {why}", boxed.name)),
                ..Report::of(Outcome::Signaled)
            }
        }
    };
    front.using.used_now();
    report.command = words;
    report.duration_ms = began.elapsed().as_millis() as u64;
    report.layers.push(layer);
    report
}

/// What a report from inside can say about the outside: nothing. Only a gatekeeper that was taken over would say such
/// things, and callers act on them: they remove the files that a report names.
fn believed(mut report: Report) -> Report {
    report.layers.retain(|layer| layer.layer != Layer::Container);
    (report.stage, report.kept, report.kept_because) = (None, None, None);
    for captured in report.captured.iter_mut() {
        (captured.stdout_file, captured.stderr_file) = (None, None);
    }
    if !(0..=255).contains(&report.exit_code) || report.signal.is_some_and(|signal| !(1..=64).contains(&signal)) {
        report.error = Some(format!("the report from inside has the exit code {}", report.exit_code));
        (report.outcome, report.exit_code, report.signal) = (Outcome::SetupFailed, i32::from(EXIT_SETUP), None);
    }
    report
}

/// The configuration's variables, under those of flags. They travel in the order, and are on no command line.
fn with_environment(mut request: Request, boxed: &Boxed) -> Request {
    for (name, value) in &boxed.settings.docker.env.value {
        request.flags.env.set.entry(name.clone()).or_insert_with(|| value.0.clone());
    }
    request
}

struct Front {
    /// Of the container.
    name: String,
    note: Note,
    using: Lock,
    child: Child,
    running: Running,
    output: ChildStdout,
    seen: Seen,
    complaints: Receiver<Vec<u8>>,
}

/// How often a container that is not there is made: once more, if another process removed it just then.
const TRIES: usize = 3;

impl Front {
    /// Starts the gatekeeper inside; makes the container if there is none. A warm container costs no other call of the engine.
    fn start(boxed: &Boxed, streams: &mut dyn Streams) -> Result<Front, String> {
        let mut last = String::new();
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
            match Front::attach(boxed, note, using) {
                Ok(front) => return Ok(front),
                Err(error) => last = error,
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
        let running = Running(Arc::new(Mutex::new(Some(stdin))));
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
    fn with_its_mounts(self, boxed: &Boxed, streams: &mut dyn Streams) -> Result<(Front, Compared), String> {
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
    fn why(&mut self, name: &str) -> String {
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
    fn relay(&mut self, input: Input, streams: &mut dyn Streams, audit: Option<&Audit>) -> io::Result<Option<Report>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_from_inside_says_nothing_about_the_outside() {
        let forged =
            LayerReport { layer: Layer::Container, status: LayerStatus::Enforced, detail: "forged".to_owned() };
        let mut report = Report { kept: Some("/etc".into()), layers: vec![forged], ..Report::of(Outcome::Exited) };
        report.exit_code = 3;
        let believed_of = believed(report.clone());
        assert!(believed_of.layers.is_empty() && believed_of.kept.is_none() && believed_of.exit_code == 3);
        // 256 would be success, cut down to a byte.
        for code in [256, -1, 1 << 20] {
            let refused = believed(Report { exit_code: code, ..report.clone() });
            assert_eq!((refused.outcome, refused.exit_code), (Outcome::SetupFailed, 125), "{code}");
        }
    }
}
