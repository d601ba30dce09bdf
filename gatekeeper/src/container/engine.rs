//! podman and docker, by their command lines. Every difference between the two is in `differences`. Arguments are built from
//! values and never pass through a shell; no variable of a box is ever among them.

mod differences;

use crate::sys::descriptors::keep_descriptors_from;
use crate::sys::interrupt;
use crate::trust::{Hostile, program};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Which command line an engine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Podman,
    Docker,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Podman => "podman",
            Kind::Docker => "docker",
        }
    }
}

/// An engine: its program, and the arguments before each of its commands, such as `--remote`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Engine {
    pub kind: Kind,
    pub program: PathBuf,
    pub arguments: Vec<String>,
    /// Where podman keeps what belongs to a user, instead of the home directory.
    #[serde(skip)]
    pub home: Option<PathBuf>,
    /// Whether a signal to this process ends a command of the engine, so that what it made can be removed.
    #[serde(skip)]
    pub trial: bool,
}

/// What an engine says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    pub version: String,
    pub rootless: bool,
    /// Whether it can put limits on containers here.
    pub limits: bool,
}

/// A container, as its labels tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Listed {
    pub name: String,
    pub running: bool,
    pub image: String,
    pub labels: BTreeMap<String, String>,
}

/// A mount of the host in a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mount {
    pub host: PathBuf,
    pub inside: PathBuf,
    pub writable: bool,
    /// Device and inode, when the path was looked at.
    #[serde(skip)]
    pub id: Option<(u64, u64)>,
    /// The key that decided it.
    #[serde(skip)]
    pub key: String,
}

/// Everything that decides what a container is. Its hash tells whether the configuration changed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Made {
    pub image: String,
    pub network: String,
    pub read_only_root: bool,
    pub tmpfs: Vec<String>,
    pub user: (u32, u32),
    pub cap_drop: Vec<String>,
    pub memory: u64,
    pub cpus: f64,
    pub pids: u64,
    pub mounts: Vec<Mount>,
    pub workdir: String,
    /// Ports inside, each published on a random port of the host's loopback.
    pub published: Vec<u16>,
}

/// What a command of the engine printed, or its complaint.
pub type Said = Result<String, String>;

/// Where the engines look for their helpers (conmon, runc). Not the caller's PATH, which may have a directory of a project.
const PATH: &str =
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/run/current-system/sw/bin:/run/wrappers/bin";

/// The directory below `Engine::home` that is XDG_RUNTIME_DIR. podman puts its run root there.
pub const RUN: &str = "run";

pub fn run_root(home: &Path) -> PathBuf {
    home.join(RUN).join("containers")
}

impl Engine {
    /// The engine that the caller names: podman, docker, or the path of one of them.
    pub fn named(text: &str, arguments: &[String]) -> Result<Engine, String> {
        let base = Path::new(text).file_name().and_then(OsStr::to_str).unwrap_or_default();
        let kind = [Kind::Podman, Kind::Docker].into_iter().find(|kind| base.starts_with(kind.name()));
        let kind = kind.ok_or_else(|| format!("engine {text:?}: unknown; use podman or docker, or the path of one"))?;
        let found = match text.contains('/') {
            true => program::named(Path::new(text), &Hostile::here()),
            false => program::find(OsStr::new(text), None, &Hostile::here()),
        };
        let found = found.map_err(|error| format!("engine {text}: {error}"))?;
        Ok(Engine { kind, program: found, arguments: arguments.to_vec(), home: None, trial: false })
    }

    /// The first engine that answers: podman, then docker. `ready` prepares each for its task.
    pub fn that_works(arguments: &[String], ready: impl Fn(Engine) -> Engine) -> Result<(Engine, About), String> {
        let mut causes = Vec::new();
        for kind in [Kind::Podman, Kind::Docker] {
            match Engine::named(kind.name(), arguments).and_then(|engine| ready(engine).asked()) {
                Ok(found) => return Ok(found),
                Err(cause) => causes.push(cause),
            }
        }
        Err(format!(
            "no container engine works: {}; install podman (apt install podman), or see gatekeeper doctor",
            causes.join("; ")
        ))
    }

    /// The same engine for a trial: with another home, and ended by a signal to this process.
    pub fn on_trial(self, home: Option<&Path>) -> Engine {
        Engine { home: home.map(Path::to_owned), trial: true, ..self }
    }

    pub fn asked(self) -> Result<(Engine, About), String> {
        if self.trial && interrupt::arrived().is_some() {
            return Err(self.says("info", "interrupted"));
        }
        self.about().map(|about| (self, about))
    }

