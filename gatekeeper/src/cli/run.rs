//! `gatekeeper run` and `gatekeeper plan`: turn flags into a request, and print the report or the plan.

use super::args::{PolicyArgs, RunArgs};
use super::output::{self, open_audit, open_report};
use super::{EXIT_SETUP, complain, harmless, setup_failed, variables};
use crate::audit::Audit;
use crate::explain::paragraph;
use crate::isolate::planned;
use crate::plan::refusal::Refusal;
use crate::policy::{Document, Environment, Limits, Namespaces, Network, Paths};
use crate::report::{Outcome, Report};
use crate::request::{Ask, Asked, Purpose, Request, Staging, THIS_PROGRAM, working_directory};
use crate::run::{Options, prepare, run};
use crate::supervise::ask::hub::Answerer;
use crate::supervise::capture::SpillTo;
use crate::sys;
use crate::sys::signals::Signals;
use crate::trust::output::Output;
use crate::trust::{self, Hostile, Untrusted};
use rustix::fs::Mode;
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub fn main(args: &RunArgs) -> u8 {
    // Open the report first: if it cannot be written, nothing runs.
    let out = match report_out(args) {
        Ok(out) => out,
        Err(error) => return setup_failed(format_args!("{error}; nothing was run")),
    };
    let command: Vec<String> = asked(args.line.as_ref(), &args.command)
        .words()
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let audit = match open_audit(&args.reporting, || output::hostile(&args.policy), &command) {
        Ok(audit) => audit,
        Err(error) => return setup_failed(format_args!("{error}; nothing was run")),
    };
    let report = reported(args, audit.clone());
    let report = if args.json { report.with_output() } else { report };
    finish(&report, args.reporting.quiet, out, audit)
}

/// Prints messages, writes the report and returns the exit code.
pub(super) fn finish(report: &Report, quiet: bool, out: Vec<Output>, audit: Option<Arc<Audit>>) -> u8 {
    let noted = audit.map_or(Ok(()), |audit| audit.finish(report.outcome.word(), report.exit_code));
    // Even if quiet, say that nothing ran: the command itself could have exited with the same code.
    let nothing_ran = matches!(report.outcome, Outcome::Refused | Outcome::SetupFailed | Outcome::NotFound);
    if !quiet || nothing_ran {
        paragraph(report).into_iter().for_each(complain);
    }
    if !quiet {
        match (&report.kept, &report.kept_because) {
            (Some(kept), None) => complain(format_args!("kept {}", kept.display())),
            (Some(kept), Some(why)) => {
                complain(format_args!("warning: {} could not be removed: {why}; remove it by hand", kept.display()))
            }
            (None, _) => {}
        }
    }
    let mut written = Ok(());
    for mut out in out {
        // One that cannot be written must not keep the other from its reader.
        written = written.and(write_report(&mut out, report));
    }
    if let Err(error) = written {
        // The caller relies on the report: an unwritten one must not look like success.
        return setup_failed(format_args!("cannot write the report: {error}; the run ended with {}", report.exit_code));
    }
    if let Err(error) = noted {
        return setup_failed(format_args!("{error}; lines are missing, and the run ended with {}", report.exit_code));
    }
    u8::try_from(report.exit_code).unwrap_or(EXIT_SETUP)
}

fn reported(args: &RunArgs, audit: Option<Arc<Audit>>) -> Report {
    let began = std::time::Instant::now();
    let words = || args.line.iter().chain(&args.command).map(|word| word.to_string_lossy().into_owned()).collect();
    let failed = |error: String| Refusal::setup(error).report(words(), began.elapsed());
    let mut request = match request(args) {
        Ok(request) => request,
        Err(error) => return failed(error),
    };
    let results = args.reporting.report.clone().into_iter().chain(args.spill.clone());
    let answerer = match super::ask::asked(&args.asking, request.config.as_deref(), results) {
        Ok(Some((ask, answerer))) => {
            request.ask = Some(ask);
            Some(answerer)
        }
        Ok(None) => None,
        Err(error) => return failed(error),
    };
    // The command can neither read nor lock nor change the trail.
    request.deny(audit.iter().flat_map(|audit| audit.paths()));
    let spill = args.spill.as_ref().map(|directory| SpillTo::open(directory, &output::hostile(&args.policy)));
    match spill.transpose() {
        Ok(spill) => supervised(&request, args.reporting.quiet, args.json, spill, answerer, audit),
        Err(error) => failed(format!("--spill: {error}")),
    }
}

