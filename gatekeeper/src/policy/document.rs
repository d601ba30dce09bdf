//! A policy as written, in which every field may be missing. Files and command line flags fill the same type and are
//! merged. Nothing here fills in defaults or reads files.

use super::error::Place;
use super::{
    Bubblewrap, Commands, Environment, Isolate, Limits, Network, NetworkMode, OnViolation, Paths, Policy, Profile,
    StaticBinaries, Syscalls, rules,
};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Document {
    /// The base file, relative to this one. `load` reads it, merges it and clears this field.
    pub extends: Option<PathBuf>,
    pub profile: Option<Vec<Profile>>,
    pub on_violation: Option<OnViolation>,
    pub static_binaries: Option<StaticBinaries>,
    pub require_sandbox: Option<bool>,
    /// Zero: no timeout, even if the base has one.
    pub timeout: Option<Duration>,
    pub syscalls: Syscalls,
    pub paths: Paths,
    pub network: Network,
    pub limits: Limits,
    pub env: Environment,
    pub commands: Commands,
    pub bubblewrap: Namespaces,
    pub libsandbox: Option<PathBuf>,
    /// The place of `[box]`, if the file asks for a container.
    pub boxed: Option<Place>,
    /// The files it was read from, by the given names and by their real paths.
    pub sources: Vec<PathBuf>,
    /// What it says that has no effect.
    pub warnings: Vec<String>,
}

/// `[bubblewrap]` as written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Namespaces {
    pub mode: Option<Isolate>,
    pub path: Option<PathBuf>,
    pub read: Vec<PathBuf>,
    pub write: Vec<PathBuf>,
}

impl Document {
    /// Merges this document over another: its single values win, lists add up, and what either denies is denied.
    pub fn over(self, base: Document) -> Document {
        Document {
            extends: self.extends.or(base.extends),
            profile: self.profile.or(base.profile),
            on_violation: self.on_violation.or(base.on_violation),
            static_binaries: self.static_binaries.or(base.static_binaries),
            require_sandbox: self.require_sandbox.or(base.require_sandbox),
            timeout: self.timeout.or(base.timeout),
            syscalls: Syscalls {
                default: self.syscalls.default.or(base.syscalls.default),
                allow: sum(base.syscalls.allow, self.syscalls.allow),
                deny: sum(base.syscalls.deny, self.syscalls.deny),
                rules: rules::joined(base.syscalls.rules, self.syscalls.rules),
            },
            paths: Paths {
                read: both(base.paths.read, self.paths.read),
                also_read: sum(base.paths.also_read, self.paths.also_read),
                write: sum(base.paths.write, self.paths.write),
                execute: both(base.paths.execute, self.paths.execute),
                deny: sum(base.paths.deny, self.paths.deny),
            },
            network: Network {
                mode: match (base.network.mode, self.network.mode) {
                    (Some(NetworkMode::Hosts(base)), Some(NetworkMode::Hosts(own))) => {
                        Some(NetworkMode::Hosts(sum(base, own)))
                    }
                    (base, own) => own.or(base),
                },
                ports: sum(base.network.ports, self.network.ports),
                unix: sum(base.network.unix, self.network.unix),
                deny_private: self.network.deny_private || base.network.deny_private,
                local_ports: sum(base.network.local_ports, self.network.local_ports),
                http: sum(base.network.http, self.network.http),
                credentials: sum(base.network.credentials, self.network.credentials),
                upstream_ca: sum(base.network.upstream_ca, self.network.upstream_ca),
            },
            limits: Limits {
                memory: self.limits.memory.or(base.limits.memory),
                processes: self.limits.processes.or(base.limits.processes),
                files: self.limits.files.or(base.limits.files),
                cpu: self.limits.cpu.or(base.limits.cpu),
                output: self.limits.output.or(base.limits.output),
                disk: self.limits.disk.or(base.limits.disk),
            },
            env: Environment {
                // A variable that this document passes on has the caller's value, not one that the other sets.
                set: base
                    .env
                    .set
                    .into_iter()
                    .filter(|(name, _)| !self.env.pass.contains(name))
                    .chain(self.env.set)
                    .collect(),
                pass: sum(base.env.pass, self.env.pass),
            },
            commands: Commands {
                allow: sum(base.commands.allow, self.commands.allow),
                block: sum(base.commands.block, self.commands.block),
            },
            bubblewrap: Namespaces {
                mode: self.bubblewrap.mode.or(base.bubblewrap.mode),
                path: self.bubblewrap.path.or(base.bubblewrap.path),
                read: sum(base.bubblewrap.read, self.bubblewrap.read),
                write: sum(base.bubblewrap.write, self.bubblewrap.write),
            },
            libsandbox: self.libsandbox.or(base.libsandbox),
            boxed: self.boxed.or(base.boxed),
            sources: sum(base.sources, self.sources),
            warnings: sum(base.warnings, self.warnings),
        }
    }
}

fn sum<T>(mut base: Vec<T>, own: Vec<T>) -> Vec<T> {
    base.extend(own);
    base
}

/// For lists that mean everything if absent and nothing if empty.
fn both<T>(base: Option<Vec<T>>, own: Option<Vec<T>>) -> Option<Vec<T>> {
    match (base, own) {
        (Some(base), Some(own)) => Some(sum(base, own)),
        (base, own) => own.or(base),
    }
}

/// The policy with every default written out.
impl From<Policy> for Document {
    fn from(policy: Policy) -> Document {
        let Bubblewrap { isolate, bwrap, extra_read, extra_write } = policy.bubblewrap;
        Document {
            extends: None,
            profile: Some(policy.profiles),
            on_violation: Some(policy.on_violation),
            static_binaries: Some(policy.static_binaries),
            require_sandbox: Some(policy.require_sandbox),
            timeout: policy.timeout,
            syscalls: policy.syscalls,
            paths: policy.paths,
            network: policy.network,
            limits: policy.limits,
            env: policy.env,
            commands: policy.commands,
            bubblewrap: Namespaces { mode: Some(isolate), path: bwrap, read: extra_read, write: extra_write },
            libsandbox: policy.libsandbox,
            boxed: None,
            sources: policy.sources,
            warnings: policy.warnings,
        }
    }
}
