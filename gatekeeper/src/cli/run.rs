//! `gatekeeper run` and `gatekeeper plan`: flags into a request, a report into words.

use super::args::{PolicyArgs, RunArgs};
use super::output::{self, open_report};
use super::{EXIT_SETUP, complain, harmless};
use crate::explain::paragraph;
use crate::isolate::planned;
use crate::plan::refusal::Refusal;
use crate::policy::{Document, Environment, Limits, Namespaces, Network, Paths, Syscalls};
use crate::report::{Outcome, Report};
use crate::request::{Asked, Purpose, Request};
use crate::run::{Options, prepare, run};
use crate::supervise::capture::SpillTo;
use crate::sys;
use crate::sys::signals::Signals;
use crate::trust::output::Output;
use crate::trust::{self, Hostile, Untrusted};
use rustix::fs::Mode;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

pub fn main(args: &RunArgs) -> u8 {
    // Opened before anything runs: a report that cannot be written is known now.
    let out = match report_out(args) {
        Ok(out) => out,
        Err(error) => return setup_failed(&error),
    };
    let report = reported(args);
    finish(&report, args.quiet, out)
}

/// Tells what is to be told, writes the report, gives the exit code.
pub(super) fn finish(report: &Report, quiet: bool, out: Option<Output>) -> u8 {
    // Quiet or not, a command that did not run is not passed off as one that failed.
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
    if let Some(mut out) = out
        && let Err(error) = write_report(&mut out, report)
    {
        // Whoever asked for a report goes by it: an end that cannot be told is not passed off as one that was.
        complain(format_args!("the report could not be written: {error}; the run ended with {}", report.exit_code));
        return EXIT_SETUP;
    }
    u8::try_from(report.exit_code).unwrap_or(EXIT_SETUP)
}

fn reported(args: &RunArgs) -> Report {
    let began = std::time::Instant::now();
    let words = || args.line.iter().chain(&args.command).map(|word| word.to_string_lossy().into_owned()).collect();
    let failed = |error: String| Refusal::setup(error).report(words(), began.elapsed());
    let request = match request(args) {
        Ok(request) => request,
        Err(error) => return failed(error),
    };
    let spill = args.spill.as_ref().map(|directory| SpillTo::open(directory, &output::hostile(&args.policy)));
    match spill.transpose() {
        Ok(spill) => supervised(&request, args.quiet, args.json, spill),
        Err(error) => failed(format!("--spill: {error}")),
    }
}

/// Runs a request with this process as its supervisor, signals and all.
pub(super) fn supervised(request: &Request, quiet: bool, capture: bool, spill: Option<SpillTo>) -> Report {
    let began = std::time::Instant::now();
    let failed = |error: String| Refusal::setup(error).report(request_words(request), began.elapsed());
    let ready =
        sys::process::set_not_dumpable().and_then(|()| sys::process::set_subreaper()).and_then(|()| Signals::take());
    let signals = match ready {
        Ok(signals) => signals,
        Err(error) => return failed(format!("start: {error}")),
    };
    let warn = |warning: &str| {
        if !quiet {
            complain(format_args!("warning: {warning}"));
        }
    };
    run(request, &Options { capture, spill, signals: Some(&signals), warn: &warn, outside: None, embedding: None })
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
                Err(why) => return setup_failed(&format_args!("{why}; nothing was run")),
            }
            let text = if args.json {
                let document = serde_json::json!({"schema": 1, "command": request_words(&request), "verdict": prepared.plan.verdict, "steps": steps});
                format!("{document:#}\n")
            } else {
                let width = steps.iter().map(|step| step.step.len()).max().unwrap_or(0);
                steps.iter().map(|step| format!("{:width$}  {}\n", step.step, harmless(&step.detail))).collect()
            };
            let _ = io::stdout().write_all(text.as_bytes());
            0
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

fn setup_failed(error: &dyn std::fmt::Display) -> u8 {
    complain(error);
    EXIT_SETUP
}

pub(super) fn request(args: &RunArgs) -> Result<Request, String> {
    requested(args, true)
}

/// `for_real`: with what a run needs made, not only named.
fn requested(args: &RunArgs, for_real: bool) -> Result<Request, String> {
    let asked = match &args.line {
        Some(line) => Asked::Line(line.clone()),
        None => Asked::Command(args.command.clone()),
    };
    Ok(Request { keep_tmp: args.keep_tmp, ..request_for(&args.policy, asked, for_real)? })
}

