//! gatekeeper inside other sandboxes, under strace, or without something it needs.

use super::{Gate, User, act, denials, layer, marker, unprivileged, users};
use crate::support::{has, is_root, probe, skip};
use std::ffi::OsString;

fn outer(words: &[String]) -> Vec<OsString> {
    let mut all = vec![probe("outer", &[]).into_os_string()];
    all.extend(words.iter().map(OsString::from));
    all.push("--".into());
    all
}

/// Asserts that denied calls are denied and recorded, and that granted calls work.
fn holds(gate: &Gate, itemised: bool) {
    let act = act();
    let escape = super::outside().join("escaped");
    let escape = escape.to_str().unwrap();
    let words = [act.to_str().unwrap(), "tcp", ",", "create", "made", ",", "create", escape, ",", "chmod", "made"];
    let (done, report) = gate.report(words);
    done.exits(0);
    let chmod = if itemised { 0 } else { libc::EPERM };
    done.prints(&format!("tcp 97\ncreate 0\ncreate 13\nchmod {chmod}\n"));
    assert_eq!(denials(&report, "socket").len(), usize::from(itemised), "{report:#}");
    assert_eq!(layer(&report, "seccomp").0, "enforced", "{report:#}");
    if !itemised {
        assert!(layer(&report, "seccomp").1.contains("not itemised"), "never silent: {report:#}");
    }
    let (status, detail) = layer(&report, "landlock");
    match layer(&report, "namespaces").0 {
        // Without a mount namespace, /dev/shm is shared.
        "unavailable" => assert!(status == "partial" && detail.contains("/dev/shm is shared"), "{report:#}"),
        // Before 6.12, Landlock lacks something (tests/kernels).
        _ => assert!(status == "enforced" || detail.contains("this kernel does not cover"), "{report:#}"),
    }
}

#[test]
fn under_an_outer_filter() {
    for user in users() {
        holds(&Gate::profile(*user, "write").under(outer(&[format!("{}=1", libc::SYS_ptrace)])), true);
    }
}

#[test]
fn under_an_outer_filter_with_a_listener() {
    for user in users() {
        let gate = Gate::profile(*user, "write").under(outer(&["listen".into()]));
        holds(&gate, false);
        let kill = Gate::profile(*user, "write").flags(["--on-violation", "kill"]).under(outer(&["listen".into()]));
        let (done, report) = kill.report([act().to_str().unwrap(), "tcp", ",", "create", "made"]);
        done.exits(159).prints("");
        assert_eq!(report["signal"], libc::SIGSYS, "{report:#}");
        assert!(!kill.dir.join("made").exists());
    }
}

/// Without a listener, libsandbox.so installs an exact list itself: it is enforced, and the report says that denials
/// are not recorded.
#[test]
fn an_exact_list_under_a_listener() {
    let list = "write:exit_group:fstat:newfstatat:ioctl:brk:mmap:munmap:rt_sigreturn:getrandom";
    for user in users() {
        let custom = |list: &str| Gate::profile(*user, "custom").flags(["--allow", list]);
        let act = act();
        let words = [act.to_str().unwrap(), "read", "/etc/passwd"];
        let gate = custom(list).under(outer(&["listen".into()]));
        let (done, report) = gate.report(words);
        done.exits(0).prints("read 1\n");
        assert!(layer(&report, "seccomp").1.contains("not itemised"), "{report:#}");
        assert_eq!(denials(&report, "openat").len(), 0);
        let gate = custom(&format!("{list}:openat:close")).under(outer(&["listen".into()]));
        gate.run(words).exits(0).prints("read 0\n");
    }
}

/// gatekeeper in gatekeeper, three levels deep: the inner ones have no listener, and still enforce their policy.
#[test]
fn inside_itself() {
    for user in users() {
        let words = [
            super::gatekeeper().to_str().unwrap(),
            "run",
            "--profile",
            "write",
            "--write",
            super::reports().to_str().unwrap(),
            "--",
        ];
        let gate = Gate::profile(*user, "write").under(words);
        holds(&gate, false);
        holds(&Gate::profile(*user, "write").under(words).under(words), false);
    }
}

