//! A run's limits in words for the command itself, most of all for an agent: read before the first refusal.

use super::paths::Access;
use super::{Plan, Seccomp};
use crate::policy::NetworkMode;
use std::fmt::Write;
use std::path::Path;

impl Plan {
    pub fn summary(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: &str| {
            let _ = writeln!(text, "{name}: {value}");
        };
        line("sandbox", &format!("gatekeeper, profile {}", self.policy.profile_name()));
        if matches!(self.seccomp, Seccomp::Off) {
            line("syscalls", "not confined");
        }
        match &self.landlock {
            None => line("files", "not confined"),
            Some(landlock) => {
                let list = |paths: &mut dyn Iterator<Item = &Path>| {
                    let shown: Vec<String> = paths.map(|path| path.display().to_string()).collect();
                    if shown.is_empty() { "nothing".to_owned() } else { shown.join(" ") }
                };
                let grants = &landlock.paths.grants;
                let mut writable =
                    grants.iter().filter(|grant| grant.access == Access::Write).map(|grant| grant.path.as_path());
                line("write", &list(&mut writable));
                match &self.policy.paths.read {
                    None => line("read", "everything else, but for what is unreadable"),
                    Some(listed) => line("read", &list(&mut listed.iter().map(|path| path.as_path()))),
                }
                let hidden = &landlock.paths.hidden;
                let nothing = hidden.is_empty().then(|| "nothing".to_owned());
                line("unreadable", &nothing.unwrap_or_else(|| super::paths::shown(hidden, 100)));
                if !landlock.paths.protected.is_empty() {
                    line("read-only", &list(&mut landlock.paths.protected.iter().map(|path| path.as_path())));
                }
            }
        }
        let network = match &self.network {
            NetworkMode::None if self.opened_by_list() => {
                "mode none, but syscalls.allow opens sockets: it can be reached".to_owned()
            }
            NetworkMode::None => "none; a retry cannot help".to_owned(),
            NetworkMode::Loopback => "loopback only".to_owned(),
            NetworkMode::Full => "full".to_owned(),
            NetworkMode::Hosts(hosts) => format!("only {}", hosts.join(" ")),
        };
        line("network", &network);
        line("processes", if self.starts_programs { "may be started" } else { "no new ones" });
        let mut limits = self.policy.limits.described();
        limits.extend(self.policy.timeout.map(|timeout| format!("time {timeout:?}")));
        line("limits", &if limits.is_empty() { "none".to_owned() } else { limits.join(", ") });
        line(
            "more",
            "cannot be had from inside; whoever runs gatekeeper can add --read PATH, --write PATH, --net MODE or --profile P",
        );
        text
    }
}
