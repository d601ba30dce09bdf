//! Generates the tables of docs/security-tests.md from the results, and compares them with the file.

use super::{Attack, Delivery, KERNEL, PROFILES, ROOT, Record, attacks, deliveries};
use crate::run::users;
use crate::support::skip;
use std::fmt::Write;
use std::fs;
use std::path::Path;

const BEGIN: &str = "<!-- from here on written by the tests: UPDATE_DOCS=1 -->\n";
const END: &str = "<!-- up to here -->\n";

const THEMES: [(&str, &str); 8] = [
    ("entry", "Other ways into the kernel, and attempts to loosen the filter"),
    ("others", "Other processes and the supervisor"),
    ("files", "Files"),
    ("kernel", "The machine"),
    ("network", "Sockets"),
    ("programs", "Programs, and what they inherit"),
    ("races", "Races"),
    ("addresses", "Addresses: `--net loopback` with one port granted"),
];

/// Fails if the file differs from the results. With UPDATE_DOCS=1, writes the file instead.
pub fn compare(record: &Record) {
    if users().len() < 2 || deliveries().len() < 3 || !cfg!(target_arch = "x86_64") {
        return skip("docs/security-tests.md is compared only as root, on x86_64, and if bubblewrap works");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/security-tests.md");
    let text = fs::read_to_string(&path).expect("docs/security-tests.md is there");
    let (before, rest) = text.split_once(BEGIN).expect("the mark where the tables begin");
    let (said, after) = rest.split_once(END).expect("the mark where they end");
    let seen = tables(record);
    if std::env::var_os("UPDATE_DOCS").is_some_and(|value| value == "1") {
        fs::write(&path, format!("{before}{BEGIN}{seen}{END}{after}")).expect("the docs are writable");
        return;
    }
    let differs: Vec<String> = seen
        .lines()
        .filter(|line| !said.lines().any(|known| known == *line))
        .map(|line| format!("seen: {line}"))
        .chain(said.lines().filter(|line| !seen.lines().any(|now| now == *line)).map(|line| format!("said: {line}")))
        .collect();
    assert!(said == seen, "docs/security-tests.md says something else:\n{}", differs.join("\n"));
}

fn tables(record: &Record) -> String {
    let mut text = String::new();
    let stopped = record.0.values().filter(|result| !["granted", "open", "not claimed"].contains(&result.as_str()));
    let count = |what: &str| record.0.values().filter(|result| *result == what).count();
    let _ = writeln!(
        text,
        "\n{} attacks, tried {} times: {} stopped, {} granted by the profile, {} open. {} times libsandbox.so alone makes no claim.",
        attacks().len(),
        record.0.len() - count("not claimed"),
        stopped.count(),
        count("granted"),
        count("open"),
        count("not claimed"),
    );
    for (theme, title) in THEMES {
        let _ = writeln!(text, "\n## {title}\n");
        let rows: Vec<&Attack> = attacks().iter().filter(|attack| attack.theme == theme).collect();
        if theme == "addresses" {
            text.push_str("| attack | tries to | open to | before exec | in bubblewrap |\n|---|---|---|---|---|\n");
        } else {
            let profiles = PROFILES.join(" | ");
            let _ = writeln!(text, "| attack | tries to | open to | {profiles} | in bubblewrap | libsandbox.so |");
            let _ = writeln!(text, "{}|", "|---".repeat(5 + PROFILES.len()));
        }
        for attack in rows {
            let columns: Vec<usize> = if theme == "addresses" { vec![0] } else { (0..PROFILES.len()).collect() };
            let mut cells: Vec<String> =
                columns.iter().map(|column| cell(record, attack, Delivery::BeforeExec, &[*column])).collect();
            cells.push(cell(record, attack, Delivery::Bubblewrap, &columns));
            if theme != "addresses" {
                cells.push(cell(record, attack, Delivery::Preload, &columns));
            }
            let _ =
                writeln!(text, "| {} | {} | {} | {} |", attack.name, attack.text, open_to(attack), cells.join(" | "));
        }
    }
    text.push('\n');
    text
}

fn open_to(attack: &Attack) -> &'static str {
    match (attack.is(ROOT), attack.is(KERNEL)) {
        (false, false) => "anyone",
        (true, false) => "root",
        (false, true) => "anyone*",
        (true, true) => "root*",
    }
}

/// The results of these columns, without repetitions. Results for root and other users are merged if equal.
fn cell(record: &Record, attack: &Attack, delivery: Delivery, columns: &[usize]) -> String {
    let seen = |column: usize, nobody: bool| {
        let key = (attack.name.clone(), delivery, column, nobody);
        word(attack, record.0.get(&key).unwrap_or_else(|| panic!("{key:?}")))
    };
    let mut words: Vec<String> = Vec::new();
    for column in columns {
        let (root, other) = (seen(*column, false), seen(*column, true));
        let word = if root == other { root } else { format!("root {root}, other {other}") };
        if !words.contains(&word) {
            words.push(word);
        }
    }
    words.join("; ")
}

fn word(attack: &Attack, result: &str) -> String {
    match result {
        "nothing" => "no effect".to_owned(),
        // Whether the file exists depends on the machine.
        "ENOENT" | "ENOTTY" | "EACCES" if attack.is(KERNEL) => "EACCES or absent".to_owned(),
        other => other.to_owned(),
    }
}
