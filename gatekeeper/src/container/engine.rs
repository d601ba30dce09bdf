//! podman and docker, by their command lines. Every difference between the two is in this file. Arguments are built from
//! values and never pass through a shell; no variable of a box is ever among them.

use crate::trust::{Hostile, program};
use serde::{Deserialize, Serialize};
use serde_json::Value;
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

/// Of open files and of processes. podman lowers its own hard limits, and its runtime cannot raise them again.
const MOST: u64 = 16_384;

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
        Ok(Engine { kind, program: found, arguments: arguments.to_vec(), home: None })
    }

    /// The first engine that answers: podman, then docker.
    pub fn that_works(arguments: &[String], home: Option<&Path>) -> Result<(Engine, About), String> {
        let mut causes = Vec::new();
        for kind in [Kind::Podman, Kind::Docker] {
            match Engine::named(kind.name(), arguments).and_then(|engine| engine.at(home).asked()) {
                Ok(found) => return Ok(found),
                Err(cause) => causes.push(cause),
            }
        }
        Err(format!(
            "no container engine works: {}; install podman (apt install podman), or see gatekeeper doctor",
            causes.join("; ")
        ))
    }

    /// The same engine with another home.
    pub fn at(self, home: Option<&Path>) -> Engine {
        Engine { home: home.map(Path::to_owned), ..self }
    }

    pub fn asked(self) -> Result<(Engine, About), String> {
        self.about().map(|about| (self, about))
    }

    /// Asks the engine about itself, which also shows whether it works.
    pub fn about(&self) -> Result<About, String> {
        let text = self.run(["info", "--format", "{{json .}}"])?;
        let info: Value = serde_json::from_str(text.trim()).map_err(|_| self.says("info", "no JSON"))?;
        let word = |value: &Value| value.as_str().unwrap_or("unknown").to_owned();
        Ok(match self.kind {
            Kind::Podman => {
                let host = &info["host"];
                let rootless = host["security"]["rootless"] == true;
                // cgroups v1 cannot be delegated to a user, so podman ignores every limit there.
                let limits = !rootless || host["cgroupVersion"] == "v2";
                About { version: word(&info["version"]["Version"]), rootless, limits }
            }
            Kind::Docker => {
                let version = info["ServerVersion"].as_str().filter(|version| !version.is_empty());
                let wrong = || self.says("info", &word(&info["ServerErrors"][0]));
                let options = info["SecurityOptions"].as_array().cloned().unwrap_or_default();
                let rootless =
                    options.iter().any(|option| option.as_str().is_some_and(|text| text.contains("rootless")));
                let limits = !rootless || info["CgroupVersion"] == "2";
                About { version: version.ok_or_else(wrong)?.to_owned(), rootless, limits }
            }
        })
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
            command.env("HOME", home).env("XDG_RUNTIME_DIR", home.join("run"));
        }
        command.current_dir("/").stdin(Stdio::null());
        command
    }

    /// Ends the process with which podman keeps the namespaces of a user.
    pub(super) fn end_pause(&self) -> Said {
        self.run(["system", "migrate"])
    }

    fn run<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Said {
        let words: Vec<&str> = words.into_iter().collect();
        let output = self.command(words.iter().copied()).output();
        let output = output.map_err(|error| self.says(words.first().unwrap_or(&""), &error.to_string()))?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(self.says(words.first().unwrap_or(&""), &complaint(&output.stderr))),
        }
    }

    fn says(&self, command: &str, complaint: &str) -> String {
        format!("{} {command}: {complaint}", self.kind.name())
    }

    /// Makes and starts a container, whose first process is gatekeeper.
    pub fn create(&self, name: &str, made: &Made, labels: &[(&str, String)], about: &About) -> Said {
        let words = self.creation(name, made, labels, about);
        self.run(words.iter().map(String::as_str)).map_err(|error| self.hint(error, made))
    }

    /// Runs `__box seen` in a container whose root is a directory, and removes it.
    pub(super) fn once(&self, name: &str, made: &Made, about: &About) -> Said {
        let mut words = self.creation(name, made, &[], about);
        let swap = |word: &mut String| match word.as_str() {
            "--detach" => *word = "--rm".to_owned(),
            "hold" => *word = "seen".to_owned(),
            _ => {}
        };
        words.iter_mut().for_each(swap);
        if let Some(at) = words.iter().position(|word| *word == made.image) {
            words.insert(at, "--rootfs".to_owned());
        }
        self.run(words.iter().map(String::as_str))
    }

    /// This engine, and for podman the same with runc and without systemd, neither of which weakens anything: its default
    /// runtime does not work everywhere.
    pub(super) fn variants(&self) -> Vec<Engine> {
        let mut all = vec![self.clone()];
        if self.kind == Kind::Podman && self.arguments.is_empty() {
            let arguments = ["--runtime", "runc", "--cgroup-manager", "cgroupfs"].map(str::to_owned).to_vec();
            all.push(Engine { arguments, ..self.clone() });
        }
        all
    }

    /// The limits that docker says it cannot enforce.
    pub(super) fn info_of_limits(&self) -> Result<Vec<&'static str>, String> {
        let text = self.run(["info", "--format", "{{json .}}"])?;
        let info: Value = serde_json::from_str(text.trim()).map_err(|_| self.says("info", "no JSON"))?;
        let names = [("MemoryLimit", "memory"), ("CpuCfsQuota", "cpus"), ("PidsLimit", "pidsLimit")];
        Ok(names.into_iter().filter(|(name, _)| info[name] != true).map(|(_, ours)| ours).collect())
    }

    fn hint(&self, error: String, made: &Made) -> String {
        let missing = ["image not known", "No such image", "unable to find image", "Unable to find image"];
        if missing.iter().any(|text| error.contains(text)) {
            let image = &made.image;
            let name = self.kind.name();
            return format!(
                "image {image} is not in {name}'s store; build it (make images) or `{name} pull {image}`: gatekeeper never pulls"
            );
        }
        if error.contains("subuid") || error.contains("subgid") {
            return format!(
                "{error}; give this user a range: usermod --add-subuids 100000-165535 --add-subgids 100000-165535 USER, then `podman system migrate`; or set docker.user to \"0:0\", which is you outside"
            );
        }
        error
    }

    fn creation(&self, name: &str, made: &Made, labels: &[(&str, String)], about: &About) -> Vec<String> {
        let mut words: Vec<String> = Vec::new();
        let mut add = |list: &[&str]| words.extend(list.iter().map(|word| (*word).to_owned()));
        add(&["run", "--detach", "--name", name, "--hostname", "box", "--pull", "never", "--network", &made.network]);
        add(&["--security-opt", "no-new-privileges"]);
        // Not the workspace: podman makes the working directory the home of a user that the image does not know.
        add(&["--workdir", "/"]);
        labels.iter().for_each(|(key, value)| add(&["--label", &format!("{key}={value}")]));
        if made.read_only_root {
            add(&["--read-only"]);
        }
        made.tmpfs.iter().for_each(|tmpfs| add(&["--tmpfs", tmpfs]));
        // For the private directories of runs: the runtime gives a tmpfs the mode of the image's directory, and an image may
        // have a /tmp that its user cannot write.
        add(&["--tmpfs", &format!("{}:exec,mode=1777", super::TEMPORARY)]);
        made.cap_drop.iter().for_each(|name| add(&["--cap-drop", name]));
        let (user, group) = made.user;
        add(&["--user", &format!("{user}:{group}")]);
        if about.limits {
            add(&["--memory", &made.memory.to_string(), "--cpus", &made.cpus.to_string()]);
            add(&["--pids-limit", &made.pids.to_string()]);
        }
        // Explicit: an engine without CAP_SYS_RESOURCE fails to raise them to its own defaults.
        for (name, resource) in
            [("nofile", rustix::process::Resource::Nofile), ("nproc", rustix::process::Resource::Nproc)]
        {
            let most = rustix::process::getrlimit(resource).maximum.unwrap_or(MOST).min(MOST);
            add(&["--ulimit", &format!("{name}={most}:{most}")]);
        }
        for mount in &made.mounts {
            let (host, inside) = (mount.host.to_string_lossy(), mount.inside.to_string_lossy());
            let mode = if mount.writable { "" } else { ",readonly" };
            add(&["--mount", &format!("type=bind,source={host},target={inside}{mode}")]);
        }
        made.published.iter().for_each(|port| add(&["--publish", &format!("127.0.0.1::{port}")]));
        if self.kind == Kind::Podman {
            // The caller's proxy variables are not inherited, nor are volumes of the image made.
            add(&["--http-proxy=false", "--image-volume", "ignore", "--read-only-tmpfs=false"]);
            if about.rootless && (user, group) != (0, 0) {
                // Files that this user writes belong to the caller outside.
                add(&["--userns", &format!("keep-id:uid={user},gid={group}")]);
            }
        }
        add(&["--entrypoint", super::PROGRAM, &made.image, super::INSIDE, "hold"]);
        words
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

    /// Removes a container, running or not. One that is not there is no error.
    pub fn remove(&self, name: &str) -> Result<(), String> {
        let words: &[&str] = match self.kind {
            // PID 1 ends at SIGTERM, so no time is lost.
            Kind::Podman => &["rm", "--force", "--ignore", "--time", "2", name],
            Kind::Docker => &["rm", "--force", name],
        };
        match self.run(words.iter().copied()) {
            Err(error) if ["no such", "No such"].iter().any(|words| error.contains(words)) => Ok(()),
            other => other.map(drop),
        }
    }

    /// The containers with this label.
    pub fn list(&self, label: &str) -> Result<Vec<Listed>, String> {
        let filter = format!("label={label}");
        let text = match self.kind {
            Kind::Podman => self.run(["ps", "--all", "--filter", &filter, "--format", "json"])?,
            Kind::Docker => {
                self.run(["ps", "--all", "--no-trunc", "--filter", &filter, "--format", &docker_format()])?
            }
        };
        let wrong = |_| self.says("ps", "no JSON");
        let values: Vec<Value> = match self.kind {
            Kind::Podman => serde_json::from_str(text.trim()).map_err(wrong)?,
            Kind::Docker => text.lines().map(serde_json::from_str).collect::<Result<_, _>>().map_err(wrong)?,
        };
        Ok(values.iter().filter_map(|value| self.listed(value)).collect())
    }

    fn listed(&self, value: &Value) -> Option<Listed> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let (name, labels) = match self.kind {
            Kind::Podman => {
                let labels = value["Labels"].as_object()?.iter();
                (
                    text(&value["Names"][0])?,
                    labels.filter_map(|(key, value)| Some((key.clone(), text(value)?))).collect(),
                )
            }
            Kind::Docker => {
                let labels = value["Labels"].as_object()?.iter();
                let set = |value: &Value| text(value).filter(|value| !value.is_empty());
                (text(&value["Names"])?, labels.filter_map(|(key, value)| Some((key.clone(), set(value)?))).collect())
            }
        };
        Some(Listed { name, running: value["State"] == "running", image: text(&value["Image"])?, labels })
    }

    /// The last lines that a container's first process wrote.
    pub fn log(&self, name: &str) -> String {
        let output = self.command(["logs", "--tail", "5", name]).output();
        let text = output.map(|output| [output.stdout, output.stderr].concat()).unwrap_or_default();
        String::from_utf8_lossy(&text).trim().chars().take(1000).collect()
    }

    /// The port of the host's loopback on which a port of the container is published.
    pub fn port(&self, name: &str, inside: u16) -> Result<u16, String> {
        let text = self.run(["port", name, &format!("{inside}/tcp")])?;
        let port = text.lines().next().and_then(|line| line.rsplit_once(':')?.1.trim().parse().ok());
        port.ok_or_else(|| self.says("port", &format!("{inside} is not published")))
    }
}

/// The labels that gatekeeper writes.
pub const LABELS: [&str; 8] = [
    "gatekeeper.box",
    "gatekeeper.owner",
    "gatekeeper.agent",
    "gatekeeper.session",
    "gatekeeper.scope",
    "gatekeeper.key",
    "gatekeeper.config",
    "gatekeeper.created",
];

/// docker prints all labels as one line with commas, in which the label of an image can look like one of ours; so each is
/// asked for by its name.
fn docker_format() -> String {
    let labels: Vec<String> =
        LABELS.iter().map(|name| format!("\"{name}\":{{{{json (.Label \"{name}\")}}}}")).collect();
    format!(
        "{{\"Names\":{{{{json .Names}}}},\"State\":{{{{json .State}}}},\"Image\":{{{{json .Image}}}},\"Labels\":{{{}}}}}",
        labels.join(",")
    )
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
