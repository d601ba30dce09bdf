//! Fault injection: an outer filter makes one call of the set-up fail. Then nothing runs, the exit code is 125, and the
//! report names the step.

use super::{Gate, User, marker, users};
use crate::support::cgroup::Cgroup;
use crate::support::{is_root, probe, skip};

/// The failing call, the kind of run, and the name of the step in the report.
struct Fault {
    /// A rule for `outer`: the call, with an argument if the call is also made elsewhere.
    rule: String,
    profile: &'static str,
    flags: &'static [&'static str],
    step: &'static str,
}

fn fault(call: i64, step: &'static str) -> Fault {
    Fault { rule: call.to_string(), profile: "write", flags: &[], step }
}

fn with_argument(call: i64, argument: u32, value: u64, step: &'static str) -> Fault {
    Fault { rule: format!("{call},{argument},{value}"), ..fault(call, step) }
}

/// dup2(2) of the C library makes this call.
#[cfg(target_arch = "x86_64")]
const DUP: i64 = libc::SYS_dup2;
#[cfg(not(target_arch = "x86_64"))]
const DUP: i64 = libc::SYS_dup3;

fn faults() -> Vec<Fault> {
    let prctl = |option: i32, step| with_argument(libc::SYS_prctl, 0, option as u64, step);
    vec![
        prctl(libc::PR_SET_DUMPABLE, "start"),
        // Made by gatekeeper and by the guardian.
        prctl(libc::PR_SET_CHILD_SUBREAPER, "start"),
        fault(libc::SYS_signalfd4, "start"),
        fault(libc::SYS_socketpair, "start"),
        with_argument(libc::SYS_clone, 0, libc::SIGCHLD as u64, "start"),
        fault(libc::SYS_getrandom, "run directory"),
        Fault { profile: "minimal", ..fault(libc::SYS_getrandom, "run directory") },
        fault(libc::SYS_mkdirat, "run directory"),
        fault(libc::SYS_setsid, "process group"),
        fault(libc::SYS_setpgid, "process group"),
        prctl(libc::PR_SET_PDEATHSIG, "process group"),
        fault(libc::SYS_getppid, "process group"),
        fault(libc::SYS_chdir, "working directory"),
        Fault {
            flags: &["--cpu", "100s"],
            ..with_argument(libc::SYS_prlimit64, 1, u64::from(libc::RLIMIT_CPU), "limits")
        },
        Fault { flags: &["--json"], ..fault(DUP, "standard streams") },
        Fault { flags: &["--json"], ..fault(libc::SYS_pipe2, "standard streams") },
        fault(libc::SYS_close_range, "descriptors"),
        prctl(libc::PR_SET_NO_NEW_PRIVS, "no_new_privs"),
        fault(libc::SYS_landlock_create_ruleset, "Landlock"),
        // The version query works, creating a ruleset fails.
        with_argument(libc::SYS_landlock_create_ruleset, 2, 0, "landlock"),
        fault(libc::SYS_landlock_add_rule, "landlock"),
        fault(libc::SYS_landlock_restrict_self, "landlock"),
        fault(libc::SYS_seccomp, "seccomp"),
        with_argument(libc::SYS_seccomp, 0, 1, "seccomp"),
        fault(libc::SYS_sendmsg, "seccomp"),
        fault(libc::SYS_execveat, "exec"),
    ]
}

fn gate(user: User, fault: &Fault) -> Gate {
    let outer = probe("outer", &[]);
    let gate = Gate::profile(user, fault.profile).flags(fault.flags);
    gate.under([outer.as_os_str(), format!("{}={}", fault.rule, libc::EPERM).as_ref(), "--".as_ref()])
}

/// The law: if a step fails, nothing runs, so the program's marker file does not exist.
#[test]
fn a_step_that_fails_runs_nothing_and_is_named() {
    for user in users() {
        for fault in faults() {
            let gate = gate(*user, &fault);
            // The shell creates the marker itself, whatever else it may not do.
            let (done, report) = gate.report(["sh", "-c", "echo ran; : >marker"]);
            let shown = format!("{} must fail in step {:?} as {user:?}: {report:#}{done}", fault.rule, fault.step);
            assert!(!marker(&gate).exists(), "{shown}");
            assert_eq!(done.code(), Some(125), "{shown}");
            assert_eq!(report["outcome"], "setup_failed", "{shown}");
            assert_eq!(report["exit_code"], 125);
            assert_eq!(report["layers"], serde_json::json!([]), "{shown}");
            let error = report["error"].as_str().unwrap_or_else(|| panic!("{shown}"));
            assert!(error.contains(fault.step), "{shown}");
            assert!(done.stderr().contains(fault.step), "{shown}");
            let left = std::fs::read_dir(&gate.dir).unwrap().count();
            assert_eq!(left, 0, "{shown}");
        }
    }
}

#[test]
fn a_step_that_fails_leaves_no_cgroup() {
    let Some(cgroup) = Cgroup::new("faults") else { return skip("no cgroup can be made here") };
    let limit = libc::RLIMIT_CPU as u64;
    for (fault, code) in [
        (fault(libc::SYS_socketpair, "start"), 125),
        (with_argument(libc::SYS_prlimit64, 1, limit, "limits"), 125),
        (fault(libc::SYS_landlock_restrict_self, "landlock"), 125),
        (fault(libc::SYS_acct, "none"), 0),
    ] {
        let limited = Fault { flags: &["--cpu", "100s", "--processes", "50"], ..fault };
        let mut command = gate(User::Own, &limited).command(["true"]);
        cgroup.enter(&mut command);
        super::finish(command, None).exits(code);
        assert!(cgroup.left().is_empty(), "{}: {:?}", limited.rule, cgroup.left());
    }
}

