//! The outer half of an isolated run: starts bubblewrap with a second gatekeeper inside, supervises it, and merges the
//! inner report into its own.

mod asking;
mod listen;
mod staging;
mod start;

use super::{Options, Prepared, execute, outcome, staged, streams};
use crate::enforce;
use crate::isolate::available::{PATIENCE, cause};
use crate::isolate::config::SandboxConfig;
use crate::isolate::handover::{Handover, HandoverError};
use crate::isolate::{mounts, planned};
use crate::plan::Plan;
use crate::plan::refusal::Refusal;
use crate::policy::{Document, Isolate, Policy};
use crate::proxy::Listens;
use crate::report::{EXIT_SETUP, Layer, LayerReport, LayerStatus, Outcome, Report};
use crate::request::{Inside, Request, THIS_PROGRAM};
use crate::supervise::capture::Stream;
use crate::supervise::{End, Ended, Watch, supervise};
use crate::sys::child::{Group, Launch};
use crate::sys::guardian::Started;
use crate::sys::place::Stub;
use crate::sys::signals;
use crate::trust::{self, Hostile};
use crate::warden;
use asking::Asks;
use listen::{Heard, Listener};
use start::{connect, launch};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Why a run was not isolated. The command did not start in either case.
pub enum Failed {
    /// bubblewrap is missing or does not work here; the text is its own error message.
    Unavailable(String),
    Refused(Box<Refusal>),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Failed {
        Failed::Refused(Box::new(Refusal::setup(format!("isolation: {error}"))))
    }
}

impl From<HandoverError> for Failed {
    fn from(error: HandoverError) -> Failed {
        Failed::Refused(Box::new(Refusal::setup(format!("isolation: {error}"))))
    }
}

/// Extra time, so that the inner timeout fires first.
const LATER: Duration = Duration::from_secs(6);

/// Runs a prepared request inside bubblewrap.
pub fn run(request: &Request, prepared: &Prepared, options: &Options<'_>) -> Result<Report, Failed> {
    let plan = &prepared.plan;
    let bwrap = planned::bwrap(request, plan).map_err(Failed::Unavailable)?;
    if plan.stage.is_some() && !plan.mounts_stage() {
        // The command starts in a copy: no mount namespace can be created, so bubblewrap does not work either.
        return Err(Failed::Unavailable("nothing can be mounted, not even the stage".to_owned()));
    }
    let config = staging::without_stubs(mounts::of(plan), plan);
    // The inner gatekeeper makes its own run directory.
    prepared.run_dir.clear();
    let stubs = stubs(&config)?;
    let group = if options.capture || options.embedding.is_some() { Group::Session } else { streams::group() };
    let shares_terminal = group == Group::Shared;

    let handover = handed_over(request, prepared, options, shares_terminal)?.into_bytes()?;
    let (captured, ends) = streams::pipes(plan, options)?;
    let audit = options.audit.as_ref().map(|audit| audit.hand_over()).transpose()?;
    let (links, ends) = connect(&handover, plan.ask.is_some(), ends, audit)?;
    let asks = Asks::start(links.asks, prepared, options, &config)?;
    let warden = options.embedding.and_then(|_| warden::hire());
    let launch = launch(request, plan, bwrap, &config, ends, group, warden.as_ref())?;
    let launch = staging::around(Launch { stubs: stubs.clone(), ..launch }, prepared)?;
    let started = warden::start(launch, warden)?;
    let listening = listen(links.socket, &started, prepared, options, shares_terminal, asks.as_ref())?;
    let ended = watch(started, prepared, options, &config, captured, shares_terminal);
    let heard = listening.join().map_err(|_| io::Error::other("the thread that receives messages panicked"))?;
    stubs.iter().for_each(Stub::remove);
    let mut ended = ended?;

    let changed = std::mem::take(&mut ended.changed);
    // A protected path was replaced from outside, so the run was ended half way.
    let unprotected = matches!(ended.end, End::Unprotected { .. });
    if !heard.alive && !unprotected {
        asks.iter().for_each(Asks::abandon);
        let why = why_not_started(links.complaints, &heard, &ended.end)?;
        return Err(match planted(&config, &heard, &why) {
            Some(planted) => Failed::Refused(Box::new(Refusal::setup(format!("isolation: {planted}")))),
            None => Failed::Unavailable(why),
        });
    }
    let mut report = outcome::report(prepared, Vec::new(), ended);
    if !unprotected {
        report = with_inner(links.report, report)?;
    }
    report.layers.retain(|layer| layer.layer != Layer::Namespaces);
    report.layers.push(LayerReport {
        layer: Layer::Namespaces,
        status: LayerStatus::Enforced,
        detail: planned::described(&config),
    });
    match plan.stage {
        None => enforce::leftovers::remove(plan, &mut report.layers),
        Some(_) => staged::finish(prepared, &mut report),
    }
    changed.tell(&mut report.layers);
    report.layers.sort_by_key(|layer| layer.layer as u8);
    if let Some(proxy) = &heard.proxy {
        execute::add_refusals(&mut report, plan, proxy);
    }
    report.asked = asks.map(Asks::finish);
    Ok(report)
}

