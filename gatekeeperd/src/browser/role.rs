//! The process that supervises one browser: this program again, in a hidden role.
//!
//! The daemon holds keys and cookies, so it must not be the process that forks and confines. It starts itself anew, by
//! /proc/self/exe, with empty memory; the new process uses gatekeeper's library as `gatekeeper browser` does. It is the same
//! file, so no path can be replaced and no version can differ.
//!
//! Descriptors: 3 and 4 are the browser's debugging pipe, 5 is the leash, 6 takes denials as they happen (one JSON line
//! each), 7 the report. The leash is a pipe whose other end only the daemon holds: when the daemon ends, however it ends,
//! this process ends, and the guardian kills the browser.

use gatekeeper::browser::config::Config;
use gatekeeper::browser::{Settings, request};
use gatekeeper::plan::refusal::Refusal;
use gatekeeper::policy::Limits;
use gatekeeper::run::{self, Options, inside};
use gatekeeper::sys::process;
use gatekeeper::sys::signals::Signals;
use gatekeeper::sys::socket::inherited;
use gatekeeper::{Denial, Report};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The word that selects this role.
pub const BROWSER: &str = "__browser";
pub const LEASH: i32 = 5;
pub const DENIALS: i32 = 6;
pub const REPORT: i32 = 7;
/// The exit code if the set-up fails, as of `gatekeeper browser`.
const EXIT_SETUP: u8 = 125;

/// What to start and within which limits. Passed as JSON in one argument; it contains no secrets.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    pub chromium: PathBuf,
    pub arguments: Vec<String>,
    pub local_ports: Vec<u16>,
    pub memory: Option<u64>,
    pub files: Option<u64>,
    pub deadline_ms: Option<u64>,
}

/// Runs a hidden role, if the command line names one: the supervisor of a browser, or the gatekeeper inside bubblewrap.
/// Returns its exit code. The program's `main` calls this before anything else.
pub fn hidden(words: &[OsString]) -> Option<u8> {
    match words {
        [_, word, descriptors @ ..] if word == inside::INSIDE => Some(inside::main(descriptors)),
        [_, word, start] if word == BROWSER => Some(supervise(start)),
        _ => None,
    }
}

fn supervise(start: &OsString) -> u8 {
    let taken = (inherited(LEASH), inherited(DENIALS), inherited(REPORT));
    let (Ok(leash), Ok(denials), Ok(report)) = taken else { return EXIT_SETUP };
    let Some(start) = start.to_str().and_then(|text| serde_json::from_str::<Start>(text).ok()) else {
        return EXIT_SETUP;
    };
    let watching = std::thread::Builder::new().name("leash".to_owned()).spawn(move || {
        // The daemon never writes. A read that returns means that it closed its end or died.
        let _ = File::from(leash).read(&mut [0u8]);
        std::process::exit(i32::from(EXIT_SETUP));
    });
    if watching.is_err() {
        return EXIT_SETUP;
    }
    let made = confined(&start, File::from(denials));
    let code = u8::try_from(made.exit_code).unwrap_or(EXIT_SETUP);
    match serde_json::to_vec(&made).map(|text| File::from(report).write_all(&text)) {
        Ok(Ok(())) => code,
        _ => EXIT_SETUP,
    }
}

/// Runs the browser as `gatekeeper browser --deny-private` does, without a profile directory: the profile is in the private
/// /tmp, so it starts empty, never reaches a disk, and is gone when the last process of the browser is.
fn confined(start: &Start, denials: File) -> Report {
    let began = Instant::now();
    let settings = Settings {
        config: Config { gpu: false, ..Config::default() },
        command: std::iter::once(start.chromium.clone().into_os_string())
            .chain(start.arguments.iter().map(OsString::from))
            .collect(),
        deny_private: true,
        local_ports: start.local_ports.clone(),
        timeout: start.deadline_ms.map(Duration::from_millis),
        limits: Limits { memory: start.memory, files: start.files, ..Limits::default() },
        has_pipe: true,
        ..Settings::default()
    };
    let failed = |refusal: Refusal| refusal.report(vec![start.chromium.display().to_string()], began.elapsed());
    let request = match request(&settings, &std::env::vars_os().collect::<Vec<_>>()) {
        Ok(request) => request,
        Err(refusal) => return failed(refusal),
    };
    let ready = process::set_not_dumpable().and_then(|()| process::set_subreaper()).and_then(|()| Signals::take());
    let signals = match ready {
        Ok(signals) => signals,
        Err(error) => return failed(Refusal::setup(format!("start: {error}"))),
    };
    let denials = Mutex::new(denials);
    let refused = move |denial: Denial| {
        let Ok(mut line) = serde_json::to_vec(&denial) else { return };
        line.push(b'\n');
        // The report has every denial as well.
        let _ = denials.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).write_all(&line);
    };
    let options = Options {
        capture: false,
        spill: None,
        signals: Some(&signals),
        warn: &|_| {},
        outside: None,
        embedding: None,
        answerer: None,
        audit: None,
        refused: Some(Arc::new(refused)),
    };
    run::run(&request, &options)
}
