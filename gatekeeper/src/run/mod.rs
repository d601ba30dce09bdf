//! The whole pipeline: a request in, a report out. Every failure on the way is a report as well.

mod execute;
mod home;
pub mod inside;
mod isolated;
mod issue;
pub(crate) mod kept;
mod outcome;
mod prepare;
mod staged;
mod streams;
mod too_long;
pub(crate) mod trail;

pub(crate) use outcome::{captured, lossy};
pub(crate) use prepare::policy_of;
pub use prepare::{Prepared, prepare};
pub(crate) use streams::group;

use crate::audit::{Audit, Entry, Kind};
use crate::check::{Disk, Preload, Verdict, check};
use crate::isolate::planned;
use crate::learn::{self, Learned};
use crate::plan;
use crate::plan::paths::credentials;
use crate::plan::refusal::Refusal;
use crate::policy::{Isolate, Limits, PolicyError};
use crate::report::{Denial, Layer, LayerStatus, Outcome, Report};
use crate::request::{Purpose, Request};
use crate::supervise::Embedding;
use crate::supervise::ask::hub::Answerer;
use crate::supervise::capture::SpillTo;
use crate::sys::signals::Signals;
use crate::warden;
use execute::execute;
use isolated::Failed;
use kept::Supposed;
use prepare::{context, prepare_again};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// How a run is carried out, beside what the policy says.
pub struct Options<'a> {
    /// Captures the output for the report instead of passing it on.
    pub capture: bool,
    /// Where to keep captured streams that are too long for the report. The caller removes the files.
    pub spill: Option<SpillTo>,
    /// Signals to pass on to the command; `None` in a program that handles its own signals.
    pub signals: Option<&'a Signals>,
    /// Called with each warning before the command starts.
    pub warn: &'a dyn Fn(&str),
    /// The gatekeeper outside, if this one runs inside bubblewrap.
    pub outside: Option<Outside<'a>>,
    /// Set when a program embeds the library: its signals, children and terminal are left alone.
    pub embedding: Option<&'a Embedding>,
    /// Decides refused calls, if the request asks.
    pub answerer: Option<Arc<dyn Answerer>>,
    /// Notes every decision.
    pub audit: Option<Arc<Audit>>,
    /// Called with each host that the proxy refuses, when it happens; the report has them all at the end.
    pub refused: Option<Refused>,
}

/// Takes a refusal of the proxy as the denial of the report. Called on threads of the proxy.
pub type Refused = Arc<dyn Fn(Denial) + Send + Sync>;

/// The gatekeeper outside of bubblewrap.
#[derive(Clone, Copy)]
pub struct Outside<'a> {
    pub socket: BorrowedFd<'a>,
    /// Where refused calls are sent, if the run asks.
    pub asks: Option<BorrowedFd<'a>>,
    /// Whether the command shares the caller's process group and terminal.
    pub shares_terminal: bool,
}

/// How much of its output a request keeps, and what else its policy limits.
pub(crate) fn output_limits(request: &Request) -> Limits {
    // A policy that cannot be read keeps the command from running, and the report says so.
    policy_of(request).map(|policy| policy.limits).unwrap_or_default()
}

/// Runs a request and reports how it ended.
pub fn run(request: &Request, options: &Options<'_>) -> Report {
    let report = attempted(request, options);
    if options.capture { report.with_output() } else { report }
}

fn attempted(request: &Request, options: &Options<'_>) -> Report {
    let started = std::time::Instant::now();
    if let Some(report) = supposed(request, options) {
        return report;
    }
    let prepared = match options.embedding.and_then(|_| warden::hire()) {
        Some(warden) => prepare_again(request, warden),
        None => prepare(request, true),
    };
    let outcome =
        prepared.and_then(|prepared| isolated(request, &prepared, options).inspect_err(|_| staged::abandon(&prepared)));
    outcome.unwrap_or_else(|refusal| {
        if let Some(audit) = &options.audit {
            let program = lossy(&request.words()).into_iter().next();
            // Nothing runs in any case; a line that is missing is reported with the end of the run.
            let _ = audit.note(Entry::denied(Kind::Exec).with("path", program).with("rule", refusal.message.clone()));
        }
        refusal.report(lossy(&request.words()), started.elapsed())
    })
}

