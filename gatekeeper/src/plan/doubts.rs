//! What a policy names in vain: paths that are not there, ports of a network that is off. Each is legal and most likely
//! a mistake, and a mistake in a denial is a hole; so each gets one warning that names it and the next step.

use super::paths::{Places, Tree};
use crate::policy::{NetworkMode, Policy};
use std::path::PathBuf;

/// The warnings, one for each kind of mistake.
pub fn doubts(policy: &Policy, network: &NetworkMode, places: &Places, tree: &dyn Tree) -> Vec<String> {
    let mut doubts = Vec::new();
    let missing = |paths: &[PathBuf]| -> Vec<String> {
        let named = paths.iter().filter(|path| !is_pattern(path));
        let gone = named.filter(|path| tree.resolve(&places.absolute(path)).is_none());
        gone.map(|path| path.display().to_string()).collect()
    };
    for (flag, paths, why) in [
        (
            "--deny-path",
            &policy.paths.deny,
            "not there, so there is nothing to close, now or when it is made later; check the spelling",
        ),
        ("--write", &policy.paths.write, "not there, so nothing is granted; make it before the run"),
        ("--read", &policy.paths.also_read, "not there, so nothing is granted; check the spelling"),
        (
            "--unix",
            &policy.network.unix,
            "no socket is there, so nothing is granted; start what listens on it before the run",
        ),
    ] {
        let gone = missing(paths);
        if !gone.is_empty() {
            doubts.push(format!("{flag} {}: {why}", gone.join(" ")));
        }
    }
    if *network == NetworkMode::None && !policy.network.ports.is_empty() {
        let ports: Vec<String> = policy.network.ports.iter().map(u16::to_string).collect();
        doubts.push(format!(
            "--port {}: there is no network, so no port is reached; add --net loopback or --profile network",
            ports.join(" ")
        ));
    }
    doubts
}

/// Patterns match what is there, and need match nothing.
fn is_pattern(path: &std::path::Path) -> bool {
    path.to_string_lossy().contains(['*', '?', '['])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::disk::Disk;
    use crate::policy::Document;

    fn of(change: impl FnOnce(&mut Document)) -> Vec<String> {
        let mut document = Document::default();
        change(&mut document);
        let policy = Policy::resolve(document).expect("a sound policy");
        let places = Places { home: None, cwd: "/".into(), tmp: None };
        doubts(&policy, &policy.network_mode(), &places, &Disk)
    }

    #[test]
    fn what_is_named_in_vain_is_named_in_a_warning() {
        assert_eq!(of(|_| {}), [""; 0]);
        let denied = of(|document| document.paths.deny = vec!["/etc".into(), "/no-such".into(), "nor/this".into()]);
        assert_eq!(denied.len(), 1, "{denied:?}");
        assert!(denied[0].starts_with("--deny-path /no-such nor/this: not there"), "{denied:?}");
        let all = of(|document| {
            document.paths.write = vec!["/no-such".into()];
            document.paths.also_read = vec!["/no-such".into()];
            document.network.unix = vec!["/no-such".into()];
            document.network.ports = vec![80, 443];
        });
        let begins: Vec<&str> = all.iter().filter_map(|doubt| doubt.split(':').next()).collect();
        assert_eq!(begins, ["--write /no-such", "--read /no-such", "--unix /no-such", "--port 80 443"]);
    }

    #[test]
    fn what_is_there_and_what_is_used_gives_none() {
        let none = of(|document| {
            document.paths.write = vec!["/tmp".into()];
            document.paths.also_read = vec!["etc".into()];
            document.network.mode = Some(NetworkMode::Loopback);
            document.network.ports = vec![80];
        });
        assert_eq!(none, [""; 0]);
    }
}
