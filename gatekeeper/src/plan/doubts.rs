//! Warnings about a policy that is legal and most likely a mistake: paths that do not exist, ports without a network, a
//! network that an allow list opens. Each warning names the setting and the next step.

use super::Plan;
use super::paths::{PathPlan, Places, Tree, plain};
use super::table::numbers;
use crate::policy::{Isolate, NetworkMode, Policy};
use std::path::{Path, PathBuf};

/// One warning for each setting that has no effect.
pub fn doubts(policy: &Policy, network: &NetworkMode, places: &Places, tree: &dyn Tree) -> Vec<String> {
    let mut doubts = Vec::new();
    let denied = plain(policy);
    for (flag, key, paths, why) in [
        (
            "--deny-path",
            "paths.deny",
            &denied,
            "does not exist, so nothing is denied, not even if it is created later; check the spelling",
        ),
        (
            "--write",
            "paths.write",
            &policy.paths.write,
            "does not exist, so nothing is granted; create it before the run",
        ),
        (
            "--read",
            "paths.also_read",
            &policy.paths.also_read,
            "does not exist, so nothing is granted; check the spelling",
        ),
        (
            "--unix",
            "network.unix",
            &policy.network.unix,
            "no such socket, so nothing is granted; start its server before the run",
        ),
    ] {
        // What cannot be seen is denied with the directory that hides it.
        let is_shut = |path: &Path| key == "paths.deny" && tree.shut(path).is_some();
        let gone = paths.iter().filter(|path| {
            let path = places.absolute(path);
            tree.resolve(&path).is_none() && !is_shut(&path)
        });
        let gone: Vec<String> = gone.map(|path| path.display().to_string()).collect();
        if !gone.is_empty() {
            doubts.push(format!("{} {}: {why}", name(policy, flag, key), gone.join(" ")));
        }
    }
    if *network == NetworkMode::None && !policy.network.ports.is_empty() {
        let ports: Vec<String> = policy.network.ports.iter().map(u16::to_string).collect();
        doubts.push(format!(
            "{} {}: there is no network, so no port can be reached; add --net loopback or --profile network",
            name(policy, "--port", "network.ports"),
            ports.join(" ")
        ));
    }
    doubts
}

/// The warning about writable paths in a protected directory, which stay read-only with it.
pub fn held(policy: &Policy, paths: &PathPlan, places: &Places, tree: &dyn Tree) -> Option<String> {
    let holds = |path: &PathBuf| {
        let path = tree.resolve(&places.absolute(path))?;
        let mut above = paths.protected.iter().filter(|place| path.starts_with(place) && **place != path);
        Some((path.clone(), above.next()?))
    };
    let mut named = policy.paths.write.iter().filter(|_| !paths.protected.is_empty());
    let (path, directory) = named.find_map(holds)?;
    Some(format!(
        "{} {}: stays read-only, because {} is protected; name that directory to write in it",
        name(policy, "--write", "paths.write"),
        path.display(),
        directory.display()
    ))
}

/// The warning about deny patterns that match nothing.
pub fn unmatched(policy: &Policy, patterns: &[PathBuf]) -> Option<String> {
    let shown: Vec<String> = patterns.iter().map(|pattern| pattern.display().to_string()).collect();
    (!shown.is_empty()).then(|| {
        format!(
            "{} {}: matches nothing, so nothing is denied, not even if a match is created later; check the spelling",
            name(policy, "--deny-path", "paths.deny"),
            shown.join(" ")
        )
    })
}

/// The warning about network mode `none` with an allow list or a rule that grants internet sockets all the same.
pub fn network_opened(plan: &Plan) -> Option<String> {
    let syscalls = &plan.policy.syscalls;
    // The common case first: building the table takes longer than the rest of this function.
    if syscalls.allow.is_empty() && syscalls.rules.is_empty() || !plan.opened_by_list() {
        return None;
    }
    let opens = |item: &&String| {
        let granted = numbers(std::slice::from_ref(*item));
        [libc::SYS_socket, libc::SYS_connect].iter().any(|call| granted.contains(*call as u16))
    };
    let items: Vec<&str> = syscalls.allow.iter().filter(opens).map(String::as_str).collect();
    let by = match items.as_slice() {
        [] => "syscalls.rule".to_owned(),
        items => format!("{} {}", name(&plan.policy, "--allow", "syscalls.allow"), items.join(" ")),
    };
    let unless = match plan.policy.bubblewrap.isolate {
        Isolate::Preferred => ", unless bubblewrap isolates it",
        _ => "",
    };
    Some(format!(
        "{by}: grants internet sockets, so the command can reach the network although the network mode is none{unless}; \
         remove it to close the network, or limit it with --net loopback or --net hosts=HOST"
    ))
}

/// The flag, or the key if the policy comes from a file. Flags given together with a file add to the same key.
fn name(policy: &Policy, flag: &'static str, key: &'static str) -> &'static str {
    if policy.sources.is_empty() { flag } else { key }
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
        let places =
            Places { home: None, cwd: "/".into(), tmp: None, also_written: Vec::new(), staged: false, copy: None };
        doubts(&policy, &policy.network_mode(), &places, &Disk)
    }

    #[test]
    fn what_is_named_in_vain_is_named_in_a_warning() {
        assert_eq!(of(|_| {}), [""; 0]);
        let denied = of(|document| document.paths.deny = vec!["/etc".into(), "/no-such".into(), "nor/this".into()]);
        assert_eq!(denied.len(), 1, "{denied:?}");
        assert!(denied[0].starts_with("--deny-path /no-such nor/this: does not exist"), "{denied:?}");
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
    fn what_a_file_names_in_vain_is_named_by_its_key() {
        let all = of(|document| {
            document.sources = vec!["/etc/policy.toml".into()];
            document.paths.deny = vec!["/no-such".into(), "*.no-such".into(), r"star\*".into()];
            document.paths.write = vec!["/no-such".into()];
            document.paths.also_read = vec!["/no[such]".into()];
            document.network.unix = vec!["/no-such".into()];
            document.network.ports = vec![80];
        });
        let begins: Vec<&str> = all.iter().filter_map(|doubt| doubt.split(':').next()).collect();
        let expected = [
            "paths.deny /no-such star*",
            "paths.write /no-such",
            "paths.also_read /no[such]",
            "network.unix /no-such",
            "network.ports 80",
        ];
        assert_eq!(begins, expected);
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
