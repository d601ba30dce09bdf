//! Tests that a workload works: runs it unconfined and then confined, each time in the same new directory, and compares
//! the results.

use super::corpus::{Corpus, Workload, contains};
use super::scene::{Picture, Scene, difference, with_port};
use super::served::Server;
use super::watched::{Seen, compare, watch};
use serde::Serialize;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Instant, SystemTime};

/// What all tests share.
pub struct Stage<'a> {
    pub corpus: &'a Corpus,
    /// The path of this program.
    pub gatekeeper: PathBuf,
    /// The private directory of this run.
    pub base: PathBuf,
    /// The only profile to test. By default, each workload is tested with its own profile and with the largest.
    pub only: Option<String>,
    /// The number of scenes so far, which names the next.
    pub scenes: AtomicUsize,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    Passed,
    Failed,
    Skipped,
}

/// The result of one workload or action under one profile and one `--on-violation`.
#[derive(Debug, Clone, Serialize)]
pub struct Tried {
    pub name: String,
    /// `works` or `stopped`: what the test has to prove.
    pub proves: &'static str,
    pub profile: String,
    pub on_violation: &'static str,
    pub outcome: Outcome,
    /// Why it failed or was skipped.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
    pub duration_ms: u64,
}

impl Stage<'_> {
    pub(super) fn scene(&self) -> Scene {
        let number = self.scenes.fetch_add(1, Ordering::Relaxed);
        Scene::new(self.base.join(number.to_string()))
    }

    /// The profiles and values of `--on-violation` that a workload is tested with.
    fn cases(&self, smallest: &str) -> Vec<(String, &'static str)> {
        let own = |name: &str| ["errno", "kill"].map(|mode| (name.to_owned(), mode)).to_vec();
        match &self.only {
            Some(only) if contains(only, smallest) => own(only),
            Some(_) => Vec::new(),
            None if smallest == LARGEST => own(smallest),
            None => own(smallest).into_iter().chain([(LARGEST.to_owned(), "kill")]).collect(),
        }
    }

    /// Tries a workload in every case that applies.
    pub fn try_workload(&self, workload: &Workload) -> Vec<Tried> {
        let cases = self.cases(&workload.profile);
        let result = |(profile, mode): (String, &'static str), outcome, detail: String, began: Instant| Tried {
            name: workload.name.clone(),
            proves: "works",
            profile,
            on_violation: mode,
            outcome,
            detail,
            duration_ms: began.elapsed().as_millis() as u64,
        };
        if cases.is_empty() {
            return Vec::new();
        }
        let began = Instant::now();
        let scene = self.scene();
        let missing: Vec<&str> = workload.tools().filter(|tool| !scene.finds(tool)).collect();
        if !missing.is_empty() {
            let why = format!("not installed: {}", missing.join(" "));
            return cases.into_iter().map(|case| result(case, Outcome::Skipped, why.clone(), began)).collect();
        }
        let plain = match self.plain(workload, &scene) {
            Ok(plain) => plain,
            Err((outcome, why)) => {
                return cases.into_iter().map(|case| result(case, outcome.clone(), why.clone(), began)).collect();
            }
        };
        cases
            .into_iter()
            .map(|case| {
                let began = Instant::now();
                match self.confined(workload, &scene, &plain, &case.0, case.1) {
                    Ok(()) => result(case, Outcome::Passed, String::new(), began),
                    Err(why) => result(case, Outcome::Failed, why, began),
                }
            })
            .collect()
    }

    /// The workload unconfined. What fails without a profile says nothing about one: it is skipped.
    fn plain(&self, workload: &Workload, scene: &Scene) -> Result<(Seen, Picture), (Outcome, String)> {
        let words = |port: u16| -> Vec<String> {
            match &workload.line {
                Some(line) => vec!["sh".to_owned(), "-c".to_owned(), with_port(line, port)],
                None => workload.run.iter().map(|word| with_port(word, port)).collect(),
            }
        };
        let acted = self.act(workload, scene, &|port| {
            let words = words(port);
            let mut command = scene.command(&words[0]);
            command.args(&words[1..]);
            command
        });
        let (seen, picture) = acted.map_err(|why| (Outcome::Failed, why))?;
        if seen.status != workload.status {
            let text = String::from_utf8_lossy(&seen.stderr).into_owned();
            let why = format!("unconfined, exit status {} instead of {}: {text}", seen.status, workload.status);
            return Err((Outcome::Skipped, why));
        }
        Ok((seen, picture))
    }

    fn confined(
        &self,
        workload: &Workload,
        scene: &Scene,
        plain: &(Seen, Picture),
        profile: &str,
        mode: &str,
    ) -> Result<(), String> {
        let report = self.base.join(format!("{}.json", workload.name));
        let (seen, picture) = self.act(workload, scene, &|port| {
            let mut command = self.launch(scene, profile, mode, &report);
            match &workload.line {
                Some(line) => command.arg("-c").arg(with_port(line, port)),
                None => command.arg("--").args(workload.run.iter().map(|word| with_port(word, port))),
            };
            command
        })?;
        let differs = compare(&plain.0, &seen).or_else(|| difference(&plain.1, &picture));
        let denied = denials(&report);
        let _ = fs::remove_file(&report);
        // A workload may work although some paths are denied, such as a cache in the home directory. A denial by the filter is a
        // failure.
        let by_filter = denied.iter().any(|denial| denial["layer"] == "seccomp");
        match differs {
            None if !by_filter => Ok(()),
            None => Err(format!("denied: {}", summary(&denied))),
            // If two unconfined runs differ, the workload is at fault and not the profile.
            Some(_) if self.plain(workload, scene).is_ok_and(|again| again != *plain) => {
                Err("two unconfined runs differ".to_owned())
            }
            Some(what) if denied.is_empty() => Err(what),
            Some(what) => Err(format!("{what}; denied: {}", summary(&denied))),
        }
    }

    /// Sets up the scene, runs a command in it and records the result.
    fn act(
        &self,
        workload: &Workload,
        scene: &Scene,
        command: &dyn Fn(u16) -> Command,
    ) -> Result<(Seen, Picture), String> {
        let fixture = workload.fixture.as_ref().and_then(|name| self.corpus.fixture.get(name));
        let server = workload.serve.then(|| Server::start(scene.served())).transpose().map_err(|e| e.to_string())?;
        let port = server.as_ref().map_or(0, Server::port);
        scene.set_up(workload, fixture, port).map_err(|error| format!("set-up: {error}"))?;
        let began = SystemTime::now();
        let seen = watch(&mut command(port), workload.stdin.as_bytes()).map_err(|error| error.to_string())?;
        let loose = workload.loose.iter().chain(fixture.into_iter().flat_map(|fixture| &fixture.loose));
        let loose: Vec<&str> = loose.map(String::as_str).collect();
        let picture = scene.picture(&loose, began).map_err(|error| format!("reading the results: {error}"))?;
        let seen = if port == 0 { seen } else { seen.without(&port.to_string()) };
        Ok((seen, picture))
    }

    pub(super) fn launch(&self, scene: &Scene, profile: &str, mode: &str, report: &Path) -> Command {
        let mut command = scene.command(&self.gatekeeper.to_string_lossy());
        command.args(["run", "--quiet", "--profile", profile, "--on-violation", mode, "--report"]).arg(report);
        command
    }
}

/// The largest profile that is tested.
const LARGEST: &str = "write+network";

/// The denials of a report; none if there is no report.
pub(super) fn denials(report: &Path) -> Vec<Value> {
    let read = || -> Option<Vec<Value>> {
        let report: Value = serde_json::from_slice(&fs::read(report).ok()?).ok()?;
        report["denials"].as_array().cloned()
    };
    read().unwrap_or_default()
}

pub(super) fn summary(denials: &[Value]) -> String {
    let one = |denial: &Value| {
        let text = |name: &str| denial[name].as_str().unwrap_or("-").to_owned();
        let args: Vec<&str> = denial["args"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let path = denial["path"].as_str().map(|path| format!(" {path}")).unwrap_or_default();
        format!("{}({}){path} by {}", text("syscall"), args.join(", "), text("comm"))
    };
    let shown: Vec<String> = denials.iter().take(4).map(one).collect();
    shown.join("; ")
}
