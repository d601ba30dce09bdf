//! `gatekeeper doctor`: findings as a table or as JSON.

use super::args::DoctorArgs;
use super::harmless;
use crate::doctor::{Finding, Status, examine};
use std::fmt::Write as _;
use std::io::{self, Write as _};

pub fn main(args: &DoctorArgs) -> u8 {
    let findings = examine();
    let text = if args.json {
        format!("{:#}\n", serde_json::json!({"schema": 1, "layers": findings}))
    } else {
        findings.iter().map(shown).collect()
    };
    let _ = io::stdout().write_all(text.as_bytes());
    u8::from(findings.iter().any(|finding| finding.status != Status::Available))
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
