//! `gatekeeper why` and `explain`: the denials of a report, or of a run, in plain words and with their remedies.

use super::args::{Cli, Command, WhyArgs};
use super::{EXIT_ERROR, EXIT_SETUP, complain, harmless, run};
use crate::explain::read;
use crate::report::{Denial, KILLED, Layer, LayerReport, LayerStatus, Outcome, Report};
use crate::request::Purpose;
use crate::run::{Options, run as run_request};
use crate::sys;
use crate::sys::signals::Signals;
use clap::Parser;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

/// `words`: the whole command line, in which a `--` or `-c` means that a command is to be run.
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
    let Some(report) = words.next() else { return wrong(&"name a report, or a command behind --") };
    let only = match words.next().map(|word| word.to_str().and_then(|word| word.parse::<usize>().ok())) {
        None => None,
        Some(Some(number)) if number > 0 => Some(number),
        Some(_) => return wrong(&"the second word is the number of a denial, from 1; a command stands behind --"),
    };
    if words.next().is_some() {
        return wrong(&"more words than a report and a number; a command stands behind --");
    }
    match read::load(Path::new(report)) {
        Ok(report) => tell(&report, only, json),
        Err(error) => wrong(&error),
    }
}

fn wrong(error: &dyn std::fmt::Display) -> u8 {
    complain(error);
    EXIT_ERROR
}

/// Runs a command with every refusal recorded; its own output goes to stderr's side of the story, so it is kept back.
/// Without a command, the options hold a line for the shell.
fn of_command(options: &[OsString], command: Option<&[OsString]>) -> u8 {
    let json = options.iter().any(|word| word == "--json");
    let head = ["gatekeeper", "run", "--explain"].into_iter().map(OsString::from);
    let options = options.iter().filter(|word| *word != "--json").cloned();
    let command = command.map(|command| [&[OsString::from("--")], command].concat());
    let line = head.chain(options).chain(command.into_iter().flatten());
    let args = match Cli::try_parse_from(line) {
        Ok(Cli { command: Command::Run(args) }) => args,
        Ok(_) => return EXIT_ERROR,
        Err(error) => {
            let _ = error.print();
            return EXIT_ERROR;
        }
    };
    let mut request = match run::request(&args) {
        Ok(request) => request,
        Err(error) => return wrong(&error),
    };
    request.purpose = Purpose::Explain;
    let ready =
        sys::process::set_not_dumpable().and_then(|()| sys::process::set_subreaper()).and_then(|()| Signals::take());
    let signals = match ready {
        Ok(signals) => signals,
        Err(error) => {
            complain(format_args!("start: {error}"));
            return EXIT_SETUP;
        }
    };
    let warn = |warning: &str| complain(format_args!("warning: {warning}"));
    let report = run_request(
        &request,
        &Options { capture: true, signals: Some(&signals), warn: &warn, spill: None, outside: None, embedding: None },
    );
    tell(&report, None, json)
}

fn tell(report: &Report, only: Option<usize>, json: bool) -> u8 {
    if let Some(number) = only
        && number > report.denials.len()
    {
        return wrong(&format_args!("the report holds {} denials, none of number {number}", report.denials.len()));
    }
    let chosen = report.denials.iter().enumerate().filter(|(at, _)| only.is_none_or(|number| number == at + 1));
    let chosen: Vec<(usize, &Denial)> = chosen.map(|(at, denial)| (at + 1, denial)).collect();
    let text = if json { as_json(report, &chosen) } else { as_text(report, &chosen) };
    let _ = std::io::stdout().write_all(text.as_bytes());
    0
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
                let _ = writeln!(text, "   allow:  no grant does; the rule above says what refuses it");
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
            let _ = writeln!(text, "   retry:  never helps, until it is granted");
        }
    }
    if report.denials_dropped > 0 {
        let _ = writeln!(text, "{} more were denied and only counted.", report.denials_dropped);
    }
    text
}

/// What is known of the sandbox's part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Certainty {
    Was,
    WasNot,
    /// Denials could not be listened to, or reads not all be seen.
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

/// Whether the denials of the filter were not itemised.
fn deaf(report: &Report) -> bool {
    report.layers.iter().any(|layer| layer.layer == Layer::Seccomp && layer.detail.contains("not itemised"))
}

/// Whether path rules were in force without a filter that could report what they deny.
fn unheard(report: &Report) -> bool {
    let is = |layer: Layer, wanted: &[LayerStatus]| {
        report.layers.iter().any(|found| found.layer == layer && wanted.contains(&found.status))
    };
    is(Layer::Landlock, &[LayerStatus::Enforced, LayerStatus::Partial]) && is(Layer::Seccomp, &[LayerStatus::Off])
}

/// How many things were refused, and not only recorded.
fn refused(report: &Report) -> usize {
    report.denials.iter().filter(|denial| !denial.was_let_through()).count()
}

/// Whether the command failed, and may have failed because of a refused read that was not recorded.
fn blind(report: &Report) -> bool {
    let paths = |layer: &LayerReport| layer.layer == Layer::Landlock && layer.status != LayerStatus::Off;
    report.exit_code != 0 && !report.reads_recorded && report.layers.iter().any(paths)
}

