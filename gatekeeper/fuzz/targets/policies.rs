//! Fuzzes policy files: a policy survives printing and parsing, the filter matches it, and errors are safe to print.

use gatekeeper::oci::{self, Surroundings};
use gatekeeper::plan::table::{Answers, Table};
use gatekeeper::policy::{Document, Policy, drives_terminal, parse};
use sandbox_contract::bpf::{self, AUDIT_ARCH};
use std::path::Path;

pub fn toml(bytes: &[u8]) {
    policy(bytes, "policy.toml");
}

pub fn json(bytes: &[u8]) {
    policy(bytes, "policy.json");
}

fn policy(bytes: &[u8], name: &str) {
    let document = match parse(bytes, Path::new(name)) {
        Ok(document) => document,
        Err(error) => return is_printable(&error.to_string()),
    };
    if let Ok(text) = document.to_toml() {
        let again = parse(text.as_bytes(), Path::new("policy.toml"));
        assert_eq!(again.unwrap_or_else(|error| panic!("{error}\n{text}")), document, "{text}");
    }
    enforced(document);
}

/// A container engine's profile: exporting the imported policy and importing that again gives the same decisions.
pub fn oci(bytes: &[u8]) {
    let surroundings = Surroundings { caps: vec!["CAP_SYS_ADMIN".to_owned()], kernel: (6, 1) };
    let imported = match oci::import(bytes, &surroundings) {
        Ok(imported) => imported,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let Some((policy, table)) = enforced(imported.document) else { return };
    let Ok(profile) = oci::export(&table, policy.on_violation) else { return };
    let text = serde_json::to_vec(&profile).expect("it is JSON");
    let again = oci::import(&text, &surroundings).expect("our own profile").document;
    let again = Policy::resolve(again).expect("our own profile");
    let meaning =
        |policy: &Policy, nr| Answers::new(policy.on_violation, false).of(Table::alone(policy).decide(nr, &[0; 6]));
    for nr in (0..470).step_by(7) {
        assert_eq!(meaning(&policy, nr), meaning(&again, nr), "number {nr}");
    }
}

/// The filter gives the answers of the table.
fn enforced(document: Document) -> Option<(Policy, Table)> {
    let policy = match Policy::resolve(document) {
        Ok(policy) => policy,
        Err(error) => {
            is_printable(&error.to_string());
            return None;
        }
    };
    let table = Table::alone(&policy);
    let answers = Answers::new(policy.on_violation, false);
    if let Ok(program) = table.program(&answers, None) {
        for nr in (0..600).chain([1023, 1024]) {
            for args in [[0; 6], [1; 6], [u64::MAX; 6]] {
                let answer = bpf::simulate(&program, AUDIT_ARCH, nr, &args);
                assert_eq!(answer, Some(answers.of(table.decide(nr, &args))), "number {nr}");
            }
        }
    }
    Some((policy, table))
}

/// An error message is not empty and contains no control sequence from the file.
fn is_printable(text: &str) {
    assert!(!text.is_empty());
    assert!(!text.chars().any(|letter| letter != '\n' && drives_terminal(letter)), "{text:?}");
}
