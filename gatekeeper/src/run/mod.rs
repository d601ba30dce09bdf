//! The whole pipeline: a request in, a report out. Whatever goes wrong on the way is a report as well.

pub mod inside;
mod isolated;
mod outcome;
mod prepare;

pub(crate) use outcome::lossy;
use outcome::report;
#[cfg(feature = "mcp")]
pub(crate) use prepare::policy_of;
pub use prepare::{Prepared, prepare};

use crate::check::{Disk as Files, Preload, Verdict, check};
use crate::enforce::{self, Without};
use crate::isolate::planned;
use crate::learn::{self, Learned};
use crate::plan::Plan;
use crate::plan::refusal::Refusal;
use crate::plan::table::sockets::by_address;
use crate::policy::{Isolate, NetworkMode, PolicyError};
use crate::proxy::gate::Gate;
use crate::proxy::resolve::System;
use crate::proxy::{Door, Guests, Proxy};
use crate::report::{Layer, LayerReport, LayerStatus, Outcome, Report};
use crate::request::{Purpose, Request};
use crate::supervise::browser::Look;
use crate::supervise::capture::{DEFAULT_KEPT, SpillTo, Stream};
use crate::supervise::connect::{Reach, Sockets};
use crate::supervise::foresee::Foresight;
use crate::supervise::judge::Judge;
use crate::supervise::lesson::Lesson;
use crate::supervise::metadata::Writable;
use crate::supervise::meter::Meter;
use crate::supervise::{Embedding, End, Mounting, Watch, supervise};
use crate::sys::child::Group;
use crate::sys::message;
use crate::sys::process;
use crate::sys::signals::{self, Signals};
use crate::trust;
use isolated::Failed;
use prepare::context;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// How a run is watched, beside what the policy says.
pub struct Options<'a> {
    /// Keep what it prints for the report, instead of letting it through.
    pub capture: bool,
    /// Where the whole of each captured stream goes when it is too long; the caller's to remove.
    pub spill: Option<SpillTo>,
    /// Signals to pass on; `None` for a program that handles its own.
    pub signals: Option<&'a Signals>,
    /// Called with each warning before the command starts.
    pub warn: &'a dyn Fn(&str),
    /// The gatekeeper outside, where this one runs inside of bubblewrap.
    pub outside: Option<Outside<'a>>,
    /// Where this process is not the run's own, but a program with other things to do.
    pub embedding: Option<&'a Embedding>,
}

/// The other gatekeeper, and what it has in common with the command.
#[derive(Clone, Copy)]
pub struct Outside<'a> {
    pub socket: BorrowedFd<'a>,
    /// Whether the command shares the caller's process group and terminal.
    pub shares_terminal: bool,
}

/// Runs a request and tells what became of it.
pub fn run(request: &Request, options: &Options<'_>) -> Report {
    let started = std::time::Instant::now();
    let outcome = prepare(request, true).and_then(|prepared| isolated(request, &prepared, options));
    outcome.unwrap_or_else(|refusal| refusal.report(lossy(&request.words()), started.elapsed()))
}

/// Runs a request, not confined but listened to, and makes the policy under which it would have passed.
pub fn learn(request: &Request, options: &Options<'_>) -> (Report, Option<Result<Learned, PolicyError>>) {
    let started = std::time::Instant::now();
    let request = Request { purpose: Purpose::Learn, ..request.clone() };
    let outcome = prepare(&request, true).and_then(|prepared| {
        let (report, lesson) = execute(&prepared, options)?;
        let files = Files::new();
        let context = context(&request, Preload::embedded());
        let look_up = |name: &std::ffi::OsStr| -> Verdict { check(name, &context, &files).verdict };
        let ran = !matches!(report.outcome, Outcome::SetupFailed);
        let learned = lesson.filter(|_| ran).map(|lesson| learn::compose(&lesson, &prepared.plan, &look_up));
        Ok((report, learned))
    });
    outcome.unwrap_or_else(|refusal| (refusal.report(lossy(&request.words()), started.elapsed()), None))
}

/// By bubblewrap where that is asked for and works; else, if the policy leaves it open, without, and told so.
fn isolated(request: &Request, prepared: &Prepared, options: &Options<'_>) -> Result<Report, Box<Refusal>> {
    let plan = &prepared.plan;
    let mode = plan.policy.bubblewrap.isolate;
    if mode == Isolate::Disabled || plan.inside.is_some() {
        return execute(prepared, options).map(|(report, _)| report);
    }
    plan.warnings.iter().for_each(|warning| (options.warn)(warning));
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
    // What was left away for the sake of the isolation is needed now.
    let mut prepared = prepare(request, true)?;
    if let Some(plan) = Arc::get_mut(&mut prepared.plan) {
        plan.warnings.clear();
    }
    let (mut report, _) = execute(&prepared, options)?;
    if let Some(layer) = report.layers.iter_mut().find(|layer| layer.layer == Layer::Namespaces) {
        layer.detail = format!("bubblewrap does not work here: {why}; {}", layer.detail);
        layer.status = match layer.status {
            LayerStatus::Off | LayerStatus::Unavailable => LayerStatus::Unavailable,
            _ => LayerStatus::Partial,
        };
    }
    Ok(report)
}

