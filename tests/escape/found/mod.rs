//! Holes that attackers found in earlier versions, each with the tests that hold it closed now. Most of them take two
//! runs: the first plants something in a tree that it may write, the second must not trust it.
//!
//! docs/security-tests.md lists them by severity; the list there is written from these constants.

mod descriptors;
mod mounts;
mod paths;
mod patterns;
mod preload;
mod races;
mod shut;
mod supervisor;

use std::fmt::Write;
use std::fs;
use std::path::Path;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Critical,
    High,
    Medium,
    Low,
}

/// One way out that worked once.
pub struct Hole {
    pub severity: Severity,
    /// What the attacker does.
    pub attack: &'static str,
    /// What it reached when it worked.
    pub reached: &'static str,
    /// The test functions of the same file that now hold it.
    pub held_by: &'static [&'static str],
}

const AREAS: [(&str, &[Hole], &str); 8] = [
    ("descriptors", descriptors::HOLES, include_str!("descriptors.rs")),
    ("mounts", mounts::HOLES, include_str!("mounts.rs")),
    ("paths", paths::HOLES, include_str!("paths.rs")),
    ("patterns", patterns::HOLES, include_str!("patterns.rs")),
    ("preload", preload::HOLES, include_str!("preload.rs")),
    ("races", races::HOLES, include_str!("races.rs")),
    ("shut", shut::HOLES, include_str!("shut.rs")),
    ("supervisor", supervisor::HOLES, include_str!("supervisor.rs")),
];

const FROM: &str = "<!-- found holes: written by the tests, UPDATE_DOCS=1 -->\n";
const TO: &str = "<!-- end of found holes -->\n";

#[test]
fn every_hole_names_a_test_that_exists() {
    for (area, holes, source) in AREAS {
        for hole in holes {
            assert!(!hole.held_by.is_empty(), "{area}: nothing holds {:?}", hole.attack);
            for test in hole.held_by {
                assert!(source.contains(&format!("#[test]\nfn {test}()")), "{area}: there is no test {test}");
            }
        }
    }
}

#[test]
fn the_document_lists_every_hole_by_severity() {
    let mut holes: Vec<(&str, &Hole)> =
        AREAS.iter().flat_map(|(area, holes, _)| holes.iter().map(move |hole| (*area, hole))).collect();
    holes.sort_by_key(|(area, hole)| (hole.severity, *area));
    let count = |severity| holes.iter().filter(|(_, hole)| hole.severity == severity).count();
    let mut text = format!(
        "\n{} holes were found by attacking earlier versions from outside: {} critical, {} high, {} medium, {} low.\n\n",
        holes.len(),
        count(Severity::Critical),
        count(Severity::High),
        count(Severity::Medium),
        count(Severity::Low)
    );
    text.push_str("| severity | attack | reached | test in `tests/escape/found` |\n|---|---|---|---|\n");
    for (area, hole) in holes {
        let severity = format!("{:?}", hole.severity).to_lowercase();
        let tests: Vec<String> = hole.held_by.iter().map(|test| format!("`{area}::{test}`")).collect();
        let _ = writeln!(text, "| {severity} | {} | {} | {} |", hole.attack, hole.reached, tests.join(", "));
    }
    text.push('\n');
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/security-tests.md");
    let document = fs::read_to_string(&path).expect("the document");
    let (before, rest) = document.split_once(FROM).expect("the first mark");
    let (written, after) = rest.split_once(TO).expect("the last mark");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, format!("{before}{FROM}{text}{TO}{after}")).expect("the document can be written");
    } else {
        assert_eq!(written, text, "UPDATE_DOCS=1 writes the list again");
    }
}
