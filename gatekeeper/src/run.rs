//! The whole pipeline: a request in, a report out. Whatever goes wrong on the way is a report as well.

use crate::browser::inner::Look;
use crate::check::{Context, Disk as Files, Preload, Verdict, check};
use crate::enforce::{self, Without, rundir::RunDir};
use crate::host::Host;
use crate::isolate;
use crate::learn::{self, Learned, Lesson};
use crate::plan::paths::SUMMARY;
use crate::plan::refusal::Refusal;
use crate::plan::table::sockets::by_address;
use crate::plan::{Made, Plan, disk::Disk};
use crate::policy::{self, Document, Isolate, Limits, NetworkMode, Policy, PolicyError};
use crate::proxy::gate::Gate;
use crate::proxy::resolve::System;
use crate::proxy::{self, Door, Guests, Proxy};
use crate::request::{Purpose, Request};
use crate::supervise::capture::{DEFAULT_KEPT, Stream};
use crate::supervise::connect::Reach;
use crate::supervise::foresee::Foresight;
use crate::supervise::metadata::Writable;
use crate::supervise::meter::{Meter, Peaks};
use crate::supervise::report::{
    Captured, Exceeded, Layer, LayerReport, LayerStatus, Outcome, PeakOf, Report, Usage, Which,
};
use crate::supervise::{End, Ended, Watch, supervise};
use crate::sys::child::Group;
use crate::sys::message;
use crate::sys::probe::{self, Attempt};
use crate::sys::signals::{self, Signals};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// How a run is watched, beside what the policy says.
pub struct Options<'a> {
    /// Keep what it prints for the report, instead of letting it through.
    pub capture: bool,
    /// Where the whole of each captured stream goes when it is too long; the caller's to remove.
    pub spill: Option<[PathBuf; 2]>,
    /// Signals to pass on; `None` for a program that handles its own.
    pub signals: Option<&'a Signals>,
    /// Called with each warning before the command starts.
    pub warn: &'a dyn Fn(&str),
    /// The gatekeeper outside, where this one runs inside of bubblewrap.
    pub outside: Option<Outside<'a>>,
    /// Where this process is not the run's own, but a program with other things to do.
    pub embedding: Option<&'a Embedding>,
}

/// What a program that embeds the library gives to a run. Its own signals, children and terminal are left alone.
pub struct Embedding {
    /// What the command gets in place of this process's own streams; captured ones are pipes all the same.
    pub streams: [Option<OwnedFd>; 3],
    /// Readable when the run is to be ended.
    pub cancel: OwnedFd,
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
    outcome.unwrap_or_else(|refusal| Report::refused(lossy(&request.words()), *refusal, started.elapsed()))
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
    outcome.unwrap_or_else(|refusal| (Report::refused(lossy(&request.words()), *refusal, started.elapsed()), None))
}

/// What stands in a plan for what only a run makes.
const PRIVATE_TMP: &str = "(private TMPDIR)";
const EMBEDDED: &str = "(embedded libsandbox.so)";

/// A plan, and the directory that it uses.
pub struct Prepared {
    pub plan: Plan,
    pub(crate) run_dir: RunDir,
    /// Where the proxy listens, where hosts are listed.
    listener: Option<TcpListener>,
}