fn certainty(report: &Report) -> Certainty {
    match report.outcome {
        Outcome::Refused | Outcome::SetupFailed | Outcome::NotFound => Certainty::Was,
        Outcome::Timeout | Outcome::Limit => Certainty::Was,
        _ if refused(report) > 0 => Certainty::Was,
        _ if deaf(report) || unheard(report) || blind(report) => Certainty::Unknown,
        _ => Certainty::WasNot,
    }
}

fn verdict(report: &Report) -> String {
    let reason = report.error.as_deref().unwrap_or("no reason is given");
    let passed = report.denials.len() - refused(report);
    match (certainty(report), refused(report)) {
        (Certainty::WasNot, _) if passed > 0 => format!(
            "not the sandbox: nothing was refused; {passed} {} let through by on_violation = log, which the policy denies; the \
             command ended with {} by itself",
            if passed == 1 { "thing was" } else { "things were" },
            report.exit_code
        ),
        (Certainty::Unknown, _) if blind(report) && !unheard(report) && !deaf(report) => format!(
            "cannot tell: the command ended with {}, nothing else was denied, and reads of closed files were not all \
             recorded; run it again with --explain",
            report.exit_code
        ),
        (Certainty::Unknown, _) => {
            "unknown: denials were not itemised in this run, because nobody could listen to them".to_owned()
        }
        (Certainty::WasNot, _) => match report.exit_code {
            0 => "not the sandbox: nothing was denied, and the command ended with 0".to_owned(),
            code => format!("not the sandbox: nothing was denied; the command ended with {code} by itself"),
        },
        (Certainty::Was, 0) => format!("the sandbox: {} ({reason})", report.outcome.word()),
        (Certainty::Was, 1) => "the sandbox: one thing was denied".to_owned(),
        (Certainty::Was, count) => format!("the sandbox: {count} things were denied"),
    }
}

/// What was wanted, in words.
fn sentence(denial: &Denial) -> String {
    let what = match denial.syscall.as_str() {
        "open" | "openat" | "openat2" | "creat" => {
            let flags = denial.args.iter().find(|arg| arg.starts_with("O_")).map_or("", String::as_str);
            match () {
                () if denial.errno == "EROFS" => "write to",
                () if denial.syscall == "creat" || flags.contains("O_CREAT") => "create or write",
                () if flags.contains("O_WRONLY") || flags.contains("O_RDWR") || flags.contains("O_TRUNC") => "write",
                () => "read",
            }
        }
        "unlink" | "unlinkat" | "rmdir" => "delete",
        "mkdir" | "mkdirat" => "make the directory",
        "rename" | "renameat" | "renameat2" => "rename",
        "link" | "linkat" | "symlink" | "symlinkat" => "link",
        "truncate" => "cut off",
        "execve" | "execveat" => "execute",
        "connect" => "connect to",
        "bind" => "listen at",
        "sendto" | "sendmsg" | "sendmmsg" => "send to",
        "fork" | "vfork" | "clone" => "start a process",
        "socket" => "open a socket",
        "ptrace" | "process_vm_readv" | "process_vm_writev" => "look into another process",
        "kill" | "tkill" | "tgkill" => "send a signal",
        name if name.contains("chmod") => "change the mode of",
        name if name.contains("chown") => "change the owner of",
        name if name.contains("utime") => "change the times of",
        name if name.contains("xattr") => "change attributes of",
        _ => "call",
    };
    let object = match (&denial.path, &denial.host) {
        (Some(path), _) => format!(" {path}"),
        (_, Some(host)) => format!(" {host}"),
        _ if what == "call" => format!(" {}({})", denial.syscall, denial.args.join(", ")),
        _ => format!(": {}({})", denial.syscall, denial.args.join(", ")),
    };
    let by = match denial.layer {
        Layer::Landlock => "the path rules",
        Layer::Namespaces if denial.errno == "EROFS" => "a read-only place",
        Layer::Namespaces if denial.errno == "EBUSY" => "a protected place",
        Layer::Namespaces => "a closed place",
        Layer::Seccomp => "the syscall rules",
        Layer::Limits => "a limit",
        Layer::Proxy => "the proxy",
    };
    let answer = if denial.errno.is_empty() { String::new() } else { format!(" with {}", denial.errno) };
    if denial.was_let_through() {
        return format!(
            "{} wanted to {what}{object}; {by} deny it, and on_violation = log let it through",
            denial.comm
        );
    }
    match denial.errno.as_str() {
        // Root, and a cover.
        "0" => format!("{} wanted to {what}{object}; {by} showed it an empty one instead", denial.comm),
        KILLED => format!("{} wanted to {what}{object}; {by} ended it for that with {KILLED}", denial.comm),
        _ => format!("{} wanted to {what}{object}; {by} refused it{answer}", denial.comm),
    }
}

/// Where a grant is wider than it looks.
fn hint(denial: &Denial) -> Option<String> {
    let home = std::env::var("HOME").ok()?;
    let wide = denial.allow_with.as_deref()?.strip_prefix("--write ")?;
    (wide == home || wide == "/").then(|| {
        "that is a wide place; make the file beforehand and grant only the file, if its name is always the same"
            .to_owned()
    })
}
