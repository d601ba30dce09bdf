//! The whole pipeline: a request in, a report out. Whatever goes wrong on the way is a report as well.

use crate::check::{Context, Disk as Files, Preload, Verdict, check};
use crate::enforce::{self, Without, rundir::RunDir};
use crate::host::Host;
use crate::plan::refusal::Refusal;
use crate::plan::{Made, Plan, disk::Disk};
use crate::policy::{self, Document, Policy, PolicyError, Profile};
use crate::request::Request;
use crate::supervise::capture::{DEFAULT_KEPT, Stream};
use crate::supervise::foresee::Foresight;
use crate::supervise::metadata::Writable;
use crate::supervise::report::{Captured, LayerReport, Outcome, Report, Usage};
use crate::supervise::{End, Ended, Watch, supervise};
use crate::sys::child::Group;
use crate::sys::signals::{self, Signals};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// How a run is watched, beside what the policy says.
pub struct Options<'a> {
    /// Keep what it prints for the report, instead of letting it through.
    pub capture: bool,
    /// Signals to pass on; `None` for a program that handles its own.
    pub signals: Option<&'a Signals>,
    /// Called with each warning before the command starts.
    pub warn: &'a dyn Fn(&str),
}

/// Runs a request and tells what became of it.
pub fn run(request: &Request, options: &Options<'_>) -> Report {
    let started = std::time::Instant::now();
    let outcome = prepare(request, true).and_then(|prepared| execute(&prepared, options));
    outcome.unwrap_or_else(|refusal| Report::refused(lossy(&request.words()), *refusal, started.elapsed()))
}

/// What stands in a plan for what only a run makes.
const PRIVATE_TMP: &str = "(private TMPDIR)";
const EMBEDDED: &str = "(embedded libsandbox.so)";

/// A plan, and the directory that it uses.
pub struct Prepared {
    pub plan: Plan,
    run_dir: RunDir,
}

/// Makes the plan of a request. `for_real`: with a private temporary directory made, not only named.
pub fn prepare(request: &Request, for_real: bool) -> Result<Prepared, Box<Refusal>> {
    let policy = policy_of(request)?;
    let host = Host::probe();
    let run_dir = RunDir::new(temporary_base(request), false);
    let made = make(&policy, &run_dir, for_real)?;
    let files = Files::new();
    let preload = match &made.library {
        Some(library) if library != Path::new(EMBEDDED) => Preload::at(library, &request.cwd, &files),
        _ => Preload::embedded(),
    };
    let mut context = Context::of_this_process(preload);
    context.path = request.variable("PATH").cloned();
    context.cwd = request.cwd.clone();
    context.detail = false;
    let words = request.words();
    let Some(command) = words.first() else { return Err(Box::new(Refusal::refused("no command was given"))) };
    let checked = check(command, &context, &files);
    let look_up = |name: &std::ffi::OsStr| -> Verdict { check(name, &context, &files).verdict };
    let plan = Plan::new(request, policy, &host, checked, &look_up, &Disk, made)?;
    Ok(Prepared { plan, run_dir })
}

/// What the run has of its own: a temporary directory to write in, and the preload where an exact list needs it.
fn make(policy: &Policy, run_dir: &RunDir, for_real: bool) -> Result<Made, Box<Refusal>> {
    let failed = |what: &str, error: io::Error| Box::new(Refusal::setup(format!("{what}: {error}")));
    let mut made = Made::default();
    if policy.profiles.contains(&Profile::Write) {
        made.tmp = Some(match for_real {
            true => run_dir.tmp().map_err(|error| failed("temporary directory", error))?,
            false => PathBuf::from(PRIVATE_TMP),
        });
    }
    if policy.profiles.contains(&Profile::Custom) {
        made.library = match (&policy.libsandbox, libsandbox_embed::LIBSANDBOX) {
            (Some(path), _) => Some(path.clone()),
            (None, Some(bytes)) if for_real => {
                Some(run_dir.file("libsandbox.so", bytes, 0o500).map_err(|error| failed("preload", error))?)
            }
            (None, Some(_)) => Some(PathBuf::from(EMBEDDED)),
            (None, None) => None,
        };
    }
    Ok(made)
}

