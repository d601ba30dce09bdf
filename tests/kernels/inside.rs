//! What runs inside of a machine: it asks gatekeeper what this kernel can enforce, tries whether that is true, and
//! prints one JSON document per line for the tests outside.

use crate::escape::{PROFILES, survey};
use crate::run::{Gate, User, finish, gatekeeper, layer, marker, users};
use crate::support::{self, Done, fresh, libsandbox, probe, probe_of_many};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

pub const MARK: &str = "@kernel ";

fn say(what: &str, user: Option<User>, mut value: Value) {
    value["what"] = what.into();
    value["user"] = user.map(|user| if user == User::Own { "root" } else { "nobody" }).into();
    // Seconds since the machine was booted.
    let uptime = fs::read_to_string("/proc/uptime").unwrap_or_default();
    value["at"] = uptime.split('.').next().and_then(|seconds| seconds.parse::<u64>().ok()).into();
    println!("{MARK}{value}");
}

/// How much to try: all, part, or the short form that is part of `make test`.
fn is(what: &str) -> bool {
    std::env::var("what").is_ok_and(|given| given == what)
}

/// The profiles to attack: all, the narrowest and the widest, or the widest.
fn attacked() -> &'static [&'static str] {
    match () {
        () if is("short") => &["write+network"],
        () if is("part") => &["minimal", "write+network"],
        () => &PROFILES,
    }
}

#[test]
#[ignore = "runs inside of the machines that the tests of this folder boot"]
fn this_kernel() {
    assert!(std::process::id() < 1000 && Path::new("/suite/gatekeeper").exists(), "not inside of a machine");
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("/proc is mounted");
    let lsm = fs::read_to_string("/sys/kernel/security/lsm").unwrap_or_default();
    say("kernel", None, json!({"release": release.trim(), "lsm": lsm.trim()}));
    verdicts();
    preload();
    let alone = is("short") || std::env::var("only").is_ok_and(|only| only == "nobody");
    for user in users().iter().filter(|user| **user == User::Nobody || !alone) {
        let findings = doctor(*user);
        let works = |layer: &str| findings[layer] != "unavailable";
        profiles(*user, works("landlock"));
        attacks(*user, works("landlock"), &findings["detail of landlock"]);
        limits(*user);
        stage(*user, works("landlock"));
        corpus(*user, works("landlock"));
        isolation(*user);
    }
    say("done", None, json!({}));
}

/// What doctor says, by layer.
fn doctor(user: User) -> BTreeMap<String, String> {
    let done = Gate::new(user).verb("doctor").flags(["--json"]).run(crate::run::NOTHING);
    let findings: Value = serde_json::from_str(&done.stdout()).unwrap_or_else(|error| panic!("{error}{done}"));
    let list = findings["layers"].as_array().or(findings.as_array()).unwrap_or_else(|| panic!("{done}")).clone();
    let text = |finding: &Value, key: &str| finding[key].as_str().unwrap_or_else(|| panic!("{done}")).to_owned();
    // A layer that is not fully there has a cause, a loss and a fix.
    for finding in list.iter().filter(|finding| finding["status"] != "available") {
        for key in ["cause", "lost", "fix"] {
            assert!(!text(finding, key).is_empty(), "{finding}");
        }
    }
    say("doctor", Some(user), json!({"layers": list}));
    let mut found: BTreeMap<_, _> =
        list.iter().map(|finding| (text(finding, "layer"), text(finding, "status"))).collect();
    let landlock = list.iter().find(|finding| finding["layer"] == "landlock").unwrap_or_else(|| panic!("{done}"));
    found.insert("detail of landlock".to_owned(), text(landlock, "detail"));
    found
}

/// `check` on a static and a dynamic program, on a script, and on a program for another machine.
fn verdicts() {
    let script = fresh("check").join("script");
    fs::write(&script, "#!/bin/sh\n").expect("own directory");
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("own file");
    let shell = verdict(Path::new("/bin/busybox"));
    for (path, expected) in [
        (probe_of_many("escape", &["-static"]).as_path(), "enforce static"),
        (probe_of_many("escape", &["-lpthread"]).as_path(), "preload"),
        (script.as_path(), shell.as_str()),
        (Path::new("/suite/foreign"), "refuse wrong_machine"),
    ] {
        assert_eq!(verdict(path), expected, "{}", path.display());
    }
    let done = Gate::new(User::Own).run(["/suite/foreign"]);
    done.exits(126);
    say("check", None, json!({"busybox": shell}));
}

