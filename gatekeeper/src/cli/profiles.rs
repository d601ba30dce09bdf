//! `gatekeeper profiles`: lists the built-in profiles, shows what one grants, and tests them.

use super::args::{ProfilesArgs, ProfilesCommand, TestArgs};
use super::output::print;
use super::{complain, failed};
use crate::policy::values;
use crate::profiles::corpus::Corpus;
use crate::profiles::granted::{BUILT_IN, Granted, granted};
use crate::profiles::trial::{Outcome, Tried};
use crate::profiles::{Asked, test};
use std::fmt::Write as _;

/// A command did not work as it does unconfined, or an action was not denied.
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
        Err(error) => failed(format_args!("profiles: {error}")),
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
        let [(_, allowed), (_, by_arguments), (_, supervised), (_, enosys), (_, denied)] = counts;
        let _ = writeln!(
            text,
            "    syscalls: {allowed} allowed, {by_arguments} decided by arguments, {supervised} supervised, {enosys} answered with ENOSYS, {denied} denied"
        );
        if works + stops > 0 {
            let _ = writeln!(
                text,
                "    corpus: {works} commands need this profile and must work, {stops} actions must be denied"
            );
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
    part("performed or denied by the supervisor", &granted.supervised);
    part("answered with ENOSYS, so that programs fall back to an older call", &granted.enosys);
    part("denied", &granted.denied);
    let not_here: Vec<String> = granted.not_here.iter().map(|&name| name.to_owned()).collect();
    part(&format!("in its groups, but not available on {}", std::env::consts::ARCH), &not_here);
    if !granted.by_arguments.is_empty() {
        let _ = writeln!(text, "\ndecided by arguments ({})", granted.by_arguments.len());
        for looked in &granted.by_arguments {
            let _ = writeln!(text, "    {}: {}", looked.syscall, looked.rules.join("; "));
        }
    }
    text
}

fn prove(args: &TestArgs, json: bool) -> u8 {
    let progress = super::progress("tested");
    let tried = asked(args).and_then(|asked| test(&asked, progress.as_deref()).map_err(|error| error.to_string()));
    let tried = match tried {
        Ok(tried) => tried,
        Err(error) => return failed(format_args!("profiles test: {error}")),
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
            complain("profiles test: nothing was tested: no name matched, or everything was skipped");
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

/// One line for each command or action, and one more for each case that failed.
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
