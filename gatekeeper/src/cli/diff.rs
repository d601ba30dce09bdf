//! `gatekeeper diff`: prints what one policy allows that another does not.

use super::args::DiffArgs;
use super::{failed, harmless, write_out};
use crate::diff::{Change, diff};
use crate::policy::{self, Document, Policy, PolicyError, values};
use std::path::Path;

const EXIT_DIFFERENT: u8 = 1;

pub fn main(args: &DiffArgs) -> u8 {
    let (a, b) = match (policy(&args.first), policy(&args.second)) {
        (Ok(a), Ok(b)) => (a, b),
        (Err(error), _) | (_, Err(error)) => return failed(format_args!("policy: {error}")),
    };
    let found = diff(&a, &b);
    let (first, second) = (args.first.to_string_lossy(), args.second.to_string_lossy());
    let text = if args.json {
        let document = serde_json::json!({"schema": 1, "a": first, "b": second, "same": found.same(),
            "more": found.more, "less": found.less, "other": found.other, "unknown": found.unknown});
        format!("{document:#}\n")
    } else if found.same() == Some(true) {
        format!("{} and {} are equivalent\n", harmless(&first), harmless(&second))
    } else {
        let part = |title: &str, changes: &[Change]| match changes {
            [] => String::new(),
            changes => {
                let lines =
                    changes.iter().map(|change| format!("    {}: {}\n", harmless(change.key), harmless(&change.what)));
                format!("{title}\n{}", lines.collect::<String>())
            }
        };
        let (first, second) = (harmless(&first), harmless(&second));
        let more = part(&format!("{second} allows more than {first}:"), &found.more);
        let less = part(&format!("{second} allows less than {first}:"), &found.less);
        more + &less + &part("other changes:", &found.other) + &part("too intricate to compare:", &found.unknown)
    };
    match (write_out(None, text.as_bytes()), found.same()) {
        (0, Some(false)) => EXIT_DIFFERENT,
        (0, None) => failed("diff: some rules are too intricate to compare, and nothing else differs"),
        (code, _) => code,
    }
}

/// Loads a policy file or, if there is no such file, the profile of that name.
fn policy(name: &Path) -> Result<Policy, PolicyError> {
    let profile = name.to_str().filter(|_| !name.exists()).and_then(|text| values::profiles(text).ok());
    match profile {
        Some(profile) => Policy::resolve(Document { profile: Some(profile), ..Document::default() }),
        None => policy::load(name).and_then(Policy::resolve),
    }
}
