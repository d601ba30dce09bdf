//! One run without bubblewrap: starts the command, supervises it, and falls back where this host lacks a feature.

use super::outcome::report;
use super::streams::{group, pipes};
use super::{Options, Outside, Prepared, staged};
use crate::audit::{Audit, Entry, Kind};
use crate::enforce::{self, Start, Without};
use crate::operation::Operation;
use crate::plan::Plan;
use crate::plan::paths::SUMMARY;
use crate::plan::refusal::Refusal;
use crate::plan::table::Table;
use crate::plan::table::sockets::by_address;
use crate::policy::NetworkMode;
use crate::proxy::allow::kept_ports;
use crate::proxy::gate::{Gate, Witness};
use crate::proxy::resolve::System;
use crate::proxy::rules::Rules;
use crate::proxy::{Door, Guests, Inspects, Listens, Proxy};
use crate::report::{Layer, LayerReport, LayerStatus, Outcome, Report};
use crate::request::{Ask, Purpose};
use crate::supervise::ask::hosts::Hosts;
use crate::supervise::ask::hub::Hub;
use crate::supervise::ask::never::Never;
use crate::supervise::ask::relay::Relay;
use crate::supervise::ask::view::View;
use crate::supervise::ask::{Asker, Asking};
use crate::supervise::browser::Look;
use crate::supervise::connect::{Reach, Sockets};
use crate::supervise::denials::of_proxy;
use crate::supervise::foresee::Foresight;
use crate::supervise::judge::Judge;
use crate::supervise::lesson::Lesson;
use crate::supervise::metadata::Writable;
use crate::supervise::meter::Meter;
use crate::supervise::{End, Ended, Mounting, Watch, supervise};
use crate::sys::child::Group;
use crate::sys::message;
use crate::sys::process;
use crate::sys::signals::{self, Signals};
use crate::warden;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Runs a prepared request to its end.
pub fn execute(prepared: &Prepared, options: &Options<'_>) -> Result<(Report, Option<Lesson>), Box<Refusal>> {
    let plan = &prepared.plan;
    plan.warnings.iter().for_each(|warning| (options.warn)(warning));
    let failed = |error: String| Box::new(Refusal::setup(error).with_verdict(plan.verdict.clone()));
    has_spare_descriptors().map_err(|error| failed(format!("descriptors: {error}; raise ulimit -n")))?;
    let asks = ask(plan, options).map_err(|error| failed(format!("--ask: {error}")))?;
    let hub = asks.as_ref().and_then(Asks::hub);
    let (proxy, door) = serve(prepared, options, hub).map_err(|error| failed(format!("proxy: {error}")))?;
    if let Some(audit) = &options.audit {
        let entry = Entry::allowed(Kind::Exec).with("path", plan.target.path.to_string_lossy().into_owned());
        audit.note(entry).map_err(|error| failed(error.to_string()))?;
    }
    let mut without = Without { listener: false, namespaces: false };
    loop {
        let attempted = attempt(prepared, options, door.as_ref(), asks.as_ref(), without);
        let (layers, ended) = match attempted {
            Ok(attempted) => attempted,
            Err(error) => {
                hub.into_iter().for_each(|hub| drop(hub.finish()));
                return Err(failed(error));
            }
        };
        match fallback(&ended.end, plan, without) {
            // The program has not started, so the run can be tried without what this host lacks.
            Some(less) => {
                if less.listener != without.listener {
                    if asks.is_some() {
                        return Err(failed(UNASKED.to_owned()));
                    }
                    permit_unsupervised(plan, options)?;
                }
                if less.namespaces != without.namespaces {
                    warn_of_open_files(plan, options);
                    plan.unmounted.store(true, Ordering::Relaxed);
                    prepared.run_dir.rewrite(SUMMARY, plan.summary().into_bytes());
                }
                without = less;
                // The next try makes a directory of the same name; what cannot be removed now fails then.
                let _ = prepared.run_dir.remove();
            }
            None => {
                let asked = hub.map(|hub| hub.finish());
                let (mut report, lesson) = finished(prepared, layers, ended, proxy.as_ref(), without);
                report.asked = asked;
                return Ok((report, lesson));
            }
        }
    }
}

