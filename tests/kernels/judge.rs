//! Decides whether what a machine printed is as it should be.

use super::{Seen, Variant};
use serde_json::Value;

/// Attacks that may get through where Landlock is there, and what the report of that run must say for it: words of the detail of
/// the layer, which is then partial. A name that ends with `*` stands for all that begin so.
const PARTIAL: &[(&str, &str)] = &[
    ("signal-*", "signals and abstract sockets"),
    ("hook-*", "stays writable"),
    ("config-*", "stays writable"),
    ("read-env-file", "stays readable and writable"),
    ("shared-memory", "is shared with processes outside"),
];

/// Attacks that may get through without Landlock, and the words of the report for it.
const UNAVAILABLE: &[(&[&str], &str)] = &[
    // Paths: files and directories anywhere, devices, and the files of the kernel. The mounts that protect files are part of the plan
    // of paths.
    (&["files/*", "races/race-link-open", "races/race-words-open"], "files"),
    (&["kernel/dev-*", "kernel/disk", "kernel/kvm", "kernel/tun", "kernel/fuse", "kernel/loop-device"], "files"),
    (&["kernel/userfaultfd-device", "kernel/kcore", "kernel/core-pattern", "kernel/sysctl*", "kernel/sysrq"], "files"),
    (&["kernel/uevent-helper", "kernel/power-state", "kernel/cgroup-*", "kernel/uid-map"], "files"),
    // Landlock's rule for ptrace, which /proc obeys, its scope for signals, and files of processes and terminals.
    (&["others/proc-*", "others/oom-score", "others/rename-process", "others/clear-refs"], "/proc of other processes"),
    (&["others/terminal-*"], "files"),
    (&["others/signal-*"], "signals"),
];

/// Of these, the filter and the supervisor stop some on every kernel.
const STOPPED_ANYWAY: &[&str] = &[
    "files/chmod*",
    "files/chown",
    "files/times",
    "files/attribute*",
    "files/config-chmod",
    "files/inode-flags*",
    "files/btrfs-*",
    "files/fat-attributes",
    "files/ext4-migrate",
    "files/trim",
    "files/read-by-handle",
    "files/read-by-forged-handle",
];

/// Fails if something got out, or if a report was untrue.
pub fn judge(variant: &Variant, name: &str, seen: &Seen) {
    for user in seen.users() {
        let landlock = seen.doctor(user, "landlock").0 != "unavailable";
        assert_eq!(landlock, variant.landlock, "{name}: doctor, {user}");
        let namespaces = seen.doctor(user, "user namespaces").0 == "available";
        let off = !variant.namespaces && (user == "nobody" || variant.words.contains("max_user_namespaces"));
        assert_eq!(namespaces, !off, "{name}: doctor, {user}");
        let mut unexplained = Vec::new();
        for attacks in seen.of("attacks", user) {
            for through in attacks["through"].as_array().expect("a list") {
                let (theme, attack) = (through[0].as_str().expect("text"), through[1].as_str().expect("text"));
                if !explained(theme, attack, &attacks["layers"]) {
                    unexplained
                        .push(format!("{theme}/{attack}, {}, {user}: {}", attacks["profile"], attacks["layers"]));
                }
            }
        }
        assert!(unexplained.is_empty(), "{name}: got through:\n{}", unexplained.join("\n"));
        for profile in seen.of("profile", user) {
            assert_eq!(profile["refused"], !landlock && profile["profile"] != "unrestricted", "{name}: {profile}");
        }
        let [limits] = seen.of("limits", user)[..] else { panic!("{name}: no limits") };
        let by_kernel = user == "root" || variant.words.contains("delegate");
        for which in ["memory", "processes"] {
            assert_eq!(limits[which][0], if by_kernel { "enforced" } else { "partial" }, "{name}: {limits}");
        }
    }
}

/// Whether the report names the gap through which an attack went.
fn explained(theme: &str, attack: &str, layers: &Value) -> bool {
    let landlock = layers.as_array().expect("a list").iter().find(|found| found["layer"] == "landlock");
    let landlock = landlock.unwrap_or_else(|| panic!("no landlock in {layers}"));
    let says = |words: &str| landlock["detail"].as_str().expect("text").contains(words);
    let name = format!("{theme}/{attack}");
    match landlock["status"].as_str().expect("text") {
        "partial" => PARTIAL.iter().any(|(pattern, words)| is(attack, pattern) && says(words)),
        "unavailable" => {
            let gap =
                UNAVAILABLE.iter().any(|(names, words)| names.iter().any(|pattern| is(&name, pattern)) && says(words));
            gap && !STOPPED_ANYWAY.iter().any(|pattern| is(&name, pattern))
        }
        _ => false,
    }
}

fn is(name: &str, pattern: &str) -> bool {
    pattern.strip_suffix('*').map_or(name == pattern, |start| name.starts_with(start))
}
