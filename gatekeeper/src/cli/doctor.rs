//! `gatekeeper doctor`: prints its findings as a table or as JSON.

use super::args::DoctorArgs;
use super::{failed, harmless, output::print};
use crate::doctor::{Finding, Status, examine};
use crate::sys::interrupt;
use std::fmt::Write as _;

pub fn main(args: &DoctorArgs) -> u8 {
    // Some tries make files or start processes, which a signal must not leave behind.
    if let Err(error) = interrupt::watch() {
        return failed(format_args!("doctor: {error}"));
    }
    let findings = examine();
    if let Some(signal) = interrupt::arrived() {
        interrupt::end_by(signal);
    }
    let text = if args.json {
        format!("{:#}\n", serde_json::json!({"schema": 1, "layers": findings}))
    } else {
        findings.iter().map(shown).collect()
    };
    match print(&text) {
        0 => u8::from(findings.iter().any(|finding| finding.status != Status::Available)),
        code => code,
    }
}

fn shown(finding: &Finding) -> String {
    let mut text = format!("{:18} {:12} {}\n", finding.layer, finding.status.word(), harmless(&finding.detail));
    let rest = [("cause", finding.cause.as_deref()), ("lost", finding.lost), ("fix", finding.fix.as_deref())];
    for (name, value) in rest {
        if let Some(value) = value {
            let _ = writeln!(text, "{:18} {name}: {}", "", harmless(value));
        }
    }
    text
}
