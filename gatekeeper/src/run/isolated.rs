//! The gatekeeper outside: starts bubblewrap, follows it to its end, and puts the report of the one inside into its own.

use super::inside::{INSIDE, PROGRAM};
use super::{Options, Prepared};
use crate::isolate::available::{PATIENCE, cause};
use crate::isolate::config::SandboxConfig;
use crate::isolate::handover::{Handover, HandoverError};
use crate::isolate::{mounts, planned};
use crate::operation::Operation;
use crate::plan::Plan;
use crate::plan::refusal::Refusal;
use crate::policy::{Document, Isolate};
use crate::proxy::gate::Gate;
use crate::proxy::resolve::System;
use crate::proxy::{Guests, Proxy};
use crate::report::{EXIT_SETUP, Layer, LayerReport, LayerStatus, Outcome, Report};
use crate::request::{Inside, Request};
use crate::supervise::{End, Watch, ending, supervise};
use crate::sys::child::{Arguments, Group, Launch};
use crate::sys::message::{self, Message};
use crate::sys::place::Stub;
use crate::sys::progress::Progress;
use crate::sys::{guardian, signals};
use crate::trust::{self, Hostile};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::MemfdFlags;
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Why a run was not isolated. In both cases nothing was run.
pub enum Failed {
    /// bubblewrap is not there or does not work: in its own words.
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

/// How much later than the one inside the time is up here, should that one not have seen to it.
const LATER: Duration = Duration::from_secs(6);

/// How bubblewrap itself is started; the gatekeeper inside carries out the plan.
const OPERATIONS: [Operation; 7] = [
    Operation::Signals,
    Operation::ProcessGroup,
    Operation::StandardStreams,
    Operation::WorkingDirectory,
    Operation::Descriptors,
    Operation::NoNewPrivs,
    Operation::Exec,
];

/// Runs a prepared request inside of bubblewrap.
pub fn run(request: &Request, prepared: &Prepared, options: &Options<'_>) -> Result<Report, Failed> {
    let plan = &prepared.plan;
    let bwrap = planned::bwrap(request, plan).map_err(Failed::Unavailable)?;
    let config = mounts::of(plan);
    // The gatekeeper inside makes its own.
    prepared.run_dir.clear();
    let stubs = held(&config)?;
    let group = if options.capture || options.embedding.is_some() { Group::Session } else { super::streams::group() };
    let shares_terminal = group == Group::Shared;

    let request_file = memory_file(&handed_over(request, prepared, options, shares_terminal).to_bytes()?)?;
    let mut report_file = memory_file(&[])?;
    let (outside, inside) = message::pair()?;
    let (said, stderr) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(io::Error::from)?;
    let (streams, [stdin, stdout, captured]) = super::streams::pipes(plan, options)?;
    let own_stderr = match captured {
        Some(captured) => captured,
        None => rustix::io::dup(rustix::stdio::stderr()).map_err(io::Error::from)?,
    };
    let mut kept = vec![request_file.into(), OwnedFd::from(report_file.try_clone()?), inside, own_stderr];
    let mut words = words(request, plan, &bwrap.argv, &config)?;
    for (path, contents) in &config.files {
        let mut file = memory_file(contents)?;
        file.seek(SeekFrom::Start(0))?;
        words.extend(["--ro-bind-data".into(), file.as_raw_fd().to_string().into(), path.into()]);
        kept.push(file.into());
    }
    words.extend(inside_words(&kept));
    let words = words.into_iter().map(|word| CString::new(word.into_vec()).map_err(io::Error::from));
    let words = words.collect::<io::Result<Vec<_>>>()?;
    let launch = Launch {
        operations: OPERATIONS.to_vec(),
        program: bwrap.file.into(),
        directory: c"/".to_owned(),
        streams: [stdin, stdout, Some(stderr)],
        limits: Vec::new(),
        group,
        // What is passed on is blocked here, and so in bubblewrap, which would die of it: the one inside takes it.
        mask: signals::current_mask(),
        mounts: None,
        watched: mounts::held(&config)?,
        ruleset: None,
        filter: None,
        arguments: Arguments::new(words, Vec::new())?,
        place: None,
        stubs: stubs.clone(),
        cgroup: None,
        kept,
        numbers: plan.inherited(),
        progress: Progress::new()?,
    };
    let started = guardian::start(launch)?;
    let tree = started.tree.try_clone()?;
    let gate = plan.proxy.is_some().then(|| Gate::new(plan.policy.allowlist(), Box::new(System)));
    let until = plan.policy.timeout.map(|timeout| Instant::now() + timeout + LATER);
    let listening = std::thread::Builder::new().spawn(move || hear(&outside, &tree, gate, shares_terminal, until))?;

    let mut policy = plan.policy.clone();
    policy.timeout = policy.timeout.map(|timeout| timeout + LATER);
    let watch = Watch {
        policy: &policy,
        // The calls of the command are judged inside; bubblewrap itself has no filter.
        judge: None,
        lesson: None,
        signals: options.signals,
        shares_terminal,
        wrapped: true,
        outside: None,
        streams,
        meter: None,
        browser: None,
        held: config.held(),
        run_dir: &prepared.run_dir,
        embedding: options.embedding,
    };
    let ended = supervise(started, watch);
    let heard = listening.join().map_err(|_| io::Error::other("the thread that listened is gone"))?;
    stubs.iter().for_each(Stub::remove);
    let mut ended = ended?;
    let lost = match &ended.end {
        End::Unprotected { why } => Some(why.clone()),
        _ => None,
    };
    let changed = std::mem::take(&mut ended.changed);
    if !heard.alive && lost.is_none() {
        let mut text = [0u8; 4096];
        rustix::io::ioctl_fionbio(&said, true).map_err(io::Error::from)?;
        let read = File::from(said).read(&mut text).unwrap_or(0);
        let why = match heard.late {
            true => format!("it was not ready in {} s", PATIENCE.as_secs()),
            false => cause(text.get(..read).unwrap_or_default(), &how(&ended.end)),
        };
        return Err(Failed::Unavailable(why));
    }
    let mut bytes = Vec::new();
    report_file.seek(SeekFrom::Start(0))?;
    report_file.read_to_end(&mut bytes)?;
    let mut report = super::outcome::report(prepared, Vec::new(), ended);
    match serde_json::from_slice::<Report>(&bytes) {
        Ok(inner) if lost.is_none() => report = merge(inner, report),
        // It was ended half way, and what it wrote is not the end of it.
        Ok(_) => {}
        Err(_) if lost.is_some() => {}
        // It was killed from outside, and everything with it.
        Err(_) if report.outcome == Outcome::Exited => {
            report.outcome = Outcome::SetupFailed;
            report.exit_code = i32::from(EXIT_SETUP);
            report.error = Some("the gatekeeper inside of bubblewrap left no report".to_owned());
        }
        Err(_) => {}
    }
    report.layers.retain(|layer| layer.layer != Layer::Namespaces);
    report.layers.push(LayerReport {
        layer: Layer::Namespaces,
        status: LayerStatus::Enforced,
        detail: planned::described(&config),
    });
    crate::enforce::leftovers::remove(plan, &mut report.layers);
    changed.tell(&mut report.layers);
    report.layers.sort_by_key(|layer| layer.layer as u8);
    if let Some(proxy) = &heard.proxy {
        super::execute::add_refusals(&mut report, plan, proxy);
    }
    Ok(report)
}

/// Puts the report of the gatekeeper inside in place of our own, which knows only how bubblewrap ended. The command, the time, the
/// captured output and the run's directory are ours.
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

/// The policy in force, without what is done out here.
fn handed_over(request: &Request, prepared: &Prepared, options: &Options<'_>, shares_terminal: bool) -> Handover {
    let plan = &prepared.plan;
    let mut policy = plan.policy.clone();
    policy.bubblewrap.isolate = Isolate::Disabled;
    policy.bubblewrap.bwrap = None;
    if policy.starts_programs() {
        // Private, and gone at the end.
        policy.paths.write.push(PathBuf::from("/tmp"));
    }
    if plan.browser.is_some() {
        // Its own in there.
        policy.paths.read.iter_mut().for_each(|read| read.extend(["/etc/passwd".into(), "/etc/group".into()]));
    }
    let mut flags = Document::from(policy);
    // Read-only in there by now, if they are there at all.
    flags.sources = Vec::new();
    let inside = Some(Inside { own_network: mounts::has_own_network(plan) });
    let mut request = Request { flags, config: None, inside, ..request.clone() };
    if plan.browser.is_some() {
        // /tmp is its own in there, and a socket below it has 107 bytes for its path.
        request.environment.retain(|(name, _)| name != "TMPDIR");
    }
    let blocked = options.signals.map_or_else(signals::current_mask, signals::Signals::before);
    Handover { request, blocked: signals::members(&blocked), shares_terminal }
}

fn words(request: &Request, plan: &Plan, argv: &[OsString], config: &SandboxConfig) -> Result<Vec<OsString>, Failed> {
    let program = planned::own_program(request, plan).map_err(Failed::Unavailable)?;
    let mut words: Vec<OsString> = argv.to_vec();
    words.extend(config.options());
    words.extend(["--ro-bind".into(), program.into(), PROGRAM.into(), "--as-pid-1".into()]);
    Ok(words)
}

/// The program inside, and the first four descriptors, which are for it.
fn inside_words(kept: &[OwnedFd]) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["--".into(), PROGRAM.into(), INSIDE.into()];
    words.extend(kept.iter().take(4).map(|fd| fd.as_raw_fd().to_string().into()));
    words
}

