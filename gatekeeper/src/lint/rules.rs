//! Findings about rules on arguments: rules that never match, and rules that a bit above the lower 32 bypasses.

use super::{Findings, TOO_COMPLEX, codes};
use crate::plan::table::{Diagram, numbers};
use crate::policy::{Policy, RuleAction, SyscallRule};
use sandbox_contract::bpf::{Op, Test};
use sandbox_contract::syscalls::{Number, number, with_name};
use std::collections::BTreeMap;

/// Arguments of which the kernel reads only the lower 32 bits.
const INTS: &[(&str, &[u8])] = &[
    ("ioctl", &[0, 1]),
    ("socket", &[0, 1, 2]),
    ("socketpair", &[0, 1, 2]),
    ("clone", &[0]),
    ("prctl", &[0]),
    ("fcntl", &[0, 1]),
    ("personality", &[0]),
    ("open", &[1, 2]),
    ("openat", &[0, 2, 3]),
    ("kill", &[0, 1]),
    ("tgkill", &[0, 1, 2]),
    ("futex", &[1]),
    ("setsockopt", &[0, 1, 2]),
    ("getsockopt", &[0, 1, 2]),
    ("keyctl", &[0]),
    ("bpf", &[0]),
    ("unshare", &[0]),
    ("setns", &[0, 1]),
];

const UPPER: u64 = 0xffff_ffff_0000_0000;

pub fn look(policy: &Policy, findings: &mut Findings) {
    let denied = numbers(&policy.syscalls.deny);
    for nr in numbers(&policy.syscalls.allow).iter().filter(|nr| denied.contains(*nr)) {
        let name = with_name(nr, |name| String::from_utf8_lossy(name).into_owned()).unwrap_or_default();
        findings.put(&codes::ALLOW_DENIED, name, "it is in syscalls.allow and in syscalls.deny");
    }
    let mut calls: BTreeMap<&str, Vec<(usize, &SyscallRule)>> = BTreeMap::new();
    for (at, rule) in policy.syscalls.rules.iter().enumerate() {
        calls.entry(&rule.syscall).or_default().push((at + 1, rule));
        halves(at + 1, rule, findings);
    }
    for (call, rules) in calls {
        let mut put = |at: usize, reason: &str| {
            findings.put(&codes::RULE_NEVER_MATCHES, format!("syscalls.rule {at} ({call})"), reason);
        };
        if matches!(number(call.as_bytes()), Number::Here(nr) if denied.contains(nr)) {
            rules.iter().for_each(|(at, _)| put(*at, "syscalls.deny denies the call"));
            continue;
        }
        let tests: Vec<Vec<Test>> = rules.iter().map(|(_, rule)| tests(rule)).collect();
        // Each rule answers with its own number, so that one that never answers is found. No rule has the number 0.
        let clauses: Vec<(&[Test], usize)> =
            tests.iter().zip(&rules).map(|(tests, (at, _))| (tests.as_slice(), *at)).collect();
        let Some(all) = Diagram::new(&clauses, 0) else {
            findings.put(&codes::TOO_COMPLEX, call, TOO_COMPLEX);
            continue;
        };
        for clause in clauses {
            let matches = |calls: &Diagram<usize>| calls.some(&[], |answer| answer == clause.1);
            if Diagram::new(&[clause], 0).is_some_and(|alone| !matches(&alone)) {
                put(clause.1, "its tests contradict each other");
            } else if !matches(&all) {
                put(clause.1, "earlier rules match everything that it could");
            }
        }
    }
}

fn tests(rule: &SyscallRule) -> Vec<Test> {
    rule.args.iter().map(|arg| Test { arg: arg.index, mask: arg.mask, op: arg.op, value: arg.value }).collect()
}

/// Finds tests that a bit above the lower 32 changes: a denial that no longer matches, or a grant that then does.
fn halves(at: usize, rule: &SyscallRule, findings: &mut Findings) {
    let Some((_, ints)) = INTS.iter().find(|(name, _)| *name == rule.syscall) else { return };
    let grants = matches!(rule.action, RuleAction::Allow | RuleAction::Log);
    let fooled = |op: Op| match op {
        Op::Eq | Op::Lt | Op::Le => !grants,
        Op::Ne | Op::Gt | Op::Ge => grants,
    };
    for test in rule.args.iter().filter(|test| ints.contains(&test.index) && test.mask & UPPER != 0) {
        if fooled(test.op) {
            let reason = format!("argument {} is an int, and the rule compares 64 bits of it", test.index);
            findings.put(&codes::INT_COMPARED_AS_64, format!("syscalls.rule {at} ({})", rule.syscall), reason);
        }
    }
}
