//! A description of the sandbox for the command, above all for an agent, which can read it before its first denial.

use super::environment::LEAKS;
use super::paths::{PathPlan, shown};
use super::{Plan, Seccomp};
use crate::policy::NetworkMode;
use std::fmt::Write;
use std::path::PathBuf;

/// More hidden paths than this are counted, not named.
const MOST_HIDDEN: usize = 100;

impl Plan {
    /// One `name: value` line for each limit.
    pub fn summary(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: &str| {
            let _ = writeln!(text, "{name}: {value}");
        };
        line("sandbox", &format!("gatekeeper, profile {}", self.policy.profile_name()));
        if matches!(self.seccomp, Seccomp::Off { .. }) {
            line("syscalls", "not confined");
        }
        match &self.landlock {
            None => line("files", "not confined"),
            Some(landlock) => self.summarise_paths(&landlock.paths, &mut line),
        }
        let set = |(name, value): &(std::ffi::OsString, std::ffi::OsString)| name == LEAKS && value == "detect_leaks=0";
        if self.environment.iter().any(set) {
            line("leaks", "not detected by LeakSanitizer, which needs ptrace (--allow ptrace)");
        }
        line("network", &self.network_summary());
        line("processes", if self.starts_programs { "may be started" } else { "no new ones" });
        let mut limits = self.policy.limits.described();
        limits.extend(self.policy.timeout.map(|timeout| format!("time {timeout:?}")));
        line("limits", &if limits.is_empty() { "none".to_owned() } else { limits.join(", ") });
        line(
            "more",
            "nothing inside can change these limits; the caller of gatekeeper can add --read PATH, --write PATH, --net MODE \
             or --profile P",
        );
        text
    }

    fn summarise_paths(&self, paths: &PathPlan, line: &mut dyn FnMut(&str, &str)) {
        line("write", &listed(&paths.writable().collect::<Vec<_>>()));
        let temporary = self.temporary();
        if !temporary.is_empty() {
            line(
                "temporary",
                &format!("{}: private to this run, empty at its start, gone at its end", listed(&temporary)),
            );
        }
        match &self.policy.paths.read {
            None => line("read", "everything except what is unreadable"),
            Some(read) => line("read", &listed(read)),
        }
        match paths.hidden.is_empty() {
            true => line("unreadable", "nothing"),
            false => line("unreadable", &shown(&paths.hidden, MOST_HIDDEN)),
        }
        if !paths.protected.is_empty() {
            line("read-only", &listed(&paths.protected));
        }
    }

    fn network_summary(&self) -> String {
        match &self.network {
            NetworkMode::None if self.opened_by_list() => {
                "mode none, but syscalls.allow opens sockets: it can be reached".to_owned()
            }
            NetworkMode::None => "none; retrying will fail the same way".to_owned(),
            NetworkMode::Own => "a private loopback; only processes of this run can be reached".to_owned(),
            NetworkMode::Hosts(hosts) => format!("only {}", hosts.join(" ")),
            mode => mode.word().to_owned(),
        }
    }
}

fn listed(paths: &[PathBuf]) -> String {
    if paths.is_empty() { "nothing".to_owned() } else { shown(paths, usize::MAX) }
}
