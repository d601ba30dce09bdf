//! Everything in which podman and docker differ: how they describe themselves, make, list and remove containers.

use super::{About, Engine, Kind, Listed, Made, Said};
use crate::container::{INSIDE, PROGRAM, TEMPORARY};
use serde_json::Value;

/// Of open files and of processes. podman lowers its own hard limits, and its runtime cannot raise them again.
const MOST: u64 = 16_384;

impl Engine {
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

    /// Ends the process with which podman keeps the namespaces of a user.
    pub(in crate::container) fn end_pause(&self) -> Said {
        self.run(["system", "migrate"])
    }

    /// Makes and starts a container, whose first process is gatekeeper.
    pub fn create(&self, name: &str, made: &Made, labels: &[(&str, String)], about: &About) -> Said {
        let words = self.creation(name, made, labels, about);
        self.run(words.iter().map(String::as_str)).map_err(|error| self.hint(error, made))
    }

    /// Runs `__box seen` in a container whose root is a directory, and removes it.
    pub(in crate::container) fn once(&self, name: &str, made: &Made, about: &About) -> Said {
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
    pub(in crate::container) fn variants(&self) -> Vec<Engine> {
        let mut all = vec![self.clone()];
        if self.kind == Kind::Podman && self.arguments.is_empty() {
            let arguments = ["--runtime", "runc", "--cgroup-manager", "cgroupfs"].map(str::to_owned).to_vec();
            all.push(Engine { arguments, ..self.clone() });
        }
        all
    }

    /// The limits that docker says it cannot enforce.
    pub(in crate::container) fn info_of_limits(&self) -> Result<Vec<&'static str>, String> {
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
        add(&["--tmpfs", &format!("{}:exec,mode=1777", TEMPORARY)]);
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
        add(&["--entrypoint", PROGRAM, &made.image, INSIDE, "hold"]);
        made.mounts.iter().skip(1).for_each(|mount| add(&[&mount.inside.to_string_lossy()]));
        words
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