/// Runs a request with this process as its supervisor.
pub(super) fn supervised(
    request: &Request,
    quiet: bool,
    capture: bool,
    spill: Option<SpillTo>,
    answerer: Option<Arc<dyn Answerer>>,
    audit: Option<Arc<Audit>>,
) -> Report {
    let began = std::time::Instant::now();
    let failed = |error: String| Refusal::setup(error).report(request_words(request), began.elapsed());
    let signals = match become_supervisor() {
        Ok(signals) => signals,
        Err(error) => return failed(error),
    };
    let warn = |warning: &str| {
        if !quiet {
            complain(format_args!("warning: {warning}"));
        }
    };
    run(request, &Options { spill, answerer, audit, ..options(&signals, &warn, capture) })
}

/// Prepares this process to supervise a run: not dumpable, so that the command cannot read its memory; subreaper, so
/// that orphans of the tree become its children; and its signals taken, to be passed on. Errors name the step `start`.
pub(super) fn become_supervisor() -> Result<Signals, String> {
    sys::memory::for_runs();
    let ready = sys::process::set_not_dumpable().and_then(|()| sys::process::set_subreaper());
    ready.and_then(|()| Signals::take()).map_err(|error| format!("start: {error}"))
}

/// Options of a run that this process supervises.
pub(super) fn options<'a>(signals: &'a Signals, warn: &'a dyn Fn(&str), capture: bool) -> Options<'a> {
    Options {
        capture,
        spill: None,
        signals: Some(signals),
        warn,
        outside: None,
        embedding: None,
        answerer: None,
        audit: None,
        refused: None,
    }
}

pub fn plan(args: &RunArgs) -> u8 {
    let request = match requested(args, false) {
        Ok(request) => request,
        Err(error) => return setup_failed(&error),
    };
    match prepare(&request, false) {
        Ok(prepared) => {
            let mut steps =
                prepared.plan.steps_in(!args.json && crate::run::group() == crate::sys::child::Group::Shared);
            if let (Some(step), Some(why)) =
                (steps.iter_mut().find(|step| step.step == "temporary directory"), prepared.run_dir.instead())
            {
                step.detail.push_str(&format!("; {why}"));
            }
            match planned::step(&request, &prepared.plan) {
                Ok(step) => drop(steps.splice(1..1, step)),
                Err(why) => return setup_failed(format_args!("{why}; nothing was run")),
            }
            let text = if args.json {
                let document = serde_json::json!({"schema": 1, "command": request_words(&request), "verdict": prepared.plan.verdict, "steps": steps});
                format!("{document:#}\n")
            } else {
                let width = steps.iter().map(|step| step.step.len()).max().unwrap_or(0);
                steps.iter().map(|step| format!("{:width$}  {}\n", step.step, harmless(&step.detail))).collect()
            };
            output::print(&text)
        }
        Err(refusal) => {
            complain(&refusal.message);
            refusal.exit_code()
        }
    }
}