#[test]
fn with_user_namespaces_disabled() {
    for user in users() {
        let no_namespaces = [
            format!("{}=1", libc::SYS_unshare),
            format!("{},0,{},{}=1", libc::SYS_clone, libc::CLONE_NEWUSER, libc::CLONE_NEWUSER),
            format!("{}=38", libc::SYS_clone3),
            format!("{}=1", libc::SYS_setns),
        ];
        holds(&Gate::profile(*user, "write").under(outer(&no_namespaces)), true);
    }
}

/// The same with the kernel's setting, in a user namespace whose limit of nested ones is 0.
#[test]
fn with_a_limit_of_no_user_namespaces() {
    let line = r#"echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --bounding-set -all --inh-caps -all "$@""#;
    let words = ["unshare", "--user", "--map-current-user", "--keep-caps", "--mount", "sh", "-c", line, "sh"];
    let probe = super::finish(
        {
            let mut command = std::process::Command::new(words[0]);
            command.args(&words[1..]).arg("true");
            super::become_user(&mut command, unprivileged());
            command
        },
        None,
    );
    if probe.code() != Some(0) {
        return skip(&format!("no user namespace can be created here: {probe}"));
    }
    let gate = Gate::profile(unprivileged(), "write").under(words);
    let config = gate.file(".git/config", "[core]\n");
    let (done, report) = gate.report(["sh", "-c", ": >marker"]);
    done.exits(0);
    assert!(marker(&gate).exists());
    assert_eq!(layer(&report, "landlock").0, "partial", "{report:#}");
    assert!(layer(&report, "landlock").1.contains(config.to_str().unwrap()), "{report:#}");
}

#[test]
fn inside_bubblewrap() {
    if !has("bwrap") {
        return;
    }
    for user in users() {
        for words in [
            &["bwrap", "--bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-all", "--"][..],
            &["bwrap", "--dev-bind", "/", "/", "--"],
        ] {
            let works = {
                let mut command = std::process::Command::new(words[0]);
                command.args(&words[1..]).arg("true");
                super::become_user(&mut command, *user);
                super::finish(command, None)
            };
            if works.code() != Some(0) {
                skip(&format!("bwrap does not work here: {works}"));
                continue;
            }
            holds(&Gate::profile(*user, "write").under(words), true);
        }
    }
}

#[test]
fn under_strace() {
    if !has("strace") {
        return;
    }
    for user in users() {
        let gate = Gate::profile(*user, "write").under(["strace", "-f", "-o", "/dev/null"]);
        holds(&gate, true);
    }
}