#[test]
fn a_cgroup_without_an_owner_is_swept_by_the_next_run() {
    let Some(cgroup) = Cgroup::new("sweep") else { return skip("no cgroup can be made here") };
    use std::os::unix::fs::MetadataExt;
    let namespace = std::fs::metadata("/proc/self/ns/pid").expect("/proc").ino();
    let own = std::fs::read_to_string("/proc/self/stat").expect("/proc");
    let started = own.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(19)).expect("a field");
    let pid = std::process::id();
    let gone = cgroup.make(&format!("gatekeeper-{namespace}-{pid}-{started}0-0"));
    let of_a_living_one = cgroup.make(&format!("gatekeeper-{namespace}-{pid}-{started}-0"));
    let of_another_namespace = cgroup.make(&format!("gatekeeper-{}-{pid}-1-0", namespace + 1));
    let of_nobody_known = cgroup.make("gatekeeper-0123456789abcdef");
    let mut command = Gate::new(User::Own).flags(["--processes", "50"]).command(["true"]);
    cgroup.enter(&mut command);
    super::finish(command, None).exits(0);
    assert!(!gone.exists());
    for kept in [of_a_living_one, of_another_namespace, of_nobody_known] {
        assert!(kept.exists(), "{}", kept.display());
        std::fs::remove_dir(kept).expect("own cgroup");
    }
}

/// If an outer sandbox kills for the call instead of refusing it, nothing runs either, and the step is named.
#[test]
fn a_step_that_is_killed_for_runs_nothing_and_is_named() {
    for fault in [
        with_argument(libc::SYS_prctl, 0, libc::PR_SET_NO_NEW_PRIVS as u64, "no_new_privs"),
        fault(libc::SYS_landlock_restrict_self, "landlock"),
        with_argument(libc::SYS_seccomp, 0, 1, "seccomp"),
        fault(libc::SYS_chdir, "working directory"),
    ] {
        let gate = Gate::profile(super::unprivileged(), fault.profile);
        let gate =
            gate.under([probe("outer", &[]).into_os_string(), format!("{}=kill", fault.rule).into(), "--".into()]);
        let (done, report) = gate.report(["sh", "-c", ": >marker"]);
        done.exits(125);
        assert_eq!(report["outcome"], "setup_failed", "{report:#}");
        assert!(report["error"].as_str().unwrap().starts_with(fault.step), "{report:#}");
        assert!(!marker(&gate).exists());
    }
}

/// The control: with a rule for an unused call, all of these runs work.
#[test]
fn the_runs_that_are_made_to_fail_work_otherwise() {
    for user in users() {
        for fault in faults() {
            let harmless = Fault { rule: libc::SYS_acct.to_string(), ..fault };
            let gate = gate(*user, &harmless);
            // Only `write` may create the marker. The exit status shows that the shell ran.
            let code = if harmless.profile == "write" { 8 } else { 9 };
            gate.run(["sh", "-c", "true >marker || exit 9; exit 8"]).exits(code);
            assert_eq!(marker(&gate).exists(), harmless.profile == "write", "{}", harmless.step);
        }
    }
}

/// Before Linux 6.4 there is no PR_GET_AUXV, and /proc/self/auxv is closed to an undumpable process of an ordinary user.
#[test]
fn limits_need_no_auxiliary_vector() {
    const PR_GET_AUXV: u64 = 0x4155_5856;
    for user in users() {
        let rule = with_argument(libc::SYS_prctl, 0, PR_GET_AUXV, "none");
        let fault = Fault { flags: &["--memory", "512M", "--processes", "50"], ..rule };
        gate(*user, &fault).run(["sleep", "0.3"]).exits(0);
    }
}

/// The mount layer may be missing. Then the report names the entries that stay unprotected.
#[test]
fn a_mount_layer_that_fails_is_told_and_never_silent() {
    for user in users() {
        for call in [libc::SYS_unshare, libc::SYS_mount, libc::SYS_capset] {
            // root mounts without a user namespace, and then has no capabilities of one to drop.
            if call == libc::SYS_capset && *user == User::Own && is_root() {
                continue;
            }
            let gate = gate(*user, &fault(call, "namespaces"));
            let config = gate.file(".git/config", "[core]\n");
            let (done, report) = gate.report(["sh", "-c", ": >marker"]);
            done.exits(0);
            let (status, detail) = super::layer(&report, "landlock");
            assert_eq!(status, "partial", "{report:#}");
            assert!(detail.contains(config.to_str().unwrap()), "{detail}");
            assert_eq!(super::layer(&report, "namespaces").0, "unavailable", "{report:#}");
        }
    }
}

/// If a call that supervision needs fails during the run, the command is ended, and the exit code is gatekeeper's. The guardian's poll(2)
/// is the call `ppoll` on processors that have no other.
#[test]
fn supervision_that_fails_ends_the_run() {
    #[cfg(target_arch = "x86_64")]
    let poll = format!(" {}={}", libc::SYS_poll, libc::EPERM);
    #[cfg(not(target_arch = "x86_64"))]
    let poll = String::new();
    let ppoll = format!("{}={}{poll}", libc::SYS_ppoll, libc::EPERM);
    for rules in [format!("{}={}", libc::SYS_recvmsg, libc::EPERM), ppoll] {
        let gate = Gate::profile(super::unprivileged(), "write").under([probe("outer", &[])]);
        let gate = gate.under(rules.split(' ')).under(["--"]);
        let (done, report) = gate.report(["sh", "-c", "sleep 30; : >marker"]);
        done.exits(125);
        assert!(report["error"].as_str().unwrap().contains("supervision"), "{report:#}");
        assert!(!marker(&gate).exists());
    }
}
