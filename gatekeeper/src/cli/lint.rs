//! `gatekeeper lint`: prints what is wrong with a policy file.

use super::args::LintArgs;
use super::{failed, harmless, output::print};
use crate::lint::{Finding, Scene, every_mistake, lint};
use crate::policy::{self, Policy};
use crate::trust::Hostile;

const EXIT_FINDINGS: u8 = 1;

pub fn main(args: &LintArgs) -> u8 {
    let scene = match Scene::here() {
        Ok(scene) => scene,
        Err(error) => return failed(format_args!("cannot determine the working directory: {error}")),
    };
    let (findings, error) = match policy::load(&args.policy).and_then(Policy::resolve) {
        Ok(policy) => (lint(&policy, &scene), None),
        Err(error) => {
            let bytes = policy::read(&args.policy, None, &Hostile::here()).map(|(bytes, _)| bytes).unwrap_or_default();
            (every_mistake(&String::from_utf8_lossy(&bytes)), Some(error))
        }
    };
    let text = if args.json {
        let error = error.as_ref().map(ToString::to_string);
        let policy = args.policy.to_string_lossy();
        let document = serde_json::json!({"schema": 1, "policy": policy, "findings": findings, "error": error});
        format!("{document:#}\n")
    } else {
        findings.iter().map(|finding| paragraph(&args.policy.to_string_lossy(), finding)).collect()
    };
    match (print(&text), error) {
        (0, Some(error)) => failed(error),
        (0, None) if findings.is_empty() => 0,
        (0, None) => EXIT_FINDINGS,
        (code, _) => code,
    }
}

fn paragraph(file: &str, finding: &Finding) -> String {
    let Finding { code, severity, subject, reason, fix } = finding;
    let line = format!("{file}: {} {code}: {subject}: {reason}", severity.word());
    // Paths come from the policy or from the disk and may contain anything.
    format!("{}\n    fix: {}\n", harmless(&line), harmless(fix))
}
