//! Findings about the syscalls that a policy allows, from the same table that the filter is compiled from.

use super::{Code, Findings, Scene, TOO_COMPLEX, codes, filesystem};
use crate::plan::table::diagram::Bits;
use crate::plan::table::{Diagram, Table, Verb, numbers};
use crate::policy::{NetworkMode, Policy, Profile, RuleAction, SyscallRule};
use sandbox_contract::equivalents::FAMILIES;
use sandbox_contract::groups;
use sandbox_contract::profiles::FALLBACK;
use sandbox_contract::syscalls::{COUNT, Number, number, with_name};
use std::collections::BTreeMap;

/// The flags of clone(2) that make namespaces; together, `NEW_NAMESPACES`.
const NAMESPACES: &[(&str, u32)] = &[
    ("CLONE_NEWUSER", 0x1000_0000),
    ("CLONE_NEWNS", 0x0002_0000),
    ("CLONE_NEWCGROUP", 0x0200_0000),
    ("CLONE_NEWUTS", 0x0400_0000),
    ("CLONE_NEWIPC", 0x0800_0000),
    ("CLONE_NEWPID", 0x2000_0000),
    ("CLONE_NEWNET", 0x4000_0000),
];
const TERMINAL_INPUT: &[(&str, u32)] = &[("ioctl(TIOCSTI)", 0x5412), ("ioctl(TIOCLINUX)", 0x541c)];

/// What makes a call of each kind, whatever its other bits are.
const NEW_PROCESS: Bits = (0, libc::CLONE_THREAD as u32, 0);
const WRITE_EXEC: Bits = (2, PROT_WRITE | PROT_EXEC, PROT_WRITE | PROT_EXEC);
const EXEC: Bits = (2, PROT_EXEC, PROT_EXEC);
const UNIX_STREAM: &[Bits] = &[(0, u32::MAX, libc::AF_UNIX as u32), (1, 0xf, libc::SOCK_STREAM as u32)];
const PROT_WRITE: u32 = libc::PROT_WRITE as u32;
const PROT_EXEC: u32 = libc::PROT_EXEC as u32;

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
    let calls = Calls::new(&table);
    calls.too_complex(findings);
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
        let flags = named(NAMESPACES, |flag| calls.some("clone", &[(0, flag, flag)]));
        let clone = match flags.len() {
            all if all == NAMESPACES.len() => "clone(CLONE_NEW*)".to_owned(),
            _ => format!("clone({})", flags.join(" or ")),
        };
        if group == "namespaces" && !flags.is_empty() {
            open.push(&clone);
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
    let open: Vec<&str> = named(TERMINAL_INPUT, |request| calls.some("ioctl", &[(1, u32::MAX, request)]));
    if !open.is_empty() {
        findings.put(&codes::TIOCSTI_OPEN, "ioctl", format!("{} allowed", are(&open)));
    }
    if custom {
        let open: Vec<&str> =
            ["mmap", "mprotect", "pkey_mprotect"].into_iter().filter(|name| calls.some(name, &[WRITE_EXEC])).collect();
        if !open.is_empty() {
            let reason = format!("{} allowed with PROT_WRITE and PROT_EXEC together", are(&open));
            findings.put(&codes::WRITE_EXEC_MEMORY, "syscalls", reason);
        }
    }
}

/// UNIX sockets that can be connected anywhere. A connect that the supervisor checks does not count: it follows the policy.
fn unix_sockets(calls: &Calls<'_>, scene: &Scene, findings: &mut Findings) {
    if calls.some("socket", UNIX_STREAM) && calls.may_pass("connect") {
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
        // Who denies only memory that is writable too means no other.
        let memory = if stopped.iter().all(|call| calls.some(call, &[EXEC])) { WRITE_EXEC } else { EXEC };
        let passes = |call: &str| match (family.does, call) {
            // With other arguments these calls do something else.
            ("start processes", "clone") => calls.some(call, &[NEW_PROCESS]),
            ("make memory executable", _) => calls.some(call, &[memory]),
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

/// The names of the values for which something holds.
fn named(values: &[(&'static str, u32)], holds: impl Fn(u32) -> bool) -> Vec<&'static str> {
    values.iter().filter(|(_, value)| holds(*value)).map(|(name, _)| *name).collect()
}

/// What a table lets through.
struct Calls<'a> {
    table: &'a Table,
    /// The calls that are decided by their arguments. `None`: too intricate to decide.
    diagrams: BTreeMap<u16, Option<Diagram<Verb>>>,
}

impl Calls<'_> {
    fn new(table: &Table) -> Calls<'_> {
        let by_arguments = (0..COUNT).filter(|nr| !table.entry(*nr).0.is_empty());
        Calls { table, diagrams: by_arguments.map(|nr| (nr, table.diagram(nr))).collect() }
    }

    /// Whether some call passes in which these bits have these values. Also if that cannot be decided.
    fn some(&self, name: &str, fixed: &[Bits]) -> bool {
        let Number::Here(nr) = number(name.as_bytes()) else { return false };
        match self.diagrams.get(&nr) {
            Some(Some(diagram)) => diagram.some(fixed, Verb::passes),
            Some(None) => true,
            None => self.table.entry(nr).1.passes(),
        }
    }

    /// Whether a call is allowed with any arguments.
    fn may_pass(&self, name: &str) -> bool {
        self.some(name, &[])
    }

    /// Names the calls that cannot be decided.
    fn too_complex(&self, findings: &mut Findings) {
        for nr in self.diagrams.iter().filter(|(_, diagram)| diagram.is_none()).map(|(nr, _)| *nr) {
            let name = with_name(nr, |name| String::from_utf8_lossy(name).into_owned()).unwrap_or_default();
            findings.put(&codes::TOO_COMPLEX, name, TOO_COMPLEX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::table::NEW_NAMESPACES;

    #[test]
    fn every_flag_that_makes_a_namespace_has_a_name() {
        assert_eq!(NAMESPACES.iter().fold(0, |all, (_, flag)| all | flag), NEW_NAMESPACES);
    }
}
