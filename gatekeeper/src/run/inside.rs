//! The inner half of an isolated run: reads the request, runs it under every other layer, and writes its report for the
//! outer gatekeeper. It is PID 1 of its namespace, so no process in the namespace can kill it or outlive it.

use super::{Options, Outside, run};
use crate::audit::{Audit, Handed};
use crate::isolate::handover::{Handover, HandoverError};
use crate::plan::refusal::Refusal;
use crate::report::{EXIT_SETUP, Report};
use crate::sys::message::{self, Message};
use crate::sys::signals::Signals;
use crate::sys::socket::inherited;
use crate::sys::{process, socket};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// The hidden subcommand that bubblewrap runs: `gatekeeper __inside REQUEST REPORT SOCKET STDERR ...`, each a descriptor
/// number. The socket of a run that asks follows, and then the directory and the head of an audit trail.
pub const INSIDE: &str = "__inside";
/// Where bubblewrap mounts the gatekeeper program.
pub const PROGRAM: &str = "/run/gatekeeper";

pub fn main(words: &[OsString]) -> u8 {
    let numbers: Vec<i32> = words.iter().filter_map(|word| word.to_str()?.parse().ok()).collect();
    let [request, report, outside, stderr, others @ ..] = numbers.as_slice() else { return EXIT_SETUP };
    let taken = (inherited(*request), inherited(*report), inherited(*outside), inherited(*stderr));
    let (Ok(request), Ok(report), Ok(outside), Ok(stderr)) = taken else { return EXIT_SETUP };
    // First of all: once the outer gatekeeper knows that we run, it does not retry the command without bubblewrap.
    if message::send(outside.as_fd(), &Message { kind: Message::ALIVE, ..Message::default() }).is_err() {
        return EXIT_SETUP;
    }
    let made = run_handed_over(request, &outside, stderr, others);
    let code = u8::try_from(made.exit_code).unwrap_or(EXIT_SETUP);
    match serde_json::to_vec(&made).map(|text| File::from(report).write_all(&text)) {
        Ok(Ok(())) => code,
        _ => EXIT_SETUP,
    }
}

fn run_handed_over(request: OwnedFd, outside: &OwnedFd, stderr: OwnedFd, others: &[i32]) -> Report {
    let began = std::time::Instant::now();
    let failed = |why: &dyn std::fmt::Display| {
        Refusal::setup(format!("inside bubblewrap: {why}")).report(Vec::new(), began.elapsed())
    };
    let handed = match read(request) {
        Ok(handed) => handed,
        Err(error) => return failed(&error),
    };
    let ready = process::set_not_dumpable()
        .and_then(|()| process::set_subreaper())
        .and_then(|()| socket::becomes(stderr, 2))
        .and_then(|()| Signals::take());
    let signals = match ready {
        Ok(signals) => signals.with_blocked(&handed.blocked),
        Err(error) => return failed(&error),
    };
    let asks = handed.request.ask.is_some();
    let (asks, audit) = others.split_at(usize::from(asks).min(others.len()));
    let taken = asks.first().map(|number| inherited(*number)).transpose();
    let (asks, audit) = match taken.and_then(|asks| Ok((asks, inherit(handed.audit, audit)?))) {
        Ok(taken) => taken,
        Err(error) => return failed(&error),
    };
    let outside = Outside {
        socket: outside.as_fd(),
        asks: asks.as_ref().map(AsFd::as_fd),
        shares_terminal: handed.shares_terminal,
    };
    let options = Options {
        capture: false,
        spill: None,
        signals: Some(&signals),
        warn: &|_| (),
        outside: Some(outside),
        embedding: None,
        answerer: None,
        audit,
        refused: None,
    };
    run(&handed.request, &options)
}

/// The audit trail that the gatekeeper outside has opened.
fn inherit(named: Option<(OsString, String)>, descriptors: &[i32]) -> io::Result<Option<Arc<Audit>>> {
    match (named, descriptors) {
        (None, []) => Ok(None),
        (Some((name, run)), [directory, head]) => {
            let (directory, head) = (inherited(*directory)?, inherited(*head)?);
            Audit::inherit(Handed { directory, head, name, run }).map(|audit| Some(Arc::new(audit)))
        }
        _ => Err(io::Error::other("audit: its descriptors were not handed over")),
    }
}

fn read(request: OwnedFd) -> Result<Handover, HandoverError> {
    let mut file = File::from(request);
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut bytes)?;
    Handover::from_bytes(&bytes)
}
