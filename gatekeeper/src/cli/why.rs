//! `gatekeeper why` and `explain`: explain the denials of a report or of a new run, and how to allow them.

mod sentence;

use super::args::{Cli, Command, RunArgs, WhyArgs};
use super::output::print;
use super::{EXIT_ERROR, complain, failed, harmless, run, setup_failed};
use crate::explain::read;
use crate::report::{Denial, Layer, LayerReport, LayerStatus, Outcome, Report};
use crate::request::Purpose;
use crate::run::run as run_request;
use clap::Parser;
use sentence::{hint, sentence};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::Path;

/// `words`: the whole command line. `--` or `-c` in it means: run a command and explain its denials.
pub fn main(args: &WhyArgs, words: &[OsString]) -> u8 {
    match words.iter().skip(2).position(|word| word == "--") {
        Some(at) => of_command(&words[2..2 + at], Some(&words[3 + at..])),
        None if words.iter().skip(2).any(|word| word == "-c") => of_command(&words[2..], None),
        None => of_report(args),
    }
}

fn of_report(args: &WhyArgs) -> u8 {
    let json = args.json || args.words.iter().any(|word| word == "--json");
    let mut words = args.words.iter().filter(|word| *word != "--json");
    let Some(report) = words.next() else { return failed("name a report, or a command after --") };
    let only = match words.next().map(|word| word.to_str().and_then(|word| word.parse::<usize>().ok())) {
        None => None,
        Some(Some(number)) if number > 0 => Some(number),
        Some(_) => {
            return failed(
                "the second argument must be the number of a denial, from 1; to explain a command, put it after --",
            );
        }
    };
    if words.next().is_some() {
        return failed("too many arguments: expected a report and a number; to explain a command, put it after --");
    }
    match read::load(Path::new(report)) {
        Ok(report) => tell(&report, only, json),
        Err(error) => failed(error),
    }
}

/// Runs a command with all denials recorded, and explains them. Its own output is captured and not printed.
/// Without `command`, the options contain a shell line after `-c`.
fn of_command(options: &[OsString], command: Option<&[OsString]>) -> u8 {
    let args = match run_args(options, command) {
        Ok(args) => args,
        Err(code) => return code,
    };
    let mut request = match run::request(&args) {
        Ok(request) => request,
        Err(error) => return failed(error),
    };
    request.purpose = Purpose::Explain;
    let signals = match run::become_supervisor() {
        Ok(signals) => signals,
        Err(error) => return setup_failed(error),
    };
    let warn = |warning: &str| complain(format_args!("warning: {warning}"));
    let report = run_request(&request, &run::options(&signals, &warn, true));
    tell(&report, None, options.iter().any(|word| word == "--json"))
}

/// Parses the options as those of `run`. The error is an exit code; clap's message is printed.
fn run_args(options: &[OsString], command: Option<&[OsString]>) -> Result<Box<RunArgs>, u8> {
    let head = ["gatekeeper", "run", "--explain"].into_iter().map(OsString::from);
    let options = options.iter().filter(|word| *word != "--json").cloned();
    let command = command.map(|command| [&[OsString::from("--")], command].concat());
    match Cli::try_parse_from(head.chain(options).chain(command.into_iter().flatten())) {
        Ok(Cli { command: Command::Run(args) }) => Ok(args),
        Ok(_) => Err(EXIT_ERROR),
        Err(error) => {
            let _ = error.print();
            Err(EXIT_ERROR)
        }
    }
}

fn tell(report: &Report, only: Option<usize>, json: bool) -> u8 {
    if let Some(number) = only
        && number > report.denials.len()
    {
        return failed(format_args!("the report has no denial {number}, only {}", report.denials.len()));
    }
    let chosen = report.denials.iter().enumerate().filter(|(at, _)| only.is_none_or(|number| number == at + 1));
    let chosen: Vec<(usize, &Denial)> = chosen.map(|(at, denial)| (at + 1, denial)).collect();
    if json {
        return print(&as_json(report, &chosen));
    }
    let printed = print(&as_text(report, &chosen));
    let silent = silent(report);
    if !silent.is_empty() {
        complain(format_args!(
            "note: some denials are never recorded: {}; if the command works without gatekeeper, one of these may be why",
            silent.join("; ")
        ));
    }
    printed
}

fn as_json(report: &Report, chosen: &[(usize, &Denial)]) -> String {
    let denials = chosen.iter().map(|(number, denial)| {
        let mut value = serde_json::to_value(denial).unwrap_or_default();
        if let Some(fields) = value.as_object_mut() {
            fields.insert("number".to_owned(), (*number).into());
            fields.insert("text".to_owned(), sentence(denial).into());
            fields.insert("retry_can_help".to_owned(), false.into());
        }
        value
    });
    let document = serde_json::json!({
        "schema": 1,
        "sandbox": certainty(report).word(),
        "text": verdict(report),
        "outcome": report.outcome,
        "exit_code": report.exit_code,
        "denials": denials.collect::<Vec<_>>(),
        "denials_dropped": report.denials_dropped,
        "reads_recorded": report.reads_recorded,
        "never_recorded": silent(report),
    });
    format!("{document:#}\n")
}