/// The request for the inner gatekeeper: the policy in force, without the parts that bubblewrap carries out.
fn handed_over(
    request: &Request,
    prepared: &Prepared,
    options: &Options<'_>,
    shares_terminal: bool,
) -> io::Result<Handover> {
    let plan = &prepared.plan;
    let mut request = Request {
        flags: inner_policy(plan),
        // Already merged into the flags.
        config: None,
        // Mounted outside.
        stage: None,
        // The run directory lies in the private /tmp and goes away with it.
        keep_tmp: false,
        helper: Some(THIS_PROGRAM.into()),
        home: plan.places.home.clone(),
        inside: Some(Inside { own_network: mounts::has_own_network(plan) }),
        issued: prepared.issued.clone(),
        ..request.clone()
    };
    if plan.browser.is_some() {
        // /tmp is private there, and a browser's socket below it must fit into the 107 bytes of sun_path (unix(7)).
        request.environment.retain(|(name, _)| name != "TMPDIR");
    }
    #[cfg(feature = "http")]
    if let Some(means) = &prepared.means {
        request.environment.retain(|(_, value)| means.secrets.reveals(value.as_bytes()).is_none());
    }
    let blocked = options.signals.map_or_else(signals::current_mask, signals::Signals::before);
    let audit = options.audit.as_ref().map(|audit| audit.hand_over()).transpose()?;
    let audit = audit.map(|handed| (handed.name, handed.run));
    Ok(Handover { request, blocked: signals::members(&blocked), shares_terminal, audit })
}

fn inner_policy(plan: &Plan) -> Document {
    let mut policy: Policy = plan.policy.clone();
    policy.bubblewrap.isolate = Isolate::Disabled;
    policy.bubblewrap.bwrap = None;
    if policy.starts_programs() {
        // A private tmpfs, which goes away with the namespace.
        policy.paths.write.push(PathBuf::from("/tmp"));
    }
    if plan.browser.is_some() {
        // bubblewrap puts files there that name only the browser's user.
        policy.paths.read.iter_mut().for_each(|read| read.extend(["/etc/passwd".into(), "/etc/group".into()]));
    }
    // bubblewrap has already made the policy files read-only, or left them out.
    Document { sources: Vec::new(), ..Document::from(policy) }
}

/// Receives the inner gatekeeper's messages on a separate thread.
fn listen(
    socket: OwnedFd,
    started: &Started,
    prepared: &Prepared,
    options: &Options<'_>,
    shares_terminal: bool,
    asks: Option<&Asks>,
) -> io::Result<JoinHandle<Heard>> {
    let plan = &prepared.plan;
    let listener = Listener {
        socket,
        tree: started.tree.try_clone()?,
        gate: plan
            .proxy
            .map(|_| execute::gate(prepared, options, asks.map(Asks::hub), Listens::default()))
            .transpose()?,
        shares_terminal,
        stopped_to_ask: asks.map(Asks::stops),
        until: plan.policy.timeout.map(|timeout| Instant::now() + timeout + LATER),
    };
    std::thread::Builder::new().spawn(move || listener.listen())
}