/// Descriptors that supervision takes at the same time. With fewer a denial could not be looked at, and would be missing in
/// the report.
const SPARE: usize = 18;

fn has_spare_descriptors() -> io::Result<()> {
    let first = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?;
    let others: io::Result<Vec<OwnedFd>> = (1..SPARE).map(|_| first.try_clone()).collect();
    others.map(drop)
}

fn execute(prepared: &Prepared, options: &Options<'_>) -> Result<(Report, Option<Lesson>), Box<Refusal>> {
    let Prepared { plan, run_dir, .. } = prepared;
    plan.warnings.iter().for_each(|warning| (options.warn)(warning));
    let group = match options.outside {
        Some(Outside { shares_terminal: true, .. }) => Group::Shared,
        Some(_) => Group::Session,
        None if options.capture || options.embedding.is_some() => Group::Session,
        None => group(),
    };
    let mask = options.signals.map_or_else(signals::current_mask, Signals::before);
    let mut without = Without { listener: false, namespaces: false };
    let failed =
        |error: &dyn std::fmt::Display| Box::new(Refusal::setup(error.to_string()).with_verdict(plan.verdict.clone()));
    has_spare_descriptors().map_err(|error| failed(&format_args!("descriptors: {error}; raise ulimit -n")))?;
    let (proxy, door) = serve(prepared, options).map_err(|error| failed(&format_args!("proxy: {error}")))?;
    loop {
        let (streams, ends) =
            pipes(plan, options).map_err(|error| failed(&format_args!("standard streams: {error}")))?;
        let running = enforce::start(plan, run_dir, ends, group, mask, without).map_err(|error| failed(&error))?;
        let watch = Watch {
            policy: &plan.policy,
            judge: Some(Judge {
                plan: plan.clone(),
                table: running.table.into(),
                foresight: Foresight::new(plan, !without.namespaces),
                writable: Writable { trees: plan.writable(), protected: plan.protected() },
                reach: Reach {
                    network: plan.network.clone(),
                    ports: plan.policy.network.ports.clone(),
                    sockets: Sockets::of(plan),
                    proxy: plan.proxy.map(|proxy| (proxy, door.clone())),
                    own_network: plan.inside.is_some_and(|inside| inside.own_network),
                },
            }),
            lesson: (plan.purpose == Purpose::Learn).then(Lesson::default),
            signals: options.signals,
            shares_terminal: group == Group::Shared,
            wrapped: false,
            outside: options.outside.map(|outside| outside.socket),
            streams,
            meter: Meter::new(&plan.policy.limits, running.cgroup),
            browser: plan.browser.as_ref().map(|_| Look::new(plan.no_inner_sandbox.clone())),
            held: Vec::new(),
            run_dir,
            embedding: options.embedding,
        };
        let mut ended =
            supervise(running.started, watch).map_err(|error| failed(&format_args!("supervision: {error}")))?;
        match &ended.end {
            // Tried and found not to be had here: the program has not started, so it can be tried without.
            End::Setup { step: "seccomp", errno: libc::EBUSY, .. }
                if !without.listener && plan.purpose != Purpose::Learn =>
            {
                without.listener = true;
                if plan.policy.maps_ids() && plan.browser.is_some() && plan.no_inner_sandbox.is_none() {
                    return Err(failed(&UNMAPPED));
                }
                if by_address(&plan.policy, &plan.network) {
                    if plan.policy.require_sandbox && plan.inside.is_none_or(|inside| !inside.own_network) {
                        return Err(Box::new(
                            Refusal::unwatched(plan.network.word()).with_verdict(plan.verdict.clone()),
                        ));
                    }
                    (options.warn)(
                        "no network at all: an outer sandbox listens already, so nobody can look at addresses",
                    );
                }
            }
            End::Setup { step: "namespaces" | "mounts", mount, errno }
                if !without.namespaces && lacks(mount, *errno) =>
            {
                without.namespaces = true;
            }
            _ => {
                let lesson = ended.lesson.take();
                let changed = std::mem::take(&mut ended.changed);
                let mut report = report(prepared, running.layers, ended);
                enforce::leftovers::remove(plan, &mut report.layers);
                changed.tell(&mut report.layers);
                report.layers.extend(proxy_layer(plan, without.listener));
                if let Some(proxy) = &proxy {
                    add_refusals(&mut report, plan, proxy);
                }
                return Ok((report, lesson));
            }
        }
        // What is left here is told by the end of the next try, which makes a directory of the same name.
        let _ = run_dir.remove();
    }
}

