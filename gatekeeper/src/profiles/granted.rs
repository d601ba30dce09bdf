//! What a profile grants, syscall by syscall, from the same table that `run` compiles into a filter.

use crate::host::User;
use crate::plan::table::{Table, Verb};
use crate::policy::{Document, Policy, PolicyError, Profile};
use sandbox_contract::bpf::{Op, Test};
use sandbox_contract::syscalls::{Number, number};
use sandbox_contract::{groups, profiles};
use serde::Serialize;
use std::collections::BTreeSet;

#[derive(Debug, Serialize)]
pub struct Granted {
    pub profile: String,
    pub about: String,
    pub groups: Vec<&'static str>,
    /// Allowed with any arguments.
    pub allowed: Vec<String>,
    /// Allowed or denied by their arguments.
    pub by_arguments: Vec<Looked>,
    /// Checked, and made or denied, by the supervisor.
    pub supervised: Vec<String>,
    /// Answered with ENOSYS, so that programs fall back to an older call.
    pub enosys: Vec<String>,
    pub denied: Vec<String>,
    /// In the profile's groups, but not on this architecture.
    pub not_here: Vec<&'static str>,
}

#[derive(Debug, Serialize)]
pub struct Looked {
    pub syscall: String,
    pub rules: Vec<String>,
}

/// The built-in profiles.
pub const BUILT_IN: [&str; 7] = ["minimal", "read", "network", "write", "write+network", "unrestricted", "browser"];

/// What a profile, or a union of profiles, grants to a command without a shell.
pub fn granted(profiles: Vec<Profile>) -> Result<Granted, PolicyError> {
    let policy = Policy::resolve(Document { profile: Some(profiles), ..Document::default() })?;
    let table = Table::new(&policy, &policy.network_mode(), false, true).for_user(&policy, User::of_this_process());
    let parts = parts(&policy.profile_name());
    let mut granted = Granted {
        profile: policy.profile_name(),
        about: about(&policy.profile_name(), &parts),
        groups: Vec::new(),
        allowed: Vec::new(),
        by_arguments: Vec::new(),
        supervised: Vec::new(),
        enosys: Vec::new(),
        denied: Vec::new(),
        not_here: Vec::new(),
    };
    let mut seen = BTreeSet::new();
    granted.groups.extend(parts.iter().flat_map(|part| part.groups).filter(|group| seen.insert(**group)).copied());
    let mut seen = BTreeSet::new();
    let of_groups = granted.groups.iter().flat_map(|group| groups::names(group.as_bytes()).unwrap_or_default());
    let named = of_groups.chain(parts.iter().flat_map(|part| part.calls)).chain(profiles::FALLBACK);
    granted
        .not_here
        .extend(named.filter(|call| number(call.as_bytes()) == Number::NotHere && seen.insert(**call)).copied());
    for (syscall, clauses, otherwise) in table.named() {
        if !clauses.is_empty() {
            let mut rules: Vec<String> = clauses.iter().map(|clause| rule(&clause.tests, clause.verb())).collect();
            rules.push(format!("else {}", word(otherwise)));
            granted.by_arguments.push(Looked { syscall, rules });
            continue;
        }
        match otherwise {
            Verb::Allow | Verb::Watch | Verb::UntilMain | Verb::Log => granted.allowed.push(syscall),
            Verb::Supervise => granted.supervised.push(syscall),
            Verb::Fallback => granted.enosys.push(syscall),
            Verb::Deny | Verb::DenyWith(_) | Verb::Errno(_) | Verb::Refuse(_) | Verb::Kill => {
                granted.denied.push(syscall)
            }
        }
    }
    Ok(granted)
}

/// The data of a built-in profile or union; none for `unrestricted`.
fn parts(name: &str) -> Vec<&'static profiles::Profile> {
    let part = |name: &str| match name {
        "read" => Some(&profiles::READ),
        "network" => Some(&profiles::NETWORK),
        "write" => Some(&profiles::WRITE),
        "browser" => Some(&profiles::BROWSER),
        _ => None,
    };
    match name {
        "unrestricted" | "custom" => Vec::new(),
        _ => std::iter::once(&profiles::MINIMAL).chain(name.split('+').filter_map(part)).collect(),
    }
}

fn about(name: &str, parts: &[&profiles::Profile]) -> String {
    match (name, parts.last()) {
        (_, None) => "no filter and no path rules: everything that the user may do".to_owned(),
        (name, Some(last)) if !name.contains('+') => last.about.to_owned(),
        (name, _) => format!("everything that {} grant", name.replace('+', " and ")),
    }
}

fn word(verb: Verb) -> String {
    match verb {
        Verb::Allow | Verb::Watch => "allowed".to_owned(),
        Verb::UntilMain => "allowed until main".to_owned(),
        Verb::Deny => "denied".to_owned(),
        Verb::DenyWith(errno) => format!("denied, errno {errno}"),
        Verb::Fallback => "ENOSYS".to_owned(),
        Verb::Supervise => "supervised".to_owned(),
        Verb::Errno(errno) | Verb::Refuse(errno) => format!("errno {errno}"),
        Verb::Kill => "killed".to_owned(),
        Verb::Log => "logged".to_owned(),
    }
}

fn rule(tests: &[Test], verb: Verb) -> String {
    let one = |test: &Test| {
        let low = u64::from(u32::MAX);
        let argument = match test.mask {
            u64::MAX => format!("arg{}", test.arg),
            mask if mask == low => format!("(u32)arg{}", test.arg),
            mask => format!("arg{} & {mask:#x}", test.arg),
        };
        let op = match test.op {
            Op::Eq => "==",
            Op::Ne => "!=",
            Op::Lt => "<",
            Op::Le => "<=",
            Op::Gt => ">",
            Op::Ge => ">=",
        };
        format!("{argument} {op} {:#x}", test.value)
    };
    let tests: Vec<String> = tests.iter().map(one).collect();
    format!("{} if {}", word(verb), tests.join(" and "))
}
