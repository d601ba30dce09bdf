//! The table of kernels in docs/threat-model.md.

use super::{Seen, Variant};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;

const INTRODUCTION: &str = "\
`make kernels` boots Debian's kernels under qemu, makes the attacks of [security-tests.md](security-tests.md) inside, and fails if an
attack gets through that the report of that run does not name as open. It wrote this table. \"As it is\", attacks are made under all
profiles, and the corpus of the profiles and the fault table of the tests run too; otherwise under `minimal` and `write+network`.
Without Landlock, `run` refuses; the attacks are then made with `--require-sandbox=false`. Every machine has cgroup v2: root can use
it, other users only where a cgroup is delegated to them. AppArmor as on Ubuntu 24.04: a policy that denies every capability, so that
user namespaces can be created, but not used; Ubuntu's own kernel was not booted.
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
        let mut open: BTreeSet<(&str, &str)> = BTreeSet::new();
        for attacks in seen.of("attacks", user) {
            tried += attacks["tried"].as_u64().expect("a number");
            for one in attacks["through"].as_array().expect("a list") {
                through += 1;
                open.insert((one[0].as_str().expect("text"), one[1].as_str().expect("text")));
            }
        }
        let _ = writeln!(
            text,
            "| {} | {} | {user} | {landlock} | {namespaces} | {} | {stage} | {} of {tried} | {} |",
            variant.kernel,
            variant.name,
            if enforced { "kernel" } else { "supervisor" },
            tried - through,
            named(&open),
        );
    }
    text
}

/// Attacks by name, those whose names begin alike together; many of them by theme.
fn named(attacks: &BTreeSet<(&str, &str)>) -> String {
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (theme, name) in attacks {
        let group = if attacks.len() > 20 { theme } else { name.split('-').next().unwrap_or(name) };
        groups.entry(group).or_default().push(name);
    }
    let shown = groups.iter().map(|(group, names)| match &names[..] {
        [name] => (*name).to_owned(),
        many if attacks.len() > 20 => format!("{} of {group}", many.len()),
        many => format!("{} of {group}-*", many.len()),
    });
    if attacks.is_empty() { "nothing".to_owned() } else { shown.collect::<Vec<_>>().join(", ") }
}

/// Writes the table between its marks in docs/threat-model.md.
pub fn write(which: &str, rows: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/threat-model.md");
    let text = fs::read_to_string(&path).expect("docs/threat-model.md is there");
    let introduction = if which == "x86_64" {
        INTRODUCTION
    } else {
        "The same on aarch64, by `make aarch64`; 6.1 under `minimal` and `write+network` only:\n"
    };
    let (begin, end) = (format!("<!-- {which}: written by make kernels -->\n"), "<!-- up to here -->\n");
    let (before, rest) = text.split_once(&begin).expect("the mark where the table begins");
    let (_, after) = rest.split_once(end).expect("the mark where it ends");
    fs::write(&path, format!("{before}{begin}{introduction}\n{HEAD}{rows}{end}{after}"))
        .expect("the docs are writable");
}