    /// A command of the engine, to be started.
    ///
    /// `podman info` asks rpm for the version of a package, and Debian's rpm makes `~/.rpmdb` when it is asked anything. Without its
    /// settings, rpm fails before that.
    pub fn command<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).args(words).env("PATH", PATH).env("RPM_CONFIGDIR", "/nonexistent");
        if let Some(home) = &self.home {
            for name in ["XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"] {
                command.env_remove(name);
            }
            command.env("HOME", home).env("XDG_RUNTIME_DIR", home.join(RUN));
        }
        command.current_dir("/").stdin(Stdio::null());
        // The engine leaves processes behind that live as long as the container.
        keep_descriptors_from(&mut command);
        command
    }

    fn run<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Said {
        let words: Vec<&str> = words.into_iter().collect();
        let mut command = self.command(words.iter().copied());
        let output = match self.trial {
            true => interrupt::output(&mut command),
            false => command.output(),
        };
        let output = output.map_err(|error| self.says(words.first().unwrap_or(&""), &error.to_string()))?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(self.says(words.first().unwrap_or(&""), &complaint(&output.stderr))),
        }
    }

    fn says(&self, command: &str, complaint: &str) -> String {
        format!("{} {command}: {complaint}", self.kind.name())
    }

    /// Starts gatekeeper in a running container.
    pub fn exec(&self, name: &str, made: &Made, words: &[&str]) -> Command {
        let (user, workdir) = (made.user, made.workdir.as_str());
        let user = format!("{}:{}", user.0, user.1);
        let mut all =
            vec!["exec", "--interactive", "--user", &user, "--workdir", workdir, name, super::PROGRAM, super::INSIDE];
        all.extend(words);
        self.command(all)
    }

    /// Whether a container runs; `None` if there is none.
    pub fn is_running(&self, name: &str) -> Result<Option<bool>, String> {
        match self.run(["container", "inspect", "--format", "{{.State.Running}}", name]) {
            Ok(text) => Ok(Some(text.trim() == "true")),
            Err(error) if ["no such", "No such"].iter().any(|words| error.contains(words)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The exit status of a container whose first process has ended, or ends now; `None` if it runs, or is not there.
    pub fn ended(&self, name: &str) -> Option<u8> {
        const TRIES: usize = 10;
        for at in 0..TRIES {
            // The engine may refuse to execute anything in a container before it says that the container has ended.
            if at > 0 {
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
            let text =
                self.run(["container", "inspect", "--format", "{{.State.Running}} {{.State.ExitCode}}", name]).ok()?;
            if let ("false", status) = text.trim().split_once(' ')? {
                return status.parse().ok();
            }
        }
        None
    }

    /// The last lines that the first process of a container wrote before it ended. Another process of the engine copies them to
    /// the log, so they may arrive there after the end.
    pub fn log(&self, name: &str) -> String {
        const TRIES: usize = 10;
        let read = || {
            let output = self.command(["logs", "--tail", "5", name]).output();
            let text = output.map(|output| [output.stdout, output.stderr].concat()).unwrap_or_default();
            String::from_utf8_lossy(&text).trim().chars().take(1000).collect::<String>()
        };
        for _ in 1..TRIES {
            let text = read();
            if !text.is_empty() {
                return text;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        read()
    }

    /// The port of the host's loopback on which a port of the container is published.
    pub fn port(&self, name: &str, inside: u16) -> Result<u16, String> {
        let text = self.run(["port", name, &format!("{inside}/tcp")])?;
        let port = text.lines().next().and_then(|line| line.rsplit_once(':')?.1.trim().parse().ok());
        port.ok_or_else(|| self.says("port", &format!("{inside} is not published")))
    }
}

/// The last lines of what an engine complained, without its log prefixes.
pub fn complaint(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = lines.iter().rev().find(|line| line.starts_with("Error")).or(lines.last());
    last.map_or_else(|| "it failed without a message".to_owned(), |line| line.trim_start_matches("Error: ").to_owned())
}

/// The arguments of `--engine-args` or its variable, separated by blanks.
pub fn arguments(flag: Option<&str>) -> Vec<String> {
    let variable = std::env::var_os(ARGUMENTS).map(OsString::into_string).and_then(Result::ok);
    let text = flag.map(str::to_owned).or(variable).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

pub const ENGINE: &str = "GATEKEEPER_ENGINE";
pub const ARGUMENTS: &str = "GATEKEEPER_ENGINE_ARGS";