/// Makes the plan of a request. `for_real`: with a private temporary directory made, not only named.
pub fn prepare(request: &Request, for_real: bool) -> Result<Prepared, Box<Refusal>> {
    let policy = policy_of(request)?;
    let host = Host::probe();
    let run_dir = RunDir::new(&temporary_base(request), request.keep_tmp, request.helper.as_deref())
        .map_err(|error| Refusal::setup(format!("run directory: {error}")))?;
    let mut made = make(&policy, request.purpose, &run_dir, for_real);
    if let Some(browser) = &request.browser {
        made.no_inner_sandbox = no_inner_sandbox(for_real);
        if let Some(downloads) = &browser.downloads {
            run_dir.file(USER_DIRS, format!("XDG_DOWNLOAD_DIR=\"{}\"\n", downloads.display()).into_bytes(), 0o400);
        }
    }
    let listener = proxy_port(&policy, request, for_real, &mut made)?;
    let files = Files::new();
    let preload = match &made.library {
        Some(library) if policy.libsandbox.is_some() => Preload::at(library, &request.cwd, &files),
        // The guardian writes it there when the run starts.
        Some(library) if for_real => Preload::embedded().to_be_at(library),
        _ => Preload::embedded(),
    };
    let context = context(request, preload);
    let words = request.words();
    let Some(command) = words.first() else { return Err(Box::new(Refusal::refused("no command was given"))) };
    let checked = check(command, &context, &files);
    let look_up = |name: &std::ffi::OsStr| -> Verdict { check(name, &context, &files).verdict };
    let plan = Plan::new(request, policy, &host, checked, &look_up, &Disk, made)?;
    if plan.places.summary().is_some() {
        // Where a directory is made anyway; alone it would cost more than everything else that is made for a command.
        run_dir.file(SUMMARY, plan.summary().into_bytes(), 0o400);
    }
    Ok(Prepared { plan, run_dir, listener })
}

/// Where programs look for the user's own directories, below XDG_CONFIG_HOME.
const USER_DIRS: &str = "tmp/user-dirs.dirs";

/// Why a browser could not have its own sandbox where this process is: tried, because it does not start without.
fn no_inner_sandbox(for_real: bool) -> Option<String> {
    if rustix::process::geteuid().is_root() {
        return Some("as root the browser has none".to_owned());
    }
    match for_real.then(probe::user_namespace)? {
        Ok(Attempt::Works | Attempt::Failed { step: 2.., .. }) => None,
        Ok(Attempt::Failed { errno, .. }) => {
            Some(format!("no user namespace can be made here: {}", io::Error::from_raw_os_error(errno)))
        }
        Ok(Attempt::Killed(_)) => Some("no user namespace can be made here: an outer sandbox kills for it".to_owned()),
        Err(error) => Some(format!("no user namespace can be made here: {error}")),
    }
}

fn context(request: &Request, preload: Preload) -> Context {
    let mut context = Context::of_this_process(preload);
    context.path = request.variable("PATH").cloned();
    context.cwd = request.directory().to_owned();
    context.detail = false;
    context
}

/// What the run has of its own: a temporary directory to write in, and the preload where an exact list needs it.
fn make(policy: &Policy, purpose: Purpose, run_dir: &RunDir, for_real: bool) -> Made {
    let mut made = Made::default();
    if policy.starts_programs() || purpose == Purpose::Learn {
        made.tmp = Some(if for_real { run_dir.tmp() } else { PathBuf::from(PRIVATE_TMP) });
    }
    if policy.starts_at_main() {
        made.library = match (&policy.libsandbox, libsandbox_embed::LIBSANDBOX) {
            (Some(path), _) => Some(path.clone()),
            (None, Some(bytes)) if for_real => Some(run_dir.file("libsandbox.so", bytes.to_vec(), 0o500)),
            (None, Some(_)) => Some(PathBuf::from(EMBEDDED)),
            (None, None) => None,
        };
    }
    made
}

/// The port by which a command with a list of hosts reaches them.
fn proxy_port(
    policy: &Policy,
    request: &Request,
    for_real: bool,
    made: &mut Made,
) -> Result<Option<TcpListener>, Box<Refusal>> {
    if !matches!(policy.network_mode(), NetworkMode::Hosts(_)) || request.purpose == Purpose::Learn {
        return Ok(None);
    }
    if !for_real {
        made.proxy = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        return Ok(None);
    }
    let (listener, address) = proxy::listen().map_err(|error| Refusal::setup(format!("proxy: {error}")))?;
    made.proxy = Some(address);
    Ok(Some(listener))
}

