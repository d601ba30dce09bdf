//! `gatekeeper why` and `explain`: the denials of a report, or of a run, in plain words and with their remedies.

use super::args::{Cli, Command, WhyArgs};
use super::{EXIT_ERROR, EXIT_SETUP, complain, harmless, run};
use crate::request::Purpose;
use crate::run::{Options, run as run_request};
use crate::supervise::report::KILLED;
use crate::supervise::told::{self, Told, ToldDenial};
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
    match told::load(Path::new(report)) {
        Ok(told) => tell(&told, only, json),
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
    let told = serde_json::to_vec(&report).ok().and_then(|bytes| told::parse(&bytes, Path::new("the report")).ok());
    match told {
        Some(told) => tell(&told, None, json),
        None => wrong(&"the report could not be read back"),
    }
}

fn tell(told: &Told, only: Option<usize>, json: bool) -> u8 {
    if let Some(number) = only
        && number > told.denials.len()
    {
        return wrong(&format_args!("the report holds {} denials, none of number {number}", told.denials.len()));
    }
    let chosen = told.denials.iter().enumerate().filter(|(at, _)| only.is_none_or(|number| number == at + 1));
    let chosen: Vec<(usize, &ToldDenial)> = chosen.map(|(at, denial)| (at + 1, denial)).collect();
    let text = if json { as_json(told, &chosen) } else { as_text(told, &chosen) };
    let _ = std::io::stdout().write_all(text.as_bytes());
    0
}

fn as_json(told: &Told, chosen: &[(usize, &ToldDenial)]) -> String {
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
        "sandbox": told.certainty().word(),
        "text": verdict(told),
        "outcome": told.outcome,
        "exit_code": told.exit_code,
        "denials": denials.collect::<Vec<_>>(),
        "denials_dropped": told.denials_dropped,
        "reads_recorded": told.reads_recorded,
    });
    format!("{document:#}\n")
}

fn as_text(told: &Told, chosen: &[(usize, &ToldDenial)]) -> String {
    let mut text = String::new();
    if chosen.is_empty() || told.certainty() != Certainty::Was {
        let _ = writeln!(text, "{}", harmless(&verdict(told)));
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
    if told.denials_dropped > 0 {
        let _ = writeln!(text, "{} more were denied and only counted.", told.denials_dropped);
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

impl Told {
    fn deaf(&self) -> bool {
        self.layers.iter().any(|layer| layer.layer == "seccomp" && layer.detail.contains("not itemised"))
    }

    /// Whether path rules were in force with no filter that could tell of them.
    fn unheard(&self) -> bool {
        let is = |layer: &str, wanted: &[&str]| {
            self.layers.iter().any(|told| told.layer == layer && wanted.contains(&told.status.as_str()))
        };
        is("landlock", &["enforced", "partial"]) && is("seccomp", &["off"])
    }

    /// How many things were refused, and not only recorded.
    fn refused(&self) -> usize {
        self.denials.iter().filter(|denial| !denial.was_let_through()).count()
    }

    /// Whether it failed, and may have failed for a read that was refused and not seen.
    fn blind(&self) -> bool {
        let paths = |layer: &told::ToldLayer| layer.layer == "landlock" && layer.status != "off";
        self.exit_code != 0 && !self.reads_recorded && self.layers.iter().any(paths)
    }

    fn certainty(&self) -> Certainty {
        let ran = !matches!(self.outcome.as_str(), "refused" | "setup_failed" | "not_found");
        match () {
            () if self.refused() > 0 || !ran => Certainty::Was,
            () if matches!(self.outcome.as_str(), "timeout" | "limit") => Certainty::Was,
            () if self.deaf() || self.unheard() || self.blind() => Certainty::Unknown,
            () => Certainty::WasNot,
        }
    }
}

fn verdict(told: &Told) -> String {
    let reason = told.error.as_deref().unwrap_or("no reason is given");
    let passed = told.denials.len() - told.refused();
    match (told.certainty(), told.refused()) {
        (Certainty::WasNot, _) if passed > 0 => format!(
            "not the sandbox: nothing was refused; {passed} {} let through by on_violation = log, which the policy denies; the \
             command ended with {} by itself",
            if passed == 1 { "thing was" } else { "things were" },
            told.exit_code
        ),
        (Certainty::Unknown, _) if told.blind() && !told.unheard() && !told.deaf() => format!(
            "cannot tell: the command ended with {}, nothing else was denied, and reads of closed files were not all \
             recorded; run it again with --explain",
            told.exit_code
        ),
        (Certainty::Unknown, _) => {
            "unknown: denials were not itemised in this run, because nobody could listen to them".to_owned()
        }
        (Certainty::WasNot, _) => match told.exit_code {
            0 => "not the sandbox: nothing was denied, and the command ended with 0".to_owned(),
            code => format!("not the sandbox: nothing was denied; the command ended with {code} by itself"),
        },
        (Certainty::Was, 0) => format!("the sandbox: {} ({reason})", told.outcome),
        (Certainty::Was, 1) => "the sandbox: one thing was denied".to_owned(),
        (Certainty::Was, count) => format!("the sandbox: {count} things were denied"),
    }
}

/// What was wanted, in words.
fn sentence(denial: &ToldDenial) -> String {
    let what = match denial.syscall.as_str() {
        "open" | "openat" | "openat2" | "creat" => {
            let flags = denial.args.iter().find(|arg| arg.starts_with("O_")).map_or("", String::as_str);
            match () {
                () if denial.errno.as_deref() == Some("EROFS") => "write to",
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
    let by = match denial.layer.as_str() {
        "landlock" => "the path rules",
        "namespaces" if denial.errno.as_deref() == Some("EROFS") => "a read-only place",
        "namespaces" if denial.errno.as_deref() == Some("EBUSY") => "a protected place",
        "namespaces" => "a closed place",
        "seccomp" => "the syscall rules",
        other => other,
    };
    let answer = denial.errno.as_deref().map(|errno| format!(" with {errno}")).unwrap_or_default();
    if denial.was_let_through() {
        return format!(
            "{} wanted to {what}{object}; {by} deny it, and on_violation = log let it through",
            denial.comm
        );
    }
    match denial.errno.as_deref() {
        // Root, and a cover.
        Some("0") => format!("{} wanted to {what}{object}; {by} showed it an empty one instead", denial.comm),
        Some(KILLED) => format!("{} wanted to {what}{object}; {by} ended it for that with {KILLED}", denial.comm),
        _ => format!("{} wanted to {what}{object}; {by} refused it{answer}", denial.comm),
    }
}

/// Where a grant is wider than it looks.
fn hint(denial: &ToldDenial) -> Option<String> {
    let home = std::env::var("HOME").ok()?;
    let wide = denial.allow_with.as_deref()?.strip_prefix("--write ")?;
    (wide == home || wide == "/").then(|| {
        "that is a wide place; make the file beforehand and grant only the file, if its name is always the same"
            .to_owned()
    })
}