/// Supervises bubblewrap to its end. The inner gatekeeper judges the command's calls; bubblewrap itself has no filter.
fn watch(
    started: Started,
    prepared: &Prepared,
    options: &Options<'_>,
    config: &SandboxConfig,
    streams: Option<[Stream; 2]>,
    shares_terminal: bool,
) -> io::Result<Ended> {
    let mut policy = prepared.plan.policy.clone();
    policy.timeout = policy.timeout.map(|timeout| timeout + LATER);
    let watch = Watch {
        policy: &policy,
        judge: None,
        asking: None,
        lesson: None,
        signals: options.signals,
        shares_terminal,
        wrapped: true,
        outside: None,
        streams,
        meter: None,
        browser: None,
        held: if prepared.plan.mounts_stage() { Vec::new() } else { config.held() },
        run_dir: &prepared.run_dir,
        embedding: options.embedding,
    };
    supervise(started, watch)
}

/// The cause, if it lies in a tree that the command may write. An earlier command must not decide that this one runs without
/// isolation.
fn planted(config: &SandboxConfig, heard: &Heard, why: &str) -> Option<String> {
    const MANY: usize = 100;
    let held = if heard.late { config.held() } else { Vec::new() };
    if let Some(path) = held.iter().max_by_key(|path| path.components().count()).filter(|_| held.len() > MANY) {
        let (path, count) = (path.display(), held.len());
        return Some(format!("bubblewrap: {why}: it has to mount {count} closed and protected paths, such as {path}"));
    }
    let names = |top: &PathBuf| why.contains(&format!("{}/", top.display()));
    config.rw_paths.iter().any(names).then(|| format!("bubblewrap: {why}; the command may have changed this path"))
}

/// Why bubblewrap did not start the inner gatekeeper.
fn why_not_started(complaints: OwnedFd, heard: &Heard, end: &End) -> io::Result<String> {
    if heard.late {
        return Ok(format!("it was not ready in {} s", PATIENCE.as_secs()));
    }
    let mut text = [0u8; 4096];
    rustix::io::ioctl_fionbio(&complaints, true)?;
    let read = File::from(complaints).read(&mut text).unwrap_or(0);
    let how = match end {
        End::Status(status) => std::process::ExitStatus::from_raw(*status).to_string(),
        End::Setup { operation, errno, .. } => {
            format!("{}: {}", operation.name(), io::Error::from_raw_os_error(*errno))
        }
        other => format!("{other:?}"),
    };
    Ok(cause(text.get(..read).unwrap_or_default(), &how))
}

/// Adds what the inner gatekeeper reported. Without its report, a normal exit of bubblewrap must not look like success.
fn with_inner(mut file: File, mut outer: Report) -> io::Result<Report> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut bytes)?;
    match serde_json::from_slice::<Report>(&bytes) {
        Ok(inner) => return Ok(merge(inner, outer)),
        Err(_) if outer.outcome == Outcome::Exited => {
            outer.outcome = Outcome::SetupFailed;
            outer.exit_code = i32::from(EXIT_SETUP);
            outer.error = Some("the gatekeeper inside bubblewrap left no report".to_owned());
            outer.layers.clear();
        }
        // It was killed, and our own report says how.
        Err(_) => {}
    }
    Ok(outer)
}

/// The inner report, except for what only the outer gatekeeper knows: command, duration, captured output and run
/// directory. Of the end, the outer one knows only how bubblewrap exited.
fn merge(inner: Report, outer: Report) -> Report {
    Report {
        duration_ms: outer.duration_ms,
        command: outer.command,
        verdict: outer.verdict,
        usage: inner.usage.or(outer.usage),
        limit: inner.limit.or(outer.limit),
        kept: outer.kept,
        kept_because: outer.kept_because,
        captured: outer.captured,
        ..inner
    }
}

/// The mount points that bubblewrap will have to create, to be removed afterwards. Their parents are opened now, so that
/// the command cannot redirect the removal by replacing a parent.
fn stubs(config: &SandboxConfig) -> io::Result<Vec<Stub>> {
    let mut hostile = Hostile::default();
    config.rw_paths.iter().for_each(|path| hostile.add(path));
    let mut stubs = Vec::new();
    for stub in config.stubs() {
        let (Some(parent), Some(name)) = (stub.parent(), stub.file_name()) else { continue };
        // If a link planted by a command leads there, bubblewrap does not get there either.
        let Ok(found) = trust::walk(parent, &hostile) else { continue };
        stubs.push(Stub { parent: Arc::new(found.file), name: CString::new(name.as_bytes())? });
    }
    Ok(stubs)
}
