//! The table of kernels in docs/threat-model.md.

use super::{Seen, Variant};
use std::fmt::Write;
use std::fs;
use std::path::Path;

const INTRODUCTION: &str = "\
`make kernels` boots Debian's kernels under qemu, makes the attacks of [security-tests.md](security-tests.md) inside, and fails if an
attack gets through that the report of that run does not name as open. It wrote this table. Without Landlock, `run` refuses; the
attacks are then made with `--require-sandbox=false`. Every machine has cgroup v2: root can use it, other users only where a cgroup
is delegated to them.
";

const HEAD: &str = "| kernel | booted | user | Landlock | user namespaces | limits by | stage | attacks stopped | open, as the report says |\n\
    |---|---|---|---|---|---|---|---|---|\n";

/// The rows of a variant: one for root, one for nobody.
pub fn row(variant: &Variant, seen: &Seen) -> String {
    let mut text = String::new();
    for user in seen.users() {
        let (status, detail) = seen.doctor(user, "landlock");
        let landlock = match status {
            "unavailable" => "refused",
            _ => detail.split(',').next().unwrap_or(detail),
        };
        let namespaces = if seen.doctor(user, "user namespaces").0 == "available" { "yes" } else { "no" };
        let enforced = seen.of("limits", user).iter().all(|limits| limits["memory"][0] == "enforced");
        let stage = seen.of("stage", user).first().and_then(|stage| stage["means"].as_str()).unwrap_or("-");
        let (mut tried, mut through) = (0, 0);
        let mut names: Vec<&str> = Vec::new();
        for attacks in seen.of("attacks", user) {
            tried += attacks["tried"].as_u64().expect("a number");
            for one in attacks["through"].as_array().expect("a list") {
                through += 1;
                names.push(one[1].as_str().expect("text"));
            }
        }
        names.sort_unstable();
        names.dedup();
        let open = match names.len() {
            0 => "nothing".to_owned(),
            many @ 13.. => format!("{many} attacks, most of them on files"),
            _ => names.join(", "),
        };
        let _ = writeln!(
            text,
            "| {} | {} | {user} | {landlock} | {namespaces} | {} | {stage} | {} of {tried} | {open} |",
            variant.kernel,
            variant.name,
            if enforced { "kernel" } else { "supervisor" },
            tried - through,
        );
    }
    text
}

/// Writes the table between its marks in docs/threat-model.md.
pub fn write(which: &str, rows: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/threat-model.md");
    let text = fs::read_to_string(&path).expect("docs/threat-model.md is there");
    let introduction = if which == "x86_64" { INTRODUCTION } else { "The same on aarch64, by `make aarch64`:\n" };
    let (begin, end) = (format!("<!-- {which}: written by make kernels -->\n"), "<!-- up to here -->\n");
    let (before, rest) = text.split_once(&begin).expect("the mark where the table begins");
    let (_, after) = rest.split_once(end).expect("the mark where it ends");
    fs::write(&path, format!("{before}{begin}{introduction}\n{HEAD}{rows}{end}{after}"))
        .expect("the docs are writable");
}
