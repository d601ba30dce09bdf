//! A trial: one workload run unconfined and then confined, each time in the same fresh directory, and compared.

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

/// What stays the same over all trials.
pub struct Stage<'a> {
    pub corpus: &'a Corpus,
    /// This very program.
    pub gatekeeper: PathBuf,
    /// A directory of this run's own.
    pub base: PathBuf,
    /// The one profile asked for; else each workload's own, and the largest.
    pub only: Option<String>,
    /// How many scenes there have been: they are numbered.
    pub scenes: AtomicUsize,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    Passed,
    Failed,
    Skipped,
}

/// One workload or action under one profile and one answer to violations.
#[derive(Debug, Clone, Serialize)]
pub struct Tried {
    pub name: String,
    /// `works` or `stopped`: what it is meant to prove.
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

    /// The profiles and answers that a workload is tried with.
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
            Err(why) => {
                return cases.into_iter().map(|case| result(case, Outcome::Failed, why.clone(), began)).collect();
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

    fn plain(&self, workload: &Workload, scene: &Scene) -> Result<(Seen, Picture), String> {
        let words = |port: u16| -> Vec<String> {
            match &workload.line {
                Some(line) => vec!["sh".to_owned(), "-c".to_owned(), with_port(line, port)],
                None => workload.run.iter().map(|word| with_port(word, port)).collect(),
            }
        };
        let (seen, picture) = self.act(workload, scene, &|port| {
            let words = words(port);
            let mut command = scene.command(&words[0]);
            command.args(&words[1..]);
            command
        })?;
        if seen.status != workload.status {
            let text = String::from_utf8_lossy(&seen.stderr).into_owned();
            return Err(format!("unconfined it ends with {} and not {}: {text}", seen.status, workload.status));
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
        // A path that is refused, such as a cache outside, may be something that the command does well without.
        // So is the list of interfaces, which is asked for in passing.
        let in_passing =
            |denial: &Value| denial["args"].as_array().is_some_and(|args| args.contains(&"AF_NETLINK".into()));
        let by_filter = denied.iter().any(|denial| denial["layer"] == "seccomp" && !in_passing(denial));
        match differs {
            None if !by_filter => Ok(()),
            None => Err(format!("denied: {}", summary(&denied))),
            // A workload that is not even like itself proves nothing, and is not the profile's fault.
            Some(_) if self.plain(workload, scene).is_ok_and(|again| again != *plain) => {
                Err("two unconfined runs differ from one another".to_owned())
            }
            Some(what) if denied.is_empty() => Err(what),
            Some(what) => Err(format!("{what}; denied: {}", summary(&denied))),
        }
    }

    /// Sets the scene, runs a command in it and takes the picture.
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
        let picture = scene.picture(&loose, began).map_err(|error| format!("looking: {error}"))?;
        let seen = if port == 0 { seen } else { seen.without(&port.to_string()) };
        Ok((seen, picture))
    }

    pub(super) fn launch(&self, scene: &Scene, profile: &str, mode: &str, report: &Path) -> Command {
        let mut command = scene.command(&self.gatekeeper.to_string_lossy());
        command.args(["run", "--quiet", "--profile", profile, "--on-violation", mode, "--report"]).arg(report);
        command
    }
}

/// The union of everything that is tried.
const LARGEST: &str = "write+network";

/// The denials of a report, or none where there is no report.
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
        format!("{}({}){path} of {}", text("syscall"), args.join(", "), text("comm"))
    };
    let shown: Vec<String> = denials.iter().take(4).map(one).collect();
    shown.join("; ")
}
