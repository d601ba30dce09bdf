//! A plan in words: one step per line, in the order in which they are taken.

use super::paths::{Access, PathPlan};
use super::{Plan, Seccomp};
use crate::policy::grants::quoted;
use crate::policy::{Isolate, NetworkMode, OnViolation};
use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    pub step: &'static str,
    pub detail: String,
}

impl Plan {
    /// The steps of a command with a process group of its own.
    pub fn steps(&self) -> Vec<Step> {
        self.steps_in(false)
    }

    /// `shared`: whether the command stays in the caller's process group, as it does on a terminal.
    pub fn steps_in(&self, shared: bool) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut add = |step, detail: String| steps.push(Step { step, detail });
        add("command", format!("{}, verdict {}", quoted(&self.command), self.verdict.verdict.word()));
        if self.starts_programs {
            add("processes", "new programs and processes may be started".to_owned());
        }
        let names: Vec<_> = self.environment.iter().map(|(name, _)| name.to_string_lossy()).collect();
        add("environment", format!("rebuilt: {}", names.join(" ")));
        if let Some(tmp) = &self.places.tmp {
            add("temporary directory", format!("{}, removed at the end", tmp.display()));
        }
        if let NetworkMode::Hosts(hosts) = &self.network {
            let shown = if hosts.is_empty() { "no host at all".to_owned() } else { hosts.join(" ") };
            add("proxy", format!("outside, on a loopback port, by HTTP_PROXY and its like; lets through {shown}"));
        }
        let group = match shared {
            true => "the caller's, for the terminal's job control; the whole tree is ended at the end",
            false => "its own, ended as a whole",
        };
        add("process group", group.to_owned());
        add("working directory", self.directory.display().to_string());
        let limits = self.policy.limits.described();
        if !limits.is_empty() {
            add("limits", limits.join(", "));
        }
        let of_tree = &self.policy.limits;
        if of_tree.memory.is_some() || of_tree.processes.is_some() || of_tree.cpu.is_some() {
            let what = "one of its own, where one is delegated to this user; else the supervisor adds the tree up";
            add("cgroup", what.to_owned());
        }
        let mounts = self.mounts_described();
        if !mounts.is_empty() {
            add("mounts", format!("in a mount namespace: {}", mounts.join("; ")));
        }
        add("descriptors", "all but 0, 1 and 2 are closed".to_owned());
        add("no_new_privs", "set".to_owned());
        if self.landlock.is_some() {
            add("capabilities", "those that look into other processes or run the machine are given up".to_owned());
        }
        match &self.landlock {
            Some(landlock) => add("landlock", format!("ABI {}: {}", landlock.abi, described(&landlock.paths))),
            None => add("landlock", "off".to_owned()),
        }
        if let Some(limit) = self.commands_limit() {
            add("programs", limit.to_owned());
        }
        match &self.seccomp {
            Seccomp::Off => add("seccomp", "off".to_owned()),
            Seccomp::Filter { notify } => add("seccomp", self.filter_described(*notify)),
        }
        if let Some(library) = &self.preload {
            add("preload", format!("{}: the exact list, from main on", library.display()));
        }
        add("exec", format!("{} by descriptor, as {}", self.target.path.display(), quoted(&self.argv)));
        steps
    }

    /// What Landlock cannot take back inside of a writable tree. Inside of bubblewrap it is done outside.
    fn mounts_described(&self) -> Vec<String> {
        let paths = self.landlock.as_ref().filter(|_| self.inside.is_none()).map(|landlock| &landlock.paths);
        let kinds =
            paths.into_iter().flat_map(|paths| [("read-only", &paths.protected), ("unreadable", &paths.covered)]);
        let shown = |(kind, paths): (&str, &Vec<std::path::PathBuf>)| {
            let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
            format!("{kind} {}", paths.join(" "))
        };
        kinds.filter(|(_, paths)| !paths.is_empty()).map(shown).collect()
    }

    /// Whether a list of allowed calls opens the network that the mode closes.
    pub fn opened_by_list(&self) -> bool {
        let filtered = matches!(self.seccomp, Seccomp::Filter { .. });
        // A network namespace has nothing that could be reached.
        let own =
            self.policy.bubblewrap.isolate == Isolate::Required || self.inside.is_some_and(|inside| inside.own_network);
        self.network == NetworkMode::None && filtered && !own && self.table(true).opens_network()
    }

    fn filter_described(&self, notify: bool) -> String {
        let (plain, looked_at) = self.table(notify).granted_count();
        let denied = match self.policy.on_violation {
            OnViolation::Errno => "fail with EPERM",
            OnViolation::Kill => "end the process group",
            OnViolation::Log => "are let through",
        };
        let network = match &self.network {
            NetworkMode::None if self.opened_by_list() => {
                "the network open by syscalls.allow, although its mode is none"
            }
            NetworkMode::None => "no network",
            NetworkMode::Loopback => "loopback only",
            NetworkMode::Full => "full network",
            NetworkMode::Hosts(_) => "listed hosts only",
        };
        let told = if notify { "recorded" } else { "not itemised" };
        format!(
            "profile {}: {plain} calls allowed, {looked_at} by their arguments, {network}; all others {denied}, {told}",
            self.policy.profile_name()
        )
    }
}

fn described(paths: &PathPlan) -> String {
    let of = |wanted: Access| paths.grants.iter().filter(move |grant| grant.access == wanted);
    let list = |grants: Vec<&super::paths::Grant>| -> String {
        let shown: Vec<_> = grants.iter().take(4).map(|grant| grant.path.display().to_string()).collect();
        let more = grants.len().saturating_sub(shown.len());
        if more > 0 { format!("{} and {more} more", shown.join(" ")) } else { shown.join(" ") }
    };
    let mut parts = Vec::new();
    let read: Vec<_> = of(Access::ReadExecute).chain(of(Access::Read)).collect();
    parts.push(format!("read {}", list(read)));
    let write: Vec<_> = paths.grants.iter().filter(|grant| grant.access.writes()).collect();
    parts.push(if write.is_empty() { "write nothing".to_owned() } else { format!("write {}", list(write)) });
    // What is covered by mounts is a step of its own.
    let hidden: Vec<_> = paths.hidden.iter().filter(|path| !paths.covered.contains(path)).cloned().collect();
    if !hidden.is_empty() {
        parts.push(format!("not {}", super::paths::shown(&hidden, 100)));
    }
    if !paths.links.is_empty() {
        let shown: Vec<_> = paths.links.iter().map(|path| path.display().to_string()).collect();
        parts.push(format!("links kept in place {}", shown.join(" ")));
    }
    if !paths.open.is_empty() {
        let shown: Vec<_> = paths.open.iter().map(|path| path.display().to_string()).collect();
        parts.push(format!("stays writable {}", shown.join(" ")));
    }
    if !paths.private.is_empty() {
        let shown: Vec<_> = paths.private.iter().map(|path| path.display().to_string()).collect();
        parts.push(format!("its own {}", shown.join(" ")));
    }
    if !paths.missing.is_empty() {
        let shown: Vec<_> = paths.missing.iter().map(|path| path.display().to_string()).collect();
        parts.push(format!("missing {}", shown.join(" ")));
    }
    parts.extend(paths.notes.iter().cloned());
    parts.join("; ")
}
