//! A bubblewrap that is missing, fails or hangs: `required` says so and runs nothing, `preferred` says so and
//! continues.

use crate::network::{Ran, confined, users};
use crate::support::{fresh, is_root};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Runs gatekeeper with this script as bubblewrap. gatekeeper executes only the system's bubblewrap, so the script is
/// mounted over it in a new mount namespace, and for a user other than root also in a new user namespace.
fn with_bwrap(dir: &Path, user: Option<u32>, mode: &str, script: Option<(&str, u32)>) -> Ran {
    if let Some((text, permissions)) = script {
        fs::write(dir.join("planned"), text).expect("own directory");
        fs::set_permissions(dir.join("planned"), fs::Permissions::from_mode(permissions)).expect("own");
    }
    let policy = format!("[bubblewrap]\nmode = \"{mode}\"\npath = \"/opt/bwrap\"\n");
    fs::write(dir.join("policy.toml"), policy).expect("own directory");
    let line = "echo ran >> ran; cat ran";
    let mut run = confined(dir, user, &["--config", "policy.toml", "--profile", "write"]).args(&["-c", line]);
    let mut command = Command::new("unshare");
    command.args(if user.is_none() && is_root() { &["-m"][..] } else { &["-rm"] });
    let install = "mount -t tmpfs -o mode=755 tmpfs /opt && if test -e planned; then cp --preserve=mode planned /opt/bwrap; fi && \
                   exec \"$@\"";
    command.args(["sh", "-ec", install, "sh"]).arg(run.command.get_program()).args(run.command.get_args());
    command.current_dir(dir).env("HOME", "/nonexistent").env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    run.command = command;
    run.go()
}

/// Name, the script and its mode, and the reported cause.
type Broken = (&'static str, Option<(&'static str, u32)>, &'static str);
const BROKEN: [Broken; 5] = [
    ("missing", None, "/opt/bwrap: No such file or directory"),
    ("not executable", Some(("#!/bin/sh\n", 0o644)), "/opt/bwrap is not an executable file"),
    (
        "fails",
        Some(("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n", 0o755)),
        "setting up uid map: Permission denied",
    ),
    ("says nothing", Some(("#!/bin/sh\nexit 1\n", 0o755)), "it ended with exit status: 1"),
    ("pretends", Some(("#!/bin/sh\nexit 0\n", 0o755)), "it ended with exit status: 0"),
];

#[test]
fn required_names_the_cause_and_runs_nothing() {
    for user in users() {
        for (what, script, cause) in BROKEN {
            let dir = fresh("broken");
            let ran = with_bwrap(&dir, user, "required", script);
            ran.done.exits(125).prints("");
            assert!(
                ran.done.stderr().contains("isolation is required and bubblewrap does not work here: "),
                "{what}: {}",
                ran.done
            );
            assert!(ran.done.stderr().contains(cause), "{what}: {}", ran.done);
            assert_eq!(ran.report["outcome"], "setup_failed", "{what}");
            assert!(!dir.join("ran").exists(), "{what}");
        }
    }
}

#[test]
fn preferred_says_so_once_and_keeps_the_other_layers() {
    for user in users() {
        for (what, script, cause) in BROKEN {
            let dir = fresh("broken");
            let ran = with_bwrap(&dir, user, "preferred", script);
            ran.done.exits(0).prints("ran\n");
            let warnings = ran.done.stderr().matches("warning: not isolated").count();
            assert_eq!(warnings, 1, "{what}: {}", ran.done);
            let (status, detail) = ran.layer("namespaces");
            assert!(status == "unavailable" || status == "partial", "{what}: {status}");
            assert!(detail.contains(cause), "{what}: {detail}");
            for layer in ["seccomp", "landlock"] {
                assert_eq!(ran.layer(layer).0, "enforced", "{what}: {layer}");
            }
        }
    }
}

#[test]
fn a_bubblewrap_that_hangs_is_given_up() {
    let hangs = |mode: &'static str| {
        std::thread::spawn(move || {
            let dir = fresh("hangs");
            let ran = with_bwrap(&dir, None, mode, Some(("#!/bin/sh\nsleep 1000\n", 0o755)));
            (ran, dir.join("ran").exists())
        })
    };
    let (preferred, required) = (hangs("preferred"), hangs("required"));
    let (ran, _) = preferred.join().expect("it ends");
    ran.done.exits(0).prints("ran\n");
    assert!(ran.layer("namespaces").1.contains("it was not ready in 10 s"), "{:#}", ran.report);
    let (refused, started) = required.join().expect("it ends");
    refused.done.exits(125).prints("").complains(
        "gatekeeper: isolation is required and bubblewrap does not work here: it was not ready in 10 s; nothing was run\n",
    );
    assert!(!started);
}

#[test]
fn one_that_dies_after_the_start_never_makes_a_second_run() {
    if !super::works() {
        return;
    }
    for user in users() {
        let dir = fresh("twice");
        // The real bubblewrap, but with a failing exit status.
        let ran = with_bwrap(&dir, user, "preferred", Some(("#!/bin/sh\n/usr/bin/bwrap \"$@\"\nexit 1\n", 0o755)));
        ran.done.exits(0).prints("ran\n");
        assert_eq!(fs::read_to_string(dir.join("ran")).expect("it ran"), "ran\n");
    }
}

#[test]
fn under_a_filter_that_refuses_namespaces_the_cause_is_told() {
    if !super::works() {
        return;
    }
    // gatekeeper itself is the outer sandbox, because all of its profiles refuse namespaces.
    let dir = fresh("nested");
    let inner = crate::support::gatekeeper().display().to_string();
    for (mode, code) in [("required", 125), ("preferred", 0)] {
        let line = format!("{inner} run --isolate {mode} --profile write -- echo inner");
        let ran = confined(&dir, Some(65534).filter(|_| users().len() > 1), &["--profile", "write"])
            .args(&["-c", &line])
            .go();
        ran.done.exits(code);
        assert_eq!(ran.done.stdout(), if code == 0 { "inner\n" } else { "" }, "{}", ran.done);
        assert!(ran.done.stderr().contains("bubblewrap does not work here: "), "{}", ran.done);
    }
}
