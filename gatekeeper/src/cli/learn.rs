//! `gatekeeper learn`: one run, or the denials of earlier ones, into a policy file.

use super::args::{LearnArgs, RunArgs};
use super::{EXIT_ERROR, EXIT_SETUP, complain, output, run};
use crate::explain::read;
use crate::learn::{Learned, from_denials, merged};
use crate::policy::{self, Document, Profile};
use crate::run::{Options, learn};
use crate::sys;
use crate::sys::signals::Signals;
use crate::trust::Hostile;
use crate::trust::output::Output;
use std::path::Path;

pub fn main(args: &LearnArgs) -> u8 {
    let old = match args.merge.as_deref().map(policy::load).transpose() {
        Ok(old) => old,
        Err(error) => return failed(&error, args),
    };
    // Opened before anything runs: what cannot be written is known now. What is there stays until the end: it may be
    // the old one, and no policy is better than an empty one.
    let mut out = match output::open(&args.output, &Hostile::here()) {
        Ok(out) => out,
        Err(error) => return failed(&format_args!("{}: {error}", args.output.display()), args),
    };
    match &args.from_denials {
        Some(report) => grow(args, report, old, &mut out),
        None => observe(args, old, &mut out),
    }
}

/// Nothing was run: 2, or 125 where a command was to be run, because 2 could be its own answer.
fn failed(error: &dyn std::fmt::Display, args: &LearnArgs) -> u8 {
    complain(error);
    if args.from_denials.is_some() { EXIT_ERROR } else { EXIT_SETUP }
}

fn grow(args: &LearnArgs, report: &Path, old: Option<Document>, out: &mut Output) -> u8 {
    let told = match read::load(report) {
        Ok(told) => told,
        Err(error) => return failed(&error, args),
    };
    let learned = match from_denials(&told, old.unwrap_or_default()) {
        Ok(learned) => learned,
        Err(error) => return failed(&error, args),
    };
    let title = format!("Grown by gatekeeper learn from {} denials", told.denials.len());
    match write(out, &title, &learned.document, &learned.notes) {
        Ok(()) => 0,
        Err(error) => failed(&error, args),
    }
}

fn observe(args: &LearnArgs, old: Option<Document>, out: &mut Output) -> u8 {
    let request = RunArgs::for_learning(args).and_then(|args| run::request(&args));
    let request = match request {
        Ok(mut request) => {
            request.flags.profile = Some(vec![Profile::Unrestricted]);
            request
        }
        Err(error) => return failed(&error, args),
    };
    let ready =
        sys::process::set_not_dumpable().and_then(|()| sys::process::set_subreaper()).and_then(|()| Signals::take());
    let signals = match ready {
        Ok(signals) => signals,
        Err(error) => return failed(&format_args!("start: {error}"), args),
    };
    let warn = |warning: &str| complain(format_args!("warning: {warning}"));
    let (report, learned) = learn(
        &request,
        &Options { capture: false, signals: Some(&signals), warn: &warn, spill: None, outside: None, embedding: None },
    );
    let code = u8::try_from(report.exit_code).unwrap_or(EXIT_SETUP);
    let learned = match learned {
        Some(Ok(learned)) => learned,
        Some(Err(error)) => return failed(&format_args!("what was learned makes no policy: {error}"), args),
        None => {
            complain(report.error.as_deref().unwrap_or("nothing was learned"));
            return code;
        }
    };
    let Learned { mut notes, credentials, document } = learned;
    if code != 0 {
        notes.push(format!("the command ended with {code}: what it would have done after that is not here"));
    }
    let shown = notes.iter().filter(|note| note.starts_with("CREDENTIALS") || note.starts_with("left out"));
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
        Err(error) => failed(&error, args),
    }
}

fn write(out: &mut Output, title: &str, document: &Document, notes: &[String]) -> Result<(), String> {
    let toml = document.to_toml().map_err(|error| error.to_string())?;
    let comment = |text: &str| -> String {
        let line: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
        format!("# {line}\n")
    };
    let notes: String = std::iter::once(title).chain(notes.iter().map(String::as_str)).map(comment).collect();
    out.write(format!("{notes}\n{toml}").as_bytes(), 0o666)
        .map_err(|error| format!("the policy could not be written: {error}"))
}