fn policy_of(request: &Request) -> Result<Policy, Box<Refusal>> {
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
    given.unwrap_or_else(|| PathBuf::from("/tmp"))
}

fn execute(prepared: &Prepared, options: &Options<'_>) -> Result<Report, Box<Refusal>> {
    let Prepared { plan, run_dir } = prepared;
    plan.warnings.iter().for_each(|warning| (options.warn)(warning));
    let group = if options.capture { Group::Session } else { group() };
    let mask = options.signals.map_or_else(signals::current_mask, Signals::before);
    let mut without = Without { listener: false, namespaces: false };
    let failed =
        |error: &dyn std::fmt::Display| Box::new(Refusal::setup(error.to_string()).with_verdict(plan.verdict.clone()));
    loop {
        let (streams, ends) =
            pipes(plan, options.capture).map_err(|error| failed(&format_args!("standard streams: {error}")))?;
        let running = enforce::start(plan, run_dir, ends, group, mask, without).map_err(|error| failed(&error))?;
        let watch = Watch {
            policy: &plan.policy,
            plan,
            foresight: Foresight::new(plan, !without.namespaces),
            lesson: None,
            table: &running.table,
            network: &plan.network,
            writable: Writable { trees: plan.writable(), protected: plan.protected() },
            sockets: plan.sockets(),
            signals: options.signals,
            shares_terminal: matches!(group, Group::Shared(_)),
            streams,
        };
        let ended = supervise(running.started, watch).map_err(|error| failed(&format_args!("supervision: {error}")))?;
        match &ended.end {
            // Tried and found not to be had here: the program has not started, so it can be tried without.
            End::Setup { step: "seccomp", errno: libc::EBUSY } if !without.listener => without.listener = true,
            End::Setup { step: "namespaces" | "mounts", .. } if !without.namespaces => without.namespaces = true,
            _ => return Ok(report(plan, running.layers, ended)),
        }
    }
}

type Pipes = (Option<[Stream; 2]>, [Option<OwnedFd>; 3]);

fn pipes(plan: &Plan, capture: bool) -> io::Result<Pipes> {
    if !capture {
        return Ok((None, [None, None, None]));
    }
    let kept = plan.policy.limits.output.unwrap_or(DEFAULT_KEPT);
    let (stdout, stdout_end) = Stream::new(kept)?;
    let (stderr, stderr_end) = Stream::new(kept)?;
    Ok((Some([stdout, stderr]), [None, Some(stdout_end), Some(stderr_end)]))
}

/// The caller's own process group where a terminal is at hand, so that job control goes on; else a session of its own.
fn group() -> Group {
    use rustix::stdio::{stderr, stdin, stdout};
    let terminal = [stdin(), stdout(), stderr()].into_iter().any(rustix::termios::isatty);
    if terminal { Group::Shared(rustix::process::getpgrp().as_raw_nonzero().get()) } else { Group::Session }
}

fn report(plan: &Plan, layers: Vec<LayerReport>, ended: Ended) -> Report {
    let (outcome, exit_code, signal, error) = match &ended.end {
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
    let captured = ended.streams.map(|[stdout, stderr]| {
        let ((stdout, stdout_truncated), (stderr, stderr_truncated)) = (stdout.finish(), stderr.finish());
        Captured { stdout, stderr, stdout_truncated, stderr_truncated }
    });
    let usage = ended.usage.map(|[user, system, kib]| Usage {
        cpu_user_ms: user as u64 / 1000,
        cpu_system_ms: system as u64 / 1000,
        peak_memory: kib as u64 * 1024,
    });
    Report {
        schema: 1,
        outcome,
        exit_code,
        signal,
        duration_ms: ended.duration.as_millis() as u64,
        command: lossy(&plan.command),
        error,
        verdict: Some(plan.verdict.clone()),
        layers,
        denials,
        denials_dropped,
        usage,
        captured,
    }
}

fn lossy(words: &[std::ffi::OsString]) -> Vec<String> {
    words.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}
