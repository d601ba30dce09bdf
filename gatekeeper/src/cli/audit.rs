//! `gatekeeper audit`: checks audit files, and prints them for people.

use super::args::{AuditArgs, AuditCommand, ShowArgs, VerifyArgs};
use super::output::print;
use super::{EXIT_ERROR, failed, harmless};
use crate::audit::verify::{Fault, verify};
use crate::audit::{HEAD, NONE, hash, time};
use crate::trust::{self, Hostile};
use serde_json::{Value, json};
use std::io::Read;
use std::path::{Path, PathBuf};

pub fn main(args: &AuditArgs) -> u8 {
    match &args.command {
        AuditCommand::Verify(args) => check(args),
        AuditCommand::Show(args) => show(args),
    }
}

/// The largest file that is read.
const LARGEST: u64 = 1 << 32;

/// How many faults of a file are printed: one that is no audit file at all has two in each line.
const SHOWN: usize = 20;

fn counted(lines: u64, runs: u64) -> String {
    let many = |count: u64, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    format!("{} of {}", many(lines, "line"), many(runs, "run"))
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let named = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let (file, _) = trust::open_regular(path, &Hostile::here()).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    file.take(LARGEST).read_to_end(&mut bytes).map_err(|error| named(&error))?;
    Ok(bytes)
}

fn head_of(path: &Path) -> PathBuf {
    let mut head = path.as_os_str().to_owned();
    head.push(HEAD);
    PathBuf::from(head)
}

fn check(args: &VerifyArgs) -> u8 {
    let mut before = None;
    let (mut documents, mut text, mut intact) = (Vec::new(), String::new(), true);
    // The hash of a line that the files had once. An empty file only grows.
    let mut grown = args.head.as_ref().is_none_or(|wanted| wanted == NONE);
    for path in &args.files {
        let bytes = match read(path) {
            Ok(bytes) => bytes,
            Err(error) => return failed(error),
        };
        let head = match head_of(path) {
            head if head.exists() => match read(&head) {
                Ok(head) => Some(head),
                Err(error) => return failed(error),
            },
            _ => None,
        };
        let mut found = verify(&bytes, head.as_deref(), before.as_deref());
        let has =
            |wanted: &String| bytes.split(|byte| *byte == b'\n').any(|line| wanted.eq_ignore_ascii_case(&hash(line)));
        grown = grown || args.head.as_ref().is_some_and(has);
        if !grown && args.files.last() == Some(path) {
            let why = "no line has the hash of --head: lines were changed or removed since, or it is of another file";
            found.faults.push(Fault { line: found.lines, why: why.to_owned() });
        }
        intact &= found.intact();
        let shown = path.display();
        let state = if found.intact() { "intact" } else { "CHANGED" };
        text.push_str(&format!("{shown}: {state}, {}, head {}\n", counted(found.lines, found.runs), found.head));
        for fault in found.faults.iter().take(SHOWN) {
            text.push_str(&format!("  line {}: {}\n", fault.line, fault.why));
        }
        if let Some(more) = found.faults.len().checked_sub(SHOWN).filter(|more| *more > 0) {
            text.push_str(&format!("  and {more} more, which --json lists\n"));
        }
        found.notes.iter().for_each(|note| text.push_str(&format!("  note: {note}\n")));
        let faults: Vec<Value> =
            found.faults.iter().map(|fault| json!({"line": fault.line, "why": fault.why})).collect();
        documents.push(json!({
            "file": path.to_string_lossy(), "intact": found.intact(), "lines": found.lines, "runs": found.runs,
            "head": found.head, "faults": faults, "notes": found.notes,
        }));
        before = Some(found.head);
    }
    let printed = match args.json {
        true => print(&format!("{:#}\n", json!({"schema": 1, "intact": intact, "files": documents}))),
        false => print(&text.lines().map(|line| harmless(line) + "\n").collect::<String>()),
    };
    match (printed, intact) {
        (0, true) => 0,
        (0, false) => 1,
        _ => EXIT_ERROR,
    }
}

fn show(args: &ShowArgs) -> u8 {
    let since = match args.since.as_deref().map(moment).transpose() {
        Ok(since) => since,
        Err(error) => return failed(format_args!("--since: {error}")),
    };
    let until = match args.until.as_deref().map(moment).transpose() {
        Ok(until) => until,
        Err(error) => return failed(format_args!("--until: {error}")),
    };
    let bytes = match read(&args.file) {
        Ok(bytes) => bytes,
        Err(error) => return failed(error),
    };
    let mut text = String::new();
    for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let Ok(value) = serde_json::from_slice::<Value>(line) else {
            text.push_str("(not JSON; gatekeeper audit verify tells what was changed)\n");
            continue;
        };
        let of = |key: &str| value[key].as_str().unwrap_or_default();
        let has =
            |wanted: &Option<String>, key: &str| wanted.as_ref().is_none_or(|wanted| of(key).contains(wanted.as_str()));
        let is = |wanted: &Option<String>, key: &str| wanted.as_ref().is_none_or(|wanted| of(key) == wanted);
        let wanted = has(&args.host, "host")
            && has(&args.path, "path")
            && is(&args.decision, "decision")
            && is(&args.kind, "kind")
            && is(&args.run, "run")
            && since.as_ref().is_none_or(|since| of("time") >= since.as_str())
            && until.as_ref().is_none_or(|until| of("time") <= until.as_str());
        if wanted {
            text.push_str(&if args.json { format!("{value}\n") } else { row(&value) });
        }
    }
    print(&text)
}

/// One line of the table.
fn row(value: &Value) -> String {
    let of = |key: &str| value[key].as_str().unwrap_or_default();
    let mut what: Vec<String> = Vec::new();
    match of("kind") {
        "http" => what.push(format!("{} {}{}", of("method"), of("host"), of("path"))),
        "start" => what.push(of("command").to_owned()),
        "end" => what.push(format!("{} {}", of("outcome"), value["exit_code"])),
        "call" => what.push(format!("{} {}{}", of("syscall"), of("path"), of("host"))),
        _ => what.push(format!("{}{}", of("path"), of("host"))),
    }
    if !of("comm").is_empty() {
        what.push(format!("by {}({})", of("comm"), value["pid"]));
    }
    if !of("errno").is_empty() {
        what.push(format!("({})", of("errno")));
    }
    if of("decision") == "denied" && !of("rule").is_empty() {
        what.push(format!("({})", of("rule")));
    }
    let row = format!("{:27} {:16} {:9} {:9} {}", of("time"), of("run"), of("kind"), of("decision"), what.join(" "));
    harmless(&row).trim_end().to_owned() + "\n"
}

/// A time as in the file or the beginning of one, or how long ago, such as 1h.
fn moment(text: &str) -> Result<String, String> {
    if text.len() >= 4
        && text.bytes().take(4).all(|byte| byte.is_ascii_digit())
        && (text.len() == 4 || text.contains('-'))
    {
        return Ok(text.to_owned());
    }
    let ago = crate::policy::values::duration(text)
        .map_err(|error| format!("{error}; or a time such as 2026-11-17T04:00"))?;
    Ok(time::ago(ago.as_secs()))
}