fn verdict(path: &Path) -> String {
    let done = support::run(Command::new(gatekeeper()).args(["check", "--json"]).arg(path));
    let report: Value = serde_json::from_str(&done.stdout()).unwrap_or_else(|error| panic!("{error}{done}"));
    let one = report.get(0).or(report["files"].get(0)).unwrap_or(&report);
    let codes = one["reasons"].as_array().unwrap_or_else(|| panic!("{done}")).iter();
    let codes = codes.map(|reason| reason["code"].as_str().expect("text"));
    let words: Vec<&str> = one["verdict"].as_str().into_iter().chain(codes).collect();
    words.join(" ")
}

/// libsandbox.so alone: an empty allow list kills, a list with everything does not, an unknown name is an error.
fn preload() {
    let program = probe_of_many("escape", &["-lpthread"]);
    let with = |name: &str, value: &str| {
        let mut command = Command::new(&program);
        command.arg("list").env("LD_PRELOAD", libsandbox()).env(name, value);
        support::run(&mut command)
    };
    let usual = support::run(Command::new(&program).arg("list")).exits(0).stdout();
    with("SECCOMP_SYSCALL_DENY", "ptrace").exits(0).prints(&usual).complains("");
    with("SECCOMP_SYSCALL_ALLOW", "").dies_by(libc::SIGSYS);
    with("SECCOMP_SYSCALL_DENY", "write:writev").dies_by(libc::SIGSYS);
    with("SECCOMP_SYSCALL_DENY", "no_such_call").exits(1);
    say("preload", None, json!({}));
}

/// A run under each profile. Without Landlock it is refused, unless the caller accepts that.
fn profiles(user: User, landlock: bool) {
    for profile in PROFILES.iter().chain(&["unrestricted"]) {
        let gate = Gate::profile(user, profile);
        gate.file(".git/config", "[core]\n");
        let words = ["sh", "-c", "echo ran; : >marker"];
        let (done, mut report) = gate.report(words);
        let refused = !landlock && *profile != "unrestricted";
        if refused {
            done.exits(125).prints("");
            assert!(!marker(&gate).exists() && report["outcome"] == "setup_failed", "{report:#}{done}");
            let gate = gate.flags(["--require-sandbox=false"]);
            let (done, again) = gate.report(words);
            assert!(done.stdout() == "ran\n" && done.stderr().to_lowercase().contains("landlock"), "{done}");
            assert_eq!(layer(&again, "landlock").0, "unavailable", "{again:#}");
            report = again;
        } else {
            done.prints("ran\n");
            let writes = profile.contains("write") || *profile == "unrestricted";
            assert_eq!(marker(&gate).exists(), writes, "{report:#}{done}");
        }
        say("profile", Some(user), json!({"profile": profile, "refused": refused, "layers": report["layers"]}));
    }
}

/// Attacks on gatekeeper itself, by signals. A command that ends gatekeeper ends with it.
const ON_US: [&str; 3] = ["kill-supervisor", "stop-supervisor", "kill-guardian"];

fn attacks(user: User, landlock: bool, detail: &str) {
    let flags: &[&str] = if landlock { &[] } else { &["--require-sandbox=false"] };
    let signals = landlock && !detail.contains("signals");
    let on_us: &[&str] = if signals { &[] } else { &ON_US };
    for name in on_us.iter().filter(|name| !is("short") && !name.starts_with("stop")) {
        survey::ends_nothing_else(user, flags, name);
    }
    for profile in attacked() {
        let seen = survey::survey(user, profile, flags, on_us);
        say(
            "attacks",
            Some(user),
            json!({"profile": profile, "tried": seen.tried, "through": seen.through, "layers": seen.report["layers"]}),
        );
    }
}

