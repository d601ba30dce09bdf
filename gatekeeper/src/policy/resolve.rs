//! From a document to the policy: fills in the defaults and checks the combination of values. Values from a file were
//! already checked with their line; values from flags and from library callers are checked here by the same functions.

use super::document::Document;
use super::error::{PolicyError, ValueError};
use super::pattern::Denied;
use super::values;
use super::{
    Bubblewrap, Credential, Network, NetworkMode, OnViolation, Policy, Profile, SecretFrom, StaticBinaries, Syscalls,
    hosts, http, rules,
};
use std::path::{Path, PathBuf};

impl Policy {
    /// The policy of a document that has been merged with its base files and flags.
    pub fn resolve(document: Document) -> Result<Policy, PolicyError> {
        if let Some(file) = document.extends {
            return Err(PolicyError::NotExtended { file });
        }
        if let Some(place) = document.boxed {
            return Err(PolicyError::Value { place: Some(place), key: "box".to_owned(), error: BOXED.into() });
        }
        let mut policy = Policy {
            profiles: document.profile.unwrap_or_else(|| vec![Profile::Minimal]),
            on_violation: document.on_violation.unwrap_or(OnViolation::Errno),
            static_binaries: document.static_binaries.unwrap_or(StaticBinaries::Enforce),
            require_sandbox: document.require_sandbox.unwrap_or(true),
            timeout: document.timeout.filter(|timeout| !timeout.is_zero()),
            syscalls: document.syscalls,
            paths: document.paths,
            network: document.network,
            limits: document.limits,
            env: document.env,
            commands: document.commands,
            bubblewrap: Bubblewrap {
                isolate: document.bubblewrap.mode.unwrap_or_default(),
                bwrap: document.bubblewrap.path,
                extra_read: document.bubblewrap.read,
                extra_write: document.bubblewrap.write,
            },
            libsandbox: document.libsandbox,
            sources: document.sources,
            warnings: document.warnings,
        };
        check_values(&mut policy)?;
        check_together(&policy)?;
        one_exact_list(policy)
    }
}

/// Running the command here, without the container, would be less protection than the policy asks for.
const BOXED: ValueError = ValueError::Conflict(
    "this policy asks for a container; use `gatekeeper box exec --config` or `gatekeeper mcp --agent`, or remove [box]",
);

