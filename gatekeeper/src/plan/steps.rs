//! The operations of a plan, in the order in which they are carried out, and each of them in words.

use super::paths::{Access, PathPlan};
use super::{Plan, Seccomp, StageSource};
use crate::operation::Operation;
use crate::policy::grants::quoted;
use crate::policy::{Isolate, NetworkMode, OnViolation};
use serde::Serialize;
use std::sync::atomic::Ordering;

/// A line of `gatekeeper plan`: an operation, or a fact about the command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    pub step: &'static str,
    pub detail: String,
}

impl Plan {
    /// What starts the command, in order. `enforce` prepares these operations, the child carries them out.
    pub fn operations(&self) -> Vec<Operation> {
        let hosts = matches!(self.network, NetworkMode::Hosts(_));
        let loads_filter = self.seccomp != Seccomp::Off { marked: false };
        let limits = &self.policy.limits;
        let of_tree = limits.memory.is_some() || limits.processes.is_some() || limits.cpu.is_some();
        // The limit of the captured output is ours: the command has nothing to lift.
        let of_command = of_tree || limits.files.is_some() || limits.disk.is_some();
        let all = [
            (Operation::Environment, true),
            (Operation::TemporaryDirectory, self.places.tmp.is_some()),
            (Operation::Proxy, hosts),
            (Operation::Signals, true),
            (Operation::Cgroup, of_tree),
            (Operation::Namespaces, self.wants_namespaces()),
            (Operation::Stage, self.mounts_stage()),
            (Operation::Mounts, self.wants_namespaces()),
            (Operation::ProcessGroup, true),
            (Operation::StandardStreams, true),
            (Operation::WorkingDirectory, true),
            (Operation::Limits, !limits.described().is_empty()),
            (Operation::Descriptors, true),
            (Operation::NoNewPrivs, true),
            (Operation::Capabilities, self.drops_capabilities()),
            (Operation::LimitsCapability, of_command && !self.drops_capabilities()),
            (Operation::Landlock, self.landlock.is_some()),
            (Operation::Seccomp, loads_filter),
            (Operation::Exec, true),
            (Operation::Preload, self.preload.is_some()),
        ];
        all.into_iter().filter_map(|(operation, wanted)| wanted.then_some(operation)).collect()
    }

    /// The plan in words, for a command that gets its own process group.
    pub fn steps(&self) -> Vec<Step> {
        self.steps_in(false)
    }

    /// `shared`: whether the command stays in the caller's process group, as it does on a terminal.
    pub fn steps_in(&self, shared: bool) -> Vec<Step> {
        let command = format!("{}, verdict {}", quoted(&self.command), self.verdict.verdict.word());
        let mut steps = vec![Step { step: "command", detail: command }];
        if self.starts_programs {
            let detail = "new programs and processes may be started".to_owned();
            steps.push(Step { step: "processes", detail });
        }
        if let Some(StageSource::Elsewhere(copy)) = self.stage.as_ref().map(|stage| &stage.source) {
            let detail = format!("{}; the command starts in {}", self.stage_described(), copy.display());
            steps.push(Step { step: Operation::Stage.name(), detail });
        }
        for operation in self.operations() {
            if operation == Operation::Exec {
                steps.extend(self.layers_off());
            }
            steps.push(Step { step: operation.name(), detail: self.described(operation, shared) });
            if operation == Operation::Landlock
                && let Some(limit) = self.commands_limit()
            {
                steps.push(Step { step: "programs", detail: limit.to_owned() });
            }
        }
        steps
    }

    /// The two main layers, where the plan leaves them out.
    fn layers_off(&self) -> impl Iterator<Item = Step> {
        let listed = self.seccomp != Seccomp::Off { marked: false };
        let layers = [(Operation::Landlock, self.landlock.is_some()), (Operation::Seccomp, listed)];
        let off = |(operation, _): (Operation, bool)| Step { step: operation.name(), detail: "off".to_owned() };
        layers.into_iter().filter(|(_, on)| !on).map(off)
    }

