//! The outer half of a command in a box: orders it, and completes the report of the gatekeeper inside with what the engine
//! enforces.

use super::attached::Front;
use super::boxed::Boxed;
use super::listing::take_away;
use super::streams::{Input, Streams};
use super::trail;
use super::wire::{self, Kind, Order};
use crate::audit::Audit;
use crate::isolate::handover::Handover;
use crate::plan::refusal::Refusal;
use crate::report::{EXIT_SETUP, Layer, LayerReport, LayerStatus, Outcome, Report};
use crate::request::Request;
use std::io;
use std::process::ChildStdin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// The way to the gatekeeper inside. Dropping the last copy ends the command and every process that it started.
#[derive(Clone)]
pub struct Running(Arc<Mutex<Option<ChildStdin>>>);

impl Running {
    pub(super) fn by(stdin: ChildStdin) -> Running {
        Running(Arc::new(Mutex::new(Some(stdin))))
    }

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
    let engine = front.note.engine.clone();
    drop(front);
    if boxed.state.is_replaced(&boxed.name) {
        // The configuration changed meanwhile. If another command still runs there, that one removes it.
        let _ = take_away(&boxed.state, &engine, &boxed.name, false);
    }
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