pub(crate) fn policy_of(request: &Request) -> Result<Policy, Box<Refusal>> {
    let refuse = |error: PolicyError| {
        Box::new(match error {
            PolicyError::ExecDisabled { .. } => Refusal::refused(error.to_string()),
            _ => Refusal::setup(format!("policy: {error}")),
        })
    };
    let file = request.config.as_ref().map_or(Ok(Document::default()), |path| policy::load(path)).map_err(refuse)?;
    Policy::resolve(request.flags.clone().over(file)).map_err(refuse)
}

fn temporary_base(request: &Request) -> PathBuf {
    let given = request.variable("TMPDIR").map(PathBuf::from).filter(|path| path.is_absolute() && path.is_dir());
    let base = given.unwrap_or_else(|| PathBuf::from("/tmp"));
    std::fs::canonicalize(&base).unwrap_or(base)
}

/// By bubblewrap where that is asked for and works; else, if the policy leaves it open, without, and told so.
fn isolated(request: &Request, prepared: &Prepared, options: &Options<'_>) -> Result<Report, Box<Refusal>> {
    let plan = &prepared.plan;
    let mode = plan.policy.bubblewrap.isolate;
    if mode == Isolate::Disabled || plan.inside.is_some() {
        return execute(prepared, options).map(|(report, _)| report);
    }
    plan.warnings.iter().for_each(|warning| (options.warn)(warning));
    let why = match isolate::outer::run(request, prepared, options) {
        Ok(report) => return Ok(report),
        Err(isolate::outer::Failed::Refused(refusal)) => {
            return Err(Box::new(refusal.with_verdict(plan.verdict.clone())));
        }
        Err(isolate::outer::Failed::Unavailable(why)) => why,
    };
    if mode == Isolate::Required {
        let message = isolate::planned::refused(&why);
        return Err(Box::new(Refusal::setup(message).with_verdict(plan.verdict.clone())));
    }
    (options.warn)(&format!("not isolated, bubblewrap does not work here: {why}; the other layers hold"));
    // What was left away for the sake of the isolation is needed now.
    let mut prepared = prepare(request, true)?;
    prepared.plan.warnings.clear();
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

fn execute(prepared: &Prepared, options: &Options<'_>) -> Result<(Report, Option<Lesson>), Box<Refusal>> {
    let Prepared { plan, run_dir, .. } = prepared;
    plan.warnings.iter().for_each(|warning| (options.warn)(warning));
    let group = match options.outside {
        Some(Outside { shares_terminal: true, .. }) => Group::Inherited,
        Some(_) => Group::Session,
        None if options.capture || options.embedding.is_some() => Group::Session,
        None => group(),
    };
    let mask = options.signals.map_or_else(signals::current_mask, Signals::before);
    let mut without = Without { listener: false, namespaces: false };
    let failed =
        |error: &dyn std::fmt::Display| Box::new(Refusal::setup(error.to_string()).with_verdict(plan.verdict.clone()));
    let (proxy, door) = serve(prepared, options).map_err(|error| failed(&format_args!("proxy: {error}")))?;
    loop {
        let (streams, ends) =
            pipes(plan, options).map_err(|error| failed(&format_args!("standard streams: {error}")))?;
        let running = enforce::start(plan, run_dir, ends, group, mask, without).map_err(|error| failed(&error))?;
        let watch = Watch {
            policy: &plan.policy,
            plan,
            foresight: Foresight::new(plan, !without.namespaces),
            lesson: (plan.purpose == Purpose::Learn).then(Lesson::default),
            table: &running.table,
            network: &plan.network,
            writable: Writable { trees: plan.writable(), protected: plan.protected() },
            reach: Reach {
                network: plan.network.clone(),
                ports: plan.policy.network.ports.clone(),
                trees: plan.sockets(),
                proxy: plan.proxy.map(|proxy| (proxy, door.clone())),
                own_network: plan.inside.is_some_and(|inside| inside.own_network),
            },
            signals: options.signals,
            shares_terminal: matches!(group, Group::Shared(_) | Group::Inherited),
            wrapped: false,
            outside: options.outside.map(|outside| outside.socket),
            streams,
            meter: Meter::new(&plan.policy.limits, running.cgroup),
            browser: plan.browser.as_ref().map(|_| Look::new(plan.no_inner_sandbox.clone())),
            run_dir,
            embedding: options.embedding,
        };
        let mut ended =
            supervise(running.started, watch).map_err(|error| failed(&format_args!("supervision: {error}")))?;
        match &ended.end {
            // Tried and found not to be had here: the program has not started, so it can be tried without.
            End::Setup { step: "seccomp", errno: libc::EBUSY }
                if !without.listener && plan.purpose != Purpose::Learn =>
            {
                without.listener = true;
                if by_address(&plan.policy, &plan.network) {
                    if plan.policy.require_sandbox && plan.inside.is_none_or(|inside| !inside.own_network) {
                        return Err(Box::new(
                            Refusal::unwatched(mode(&plan.network)).with_verdict(plan.verdict.clone()),
                        ));
                    }
                    (options.warn)(
                        "no network at all: an outer sandbox listens already, so nobody can look at addresses",
                    );
                }
            }
            End::Setup { step: "namespaces" | "mounts", .. } if !without.namespaces => without.namespaces = true,
            _ => {
                let lesson = ended.lesson.take();
                let mut report = report(prepared, running.layers, ended);
                report.layers.extend(proxy_layer(plan, without.listener));
                if let Some(proxy) = &proxy {
                    add_refusals(&mut report, plan, proxy);
                }
                return Ok((report, lesson));
            }
        }
        run_dir.remove();
    }
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

fn mode(network: &NetworkMode) -> &'static str {
    match network {
        NetworkMode::None => "none",
        NetworkMode::Loopback => "loopback",
        NetworkMode::Full => "full",
        NetworkMode::Hosts(_) => "hosts",
    }
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
    if !options.capture {
        return Ok((None, [given(0)?, given(1)?, given(2)?]));
    }
    let kept = plan.policy.limits.output.unwrap_or(DEFAULT_KEPT);
    let [to, and_to] = options.spill.clone().map_or([None, None], |paths| paths.map(Some));
    let (stdout, stdout_end) = Stream::new(kept, to)?;
    let (stderr, stderr_end) = Stream::new(kept, and_to)?;
    Ok((Some([stdout, stderr]), [given(0)?, Some(stdout_end), Some(stderr_end)]))
}

/// The caller's own process group where a terminal is at hand, so that job control goes on; else a session of its own.
pub(crate) fn group() -> Group {
    use rustix::stdio::{stderr, stdin, stdout};
    let terminal = [stdin(), stdout(), stderr()].into_iter().any(rustix::termios::isatty);
    if terminal { Group::Shared(rustix::process::getpgrp().as_raw_nonzero().get()) } else { Group::Session }
}

pub(crate) fn report(prepared: &Prepared, layers: Vec<LayerReport>, ended: Ended) -> Report {
    let Prepared { plan, run_dir, .. } = prepared;
    let limits = &plan.policy.limits;
    let end = match ended.end {
        End::Status(status) => held_by_kernel(status, limits, ended.usage).unwrap_or(ended.end),
        end => end,
    };
    let (outcome, exit_code, signal, error) = match &end {
        End::Limit(exceeded) => (Outcome::Limit, 128 + libc::SIGKILL, Some(libc::SIGKILL), Some(reached(exceeded))),
        End::Status(status) if libc::WIFSIGNALED(*status) => {
            let signal = libc::WTERMSIG(*status);
            (Outcome::Signaled, 128 + signal, Some(signal), None)
        }
        End::Status(status) => (Outcome::Exited, libc::WEXITSTATUS(*status), None, None),
        End::Violation { call } => {
            let error = format!("killed for a denied call: {call}");
            (Outcome::Signaled, 128 + libc::SIGSYS, Some(libc::SIGSYS), Some(error))
        }
        End::Timeout => (Outcome::Timeout, 124, None, Some("the time was up".to_owned())),
        End::Setup { step, errno } => {
            let why = io::Error::from_raw_os_error(*errno);
            (Outcome::SetupFailed, 125, None, Some(format!("{step}: {why}; nothing was run")))
        }
        End::GuardianLost => {
            let error = "the guardian process was killed, and everything with it".to_owned();
            (Outcome::Signaled, 128 + libc::SIGKILL, Some(libc::SIGKILL), Some(error))
        }
    };
    let (denials, denials_dropped) = ended.denials.finish();
    let texts = ended.streams.map(|streams| streams.map(Stream::finish));
    let output = texts.as_ref().map_or(0, |texts| texts.iter().map(|text| text.total).max().unwrap_or(0));
    let kept = limits.output.filter(|kept| output > *kept).map(|kept| Which::Output.exceeded(kept, output));
    let captured = texts.map(|[stdout, stderr]| Captured {
        stdout: stdout.text,
        stderr: stderr.text,
        stdout_truncated: stdout.missing,
        stderr_truncated: stderr.missing,
        stdout_file: stdout.file,
        stderr_file: stderr.file,
    });
    let usage = ended.usage.map(|usage| used(usage, ended.peaks));
    Report {
        schema: 1,
        outcome,
        exit_code,
        signal,
        duration_ms: millis(ended.duration),
        command: lossy(&plan.command),
        error,
        verdict: Some(plan.verdict.clone()),
        layers,
        denials,
        reads_recorded: plan.purpose == Purpose::Explain,
        denials_dropped,
        limit: match end {
            End::Limit(exceeded) => Some(exceeded),
            End::Timeout => plan.policy.timeout.map(|time| Which::Time.exceeded(millis(time), millis(ended.duration))),
            _ => kept,
        },
        usage,
        browser: ended.browser,
        kept: run_dir.path().filter(|_| run_dir.keeps()).map(Path::to_owned),
        captured,
    }
}

/// The ends that the kernel brings by itself, where a limit explains them for certain.
fn held_by_kernel(status: i32, limits: &Limits, usage: Option<[i64; 3]>) -> Option<End> {
    let signal = libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status))?;
    let cpu = usage.map_or(0, |[user, system, _]| (user + system) as u64 / 1000);
    let limit = limits.cpu.map(millis);
    match (signal, limits.disk, limit) {
        (libc::SIGXFSZ, Some(disk), _) => Some(End::Limit(Which::Disk.exceeded(disk, disk))),
        (libc::SIGKILL | libc::SIGXCPU, _, Some(limit)) if cpu >= limit => {
            Some(End::Limit(Which::Cpu.exceeded(limit, cpu)))
        }
        _ => None,
    }
}

fn millis(time: std::time::Duration) -> u64 {
    time.as_millis() as u64
}

fn reached(exceeded: &Exceeded) -> String {
    let Exceeded { which, value, peak, unit } = exceeded;
    let (which, unit) = (which.word(), unit.word());
    format!("the limit on {which} was reached: {value} {unit} allowed, {peak} used")
}

fn used([user, system, kib]: [i64; 3], peaks: Peaks) -> Usage {
    let largest = kib as u64 * 1024;
    // What nobody waited for shows only in the count of the whole tree.
    let unseen = peaks.cpu.map_or(0, |cpu| (cpu.as_micros() as i64).saturating_sub(user + system).max(0));
    let (peak_memory, peak_of) = match peaks.memory {
        Some(tree) if tree >= largest => (tree, PeakOf::Tree),
        _ => (largest, PeakOf::Process),
    };
    Usage { cpu_user_ms: (user + unseen) as u64 / 1000, cpu_system_ms: system as u64 / 1000, peak_memory, peak_of }
}

pub(crate) fn lossy(words: &[std::ffi::OsString]) -> Vec<String> {
    words.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}