    fn described(&self, operation: Operation, shared: bool) -> String {
        match operation {
            Operation::Environment => {
                let names: Vec<_> = self.environment.iter().map(|(name, _)| name.to_string_lossy()).collect();
                format!("rebuilt: {}", names.join(" "))
            }
            Operation::TemporaryDirectory => {
                let tmp = self.places.tmp.as_deref().unwrap_or(std::path::Path::new("none"));
                format!("{}, removed at the end", tmp.display())
            }
            Operation::Proxy => {
                let shown = match &self.network {
                    NetworkMode::Hosts(hosts) if !hosts.is_empty() => hosts.join(" "),
                    _ => "no host at all".to_owned(),
                };
                format!(
                    "outside, on a loopback port, announced by HTTP_PROXY and similar variables; lets through {shown}{}",
                    self.requests_described()
                )
            }
            Operation::Signals => "the caller's mask; handlers back to their defaults".to_owned(),
            Operation::Cgroup => {
                "its own, if one is delegated to this user; otherwise the supervisor measures the process tree"
                    .to_owned()
            }
            Operation::Namespaces if self.unmounted.load(Ordering::Relaxed) => {
                "none: no user namespace can be created here".to_owned()
            }
            Operation::Mounts if self.unmounted.load(Ordering::Relaxed) => {
                format!("none, which leaves to the other layers: {}", self.mounts_described().join("; "))
            }
            Operation::Namespaces if self.makes_own_network() => {
                "a mount namespace, and a network namespace with nothing but a loopback; in a user namespace unless you are root"
                    .to_owned()
            }
            Operation::Namespaces => "a mount namespace, in a user namespace unless you are root".to_owned(),
            Operation::Stage => self.stage_described(),
            Operation::Mounts if !self.wants_mounts() => "none".to_owned(),
            Operation::Mounts => format!("in a mount namespace: {}", self.mounts_described().join("; ")),
            Operation::ProcessGroup if shared => {
                "the caller's, for the terminal's job control; the whole tree is ended at the end".to_owned()
            }
            Operation::ProcessGroup => "its own, ended as a whole".to_owned(),
            Operation::StandardStreams => "the caller's, or pipes where the output is captured".to_owned(),
            Operation::WorkingDirectory => self.directory.display().to_string(),
            Operation::Limits => self.policy.limits.described().join(", "),
            Operation::Descriptors => "all but 0, 1 and 2 are closed".to_owned(),
            Operation::NoNewPrivs => "set".to_owned(),
            Operation::Capabilities => {
                "those that inspect other processes or administer the machine are dropped".to_owned()
            }
            Operation::LimitsCapability => "CAP_SYS_RESOURCE, which lifts limits, is dropped".to_owned(),
            Operation::Landlock => self
                .landlock
                .as_ref()
                .map_or_else(String::new, |landlock| format!("ABI {}: {}", landlock.abi, described(&landlock.paths))),
            Operation::Seccomp => match self.seccomp {
                Seccomp::Off { .. } => "off; a filter that allows every call marks the command as confined".to_owned(),
                Seccomp::Filter { notify } => self.filter_described(notify),
            },
            Operation::Exec => format!("{} by descriptor, as {}", self.target.path.display(), quoted(&self.argv)),
            Operation::Preload => {
                let library = self.preload.as_deref().unwrap_or(std::path::Path::new("none"));
                format!("{}: the exact list, from main on", library.display())
            }
            // Not in a plan's list.
            Operation::Start | Operation::RunDirectory => String::new(),
        }
    }

    /// Whether the run drops the capabilities that reach beyond it. Landlock and a network of its own would not hold against them;
    /// where Landlock is missing, the command needs them no more than elsewhere.
    fn drops_capabilities(&self) -> bool {
        super::assemble::wants_paths(&self.policy) || self.makes_own_network()
    }

    fn wants_namespaces(&self) -> bool {
        self.wants_mounts() || self.makes_own_network()
    }

