//! Findings about the syscalls that a policy allows, from the same table that the filter is compiled from.

use super::{Code, Findings, Scene, codes, filesystem};
use crate::plan::table::{Clause, Table, Verb, numbers};
use crate::policy::{NetworkMode, Policy, Profile, RuleAction, SyscallRule};
use sandbox_contract::equivalents::FAMILIES;
use sandbox_contract::groups;
use sandbox_contract::profiles::FALLBACK;
use sandbox_contract::syscalls::{Number, number};

const CLONE_NEWUSER: u64 = 0x1000_0000;
const PROT_WRITE_EXEC: u64 = 0x6;
const PROT_EXEC: u64 = 0x4;
const TIOCSTI: u64 = 0x5412;
const AF_UNIX: u64 = 1;
const SOCK_STREAM: u64 = 1;

pub fn look(policy: &Policy, scene: &Scene, findings: &mut Findings) {
    let custom = policy.profiles.contains(&Profile::Custom);
    let table = if custom {
        Table::exact(policy)
    } else {
        Table::new(policy, &policy.network_mode(), policy.starts_programs(), true)
    };
    if table.is_open() {
        findings.put(&codes::UNRESTRICTED, "profile", format!("'{}' denies no syscall", policy.profile_name()));
        return;
    }
    let calls = Calls(&table);
    equivalents(policy, &calls, findings);
    groups(&calls, findings);
    arguments(&calls, custom, findings);
    if !custom && policy.network_mode() == NetworkMode::None && table.opens_network() {
        let reason = "socket is allowed for AF_INET or AF_INET6, but the network mode is none";
        findings.put(&codes::NETWORK_OPENED, "syscalls.allow", reason);
    }
    unix_sockets(&calls, scene, findings);
}

