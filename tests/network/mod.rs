//! `--net loopback`, `--net own` and `--net hosts=...`, with real clients, servers on loopback, and addresses in network namespaces.

pub mod clients;
mod datagrams;
mod datagrams_around;
mod hosts;
mod loopback;
mod namespace;
mod own;
mod refused;
pub mod requests;
pub mod server;
mod unix;

pub use crate::support::users;
use crate::support::{Done, gatekeeper, run};
use std::path::Path;
use std::process::Command;

/// `gatekeeper run` in a directory as one user, with a separate home and the report in a file.
pub struct Run {
    pub command: Command,
    report: std::path::PathBuf,
}

pub fn confined(directory: &Path, user: Option<u32>, flags: &[&str]) -> Run {
    use std::os::unix::process::CommandExt;
    use std::sync::atomic::{AtomicUsize, Ordering};
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let report = directory.join(format!("report-{}-{number}.json", user.unwrap_or(0)));
    let mut command = Command::new(gatekeeper());
    command.args(["run", "--report"]).arg(&report).args(flags).current_dir(directory);
    if !flags.contains(&"--timeout") {
        command.args(["--timeout", "300s"]);
    }
    // Outside of the working directory, which the profile `write` makes writable.
    command
        .env("HOME", crate::support::fresh("home"))
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    for name in
        ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy"]
    {
        command.env_remove(name);
    }
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    Run { command, report }
}

/// A finished run and its report.
pub struct Ran {
    pub done: Done,
    pub report: serde_json::Value,
}

impl Run {
    pub fn arg(mut self, word: impl AsRef<std::ffi::OsStr>) -> Run {
        self.command.arg(word);
        self
    }

    pub fn args(mut self, words: &[&str]) -> Run {
        self.command.args(words);
        self
    }

    pub fn env(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Run {
        self.command.env(name, value);
        self
    }

    #[track_caller]
    pub fn go(mut self) -> Ran {
        let done = run(&mut self.command);
        let text = std::fs::read_to_string(&self.report).unwrap_or_else(|error| panic!("no report: {error}{done}"));
        let report = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text}{done}"));
        Ran { done, report }
    }
}

impl Ran {
    pub fn denials(&self) -> &[serde_json::Value] {
        self.report["denials"].as_array().map_or(&[], Vec::as_slice)
    }

    /// The only denial of this layer for this host.
    #[track_caller]
    pub fn denial(&self, layer: &str, host: &str) -> &serde_json::Value {
        let found = self.denials().iter().find(|denial| denial["layer"] == layer && denial["host"] == host);
        found.unwrap_or_else(|| panic!("no denial of {host} by {layer} in {:#}{}", self.report, self.done))
    }

    #[track_caller]
    pub fn layer(&self, name: &str) -> (String, String) {
        let layers = self.report["layers"].as_array().expect("layers");
        let layer = layers.iter().find(|layer| layer["layer"] == name);
        let layer = layer.unwrap_or_else(|| panic!("no layer {name} in {:#}", self.report));
        let text = |key: &str| layer[key].as_str().expect("text").to_owned();
        (text("status"), text("detail"))
    }
}