/// Why a browser cannot be started under a sandbox that has taken the listener.
const UNMAPPED: &str = "an outer sandbox listens already, so nobody can write the id maps of the browser's own sandbox; start it \
                        outside of that sandbox, or with --no-inner-sandbox";

/// Whether this host cannot make the mounts of any run. A place that was not found as it was planned is another matter: it
/// may have been changed for just that.
fn lacks(mount: &Option<Mounting>, errno: i32) -> bool {
    mount.as_ref().is_none_or(|mount| mount.found && matches!(errno, libc::EPERM | libc::EACCES | libc::ENOSYS))
}

/// Starts the proxy, where hosts are listed: here, or outside by whoever is sent the listener.
fn serve(prepared: &Prepared, options: &Options<'_>) -> io::Result<(Option<Proxy>, Option<Door>)> {
    let Some(listener) = &prepared.listener else { return Ok((None, None)) };
    let own_network = prepared.plan.inside.is_some_and(|inside| inside.own_network);
    if let Some(outside) = options.outside.filter(|_| own_network) {
        message::pass(outside.socket, listener.as_fd())?;
        return Ok((None, None));
    }
    let gate = Gate::new(prepared.plan.policy.allowlist(), Box::new(System));
    let door = Door::default();
    Ok((Some(Proxy::start(listener.try_clone()?, gate, Guests::Known(door.clone()))?), Some(door)))
}

fn proxy_layer(plan: &Plan, unwatched: bool) -> Option<LayerReport> {
    let (proxy, NetworkMode::Hosts(hosts)) = (plan.proxy?, &plan.network) else { return None };
    Some(match unwatched {
        true => LayerReport {
            layer: Layer::Proxy,
            status: LayerStatus::Unavailable,
            detail: "nobody can look at addresses here: no network at all".to_owned(),
        },
        false => LayerReport {
            layer: Layer::Proxy,
            status: LayerStatus::Enforced,
            detail: format!("{proxy}, {} hosts listed; no other address is reached", hosts.len()),
        },
    })
}

/// What the proxy refused, as denials.
pub(crate) fn add_refusals(report: &mut Report, plan: &Plan, proxy: &Proxy) {
    let (refusals, dropped) = proxy.refusals();
    report.denials.extend(refusals.into_iter().map(|refusal| crate::supervise::denials::of_proxy(refusal, plan)));
    report.denials_dropped += dropped;
}

pub(crate) type Pipes = (Option<[Stream; 2]>, [Option<OwnedFd>; 3]);

pub(crate) fn pipes(plan: &Plan, options: &Options<'_>) -> io::Result<Pipes> {
    let given = |at: usize| {
        let stream = options.embedding.and_then(|embedding| embedding.streams.get(at)?.as_ref());
        stream.map(OwnedFd::try_clone).transpose()
    };
    let given = [given(0)?, given(1)?, given(2)?];
    let inherited = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
    let used = if options.capture { 1 } else { 3 };
    for (at, (given, own)) in given.iter().zip(inherited).enumerate().take(used) {
        refuse_way_in(
            ["standard input", "standard output", "standard error"][at],
            given.as_ref().map_or(own, OwnedFd::as_fd),
        )?;
    }
    // The ends of a browser's pipe.
    for number in plan.inherited() {
        refuse_way_in(&format!("descriptor {number}"), process::duplicate(number)?.as_fd())?;
    }
    let [stdin, stdout, stderr] = given;
    if !options.capture {
        return Ok((None, [stdin, stdout, stderr]));
    }
    let kept = plan.policy.limits.output.unwrap_or(DEFAULT_KEPT);
    let spill = |name: &'static str| options.spill.as_ref().map(|to| (to, name));
    let (stdout, stdout_end) = Stream::new(kept, spill("stdout"))?;
    let (stderr, stderr_end) = Stream::new(kept, spill("stderr"))?;
    Ok((Some([stdout, stderr]), [stdin, Some(stdout_end), Some(stderr_end)]))
}

/// A directory, or a mere place in the tree, would lead the command past every mount: `openat` on it starts there.
fn refuse_way_in(name: &str, stream: BorrowedFd<'_>) -> io::Result<()> {
    match trust::is_a_way_in(stream) {
        true => Err(io::Error::other(format!(
            "{name} is a directory or an O_PATH descriptor, by which the command would reach files past its limits; \
             give it a file, a pipe or /dev/null"
        ))),
        false => Ok(()),
    }
}

/// The caller's own process group where a terminal is at hand, so that job control goes on; else a session of its own.
pub(crate) fn group() -> Group {
    use rustix::stdio::{stderr, stdin, stdout};
    let terminal = [stdin(), stdout(), stderr()].into_iter().any(rustix::termios::isatty);
    if terminal { Group::Shared } else { Group::Session }
}