fn request_words(request: &Request) -> Vec<String> {
    request.words().iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

pub(super) fn request(args: &RunArgs) -> Result<Request, String> {
    requested(args, true)
}

/// `for_real`: create the directories that the run needs, instead of only naming them.
fn requested(args: &RunArgs, for_real: bool) -> Result<Request, String> {
    let asked = asked(args.line.as_ref(), &args.command);
    let shows_progress = !args.reporting.quiet && io::stderr().is_terminal();
    let stage = staging(args.stage.as_ref(), args.stage_limit, shows_progress);
    // The answering side is connected only for a run.
    let asks = args.asking.ask || !args.asking.ask_fd.is_empty();
    let ask = asks.then(Ask::default);
    let mut request = Request { keep_tmp: args.keep_tmp, stage, ask, ..request_for(&args.policy, asked, for_real)? };
    if let Some(fd) = args.env_fd {
        request.flags.env.set.extend(variables::read(fd)?);
    }
    Ok(request)
}

/// The stage that --stage and --stage-limit name.
pub(super) fn staging(name: Option<&String>, limit: Option<u64>, progress: bool) -> Option<Staging> {
    let limit = limit.unwrap_or(crate::stage::DEFAULT_LIMIT);
    name.map(|name| Staging { name: name.clone(), limit, progress })
}

/// What to run: the line after `-c`, or a command and its arguments.
pub(super) fn asked(line: Option<&OsString>, command: &[OsString]) -> Asked {
    line.map_or_else(|| Asked::Command(command.to_vec()), |line| Asked::Line(line.clone()))
}

/// The request of run, plan, learn or mcp for `asked`.
pub(super) fn request_for(args: &PolicyArgs, asked: Asked, for_real: bool) -> Result<Request, String> {
    let mut hostile = Hostile::here();
    let cwd = match &args.cwd {
        Some(given) => {
            working_directory(given, &start_of(given)?, &hostile).map_err(|error| format!("--cwd {error}"))?
        }
        None => super::working_directory()?,
    };
    if cwd.parent().is_some() {
        hostile.add(&cwd);
    }
    // The plan distrusts links only below the command's own directory. With --cwd, a previous command may also have
    // left links in the current one.
    let named = args.launch.read.iter().chain(&args.launch.write).chain(&args.deny_path).chain(&args.unix);
    for path in named.map(|path| cwd.join(path)).filter(|_| args.cwd.is_some()) {
        if let Err(error @ Untrusted::Link { .. }) = trust::walk(&path, &hostile)
            && path.exists()
        {
            return Err(error.to_string());
        }
    }
    let mut flags = flags(args);
    if let Some(cache) = &args.cache {
        use_cache(&mut flags, &start_of(cache)?.join(cache), &hostile, for_real)
            .map_err(|error| format!("--cache {}: {error}", cache.display()))?;
    }
    Ok(Request {
        flags,
        config: args.syscalls.config.clone(),
        helper: Some(THIS_PROGRAM.into()),
        purpose: if args.launch.explain { Purpose::Explain } else { Purpose::Confine },
        ..Request::new(asked, cwd, std::env::vars_os().collect())
    })
}

/// The directory from which a path of the caller starts. The current one, which may have been removed, is asked for only if it is
/// needed.
fn start_of(path: &Path) -> Result<PathBuf, String> {
    match path.is_absolute() {
        true => Ok(PathBuf::from("/")),
        false => super::working_directory(),
    }
}

/// Points the caches of package managers into one directory, and allows writing there.
fn use_cache(flags: &mut Document, directory: &Path, hostile: &Hostile, for_real: bool) -> Result<(), String> {
    let mut directory = directory.to_owned();
    if for_real {
        // An earlier run that could write here may have replaced it with a link.
        directory = trust::make_directory(&directory, hostile, Mode::RWXU).map_err(|error| error.to_string())?.real;
    }
    let variables = crate::plan::caches::variables(&directory).ok_or("its path is no UTF-8")?;
    for (name, value) in variables {
        // --env takes precedence.
        flags.env.set.entry(name).or_insert(value);
    }
    flags.paths.write.push(directory);
    Ok(())
}

/// The flags as a policy, to be merged over that of --config.
pub(super) fn flags(args: &PolicyArgs) -> Document {
    let PolicyArgs { launch, .. } = args;
    let mut env = Environment::default();
    for variable in &args.env {
        match variable.split_once('=') {
            Some((name, value)) => drop(env.set.insert(name.to_owned(), value.to_owned())),
            None => env.pass.push(variable.clone()),
        }
    }
    Document {
        static_binaries: args.static_binaries,
        require_sandbox: launch.require_sandbox,
        timeout: launch.timeout,
        paths: Paths {
            read: None,
            also_read: launch.read.clone(),
            write: launch.write.clone(),
            execute: None,
            deny: args.deny_path.clone(),
        },
        network: Network {
            mode: launch.net.clone(),
            ports: args.port.clone(),
            unix: args.unix.clone(),
            http: args.http.clone(),
            credentials: args.credential.clone(),
            ..Network::default()
        },
        limits: Limits {
            memory: launch.memory,
            processes: launch.processes,
            files: args.files,
            cpu: args.cpu,
            output: args.output,
            disk: args.disk,
        },
        env,
        bubblewrap: Namespaces { mode: args.isolate, ..Namespaces::default() },
        ..args.syscalls.document()
    }
}

/// Where the report goes: to the file or descriptor that is named and, with --json, to standard output.
pub(super) fn report_out(args: &RunArgs) -> Result<Vec<Output>, String> {
    let hostile = args.reporting.report.as_ref().map(|_| output::hostile(&args.policy)).unwrap_or_default();
    let mut out = Vec::from_iter(open_report(&args.reporting, &hostile)?);
    // Not twice to the same place.
    if args.json && !output::is_standard_output(&args.reporting) {
        out.push(output::given(1).map_err(|error| format!("standard output: {error}"))?);
    }
    Ok(out)
}

fn write_report(out: &mut Output, report: &Report) -> io::Result<()> {
    let mut text = serde_json::to_string(report)?;
    text.push('\n');
    out.write(text.as_bytes(), 0o666)
}