/// What a command that runs others asks for, whatever it is going to run.
pub(super) fn request_for(args: &PolicyArgs, asked: Asked, for_real: bool) -> Result<Request, String> {
    let here = std::env::current_dir().map_err(|error| format!("working directory: {error}"))?;
    let mut hostile = Hostile::here();
    let cwd = args.cwd.as_ref().map_or(Ok(here.clone()), |given| match trust::walk(&here.join(given), &hostile) {
        Ok(found) => Ok(found.real),
        Err(Untrusted::Io { error, .. }) => Err(format!("--cwd {}: {error}", given.display())),
        Err(error) => Err(format!("--cwd {}: {error}", given.display())),
    })?;
    if cwd.parent().is_some() {
        hostile.add(&cwd);
    }
    if !cwd.is_dir() {
        return Err(format!("--cwd {}: not a directory", cwd.display()));
    }
    // The plan knows the command's directory alone. Where that is another, an earlier command may have written here.
    let named = args.read.iter().chain(&args.write).chain(&args.deny_path).chain(&args.unix);
    for path in named.map(|path| cwd.join(path)).filter(|_| args.cwd.is_some()) {
        if let Err(error @ Untrusted::Link { .. }) = trust::walk(&path, &hostile)
            && path.exists()
        {
            return Err(error.to_string());
        }
    }
    let mut flags = flags(args);
    if let Some(cache) = &args.cache {
        use_cache(&mut flags, &here.join(cache), &hostile, for_real)
            .map_err(|error| format!("--cache {}: {error}", cache.display()))?;
    }
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    Ok(Request {
        asked,
        cwd,
        starts_in: None,
        environment: std::env::vars_os().collect(),
        home,
        flags,
        config: args.config.clone(),
        keep_tmp: false,
        helper: Some(PathBuf::from("/proc/self/exe")),
        purpose: if args.explain { Purpose::Explain } else { Purpose::Confine },
        inside: None,
        browser: None,
        also_written: Vec::new(),
    })
}

/// Caches below one directory, which is made, and granted for writing.
fn use_cache(flags: &mut Document, directory: &Path, hostile: &Hostile, for_real: bool) -> Result<(), String> {
    let mut directory = directory.to_owned();
    if for_real {
        // A run that wrote here before may have left a link in its place.
        directory = trust::make_directory(&directory, hostile, Mode::RWXU).map_err(|error| error.to_string())?.real;
    }
    let variables = crate::plan::caches::variables(&directory).ok_or("its path is no UTF-8")?;
    for (name, value) in variables {
        // What was set by name stands over what follows from the directory.
        flags.env.set.entry(name).or_insert(value);
    }
    flags.paths.write.push(directory);
    Ok(())
}

/// The flags as a policy, to be laid over the file's.
pub(super) fn flags(args: &PolicyArgs) -> Document {
    let names = |lists: &[super::args::List]| lists.iter().flat_map(|list| list.0.clone()).collect();
    let mut env = Environment::default();
    for variable in &args.env {
        match variable.split_once('=') {
            Some((name, value)) => drop(env.set.insert(name.to_owned(), value.to_owned())),
            None => env.pass.push(variable.clone()),
        }
    }
    Document {
        profile: super::args::union(&args.profile),
        on_violation: args.on_violation,
        static_binaries: args.static_binaries,
        require_sandbox: args.require_sandbox,
        timeout: args.timeout,
        syscalls: Syscalls { allow: names(&args.allow), deny: names(&args.deny), rules: Vec::new(), default: None },
        paths: Paths {
            read: None,
            also_read: args.read.clone(),
            write: args.write.clone(),
            execute: None,
            deny: args.deny_path.clone(),
        },
        network: Network {
            mode: args.net.clone(),
            ports: args.port.clone(),
            unix: args.unix.clone(),
            ..Network::default()
        },
        limits: Limits {
            memory: args.memory,
            processes: args.processes,
            files: args.files,
            cpu: args.cpu,
            output: args.output,
            disk: args.disk,
        },
        env,
        bubblewrap: Namespaces { mode: args.isolate, ..Namespaces::default() },
        ..Document::default()
    }
}

fn report_out(args: &RunArgs) -> Result<Option<Output>, String> {
    let hostile = args.report.as_ref().map(|_| output::hostile(&args.policy)).unwrap_or_default();
    match open_report(args.report.as_deref(), args.report_fd, &hostile)? {
        None if args.json => {
            let stdout =
                rustix::io::dup(rustix::stdio::stdout()).map_err(|error| format!("standard output: {error}"))?;
            Ok(Some(Output::Stream(File::from(stdout))))
        }
        out => Ok(out),
    }
}

fn write_report(out: &mut Output, report: &Report) -> io::Result<()> {
    let mut text = serde_json::to_string(report)?;
    text.push('\n');
    out.write(text.as_bytes(), 0o666)
}
