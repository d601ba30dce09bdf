//! `--ask-fd` and `--ask`: refused calls wait for a decision, and are then carried out by the supervisor.

mod answers;
mod calls;
mod each;
pub(crate) mod isolated;
mod requests;
mod screen;
mod terminal;

use crate::plumbing::Place;
use crate::support::{Done, descriptors};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// The descriptor on which the tests are asked.
const FD: i32 = 9;

/// A finished run, and every line that was asked.
pub struct Ran {
    pub done: Done,
    pub lines: Vec<Value>,
    pub report: Value,
}

impl Ran {
    pub fn questions(&self) -> Vec<&Value> {
        self.lines.iter().filter(|line| line.get("withdrawn").is_none()).collect()
    }

    /// The paths or hosts that were asked, each with its access.
    pub fn asked(&self) -> Vec<String> {
        let shown = |line: &&Value| {
            let what = line["path"].as_str().or(line["host"].as_str()).unwrap_or("?");
            format!("{} {what}", line["access"].as_str().unwrap_or("?"))
        };
        self.questions().iter().map(shown).collect()
    }

    pub fn decisions(&self) -> Vec<String> {
        let asked = self.report["asked"].as_array().cloned().unwrap_or_default();
        let shown = |asked: &Value| {
            format!("{} {}", asked["decision"].as_str().unwrap_or("?"), asked["because"].as_str().unwrap_or("?"))
        };
        asked.iter().map(shown).collect()
    }
}

/// Runs gatekeeper with `--ask-fd`, and answers each question with what `answer` returns: a line, or nothing.
#[track_caller]
pub fn ask(place: &Place, words: &[&str], answer: impl FnMut(&Value, &UnixStream) -> Option<String>) -> Ran {
    let report = place.at("work/report.json");
    let mut all = vec!["run", "--ask-fd", "9", "--report", report.to_str().expect("text")];
    all.extend(words);
    let mut command = place.command(&all);
    drive(&mut command, answer, &report)
}

#[track_caller]
pub fn drive(
    command: &mut Command,
    mut answer: impl FnMut(&Value, &UnixStream) -> Option<String>,
    report: &std::path::Path,
) -> Ran {
    let shown = format!("{command:?}");
    let (ours, theirs) = UnixStream::pair().expect("a socket pair");
    descriptors::place(command, [(theirs.as_raw_fd(), FD)]);
    // SAFETY: alarm is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            libc::alarm(120);
            Ok(())
        })
    };
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("gatekeeper starts");
    drop(theirs);
    let output = std::thread::spawn(move || child.wait_with_output().expect("it ends"));
    let mut lines = Vec::new();
    let mut reader = BufReader::new(ours.try_clone().expect("a copy"));
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|count| count > 0) {
        let value: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
        line.clear();
        if value.get("withdrawn").is_none()
            && let Some(answer) = answer(&value, &ours)
        {
            let _ = (&ours).write_all(format!("{answer}\n").as_bytes());
        }
        lines.push(value);
    }
    let output = output.join().expect("the thread");
    let text = std::fs::read_to_string(report).unwrap_or_default();
    Ran { done: Done { shown, output }, lines, report: serde_json::from_str(&text).unwrap_or(Value::Null) }
}

/// Answers every question with the same decision.
pub fn always(decision: &str) -> impl FnMut(&Value, &UnixStream) -> Option<String> + use<'_> {
    move |question, _| Some(json!({"id": question["id"], "decision": decision}).to_string())
}
