//! Findings about single settings of a policy, and about settings that contradict each other.

use super::{Findings, codes};
use crate::policy::{NetworkMode, OnViolation, Policy, Profile, StaticBinaries, Word};

pub fn look(policy: &Policy, findings: &mut Findings) {
    if policy.on_violation == OnViolation::Log {
        findings.put(&codes::LOG_ONLY, "on_violation", "calls that the filter would deny are allowed");
    }
    if let action @ (StaticBinaries::Warn | StaticBinaries::Allow) = policy.static_binaries {
        let reason = format!("'{}' runs static programs without the filter", action.word());
        findings.put(&codes::STATIC_UNCONFINED, "static_binaries", reason);
    }
    if !policy.require_sandbox {
        let reason = "a layer that the machine lacks is skipped with a warning";
        findings.put(&codes::NOT_REQUIRED, "require_sandbox", reason);
    }
    let contradiction = |findings: &mut Findings, key: &str, reason: &str| {
        findings.put(&codes::NETWORK_CONTRADICTION, key, reason);
    };
    let mode = policy.network_mode();
    match &mode {
        NetworkMode::Hosts(hosts) if hosts.is_empty() => {
            findings.put(&codes::EMPTY_HOSTS, "network.hosts", "no host is listed, so none can be reached");
        }
        NetworkMode::None if !policy.network.ports.is_empty() => {
            contradiction(findings, "network.ports", "ports are listed, but the mode is none: none can be reached");
        }
        NetworkMode::None if policy.profiles.contains(&Profile::Network) => {
            contradiction(findings, "network.mode", "the profile grants the network, but mode = none denies it");
        }
        _ => {}
    }
    if mode != NetworkMode::None && !policy.profiles.contains(&Profile::Unrestricted) {
        let denied = crate::plan::table::numbers(&policy.syscalls.deny);
        let is_denied = |name: &str| match sandbox_contract::syscalls::number(name.as_bytes()) {
            sandbox_contract::syscalls::Number::Here(nr) => denied.contains(nr),
            _ => false,
        };
        let asked_for = policy.network.mode.is_some() || policy.profiles.contains(&Profile::Network);
        if asked_for && let Some(call) = ["socket", "connect"].into_iter().find(|call| is_denied(call)) {
            let reason = format!("the network is granted, but {call} is denied: nothing can be reached");
            contradiction(findings, "syscalls.deny", &reason);
        }
    }
}
