//! A trial: one workload run unconfined and then confined, each time in the same fresh directory, and compared.

use super::corpus::{Control, Corpus, Stop, Workload, contains};
use super::scene::{Picture, Scene, difference, with_port};
use super::served::Server;
use serde::Serialize;
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// No workload takes this long unless it hangs.
const LONGEST: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(2);

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

/// What a command did, as far as anybody can tell.
#[derive(Debug, PartialEq, Eq)]
pub struct Seen {
    /// As a shell would say it.
    pub status: i32,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

impl Stage<'_> {
    fn scene(&self) -> Scene {
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

    fn stop_cases(&self, stop: &Stop) -> Vec<(String, &'static str)> {
        let wanted = |name: &&String| self.only.as_ref().is_none_or(|only| only == *name);
        let both = |name: &String| ["errno", "kill"].map(|mode| (name.clone(), mode));
        stop.profiles.iter().filter(wanted).flat_map(both).collect()
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
        let by_filter = denied.iter().any(|denial| denial["layer"] == "seccomp");
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

    fn launch(&self, scene: &Scene, profile: &str, mode: &str, report: &Path) -> Command {
        let mut command = scene.command(&self.gatekeeper.to_string_lossy());
        command.args(["run", "--quiet", "--profile", profile, "--on-violation", mode, "--report"]).arg(report);
        command
    }
}

/// The union of everything that is tried.
const LARGEST: &str = "write+network";

impl Seen {
    /// The port of the run's own server is another one every time.
    fn without(self, port: &str) -> Seen {
        let clean = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).replace(port, "PORT").into_bytes();
        Seen { stdout: clean(self.stdout), stderr: clean(self.stderr), ..self }
    }
}

fn compare(plain: &Seen, confined: &Seen) -> Option<String> {
    let shown = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        let text: String = text.chars().take(400).collect();
        format!("{text:?}")
    };
    if plain.status != confined.status {
        let error = shown(&confined.stderr);
        return Some(format!("ends with {} and not {}, saying {error}", confined.status, plain.status));
    }
    let streams = [("stdout", &plain.stdout, &confined.stdout), ("stderr", &plain.stderr, &confined.stderr)];
    let differs = streams.into_iter().find(|(_, plain, confined)| plain != confined);
    differs.map(|(name, plain, confined)| format!("{name} is {} and not {}", shown(confined), shown(plain)))
}

/// Runs a command to its end, or to the end of the time, with everything that it prints.
fn watch(command: &mut Command, stdin: &[u8]) -> io::Result<Seen> {
    command.stdin(if stdin.is_empty() { Stdio::null() } else { Stdio::piped() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn()?;
    let input = child.stdin.take();
    let (stdout, stderr) = (drain(child.stdout.take()), drain(child.stderr.take()));
    if let Some(mut input) = input {
        // A command that has read enough closes it.
        let _ = input.write_all(stdin);
    }
    let status = wait(&mut child)?;
    let collect = |thread: std::thread::JoinHandle<Vec<u8>>| thread.join().unwrap_or_default();
    let status = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok(Seen { status, stdout: collect(stdout), stderr: collect(stderr) })
}

fn drain(stream: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            let _ = stream.read_to_end(&mut bytes);
        }
        bytes
    })
}

fn wait(child: &mut Child) -> io::Result<std::process::ExitStatus> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if began.elapsed() > LONGEST {
            // Its own group, made for it above: nobody else is in there.
            let _ = crate::sys::process::kill(-(child.id() as i32), libc::SIGKILL);
            child.wait()?;
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("still running after {LONGEST:?}")));
        }
        std::thread::sleep(POLL);
    }
}

/// The denials of a report, or none where there is no report.
fn denials(report: &Path) -> Vec<Value> {
    let read = || -> Option<Vec<Value>> {
        let report: Value = serde_json::from_slice(&fs::read(report).ok()?).ok()?;
        report["denials"].as_array().cloned()
    };
    read().unwrap_or_default()
}