impl Policy {
    /// Every list of paths without patterns, by its key.
    pub fn lists_of_paths(&self) -> [(&'static str, &[PathBuf]); 10] {
        [
            ("paths.read", self.paths.read.as_deref().unwrap_or_default()),
            ("paths.also_read", &self.paths.also_read),
            ("paths.write", &self.paths.write),
            ("paths.execute", self.paths.execute.as_deref().unwrap_or_default()),
            ("network.unix", &self.network.unix),
            ("network.upstream_ca", &self.network.upstream_ca),
            ("bubblewrap.read", &self.bubblewrap.extra_read),
            ("bubblewrap.write", &self.bubblewrap.extra_write),
            ("bubblewrap.path", self.bubblewrap.bwrap.as_slice()),
            ("libsandbox", self.libsandbox.as_slice()),
        ]
    }
}

/// Checks each value, and puts it into its normal form.
fn check_values(policy: &mut Policy) -> Result<(), PolicyError> {
    policy.profiles = values::combined(std::mem::take(&mut policy.profiles)).map_err(at("profile"))?;
    policy.syscalls.allow = listed(&policy.syscalls.allow).map_err(at("syscalls.allow"))?;
    policy.syscalls.deny = listed(&policy.syscalls.deny).map_err(at("syscalls.deny"))?;
    for rule in &policy.syscalls.rules {
        values::syscall(&rule.syscall).map_err(at("syscalls.rule.syscall"))?;
        rule.args.iter().try_for_each(rules::sound).map_err(at("syscalls.rule.args"))?;
    }
    for (key, paths) in policy.lists_of_paths() {
        paths.iter().try_for_each(|listed| path(listed)).map_err(at(key))?;
    }
    policy.paths.deny.iter().try_for_each(|listed| denied_path(listed)).map_err(at("paths.deny"))?;
    if let Some(NetworkMode::Hosts(listed)) = &mut policy.network.mode {
        *listed =
            listed.iter().map(|host| hosts::normal(host)).collect::<Result<_, _>>().map_err(at("network.hosts"))?;
    }
    check_http(&mut policy.network)?;
    for (key, ports) in [("network.ports", &policy.network.ports), ("network.local_ports", &policy.network.local_ports)]
    {
        ports.iter().try_for_each(|port| within((*port).into(), 1, 65535)).map_err(at(key))?;
    }
    policy.limits.memory.map_or(Ok(1), values::memory).map_err(at("limits.memory"))?;
    policy.limits.output.map_or(Ok(0), values::output).map_err(at("limits.output"))?;
    policy.limits.disk.map_or(Ok(0), values::disk).map_err(at("limits.disk"))?;
    for (key, limit, least) in
        [("limits.processes", policy.limits.processes, 1), ("limits.files", policy.limits.files, values::LEAST_FILES)]
    {
        limit.map_or(Ok(1), |limit| values::at_least(limit, least)).map_err(at(key))?;
    }
    policy.timeout.map_or(Ok(()), |timeout| values::bounded(timeout).map(drop)).map_err(at("timeout"))?;
    policy.limits.cpu.map_or(Ok(()), values::cpu).map_err(at("limits.cpu"))?;
    for name in &policy.env.pass {
        values::passed_variable(name).map_err(at("env.pass"))?;
    }
    for (name, value) in &policy.env.set {
        values::set_variable(name).and_then(|_| values::variable_value(value)).map_err(at("env.set"))?;
    }
    for (key, commands) in [("commands.allow", &policy.commands.allow), ("commands.block", &policy.commands.block)] {
        commands.iter().try_for_each(|command| values::command(command).map(drop)).map_err(at(key))?;
    }
    Ok(())
}

/// Checks the combination of values.
fn check_together(policy: &Policy) -> Result<(), PolicyError> {
    let Syscalls { default, allow, deny, rules } = &policy.syscalls;
    let custom = policy.profiles == [Profile::Custom];
    if !custom && default.is_some() {
        return Err(wrong_together(
            policy,
            "syscalls.default is for profile 'custom'; the other profiles define what they deny",
        ));
    }
    if custom && default.is_none() && allow.is_empty() && deny.is_empty() {
        // Two empty lists would give a filter that denies nothing.
        return Err(wrong_together(policy, "profile 'custom' needs syscalls.allow or syscalls.deny"));
    }
    if custom && default.is_none() && !rules.is_empty() {
        // libsandbox.so enforces it and takes only lists, so a rule would have no effect.
        return Err(wrong_together(
            policy,
            "profile 'custom' is exactly its lists; [[syscalls.rule]] needs another profile, or syscalls.default",
        ));
    }
    let open = matches!(policy.network.mode, None | Some(NetworkMode::Full));
    if !policy.network.local_ports.is_empty() && !policy.network.deny_private {
        return Err(wrong_together(policy, "network.local_ports needs network.deny_private; without it they are open"));
    }
    if policy.network.deny_private && !open {
        return Err(wrong_together(
            policy,
            "network.deny_private is for the full network; the other modes define what can be reached",
        ));
    }
    if policy.network.mode == Some(NetworkMode::Own) && !policy.network.ports.is_empty() {
        return Err(wrong_together(
            policy,
            "network.ports has no use with mode own: only processes of the run can be reached there",
        ));
    }
    together_in_proxy(policy)?;
    if rules.len() > rules::MAX_RULES {
        return Err(wrong_together(policy, "there are more than 1024 rules"));
    }
    Ok(())
}

/// Puts the hosts, methods and patterns of the proxy's rules into their normal form.
fn check_http(network: &mut Network) -> Result<(), PolicyError> {
    for rule in &mut network.http {
        rule.host = hosts::normal(&rule.host).map_err(at("network.http.host"))?;
        for text in rule.methods.iter().flatten() {
            http::method(text).map_err(at("network.http.methods"))?;
        }
        for text in rule.paths.iter().flatten() {
            http::pattern(text).map_err(at("network.http.paths"))?;
        }
    }
    for credential in &mut network.credentials {
        credential.host = http::exact_host(&credential.host).map_err(at("network.credential.host"))?;
        values::set_variable(&credential.env).map_err(at("network.credential.env"))?;
    }
    Ok(())
}

/// Refuses rules for requests that nothing would enforce, and secrets that would reach the command.
fn together_in_proxy(policy: &Policy) -> Result<(), PolicyError> {
    let Network { mode, deny_private, http, credentials, upstream_ca, .. } = &policy.network;
    if http.is_empty() && credentials.is_empty() {
        return match upstream_ca.is_empty() {
            true => Ok(()),
            false => Err(wrong_together(policy, "network.upstream_ca needs network.http or network.credential")),
        };
    }
    let open = matches!(mode, Some(NetworkMode::Full)) && !deny_private;
    if open || matches!(mode, Some(NetworkMode::None | NetworkMode::Loopback)) {
        return Err(wrong_together(
            policy,
            "network.http and network.credential need network.mode = \"hosts\" (or none written): the proxy enforces them",
        ));
    }
    for credential in credentials {
        let same = |other: &&Credential| other.env == credential.env && other.from != credential.from;
        if credentials.iter().any(|other| same(&other)) {
            return Err(wrong_together(policy, "two network.credential give the same env different secrets"));
        }
        if policy.env.set.contains_key(&credential.env) {
            return Err(wrong_together(
                policy,
                "env.set sets the variable of a network.credential, which gets a placeholder",
            ));
        }
        let source = |name: &String| matches!(&credential.from, SecretFrom::Env(from) if from == name);
        if policy.env.pass.iter().any(|name| source(name) || *name == credential.env) {
            return Err(wrong_together(
                policy,
                "env.pass would pass the secret of a network.credential to the command",
            ));
        }
    }
    Ok(())
}

/// Replaces an allow list and a deny list by their difference, because libsandbox.so ignores its deny list if it has an
/// allow list.
fn one_exact_list(mut policy: Policy) -> Result<Policy, PolicyError> {
    let at_main = policy.starts_at_main();
    let Syscalls { allow, deny, .. } = &mut policy.syscalls;
    if !at_main || allow.is_empty() || deny.is_empty() {
        return Ok(policy);
    }
    let allowed = values::numbers(allow).map_err(at("syscalls.allow"))?;
    let denied = values::numbers(deny).map_err(at("syscalls.deny"))?;
    deny.clear();
    // Keep items that lose nothing as written.
    let mut left = Vec::with_capacity(allow.len());
    for item in std::mem::take(allow) {
        let numbers = values::numbers(std::slice::from_ref(&item)).map_err(at("syscalls.allow"))?;
        if numbers.iter().any(|number| denied.contains(number)) {
            left.extend(numbers.iter().filter(|number| !denied.contains(*number)).filter_map(values::name));
        } else {
            left.push(item);
        }
    }
    *allow = left;
    if allowed.iter().all(|number| denied.contains(number)) {
        return Err(wrong_together(&policy, "profile 'custom': syscalls.deny leaves nothing of syscalls.allow"));
    }
    Ok(policy)
}

fn wrong_together(policy: &Policy, why: &'static str) -> PolicyError {
    PolicyError::Together { sources: policy.sources.clone(), why }
}

fn at(key: &'static str) -> impl Fn(ValueError) -> PolicyError {
    move |error| PolicyError::Value { place: None, key: key.to_owned(), error: error.into() }
}

/// An item may be a colon list, as in flags.
fn listed(items: &[String]) -> Result<Vec<String>, ValueError> {
    let lists = items.iter().map(|item| values::syscalls(item)).collect::<Result<Vec<_>, _>>()?;
    Ok(lists.into_iter().flatten().collect())
}

/// Paths from flags need not be UTF-8. The checks concern only ASCII characters.
fn path(path: &Path) -> Result<(), ValueError> {
    values::path(&path.to_string_lossy()).map(drop)
}

fn denied_path(path: &Path) -> Result<(), ValueError> {
    // Parse the real path too: file names need not be UTF-8.
    values::denied_path(&path.to_string_lossy()).and_then(|_| Denied::parse(path)).map(drop)
}

fn within(value: u64, least: u64, most: u64) -> Result<(), ValueError> {
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(ValueError::OutOfRange { value: value.into(), least, most })
    }
}
