//! Lint: finds what a policy leaves open, contradictions, and settings without effect. Takes a policy and the place where
//! it will be used, and returns findings, each with a code, a severity, the reason and the fix. Changes nothing.

mod broken;
mod codes;
mod filesystem;
mod requests;
mod rules;
mod settings;
mod syscalls;

pub use broken::every_mistake;
pub use codes::{CODES, Code, Severity, documentation};

use crate::plan::disk::Disk;
use crate::plan::paths::{Places, Tree};
use crate::policy::Policy;
use serde::Serialize;
use std::ffi::OsString;
use std::path::PathBuf;

/// The reason of `too_complex`, which is found in two ways but said once.
const TOO_COMPLEX: &str = "its rules are too intricate to tell what they let through";

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub code: &'static str,
    pub severity: Severity,
    /// The key, syscall or path that the finding is about.
    pub subject: String,
    pub reason: String,
    pub fix: String,
}

/// Where the policy will be used.
#[derive(Debug, Clone)]
pub struct Scene {
    pub places: Places,
    /// The caller's PATH.
    pub path: Option<OsString>,
    /// The caller's XDG_RUNTIME_DIR, which holds the sockets of the session.
    pub runtime: Option<PathBuf>,
    /// The caller's SSH_AUTH_SOCK.
    pub ssh_agent: Option<PathBuf>,
}

impl Scene {
    /// The working directory and the environment of this process.
    pub fn here() -> std::io::Result<Scene> {
        let variable = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        Ok(Scene {
            places: Places {
                home: variable("HOME").or_else(|| Disk.homes().own.into_iter().next()),
                cwd: std::env::current_dir()?,
                tmp: None,
                also_written: Vec::new(),
                staged: false,
                copy: None,
            },
            path: std::env::var_os("PATH"),
            runtime: variable("XDG_RUNTIME_DIR"),
            ssh_agent: variable("SSH_AUTH_SOCK"),
        })
    }
}

/// All findings, the most severe first.
pub fn lint(policy: &Policy, scene: &Scene) -> Vec<Finding> {
    let mut findings = Findings::default();
    settings::look(policy, &mut findings);
    syscalls::look(policy, scene, &mut findings);
    rules::look(policy, &mut findings);
    requests::look(policy, &mut findings);
    filesystem::look(policy, scene, &mut findings);
    findings.0.sort_by_key(|finding| finding.severity);
    findings.0
}

#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn put(&mut self, code: &'static Code, subject: impl Into<String>, reason: impl Into<String>) {
        let (subject, reason) = (subject.into(), reason.into());
        let finding = Finding { code: code.code, severity: code.severity, subject, reason, fix: code.fix.to_owned() };
        if !self.0.contains(&finding) {
            self.0.push(finding);
        }
    }
}
