//! `gatekeeper profiles`: what is built in, what a profile grants, and the proof of it.

use super::args::{ProfilesArgs, ProfilesCommand, TestArgs};
use super::{EXIT_ERROR, complain};
use crate::policy::values;
use crate::profiles::corpus::Corpus;
use crate::profiles::granted::{BUILT_IN, Granted, granted};
use crate::profiles::trial::{Outcome, Tried};
use crate::profiles::{Asked, test};
use std::fmt::Write as _;
use std::io::{self, Write};

/// Some command did not work as unconfined, or some action was not stopped.
const EXIT_FAILED: u8 = 1;

pub fn main(args: &ProfilesArgs) -> u8 {
    let text = match &args.command {
        None => list(args.json),
        Some(ProfilesCommand::Show { profile, json }) => granted(profile.0.clone())
            .map_err(|error| error.to_string())
            .map(|granted| if *json || args.json { json_text(&granted) } else { shown(&granted) }),
        Some(ProfilesCommand::Test(test)) => return prove(test, test.json || args.json),
    };
    match text {
        Ok(text) => print(&text),
        Err(error) => {
            complain(format_args!("profiles: {error}"));
            EXIT_ERROR
        }
    }
}

fn print(text: &str) -> u8 {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            complain(format_args!("profiles: cannot write the result: {error}"));
            EXIT_ERROR
        }
        _ => 0,
    }
}

fn json_text(value: &impl serde::Serialize) -> String {
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    text
}

fn list(json: bool) -> Result<String, String> {
    let corpus = Corpus::built_in().map_err(|error| error.to_string())?;
    let mut text = String::new();
    let mut rows = Vec::new();
    for name in BUILT_IN {
        let profiles = values::profiles(name).map_err(|error| error.to_string())?;
        let granted = granted(profiles).map_err(|error| error.to_string())?;
        let works = corpus.workload.iter().filter(|workload| workload.profile == name).count();
        let stops = corpus.stop.iter().filter(|stop| stop.profiles.iter().any(|profile| profile == name)).count();
        let counts = [
            ("allowed", granted.allowed.len()),
            ("by_arguments", granted.by_arguments.len()),
            ("supervised", granted.supervised.len()),
            ("enosys", granted.enosys.len()),
            ("denied", granted.denied.len()),
        ];
        if json {
            let mut row = serde_json::json!({"profile": name, "about": granted.about, "groups": granted.groups,
                "commands_that_must_work": works, "actions_that_must_be_stopped": stops});
            counts.into_iter().for_each(|(count, value)| row[count] = value.into());
            rows.push(row);
            continue;
        }
        let _ = writeln!(text, "{name}\n    {}", granted.about);
        if !granted.groups.is_empty() {
            let groups: Vec<String> = granted.groups.iter().map(|group| format!("@{group}")).collect();
            let _ = writeln!(text, "    {}", groups.join(" "));
        }
        let [(_, allowed), (_, looked_at), (_, supervised), (_, enosys), (_, denied)] = counts;
        let _ = writeln!(
            text,
            "    calls: {allowed} allowed, {looked_at} by their arguments, {supervised} supervised, {enosys} answer ENOSYS, {denied} denied"
        );
        if works + stops > 0 {
            let _ =
                writeln!(text, "    corpus: {works} commands of its own must work, {stops} actions must be stopped");
        }
    }
    Ok(if json { json_text(&rows) } else { text })
}

fn shown(granted: &Granted) -> String {
    let mut text = format!("{}: {}\n", granted.profile, granted.about);
    let mut part = |title: &str, names: &[String]| {
        if !names.is_empty() {
            let _ = writeln!(text, "\n{title} ({})", names.len());
            for chunk in names.chunks(6) {
                let _ = writeln!(text, "    {}", chunk.join(" "));
            }
        }
    };
    part("allowed", &granted.allowed);
    part("done or refused by gatekeeper itself", &granted.supervised);
    part("answer ENOSYS, so that programs use an older call", &granted.enosys);
    part("denied", &granted.denied);
    let not_here: Vec<String> = granted.not_here.iter().map(|&name| name.to_owned()).collect();
    part(&format!("named by its groups, and not there on {}", std::env::consts::ARCH), &not_here);
    if !granted.by_arguments.is_empty() {
        let _ = writeln!(text, "\ndecided by their arguments ({})", granted.by_arguments.len());
        for looked in &granted.by_arguments {
            let _ = writeln!(text, "    {}: {}", looked.syscall, looked.rules.join("; "));
        }
    }
    text
}

fn prove(args: &TestArgs, json: bool) -> u8 {
    let asked = match asked(args) {
        Ok(asked) => asked,
        Err(error) => {
            complain(format_args!("profiles test: {error}"));
            return EXIT_ERROR;
        }
    };
    let tried = match test(&asked, super::progress("tried").as_deref()) {
        Ok(tried) => tried,
        Err(error) => {
            complain(format_args!("profiles test: {error}"));
            return EXIT_ERROR;
        }
    };
    let count = |wanted: Outcome| tried.iter().filter(|tried| tried.outcome == wanted).count();
    let (passed, failed, skipped) = (count(Outcome::Passed), count(Outcome::Failed), count(Outcome::Skipped));
    let text = match json {
        true => json_text(&serde_json::json!({
            "schema": 1, "passed": passed, "failed": failed, "skipped": skipped, "tried": tried,
        })),
        false => format!("{}\n{passed} passed, {failed} failed, {skipped} skipped\n", table(&tried)),
    };
    let printed = print(&text);
    match (failed, passed) {
        _ if printed != 0 => printed,
        (0, 0) => {
            complain("profiles test: nothing was tried");
            EXIT_FAILED
        }
        (0, _) => 0,
        _ => EXIT_FAILED,
    }
}

fn asked(args: &TestArgs) -> Result<Asked, String> {
    let corpus = match &args.corpus {
        None => Corpus::built_in().map_err(|error| error.to_string())?,
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
            let mut corpus = Corpus::default();
            corpus.add(&path.display().to_string(), &text).map_err(|error| error.to_string())?;
            corpus
        }
    };
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = args.jobs.unwrap_or_else(cores);
    Ok(Asked { corpus, profile: args.profile.clone(), matching: args.only.clone(), jobs })
}

/// One line for each command or action; a line more for each case that is not as it should be.
fn table(tried: &[Tried]) -> String {
    let mut text = String::new();
    let width = tried.iter().map(|tried| tried.name.len()).max().unwrap_or(0);
    for group in tried.chunk_by(|a, b| a.name == b.name) {
        let Some(first) = group.first() else { continue };
        let skipped = group.iter().all(|tried| tried.outcome == Outcome::Skipped);
        let failed = group.iter().any(|tried| tried.outcome == Outcome::Failed);
        let mark = if failed {
            "FAILED"
        } else if skipped {
            "SKIPPED"
        } else {
            first.proves
        };
        let cases: Vec<String> =
            group.iter().map(|tried| format!("{} {}", tried.profile, tried.on_violation)).collect();
        let _ = writeln!(text, "{:width$}  {mark:8}  {}", first.name, cases.join(", "));
        if skipped {
            let _ = writeln!(text, "{:width$}  {}", "", first.detail);
        }
        for tried in group.iter().filter(|tried| tried.outcome == Outcome::Failed) {
            let _ = writeln!(text, "    {} {}: {}", tried.profile, tried.on_violation, tried.detail);
        }
    }
    text
}