/// Runs a request by a plan that was made before, in a process that runs many commands. `None`: nothing was executed, and a plan has
/// to be made or looked for.
fn supposed(request: &Request, options: &Options<'_>) -> Option<Report> {
    // A trail or a question would tell of a run that may not take place.
    if options.embedding.is_none() || options.audit.is_some() || request.ask.is_some() {
        return None;
    }
    let started = std::time::Instant::now();
    let prepared = kept::suppose(request)?;
    let outcome = execute(&prepared, options).map(|(report, _)| report);
    if !prepared.supposed.as_ref().is_some_and(Supposed::is_confirmed) {
        return None;
    }
    Some(outcome.unwrap_or_else(|refusal| refusal.report(lossy(&request.words()), started.elapsed())))
}

/// Runs a request unconfined, records what it does, and makes the policy under which it would have passed.
pub fn learn(request: &Request, options: &Options<'_>) -> (Report, Option<Result<Learned, PolicyError>>) {
    let started = std::time::Instant::now();
    let request = Request { purpose: Purpose::Learn, ..request.clone() };
    let outcome = prepare(&request, true).and_then(|prepared| {
        // The command may move or remove them.
        let secret = credentials(&prepared.plan.places, &plan::disk::Disk);
        let (report, lesson) = execute(&prepared, options)?;
        let files = Disk::new();
        let context = context(&request, Preload::embedded());
        let look_up = |name: &std::ffi::OsStr| -> Verdict { check(name, &context, &files).verdict };
        let ran = !matches!(report.outcome, Outcome::SetupFailed);
        let learned = lesson.filter(|_| ran).map(|lesson| learn::compose(&lesson, &prepared.plan, secret, &look_up));
        Ok((report, learned))
    });
    outcome.unwrap_or_else(|refusal| (refusal.report(lossy(&request.words()), started.elapsed()), None))
}

/// Runs inside bubblewrap if the policy asks for it. If bubblewrap does not work, `preferred` runs without it and the report says
/// so; `required` refuses.
fn isolated(request: &Request, prepared: &Prepared, options: &Options<'_>) -> Result<Report, Box<Refusal>> {
    let plan = &prepared.plan;
    let mode = plan.policy.bubblewrap.isolate;
    if mode == Isolate::Disabled || plan.inside.is_some() {
        return execute(prepared, options).map(|(report, _)| report);
    }
    plan.warnings.iter().for_each(|warning| (options.warn)(warning));
    if request.keep_tmp {
        (options.warn)("--keep-tmp keeps nothing with --isolate: TMPDIR is in the private /tmp inside bubblewrap");
    }
    let why = match isolated::run(request, prepared, options) {
        Ok(report) => return Ok(report),
        Err(Failed::Refused(refusal)) => {
            return Err(Box::new(refusal.with_verdict(plan.verdict.clone())));
        }
        Err(Failed::Unavailable(why)) => why,
    };
    if mode == Isolate::Required {
        let message = planned::refused(&why);
        return Err(Box::new(Refusal::setup(message).with_verdict(plan.verdict.clone())));
    }
    (options.warn)(&format!("not isolated, bubblewrap does not work here: {why}; the other layers hold"));
    // Isolation let the first plan skip some layers; plan again with all of them.
    staged::abandon(prepared);
    let mut prepared = prepare(request, true)?;
    if let Some(plan) = Arc::get_mut(&mut prepared.plan) {
        plan.warnings.clear();
    }
    let (mut report, _) = execute(&prepared, options).inspect_err(|_| staged::abandon(&prepared))?;
    if let Some(layer) = report.layers.iter_mut().find(|layer| layer.layer == Layer::Namespaces) {
        layer.detail = format!("bubblewrap does not work here: {why}; {}", layer.detail);
        layer.status = match layer.status {
            LayerStatus::Off | LayerStatus::Unavailable => LayerStatus::Unavailable,
            _ => LayerStatus::Partial,
        };
    }
    Ok(report)
}