fn as_text(report: &Report, chosen: &[(usize, &Denial)]) -> String {
    let mut text = String::new();
    if chosen.is_empty() || certainty(report) != Certainty::Was {
        let _ = writeln!(text, "{}", harmless(&verdict(report)));
    }
    for (number, denial) in chosen {
        let _ = writeln!(text, "{number}. {}", harmless(&sentence(denial)));
        let program = denial.exe.as_deref().unwrap_or(&denial.comm);
        let times = if denial.count > 1 { format!(", {} times", denial.count) } else { String::new() };
        let _ = writeln!(text, "   who:    {} (process {}){times}", harmless(program), denial.pid);
        let _ = writeln!(text, "   rule:   {}", harmless(&denial.rule));
        match (&denial.allow_with, &denial.allow_with_policy) {
            (None, None) => {
                let _ = writeln!(text, "   allow:  no grant allows this; see the rule");
            }
            (flag, line) => {
                if let Some(flag) = flag {
                    let _ = writeln!(text, "   allow:  {}", harmless(flag));
                }
                if let Some(line) = line {
                    let _ = writeln!(text, "   policy: {}", harmless(line));
                }
            }
        }
        if let Some(hint) = hint(denial) {
            let _ = writeln!(text, "   note:   {hint}");
        }
        if !denial.was_let_through() {
            let granted = denial.allow_with.is_some() || denial.allow_with_policy.is_some();
            let until = if granted { " until it is granted" } else { "" };
            let _ = writeln!(text, "   retry:  will fail the same way{until}");
        }
    }
    if report.denials_dropped > 0 {
        let _ = writeln!(text, "{} more denials were counted but not recorded.", report.denials_dropped);
    }
    text
}

/// Whether the sandbox made the command fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Certainty {
    Was,
    WasNot,
    /// Some denials are not recorded, so the sandbox may be the cause.
    Unknown,
}

impl Certainty {
    fn word(self) -> &'static str {
        match self {
            Certainty::Was => "was",
            Certainty::WasNot => "was_not",
            Certainty::Unknown => "unknown",
        }
    }
}

/// Whether the filter denied calls without notifying the supervisor.
fn deaf(report: &Report) -> bool {
    report.layers.iter().any(|layer| layer.layer == Layer::Seccomp && layer.detail.contains("not itemised"))
}

/// Whether path rules were enforced without a filter, which is what notifies the supervisor of denied paths.
fn unheard(report: &Report) -> bool {
    let is = |layer: Layer, wanted: &[LayerStatus]| {
        report.layers.iter().any(|found| found.layer == layer && wanted.contains(&found.status))
    };
    is(Layer::Landlock, &[LayerStatus::Enforced, LayerStatus::Partial]) && is(Layer::Seccomp, &[LayerStatus::Off])
}

/// The number of denials, without those that on_violation = log let through.
fn refused(report: &Report) -> usize {
    report.denials.iter().filter(|denial| !denial.was_let_through()).count()
}

/// Whether the command failed, possibly because of a denied read that was not recorded.
fn blind(report: &Report) -> bool {
    let paths = |layer: &LayerReport| layer.layer == Layer::Landlock && layer.status != LayerStatus::Off;
    report.exit_code != 0 && !report.reads_recorded && report.layers.iter().any(paths)
}

/// What the layers of a run that failed without a denial may have denied: it is never recorded.
fn silent(report: &Report) -> Vec<&'static str> {
    let holds = |layer: Layer| {
        let held = |found: &&LayerReport| matches!(found.status, LayerStatus::Enforced | LayerStatus::Partial);
        report.layers.iter().filter(held).any(|found| found.layer == layer)
    };
    let mut silent = Vec::new();
    if report.exit_code == 0 || certainty(report) != Certainty::WasNot {
        return silent;
    }
    if holds(Layer::Landlock) {
        silent.push("signals to processes outside of the run");
        silent.push("looking into such processes in /proc");
        silent.push("ioctls on devices");
        silent.push("what root does by a capability that was dropped");
    }
    if holds(Layer::Seccomp) {
        silent.push("calls that fail with ENOSYS so that programs use others");
    }
    silent
}

fn certainty(report: &Report) -> Certainty {
    match report.outcome {
        Outcome::Refused | Outcome::SetupFailed => Certainty::Was,
        // Without the sandbox it would not be found either.
        Outcome::NotFound => Certainty::WasNot,
        Outcome::Timeout | Outcome::Limit => Certainty::Was,
        _ if refused(report) > 0 => Certainty::Was,
        _ if deaf(report) || unheard(report) || blind(report) => Certainty::Unknown,
        _ => Certainty::WasNot,
    }
}

fn verdict(report: &Report) -> String {
    let reason = report.error.as_deref().unwrap_or("no reason given");
    let passed = report.denials.len() - refused(report);
    match (certainty(report), refused(report)) {
        (Certainty::WasNot, _) if report.outcome == Outcome::NotFound => format!("not the sandbox: {reason}"),
        (Certainty::WasNot, _) if passed > 0 => format!(
            "not the sandbox: on_violation = log let through {passed} {} that the policy denies, and nothing else was denied; \
             the command itself exited with {}",
            if passed == 1 { "action" } else { "actions" },
            report.exit_code
        ),
        (Certainty::Unknown, _) if blind(report) && !unheard(report) && !deaf(report) => format!(
            "cannot tell: the command exited with {}, no denial was recorded, but not every denied read is; run it again \
             with --explain",
            report.exit_code
        ),
        (Certainty::Unknown, _) => {
            "cannot tell: denials were not itemised in this run, because no supervisor was notified of them".to_owned()
        }
        (Certainty::WasNot, _) => match report.exit_code {
            0 => "not the sandbox: nothing was denied, and the command exited with 0".to_owned(),
            code => format!("not the sandbox: nothing was denied; the command itself exited with {code}"),
        },
        (Certainty::Was, 0) => format!("the sandbox: {} ({reason})", report.outcome.word()),
        (Certainty::Was, 1) => "the sandbox: 1 action was denied".to_owned(),
        (Certainty::Was, count) => format!("the sandbox: {count} actions were denied"),
    }
}