    /// What the proxy looks for in requests, if the policy has rules for them. Names secrets, and never shows one.
    fn requests_described(&self) -> String {
        let network = &self.policy.network;
        let rules: Vec<String> = network.http.iter().map(ToString::to_string).collect();
        let secrets = network.credentials.iter();
        let secrets: Vec<String> =
            secrets.map(|one| format!("{} for {} as {}", one.env, one.host, one.placed)).collect();
        let mut text = String::new();
        if !rules.is_empty() {
            text.push_str(&format!("; opens TLS and allows only {}", rules.join("; ")));
        }
        if !secrets.is_empty() {
            text.push_str(&format!("; placeholders, replaced outside: {}", secrets.join(", ")));
        }
        text
    }

    /// Whether something inside a writable tree has to be protected, or replaced, by a mount. Inside bubblewrap the gatekeeper
    /// outside has done that, except for links, which bubblewrap follows.
    pub fn wants_mounts(&self) -> bool {
        self.mounts_stage()
            || self.landlock.as_ref().map(|landlock| &landlock.paths).is_some_and(|paths| {
                let outside = self.inside.is_none();
                !paths.links.is_empty()
                    || outside
                        && !(paths.protected.is_empty()
                            && paths.covered.is_empty()
                            && paths.private.is_empty()
                            && paths.temporary.is_empty())
            })
    }

    /// Whether a stage is mounted over the working directory. One that is a copy elsewhere needs no mount.
    pub fn mounts_stage(&self) -> bool {
        self.stage.as_ref().is_some_and(|stage| !matches!(stage.source, StageSource::Elsewhere(_)))
    }

    fn stage_described(&self) -> String {
        let Some(stage) = &self.stage else { return String::new() };
        let means = match &stage.source {
            StageSource::Overlay { .. } => "by overlayfs",
            StageSource::Copy(_) | StageSource::Elsewhere(_) => "in a copy",
            StageSource::Unmade => "new, by overlayfs if it works here, else in a copy",
        };
        let tree = stage.tree.display();
        format!("{}, {means}: changes below {tree} wait for gatekeeper stage apply {}", stage.name, stage.name)
    }

    fn mounts_described(&self) -> Vec<String> {
        let Some(paths) = self.landlock.as_ref().map(|landlock| &landlock.paths) else { return Vec::new() };
        let outside = self.inside.is_none();
        let private = paths.private.iter().chain(paths.temporary.iter().map(|grant| &grant.path)).cloned().collect();
        let kinds = [
            ("read-only", &paths.protected, outside),
            ("unreadable", &paths.covered, outside),
            ("links kept in place", &paths.links, true),
            ("its own", &private, outside),
        ];
        let shown = |(kind, paths, _): (&str, &Vec<std::path::PathBuf>, bool)| {
            let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
            format!("{kind} {}", paths.join(" "))
        };
        kinds.into_iter().filter(|(_, paths, wanted)| *wanted && !paths.is_empty()).map(shown).collect()
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
            mode => mode.describe(),
        };
        let recorded = if notify { "recorded" } else { "not itemised" };
        format!(
            "profile {}: {plain} calls allowed, {looked_at} by their arguments, {network}; all others {denied}, {recorded}",
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
    // Paths covered by mounts are shown by the operation that mounts them.
    let hidden: Vec<_> = paths.hidden.iter().filter(|path| !paths.covered.contains(path)).cloned().collect();
    if !hidden.is_empty() {
        parts.push(format!("not {}", super::paths::shown(&hidden, 100)));
    }
    if !paths.open.is_empty() {
        let shown: Vec<_> = paths.open.iter().map(|path| path.display().to_string()).collect();
        parts.push(format!("stays writable {}", shown.join(" ")));
    }
    if !paths.missing.is_empty() {
        let shown: Vec<_> = paths.missing.iter().map(|path| path.display().to_string()).collect();
        parts.push(format!("missing {}", shown.join(" ")));
    }
    parts.extend(paths.notes.iter().cloned());
    parts.join("; ")
}