fn summary(denials: &[Value]) -> String {
    let one = |denial: &Value| {
        let text = |name: &str| denial[name].as_str().unwrap_or("-").to_owned();
        let args: Vec<&str> = denial["args"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let path = denial["path"].as_str().map(|path| format!(" {path}")).unwrap_or_default();
        format!("{}({}){path} of {}", text("syscall"), args.join(", "), text("comm"))
    };
    let shown: Vec<String> = denials.iter().take(4).map(one).collect();
    shown.join("; ")
}

impl Stage<'_> {
    /// Tries an action that must be stopped: once unconfined, to see that it is one, and then in every case.
    pub fn try_stop(&self, stop: &Stop) -> Vec<Tried> {
        let cases = self.stop_cases(stop);
        let began = Instant::now();
        let scene = self.scene();
        let control = if cases.is_empty() { Ok(()) } else { self.control(stop, &scene) };
        cases
            .into_iter()
            .map(|(profile, on_violation)| {
                let tried = control.clone().and_then(|()| self.stopped(stop, &scene, &profile, on_violation));
                let (outcome, detail) = match tried {
                    Ok(()) => (Outcome::Passed, String::new()),
                    Err(why) => (Outcome::Failed, why),
                };
                let (name, duration_ms) = (stop.name.clone(), began.elapsed().as_millis() as u64);
                Tried { name, proves: "stopped", profile, on_violation, outcome, detail, duration_ms }
            })
            .collect()
    }

    /// The same probe without a sandbox: it must get as far as the kernel's own answer.
    fn control(&self, stop: &Stop, scene: &Scene) -> Result<(), String> {
        let _server = self.set_stop(scene)?;
        let mut command = scene.command(&self.gatekeeper.to_string_lossy());
        command.args(self.probe_words(stop, scene));
        let said = said(&watch(&mut command, b"").map_err(|error| error.to_string())?);
        let excused = stop.control_needs_root && !rustix::process::geteuid().is_root();
        let proves = match stop.control {
            Control::Done => said == "ok",
            Control::Other => said != stop.errno && said != "nothing",
        };
        if proves || excused { Ok(()) } else { Err(format!("unconfined it answers {said}, which proves nothing")) }
    }

    fn stopped(&self, stop: &Stop, scene: &Scene, profile: &str, mode: &'static str) -> Result<(), String> {
        let _server = self.set_stop(scene)?;
        let outside = || fs::symlink_metadata(scene.outside().join("file")).map(|meta| format!("{meta:?}")).ok();
        let before = outside();
        let report = self.base.join(format!("{}.json", stop.name));
        let mut command = self.launch(scene, profile, mode, &report);
        let mut words = vec![self.gatekeeper.clone().into_os_string()];
        words.extend(self.probe_words(stop, scene));
        match stop.line {
            true => command.arg("-c").arg(crate::plan::steps::shown(&words)),
            false => command.arg("--").args(words),
        };
        let seen = watch(&mut command, b"").map_err(|error| error.to_string())?;
        let denied = denials(&report);
        let _ = fs::remove_file(&report);
        if outside() != before {
            return Err("it changed a file outside".to_owned());
        }
        let of_record = |denial: &&Value| denial["syscall"].as_str() == stop.record.as_deref();
        let record = denied.iter().find(of_record);
        if record.is_some() != stop.record.is_some() {
            let wanted = stop.record.as_deref().unwrap_or("nothing");
            return Err(format!("recorded: {:?}, and not {wanted}; it answers {}", summary(&denied), said(&seen)));
        }
        if let (Some(path), Some(record)) = (&stop.path, record)
            && !record["path"].as_str().is_some_and(|named| Path::new(named).ends_with(path))
        {
            return Err(format!("the record names {} and not {path}", record["path"]));
        }
        // Only what the filter denies can be killed for; a path is refused by the kernel, which answers in both modes.
        let (wanted_status, wanted) = match (mode, record) {
            ("kill", Some(record)) if record["layer"] == "seccomp" => (128 + libc::SIGSYS, "nothing"),
            _ => (0, stop.errno.as_str()),
        };
        match (seen.status, said(&seen)) {
            (status, said) if status == wanted_status && said == wanted => Ok(()),
            (status, said) => Err(format!("ends with {status}, answers {said} and not {wanted}")),
        }
    }

    fn set_stop(&self, scene: &Scene) -> Result<std::os::unix::net::UnixListener, String> {
        let set = || -> io::Result<std::os::unix::net::UnixListener> {
            scene.clear()?;
            fs::write(scene.outside().join("file"), "kept\n")?;
            fs::write(scene.work().join("file"), "mine\n")?;
            std::os::unix::fs::symlink(scene.outside().join("file"), scene.work().join("way-out"))?;
            std::os::unix::net::UnixListener::bind(scene.outside().join("socket"))
        };
        set().map_err(|error| format!("set-up: {error}"))
    }

    fn probe_words(&self, stop: &Stop, scene: &Scene) -> Vec<OsString> {
        let outside = scene.outside();
        let own = std::process::id().to_string();
        let filled = |word: &String| word.replace("{outside}", &outside.to_string_lossy()).replace("{harness}", &own);
        let words = stop.probe.iter().map(filled);
        std::iter::once("__probe".to_owned()).chain(words).map(OsString::from).collect()
    }
}

/// What a probe said of its action.
fn said(seen: &Seen) -> String {
    let text = String::from_utf8_lossy(&seen.stdout).trim_end().to_owned();
    match text.is_empty() {
        true if seen.stderr.is_empty() => "nothing".to_owned(),
        true => String::from_utf8_lossy(&seen.stderr).trim_end().to_owned(),
        false => text,
    }
}
