//! Policies in other formats and back: container profiles, filter files, colon lists; and filters compared with
//! policies.

mod compile;
mod differential;
mod oracle;
mod profiles;
mod refusals;
mod words;

use crate::support;
use gatekeeper::policy::{Document, Policy};
use std::path::{Path, PathBuf};

fn resolve(document: Document) -> Policy {
    Policy::resolve(document).expect("the policy holds")
}

fn policy(toml: &str) -> Policy {
    resolve(gatekeeper::policy::parse(toml.as_bytes(), Path::new("policy.toml")).expect("the policy is right"))
}

/// A policy file in a new directory.
fn file(toml: &str) -> PathBuf {
    let path = support::fresh("policy").join("policy.toml");
    std::fs::write(&path, toml).expect("own directory");
    path
}

/// Docker's default profile, unchanged.
fn docker() -> Vec<u8> {
    include_bytes!("docker-default.json").to_vec()
}

/// podman's default profile, if it is installed.
fn podman() -> Option<Vec<u8>> {
    let found = std::fs::read("/usr/share/containers/seccomp.json").ok();
    if found.is_none() {
        support::skip(
            "/usr/share/containers/seccomp.json does not exist (Debian package: golang-github-containers-common)",
        );
    }
    found
}
