//! Finds every wrong syscall name in a policy. Reading a policy stops at the first error, so a policy with several wrong
//! names would otherwise need a run of lint for each.

use super::{Finding, Findings, codes};
use crate::policy::{ValueError, values};

/// Every wrong syscall name in the text of a policy, TOML or JSON. Empty if the text has no syscalls.
pub fn every_mistake(text: &str) -> Vec<Finding> {
    let mut findings = Findings::default();
    let root: Option<serde_json::Value> = toml::from_str(text).ok().or_else(|| serde_json::from_str(text).ok());
    let Some(syscalls) = root.as_ref().and_then(|root| root.get("syscalls")) else { return Vec::new() };
    for key in ["allow", "deny"] {
        let lists = match syscalls.get(key) {
            Some(serde_json::Value::Array(items)) => items.iter().collect(),
            Some(one) => vec![one],
            None => Vec::new(),
        };
        for name in lists.into_iter().filter_map(serde_json::Value::as_str).flat_map(|list| list.split(':')) {
            judge(&format!("syscalls.{key}"), name, values::syscalls(name).map(drop), &mut findings);
        }
    }
    let rules = syscalls.get("rule").and_then(serde_json::Value::as_array);
    for name in rules.into_iter().flatten().filter_map(|rule| rule.get("syscall")?.as_str()) {
        judge("syscalls.rule", name, values::syscall(name).map(drop), &mut findings);
    }
    findings.0
}

fn judge(key: &str, name: &str, answer: Result<(), ValueError>, findings: &mut Findings) {
    let Err(error) = answer else { return };
    let code =
        if matches!(error, ValueError::NoNumber { .. }) { &codes::PSEUDO_SYSCALL } else { &codes::UNKNOWN_SYSCALL };
    findings.put(code, format!("{key}: {}", name.escape_default()), error.to_string());
}