#[test]
fn without_landlock_the_run_is_refused_or_told() {
    let refused: Vec<String> =
        [libc::SYS_landlock_create_ruleset, libc::SYS_landlock_add_rule, libc::SYS_landlock_restrict_self]
            .map(|call| format!("{call}=38"))
            .into();
    for user in users() {
        let gate = Gate::profile(*user, "write").under(outer(&refused));
        let (done, report) = gate.report(["sh", "-c", ": >marker"]);
        done.exits(125);
        assert!(done.stderr().contains("Landlock is required and not available"), "{done}");
        assert!(done.stderr().contains("--require-sandbox=false"), "{done}");
        assert_eq!(report["outcome"], "setup_failed");
        assert!(!marker(&gate).exists());

        let gate = Gate::profile(*user, "write").flags(["--require-sandbox=false"]).under(outer(&refused));
        let (done, report) = gate.report(["sh", "-c", ": >marker"]);
        assert!(done.exits(0).stderr().starts_with("gatekeeper: warning: paths are not confined"), "{done}");
        assert_eq!(done.stderr().lines().count(), 1, "one warning: {done}");
        assert_eq!(layer(&report, "landlock").0, "unavailable", "{report:#}");
        // The filter is still enforced.
        let act = act();
        gate.run([act.to_str().unwrap(), "tcp"]).exits(0).prints("tcp 97\n");
        // Root loses the same capabilities as with Landlock.
        let show = ["grep", "CapEff", "/proc/self/status"];
        let left = Gate::profile(*user, "write").run(show).exits(0).stdout();
        gate.run(show).exits(0).prints(&left);
        let before = Gate::profile(*user, "unrestricted").run(show).exits(0).stdout();
        assert_eq!(before != left, *user == User::Own && is_root(), "{before}{left}");
        // With the exec tool's JSON, a missing layer is not an error by default. It blocks static programs, such as busybox.
        let gate = Gate::new(*user).under(outer(&refused));
        let policy = gate.file("agent.json", r#"{"tools":{"exec":{"sandbox":{"profile":"minimal"}}}}"#);
        let gate = gate.flags(["--config".as_ref(), policy.as_os_str()]);
        let (done, report) = gate.report([act.to_str().unwrap(), "exit", "0"]);
        assert!(done.exits(0).stderr().contains("warning"), "{done}");
        assert_eq!(layer(&report, "landlock").0, "unavailable");
    }
}

#[test]
fn without_seccomp_the_run_is_refused() {
    for user in users() {
        for flags in [&[][..], &["--require-sandbox=false"]] {
            let refused = [format!("{}=38", libc::SYS_seccomp)];
            let gate = Gate::profile(*user, "write").flags(flags).under(outer(&refused));
            let (done, report) = gate.report(["sh", "-c", ": >marker"]);
            done.exits(125);
            assert!(done.stderr().contains("seccomp is required"), "{done}");
            // The message does not suggest this flag, which would not help.
            assert!(!done.stderr().contains("--require-sandbox"), "{done}");
            assert_eq!(report["outcome"], "setup_failed");
            assert!(!marker(&gate).exists());
        }
    }
}

/// Without /proc, gatekeeper can neither end nor inspect a tree, so nothing runs.
#[test]
fn without_proc() {
    if !has("bwrap") {
        return;
    }
    let bind = ["bwrap", "--bind", "/", "/", "--dev", "/dev"];
    let none = [&bind[..], &["--tmpfs", "/proc", "--"]].concat();
    let anothers = [&bind[..], &["--unshare-pid", "--bind", "/proc", "/proc", "--"]].concat();
    let own = [&bind[..], &["--unshare-pid", "--proc", "/proc", "--"]].concat();
    for (words, works) in [(none, false), (anothers, false), (own, true)] {
        let gate = Gate::profile(unprivileged(), "write").under(words);
        let done = gate.run(["sh", "-c", ": >marker; sleep 60 & exit 3"]);
        if works {
            done.exits(3);
        } else {
            done.exits(125).prints("");
            assert!(done.stderr().contains("proc: /proc is not mounted"), "{done}");
        }
        assert_eq!(marker(&gate).exists(), works);
    }
}

/// Where no namespace can be made, `plan` says what `run` will do.
#[test]
fn without_namespaces_plan_says_what_a_run_does() {
    let refused = [format!("{}=1", libc::SYS_unshare)];
    for user in users() {
        let gate = || Gate::profile(*user, "write").under(outer(&refused));
        let own = || gate().flags(["--net", "own"]);
        let (done, report) = own().report(["true"]);
        done.exits(125);
        assert_eq!(
            (&report["outcome"], &report["layers"]),
            (&"setup_failed".into(), &serde_json::json!([])),
            "{report:#}"
        );
        let plan = own().verb("plan").run(["true"]);
        assert_eq!(plan.exits(125).stderr(), done.stderr().replace("; nothing was run", ""), "{plan}{done}");

        // Never to more network: the fallback is none at all.
        let act = act();
        let lenient = || own().flags(["--require-sandbox=false"]);
        let (done, report) = lenient().report([act.to_str().unwrap(), "tcp"]);
        done.exits(0).prints("tcp 97\n");
        assert!(done.stderr().starts_with("gatekeeper: warning: no network at all: network mode own needs"), "{done}");
        assert_eq!(done.stderr().lines().count(), 1, "one warning: {done}");
        let (status, detail) = layer(&report, "namespaces");
        assert!(status == "unavailable" && detail.contains("no network at all"), "{report:#}");
        let plan = lenient().verb("plan").run(["true"]);
        assert!(!plan.exits(0).stdout().contains("a network namespace"), "{plan}");
        // An open filter would leave the whole network.
        let open = Gate::profile(*user, "unrestricted").flags(["--net", "own", "--require-sandbox=false"]);
        open.under(outer(&refused)).run(["true"]).exits(125);

        let plan = gate().verb("plan").run(["true"]);
        assert!(plan.exits(0).stdout().contains("none: no user namespace can be created here"), "{plan}");
        let plan = Gate::profile(*user, "write").verb("plan").run(["true"]);
        assert!(plan.exits(0).stdout().contains("a mount namespace, in a user namespace"), "the control: {plan}");
    }
}