fn memory_file(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(rustix::fs::memfd_create("gatekeeper", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    Ok(file)
}

/// What came from inside.
struct Heard {
    alive: bool,
    late: bool,
    proxy: Option<Proxy>,
}

/// Hears the one inside until it is gone: that it is there, where the proxy is to accept, that the command has stopped.
fn hear(
    outside: &OwnedFd,
    tree: &OwnedFd,
    mut gate: Option<Gate>,
    shares_terminal: bool,
    until: Option<Instant>,
) -> Heard {
    let mut heard = Heard { alive: false, late: false, proxy: None };
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let wait = (!heard.alive).then(|| rustix::event::Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: i64::from(left.subsec_nanos()),
        });
        let mut polled = [PollFd::new(outside, PollFlags::IN)];
        match poll(&mut polled, wait.as_ref()) {
            Ok(0) if !heard.alive && left.is_zero() => {
                heard.late = true;
                let _ = message::send(tree.as_fd(), &Message { kind: Message::KILL, ..Message::default() });
                // What comes now comes from a tree that is being ended.
                return heard;
            }
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(_) => return heard,
        }
        match message::receive(outside.as_fd()) {
            Ok(Some((Message { kind: Message::ALIVE, .. }, _))) => heard.alive = true,
            Ok(Some((Message { kind: Message::LISTENER, .. }, Some(listener)))) => {
                // Nobody but the command can reach it where it listens.
                let serve = |gate| Proxy::start(listener.into(), gate, Guests::Everybody).ok();
                heard.proxy = gate.take().and_then(serve);
            }
            Ok(Some((Message { kind: Message::STOPPED, .. }, _))) if shares_terminal => ending::stop_with(0, until),
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => return heard,
        }
    }
}

/// Mount points that bubblewrap has to make, to be removed if nothing was put there. Their parents are opened now: what
/// the command puts in place of a parent is not looked into.
fn held(config: &SandboxConfig) -> io::Result<Vec<Stub>> {
    let mut hostile = Hostile::default();
    config.rw_paths.iter().for_each(|path| hostile.add(path));
    let mut stubs = Vec::new();
    for stub in config.stubs() {
        let (Some(parent), Some(name)) = (stub.parent(), stub.file_name()) else { continue };
        // By a link of a command's, bubblewrap does not reach it either.
        let Ok(found) = trust::walk(parent, &hostile) else { continue };
        stubs.push(Stub { parent: Arc::new(found.file), name: CString::new(name.as_bytes())? });
    }
    Ok(stubs)
}

fn how(end: &End) -> String {
    match end {
        End::Status(status) => std::process::ExitStatus::from_raw(*status).to_string(),
        End::Setup { operation, errno, .. } => {
            format!("{}: {}", operation.name(), io::Error::from_raw_os_error(*errno))
        }
        other => format!("{other:?}"),
    }
}