/// Limits end a command that exceeds them and no other, whoever enforces them.
fn limits(user: User) {
    let (hog, bomb) = (probe("hog", &[]), probe("bomb", &[]));
    let accept = "--require-sandbox=false";
    let limited = |flags: &[&str], words: &[&str]| {
        let gate = Gate::profile(user, "write").flags([accept, "--timeout", "600s"]).flags(flags);
        gate.report(words)
    };
    let is_limit = |(done, report): (Done, Value), which: &str| {
        assert!(report["outcome"] == "limit" && report["limit"]["which"] == which, "{report:#}{done}");
        let (status, detail) = layer(&report, "limits");
        (status.to_owned(), detail.to_owned())
    };
    let hog = hog.to_str().expect("text");
    let memory = is_limit(limited(&["--memory", "64M"], &[hog, "alone", "300"]), "memory");
    limited(&["--memory", "64M"], &[hog, "alone", "16"]).0.exits(0);
    let processes = is_limit(limited(&["--processes", "20"], &[bomb.to_str().expect("text"), "mark"]), "processes");
    limited(&["--processes", "20"], &["sh", "-c", "sleep 0.1 & wait"]).0.exits(0);
    say("limits", Some(user), json!({"memory": memory, "processes": processes}));
}

/// A staged write leaves the tree as it was until it is applied.
fn stage(user: User, landlock: bool) {
    if !landlock {
        return;
    }
    let gate = Gate::profile(user, "write").flags(["--stage", "machine"]);
    let file = gate.file("file", "old\n");
    let (done, report) = gate.report(["sh", "-c", "echo new >file; cat file"]);
    done.exits(0).prints("new\n");
    assert_eq!(fs::read_to_string(&file).expect("there"), "old\n", "{report:#}");
    let means = report["stage"]["means"].clone();
    let mut apply = gate.command(crate::run::NOTHING);
    let home = apply.get_envs().find_map(|(name, value)| (name == "HOME").then_some(value?.to_owned()));
    apply = Command::new(gatekeeper());
    apply.args(["stage", "apply", "machine"]).env("HOME", home.expect("Gate sets it"));
    crate::run::become_user(&mut apply, user);
    finish(apply, None).exits(0);
    assert_eq!(fs::read_to_string(&file).expect("there"), "new\n");
    say("stage", Some(user), json!({"means": means}));
}

/// The corpus of the profiles: the commands that busybox has, and, for an ordinary user under the profile that people use most,
/// everything that must be denied. All of it takes an hour in here.
fn corpus(user: User, landlock: bool) {
    if !landlock || !is("all") {
        return;
    }
    let parts: [(&str, &[&str]); 2] = [("busybox", &[]), ("stop-", &["write"])];
    for (only, flags) in &parts[..if user == User::Nobody { 2 } else { 1 }] {
        let gate = Gate::new(user).verb("profiles").flags(["test", "--only", only, "--json"]).flags(*flags);
        let done = gate.run(crate::run::NOTHING);
        let tried: Value = serde_json::from_str(&done.stdout()).unwrap_or_else(|error| panic!("{error}{done}"));
        let failed: Vec<&Value> =
            tried["tried"].as_array().expect("a list").iter().filter(|one| one["outcome"] == "failed").collect();
        assert!(failed.is_empty() && tried["passed"].as_u64() > Some(9), "{failed:#?}{done}");
        say("corpus", Some(user), json!({"only": only, "passed": tried["passed"], "skipped": tried["skipped"]}));
    }
}

/// `--isolate required` isolates, or nothing runs.
fn isolation(user: User) {
    let gate = Gate::profile(user, "write").flags(["--isolate", "required"]);
    let (done, report) = gate.report(["sh", "-c", "echo ran; : >marker"]);
    match done.code() {
        Some(0) => assert_eq!(layer(&report, "namespaces").0, "enforced", "{report:#}"),
        _ => {
            done.exits(125).prints("");
            assert!(!marker(&gate).exists(), "{report:#}");
        }
    }
    say("isolate", Some(user), json!({"code": done.code(), "error": report["error"], "layers": report["layers"]}));
}