/// Whole groups of calls that no confined program should have.
fn groups(calls: &Calls<'_>, findings: &mut Findings) {
    let groups: [(&str, &'static Code, &str); 5] = [
        ("io-uring", &codes::IO_URING_OPEN, "calls that bypass the filter are allowed"),
        ("debug", &codes::DEBUG_OPEN, "calls that access other processes or the kernel are allowed"),
        ("privileged", &codes::PRIVILEGED_OPEN, "calls that administer the machine are allowed"),
        ("namespaces", &codes::NAMESPACES_OPEN, "calls that create namespaces and mounts are allowed"),
        ("keys", &codes::KEYS_OPEN, "calls that use the keyrings of the user are allowed"),
    ];
    for (group, code, what) in groups {
        let names = groups::names(group.as_bytes()).unwrap_or_default();
        let mut open: Vec<&str> = names.iter().copied().filter(|name| calls.may_pass(name)).collect();
        if group == "namespaces" && calls.passes("clone", &[(0, CLONE_NEWUSER)]) {
            open.push("clone(CLONE_NEWUSER)");
        }
        if !open.is_empty() {
            findings.put(code, "syscalls", format!("{what}: {}", open.join(", ")));
        }
    }
}

/// Calls that are dangerous with some arguments, or whose arguments no filter can read.
fn arguments(calls: &Calls<'_>, custom: bool, findings: &mut Findings) {
    for (name, code) in [("clone3", &codes::CLONE3_OPEN), ("openat2", &codes::OPENAT2_OPEN)] {
        if calls.may_pass(name) {
            findings.put(code, name, format!("{name} is allowed, and no filter can read its flags"));
        }
    }
    if calls.passes("ioctl", &[(1, TIOCSTI)]) {
        findings.put(&codes::TIOCSTI_OPEN, "ioctl", "ioctl(TIOCSTI) is allowed");
    }
    if custom {
        let prot = [(2, PROT_WRITE_EXEC)];
        let open: Vec<&str> =
            ["mmap", "mprotect", "pkey_mprotect"].into_iter().filter(|name| calls.passes(name, &prot)).collect();
        if !open.is_empty() {
            let reason = format!("{} allowed with PROT_WRITE and PROT_EXEC together", are(&open));
            findings.put(&codes::WRITE_EXEC_MEMORY, "syscalls", reason);
        }
    }
}

/// UNIX sockets that can be connected anywhere. A connect that the supervisor checks does not count: it follows the policy.
fn unix_sockets(calls: &Calls<'_>, scene: &Scene, findings: &mut Findings) {
    if calls.passes("socket", &[(0, AF_UNIX), (1, SOCK_STREAM)]) && calls.may_pass("connect") {
        let found = filesystem::escape_sockets(scene);
        let shown: Vec<_> = found.iter().map(|socket| socket.display().to_string()).collect();
        let here = if shown.is_empty() { String::new() } else { format!("; on this machine: {}", shown.join(", ")) };
        let reason = format!("UNIX sockets may be opened and connected anywhere{here}");
        findings.put(&codes::ESCAPE_SOCKET, "connect", reason);
    }
}

/// Calls that the policy denies by name or by a rule, while calls with the same effect are allowed.
fn equivalents(policy: &Policy, calls: &Calls<'_>, findings: &mut Findings) {
    let listed = numbers(&policy.syscalls.deny);
    let denies = |rule: &&SyscallRule| !matches!(rule.action, RuleAction::Allow | RuleAction::Log);
    let by_rule: Vec<&str> = policy.syscalls.rules.iter().filter(denies).map(|rule| rule.syscall.as_str()).collect();
    let by_name = |call: &str| match number(call.as_bytes()) {
        Number::Here(nr) => listed.contains(nr) || by_rule.contains(&call) && !calls.may_pass(call),
        _ => false,
    };
    for family in FAMILIES {
        // Policies deny these only to make programs fall back, not to prevent their effect.
        let meant = family.calls.iter().filter(|call| !FALLBACK.contains(call));
        // A rule on the arguments of mmap is about memory protection, not about reading files.
        let in_part = |call: &str| by_rule.contains(&call) && (call, family.does) != ("mmap", "read from descriptors");
        let stopped: Vec<&str> = meant.copied().filter(|call| by_name(call) || in_part(call)).collect();
        let passes = |call: &str| match (family.does, call) {
            // With other arguments these calls do something else.
            ("start processes", "clone") => calls.passes(call, &[(0, libc::SIGCHLD as u64)]),
            ("make memory executable", _) => calls.passes(call, &[(2, PROT_EXEC)]),
            _ => calls.may_pass(call),
        };
        let open: Vec<&str> =
            family.calls.iter().copied().filter(|call| !stopped.contains(call) && passes(call)).collect();
        if !stopped.is_empty() && !open.is_empty() {
            let reason = format!("{} denied, but {} can still {}", are(&stopped), open.join(", "), family.does);
            findings.put(&codes::EQUIVALENT_OPEN, stopped.join(", "), reason);
        }
    }
}

fn are(names: &[&str]) -> String {
    format!("{} {}", names.join(", "), if names.len() == 1 { "is" } else { "are" })
}

struct Calls<'a>(&'a Table);

impl Calls<'_> {
    /// Whether a call is allowed with these arguments and all others zero.
    fn passes(&self, name: &str, arguments: &[(usize, u64)]) -> bool {
        let Number::Here(nr) = number(name.as_bytes()) else { return false };
        let mut args = [0; 6];
        for (at, value) in arguments {
            if let Some(arg) = args.get_mut(*at) {
                *arg = *value;
            }
        }
        self.0.decide(nr.into(), &args).passes()
    }

    /// Whether a call is allowed with any arguments.
    fn may_pass(&self, name: &str) -> bool {
        let Number::Here(nr) = number(name.as_bytes()) else { return false };
        let (clauses, otherwise) = self.0.entry(nr);
        // A clause without tests matches always, so those after it have no effect.
        let seen = clauses.iter().position(|clause| clause.tests.is_empty()).map_or(clauses.len(), |at| at + 1);
        let verbs = clauses.iter().take(seen).map(Clause::verb);
        let rest = (seen == clauses.len() && clauses.last().is_none_or(|clause| !clause.tests.is_empty()))
            .then_some(otherwise);
        verbs.chain(rest).any(Verb::passes)
    }
}
