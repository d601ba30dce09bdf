//! `gatekeeper learn`: writes a policy from one unconfined run, or from the denials in a report.

use super::args::LearnArgs;
use super::{EXIT_SETUP, complain, output, run, setup_failed};
use crate::audit::{Audit, Entry, Kind};
use crate::explain::read;
use crate::learn::{Learned, from_answers, from_denials, merged};
use crate::policy::{self, Document, Profile};
use crate::request::Request;
use crate::run::learn;
use crate::trust::Hostile;
use crate::trust::output::Output;
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

pub fn main(args: &LearnArgs) -> u8 {
    let old = match args.merge.as_deref().map(policy::load).transpose() {
        Ok(old) => old,
        Err(error) => return failed(error, args),
    };
    // Open the output first: if it cannot be written, nothing runs. An existing file is replaced only at the end, because
    // it may be the policy to merge, and an empty policy would be worse than the old one.
    let mut out = match output::open(&args.output, &Hostile::here()) {
        Ok(out) => out,
        Err(error) => return failed(format_args!("cannot write {}: {error}", args.output.display()), args),
    };
    match &args.from_denials {
        Some(report) => extend(args, report, old, &mut out),
        None if args.asking.ask || !args.asking.ask_fd.is_empty() => approve(args, old, &mut out),
        None if !args.profile.is_empty() => {
            failed("--profile needs --ask or --ask-fd: otherwise learn confines nothing", args)
        }
        None => observe(args, old, &mut out),
    }
}

/// Runs the command confined, asks about what is refused, and writes what was approved as a policy.
fn approve(args: &LearnArgs, old: Option<Document>, out: &mut Output) -> u8 {
    let policy = args.policy();
    let ready = run::request_for(&policy, run::asked(args.line.as_ref(), &args.command), true)
        .and_then(|request| Ok((request, super::ask::asked(&args.asking, None, [args.output.clone()])?)));
    let (mut request, answerer) = match ready {
        Ok((request, Some((ask, answerer)))) => (Request { ask: Some(ask), ..request }, answerer),
        Ok((_, None)) => return failed("no one answers", args),
        Err(error) => return failed(error, args),
    };
    // What the old policy grants is not asked again.
    if let Some(old) = &old {
        request.flags = request.flags.clone().over(old.clone());
    }
    let audit = match trail(args, None) {
        Ok(audit) => audit,
        Err(error) => return failed(error, args),
    };
    request.deny(audit.iter().flat_map(|audit| audit.paths()));
    let report = run::supervised(&request, args.quiet, false, None, Some(answerer), audit.clone());
    let code = run::finish(&report, true, Vec::new(), audit);
    if report.asked.is_none() {
        return code;
    }
    let start = old.unwrap_or_else(|| Document { profile: policy.syscalls.document().profile, ..Document::default() });
    let learned = match from_answers(&report, start) {
        Ok(learned) => learned,
        Err(error) => return failed(error, args),
    };
    let title = format!("Approved in gatekeeper learn -- {}", crate::policy::grants::quoted(&request.words()));
    match write(out, &title, &learned.document, &learned.notes) {
        Ok(()) => code,
        Err(error) => failed(error, args),
    }
}

/// Prints the error and returns 125, as `run` does, because the command itself could exit with 2. Without a command: 2.
fn failed(error: impl Display, args: &LearnArgs) -> u8 {
    if args.from_denials.is_some() { super::failed(error) } else { setup_failed(error) }
}

/// Adds what a report says was denied to the old policy.
fn extend(args: &LearnArgs, report: &Path, old: Option<Document>, out: &mut Output) -> u8 {
    let denied = match read::load(report) {
        Ok(denied) => denied,
        Err(error) => return failed(error, args),
    };
    let learned = match from_denials(&denied, old.unwrap_or_default()) {
        Ok(learned) => learned,
        Err(error) => return failed(error, args),
    };
    let title = format!("Extended by gatekeeper learn from {} denials", denied.denials.len());
    match write(out, &title, &learned.document, &learned.notes) {
        Ok(()) => 0,
        Err(error) => failed(error, args),
    }
}

/// Runs the command unconfined, watches it and writes what it did as a policy.
fn observe(args: &LearnArgs, old: Option<Document>, out: &mut Output) -> u8 {
    let ready = request(args).and_then(|request| {
        // Nothing is decided here, but a session's trail has to show that something ran unconfined.
        let audit = trail(args, Some(UNCONFINED))?;
        Ok((request, audit, run::become_supervisor()?))
    });
    let (request, audit, signals) = match ready {
        Ok(ready) => ready,
        Err(error) => return failed(error, args),
    };
    let warn = |warning: &str| complain(format_args!("warning: {warning}"));
    let (report, learned) = learn(&request, &run::options(&signals, &warn, false));
    let code = match audit.map_or(Ok(()), |audit| audit.finish(report.outcome.word(), report.exit_code)) {
        Ok(()) => u8::try_from(report.exit_code).unwrap_or(EXIT_SETUP),
        Err(error) => return failed(error, args),
    };
    let learned = match learned {
        Some(Ok(learned)) => learned,
        Some(Err(error)) => return failed(format_args!("cannot make a policy from what was learned: {error}"), args),
        None => {
            complain(report.error.as_deref().unwrap_or("nothing was learned"));
            return code;
        }
    };
    let Learned { mut notes, credentials, document } = learned;
    if code != 0 {
        notes.push(format!("the command exited with {code}; what it would have done after that is not in this policy"));
    }
    let shown = notes.iter().filter(|note| note.starts_with("CREDENTIALS") || note.starts_with("not granted"));
    if !args.quiet {
        shown.for_each(complain);
    }
    let document = match old {
        Some(old) => merged(Learned { document, notes: Vec::new(), credentials }, old),
        None => document,
    };
    let title = format!("Learned by gatekeeper learn -- {}", crate::policy::grants::quoted(&request.words()));
    match write(out, &title, &document, &notes) {
        Ok(()) => code,
        Err(error) => failed(error, args),
    }
}

/// What the trail says about a run that `learn` only watches.
const UNCONFINED: &str = "learn: it runs unconfined, and its calls are not noted";

/// The audit trail; with `rule`, a line that says why the command may run.
fn trail(args: &LearnArgs, rule: Option<&str>) -> Result<Option<Arc<Audit>>, String> {
    let words: Vec<String> = run::asked(args.line.as_ref(), &args.command)
        .words()
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let file = output::audit_file(args.audit.as_ref());
    let audit = output::open_audit_file(file, || output::hostile(&args.policy()), &words)?;
    if let (Some(audit), Some(rule)) = (&audit, rule) {
        let entry = Entry::allowed(Kind::Exec).with("path", words.first().cloned()).with("rule", rule);
        audit.note(entry).map_err(|error| error.to_string())?;
    }
    Ok(audit)
}

fn request(args: &LearnArgs) -> Result<Request, String> {
    let asked = run::asked(args.line.as_ref(), &args.command);
    let mut request = run::request_for(&args.policy(), asked, true)?;
    request.flags.profile = Some(vec![Profile::Unrestricted]);
    Ok(request)
}

fn write(out: &mut Output, title: &str, document: &Document, notes: &[String]) -> Result<(), String> {
    let toml = document.to_toml().map_err(|error| error.to_string())?;
    let comment = |text: &str| -> String {
        let line: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
        format!("# {line}\n")
    };
    let notes: String = std::iter::once(title).chain(notes.iter().map(String::as_str)).map(comment).collect();
    out.write(format!("{notes}\n{toml}").as_bytes(), 0o666).map_err(|error| format!("cannot write the policy: {error}"))
}