/// Starts the command once and follows it to its end.
fn attempt(
    prepared: &Prepared,
    options: &Options<'_>,
    door: Option<&Door>,
    asks: Option<&Asks>,
    without: Without,
) -> Result<(Vec<LayerReport>, Ended), String> {
    let Prepared { plan, run_dir, .. } = prepared;
    let group = match options.outside {
        Some(Outside { shares_terminal: true, .. }) => Group::Shared,
        Some(_) => Group::Session,
        None if options.capture || options.embedding.is_some() => Group::Session,
        None => group(),
    };
    let mask = options.signals.map_or_else(signals::current_mask, Signals::before);
    let (streams, ends) = pipes(plan, options).map_err(|error| format!("standard streams: {error}"))?;
    let lock = staged::lock(prepared).map_err(|error| format!("stage: {error}"))?;
    let warden = prepared.warden.clone().or_else(|| options.embedding.and_then(|_| warden::hire()));
    let reused = prepared.reused.clone();
    let waits = prepared.supposed.is_some();
    let alone = options.embedding.is_none();
    let start = Start { streams: ends, group, mask, without, lock, warden, reused, waits, alone };
    let running = enforce::start(plan, run_dir, start).map_err(|error| error.to_string())?;
    if let Some(supposed) = &prepared.supposed {
        supposed.confirm(prepared, &running.started)?;
    }
    let asking = match asks {
        None => None,
        Some(Asks::Here(hub)) => {
            hub.started(running.started.guardian, plan.policy.timeout.map(|timeout| Instant::now() + timeout));
            let never = Never::new(plan, run_dir.path());
            Some(Asking::Here(Asker { hub: hub.clone(), never, view: View::Programs }))
        }
        Some(Asks::Outside(relay)) => {
            relay.started(running.started.guardian).map_err(|error| format!("--ask: {error}"))?;
            Some(Asking::Outside(relay.clone()))
        }
    };
    let watch = Watch {
        policy: &plan.policy,
        judge: Some(Judge { asking, ..judge(plan, running.table, door, without, options.audit.clone()) }),
        asking: asks.and_then(Asks::hub).cloned(),
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
    let ended = supervise(running.started, watch).map_err(|error| format!("supervision: {error}"))?;
    Ok((running.layers, ended))
}

/// What the supervisor decides notified calls by.
pub(super) fn judge(
    plan: &Arc<Plan>,
    table: Arc<Table>,
    door: Option<&Door>,
    without: Without,
    audit: Option<Arc<Audit>>,
) -> Judge {
    Judge {
        audit,
        plan: plan.clone(),
        foresight: Foresight::new(plan, &table, !without.namespaces),
        table,
        writable: Writable::new(plan.written(), plan.protected(), plan.mounted()),
        reach: Reach {
            network: plan.network.clone(),
            ports: plan.policy.network.ports.clone(),
            sockets: Sockets::of(plan),
            proxy: plan.proxy.map(|proxy| (proxy, door.cloned())),
            own_network: plan.has_own_network(),
            kept: kept_ports(&plan.policy.network.credentials),
        },
        asking: None,
    }
}

/// What a run asks by.
pub(super) enum Asks {
    Here(Arc<Hub>),
    Outside(Relay),
}

impl Asks {
    fn hub(&self) -> Option<&Arc<Hub>> {
        match self {
            Asks::Here(hub) => Some(hub),
            Asks::Outside(_) => None,
        }
    }
}

/// Starts what asks, if the request does.
fn ask(plan: &Plan, options: &Options<'_>) -> io::Result<Option<Asks>> {
    let Some(ask) = &plan.ask else { return Ok(None) };
    if let Some(outside) = options.outside.and_then(|outside| outside.asks) {
        return Relay::start(outside.try_clone_to_owned()?).map(|relay| Some(Asks::Outside(relay)));
    }
    hub(ask, options).map(|hub| Some(Asks::Here(hub)))
}

/// The questions of a run.
pub(super) fn hub(ask: &Ask, options: &Options<'_>) -> io::Result<Arc<Hub>> {
    match &options.answerer {
        Some(answerer) => Hub::start(answerer.clone(), ask.patience, options.audit.clone()),
        // Never silently run without asking.
        None => Err(io::Error::other("no one answers")),
    }
}

/// Why a run that asks is refused under a sandbox that has taken the listener.
const UNASKED: &str =
    "--ask is not possible: an outer sandbox has the seccomp listener, so refused calls are not noticed here";

/// What to leave out of the next try, if this one failed because the host lacks it.
fn fallback(end: &End, plan: &Plan, without: Without) -> Option<Without> {
    match end {
        // A process tree can have one listener, and an outer sandbox has taken it.
        End::Setup { operation: Operation::Seccomp, errno: libc::EBUSY, .. }
            if !without.listener && plan.purpose != Purpose::Learn =>
        {
            Some(Without { listener: true, ..without })
        }
        End::Setup { operation: Operation::Namespaces | Operation::Mounts, mount, errno }
            if !without.namespaces && !plan.makes_own_network() && !plan.mounts_stage() && lacks(mount, *errno) =>
        {
            Some(Without { namespaces: true, ..without })
        }
        _ => None,
    }
}

/// Refuses, or warns, where the policy needs a supervisor and an outer sandbox has taken the listener.
fn permit_unsupervised(plan: &Plan, options: &Options<'_>) -> Result<(), Box<Refusal>> {
    let refuse = |refusal: Refusal| Box::new(refusal.with_verdict(plan.verdict.clone()));
    if plan.policy.maps_ids() && plan.browser.is_some() && plan.no_inner_sandbox.is_none() {
        return Err(refuse(Refusal::setup(UNMAPPED)));
    }
    if by_address(&plan.policy, &plan.network) {
        if plan.policy.require_sandbox && plan.inside.is_none_or(|inside| !inside.own_network) {
            return Err(refuse(Refusal::unwatched(plan.network.word())));
        }
        (options.warn)("no network at all: an outer sandbox has the listener, so no supervisor can check addresses");
    }
    Ok(())
}

/// Names the closed files that stay open, because only a mount could close them and this host makes none.
fn warn_of_open_files(plan: &Plan, options: &Options<'_>) {
    let open = enforce::mounts::Wanted::of(plan).left_readable();
    if !open.is_empty() {
        (options.warn)(&format!(
            "no mount namespace can be created here, so the command can read and write {}; --deny-path closes a file without one, \
             and gatekeeper doctor prints how to enable namespaces",
            crate::plan::paths::shown(&open, 20)
        ));
    }
}

/// The report of the try that counts.
fn finished(
    prepared: &Prepared,
    layers: Vec<LayerReport>,
    mut ended: Ended,
    proxy: Option<&Proxy>,
    without: Without,
) -> (Report, Option<Lesson>) {
    let plan = &prepared.plan;
    let lesson = ended.lesson.take();
    let changed = std::mem::take(&mut ended.changed);
    let mut report = report(prepared, layers, ended);
    if plan.stage.is_none() {
        enforce::leftovers::remove(plan, &mut report.layers);
    }
    staged::finish(prepared, &mut report);
    changed.tell(&mut report.layers);
    report.layers.extend(proxy_layer(plan, without.listener));
    if let Some(proxy) = proxy {
        add_refusals(&mut report, plan, proxy);
    }
    if report.outcome == Outcome::SetupFailed {
        // Nothing was run: what was prepared is in force for nothing.
        report.layers.clear();
    }
    (report, lesson)
}

/// Descriptors that supervision holds at the same time. With fewer, the supervisor could not look at a denied call, and the
/// report would lack it.
const SPARE: usize = 18;

fn has_spare_descriptors() -> io::Result<()> {
    if process::unused_descriptors().is_ok_and(|unused| unused >= SPARE) {
        return Ok(());
    }
    let first = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?;
    let others: io::Result<Vec<OwnedFd>> = (1..SPARE).map(|_| first.try_clone()).collect();
    others.map(drop)
}

/// Why a browser cannot be started under a sandbox that has taken the listener.
const UNMAPPED: &str = "an outer sandbox has the listener, so no supervisor can write the id maps of the browser's own sandbox; \
                        start it outside of that sandbox, or with --no-inner-sandbox";

/// Whether this host cannot make mounts at all. A place that is not as planned is no reason to fall back: another process may
/// have changed it to make us do that.
fn lacks(mount: &Option<Mounting>, errno: i32) -> bool {
    mount.as_ref().is_none_or(|mount| mount.found && matches!(errno, libc::EPERM | libc::EACCES | libc::ENOSYS))
}

/// Starts the proxy where hosts are listed: in this process, or in the gatekeeper outside, which gets the listener.
fn serve(
    prepared: &Prepared,
    options: &Options<'_>,
    hub: Option<&Arc<Hub>>,
) -> io::Result<(Option<Proxy>, Option<Door>)> {
    let Some(listener) = &prepared.listener else { return Ok((None, None)) };
    let own_network = prepared.plan.inside.is_some_and(|inside| inside.own_network);
    if let Some(outside) = options.outside.filter(|_| own_network) {
        message::pass(outside.socket, listener.as_fd())?;
        return Ok((None, None));
    }
    let door = Door::default();
    let (gate, inspects) = gate(prepared, options, hub, door.listens.clone())?;
    Ok((Some(Proxy::start(listener.try_clone()?, gate, Guests::Known(door.clone()), inspects)?), Some(door)))
}

/// The proxy's rules for hosts, and what looks into requests if the policy has rules for them.
pub(super) fn gate(
    prepared: &Prepared,
    options: &Options<'_>,
    hub: Option<&Arc<Hub>>,
    listens: Listens,
) -> io::Result<(Arc<Gate>, Inspects)> {
    let policy = &prepared.plan.policy;
    let witness = options.refused.clone().map(|refused| -> Witness {
        let plan = prepared.plan.clone();
        Box::new(move |refusal| refused(of_proxy(refusal, &plan)))
    });
    let gate = Gate::new(policy.allowlist(), Box::new(System)).audited(options.audit.clone());
    let rules = Rules::new(&policy.network.http, &policy.network.credentials);
    let mut gate = gate.with_witness(witness).ruled_by(rules.clone()).apart_from(listens);
    if let Some(hub) = hub {
        gate = gate.asking(Box::new(Hosts::new(hub.clone(), prepared.plan.clone())));
    }
    let gate = Arc::new(gate);
    if !policy.inspects() {
        return Ok((gate, None));
    }
    #[cfg(feature = "http")]
    if let Some(means) = &prepared.means {
        use crate::proxy::inspect::Inspector;
        let inspects = Inspector::start(gate.clone(), rules, means.clone(), options.audit.clone())?;
        return Ok((gate, Some(inspects)));
    }
    Err(io::Error::other("the rules for requests cannot be enforced here"))
}

fn proxy_layer(plan: &Plan, unwatched: bool) -> Option<LayerReport> {
    let (proxy, NetworkMode::Hosts(hosts)) = (plan.proxy?, &plan.network) else { return None };
    Some(match unwatched {
        true => LayerReport {
            layer: Layer::Proxy,
            status: LayerStatus::Unavailable,
            detail: "no supervisor can check addresses here: no network at all".to_owned(),
        },
        false => LayerReport {
            layer: Layer::Proxy,
            status: LayerStatus::Enforced,
            detail: format!("{proxy}, {} hosts listed; no other address is reached", hosts.len()),
        },
    })
}

/// Adds what the proxy refused to the denials.
pub(crate) fn add_refusals(report: &mut Report, plan: &Plan, proxy: &Proxy) {
    let (refusals, dropped) = proxy.refusals();
    report.denials.extend(refusals.into_iter().map(|refusal| of_proxy(refusal, plan)));
    report.denials_dropped += dropped;
}
