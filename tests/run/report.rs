//! The report and the plan: every field, and every way to get the report.

use super::{Gate, act, finish, gatekeeper, layer, unprivileged, users};
use std::fs;
use std::process::Command;

#[test]
fn the_report_has_every_field_of_the_contract() {
    for user in users() {
        let gate = Gate::new(*user).flags(["--memory", "4G"]);
        let act = act();
        let words = [act.to_str().unwrap(), "tcp", ",", "tcp", ",", "exit", "5"];
        let (done, report) = gate.report(words);
        done.exits(5).prints("tcp 97\ntcp 97\n");
        assert_eq!(report["schema"], 1);
        assert_eq!(report["outcome"], "exited");
        assert_eq!(report["exit_code"], 5);
        assert!(report["signal"].is_null());
        assert!(report["duration_ms"].as_u64().is_some_and(|ms| ms < 600_000), "{report:#}");
        assert_eq!(report["command"], serde_json::json!(words));
        assert_eq!(report["verdict"]["path"], act.to_str().unwrap());
        assert_eq!(report["verdict"]["verdict"], "preload");
        assert_eq!(report["verdict"]["reasons"], serde_json::json!([]));
        let link = &report["verdict"]["chain"][0];
        for (key, value) in [
            ("kind", serde_json::json!("elf")),
            ("class", serde_json::json!(64)),
            ("linkage", serde_json::json!("dynamic")),
            ("libc", serde_json::json!("glibc")),
            ("setuid", serde_json::json!(false)),
            ("setgid", serde_json::json!(false)),
            ("file_caps", serde_json::json!(false)),
        ] {
            assert_eq!(link[key], value, "{key}: {link:#}");
        }
        assert!(link["machine"].is_string() && link["interpreter"].is_string());
        assert_eq!(layer(&report, "seccomp").0, "enforced");
        assert_eq!(layer(&report, "landlock").0, "enforced");
        // With a cgroup the limits apply to the whole tree, otherwise to each process.
        assert!(["enforced", "partial"].contains(&layer(&report, "limits").0), "{report:#}");
        assert_eq!(layer(&report, "namespaces").0, "off");
        let [denial] = report["denials"].as_array().unwrap().as_slice() else { panic!("{report:#}") };
        assert_eq!(denial["layer"], "seccomp");
        assert_eq!(denial["syscall"], "socket");
        assert_eq!(denial["args"], serde_json::json!(["AF_INET", "SOCK_STREAM", "0"]));
        assert!(denial["path"].is_null() && denial["host"].is_null());
        assert!(denial["pid"].as_u64().is_some_and(|pid| pid > 1));
        assert_eq!(denial["comm"], "act");
        assert_eq!(denial["count"], 2);
        assert!(denial["rule"].is_string());
        assert_eq!(denial["allow_with"], "--profile network");
        assert!(report["stdout"].is_null(), "only --json captures");
        // The remedy works.
        let flags: Vec<&str> = denial["allow_with"].as_str().unwrap().split(' ').collect();
        Gate::new(*user).flags(flags).run([act.to_str().unwrap(), "tcp"]).exits(0).prints("tcp 0\n");
    }
}

#[test]
fn json_captures_both_streams_in_one_document() {
    for user in users() {
        let gate = Gate::new(*user).flags(["--json"]);
        let done = gate.run(["sh", "-c", "echo out; echo err >&2; exit 3"]);
        done.exits(3);
        let report: serde_json::Value = serde_json::from_str(&done.stdout()).unwrap_or_else(|_| panic!("{done}"));
        assert_eq!(report["stdout"], "out\n");
        assert_eq!(report["stderr"], "err\n");
        assert_eq!(report["stdout_truncated"], 0);
        assert_eq!(report["stderr_truncated"], 0);
        assert_eq!(report["exit_code"], 3);

        let done = Gate::new(*user).flags(["--json", "--output", "1000"]).run(["seq", "10000"]);
        let report: serde_json::Value = serde_json::from_str(&done.stdout()).unwrap_or_else(|_| panic!("{done}"));
        let kept = report["stdout"].as_str().unwrap();
        assert!(kept.starts_with("1\n2\n") && kept.ends_with("9999\n10000\n"), "{kept}");
        assert_eq!(report["stdout_truncated"], 48894 - 1000);
    }
}

/// The caller relies on the report, so a run whose report cannot be written must not look like a success.
#[test]
fn a_report_that_cannot_be_written_is_told_by_the_code() {
    for user in users() {
        let done = Gate::new(*user).flags(["--report", "/dev/full"]).run(["sh", "-c", "echo ran; exit 3"]);
        done.exits(125).prints("ran\n");
        let told = "gatekeeper: cannot write the report: No space left on device (os error 28); the run ended with 3\n";
        done.complains(told);
        Gate::new(*user).report(["sh", "-c", "exit 3"]).0.exits(3);
    }
}

#[test]
fn a_report_goes_to_any_descriptor() {
    let gate = Gate::new(unprivileged());
    // A file, and a socket, which cannot be reopened by name.
    for script in [
        r#"exec 5>report; "$@""#,
        r#"python3 -c 'import os,socket,subprocess,sys; a,b=socket.socketpair(); os.dup2(b.fileno(),5); b.close()
r=subprocess.run(sys.argv[1:],pass_fds=[5]).returncode; os.close(5); open("report","wb").write(a.recv(100000)); sys.exit(r)' "$@""#,
    ] {
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(gatekeeper()).args(["run", "--report-fd", "5", "-c"]);
        command.args(["ls /proc/self/fd; exit 4"]).current_dir(&gate.dir);
        super::become_user(&mut command, gate.user);
        finish(command, None).exits(4);
        let report = fs::read_to_string(gate.dir.join("report")).unwrap();
        let report: serde_json::Value = serde_json::from_str(&report).unwrap_or_else(|_| panic!("{report}"));
        assert_eq!(report["exit_code"], 4);
    }
}

#[test]
fn plan_prints_the_steps_that_run_takes_and_changes_nothing() {
    for user in users() {
        let gate = Gate::profile(*user, "write").verb("plan");
        let done = gate.run(["sh", "-c", "touch marker"]);
        done.exits(0);
        for step in ["command", "environment", "landlock", "seccomp", "exec", "no_new_privs", "descriptors"] {
            assert!(done.stdout().lines().any(|line| line.starts_with(step)), "{step}{done}");
        }
        let gate = gate.flags(["--cache", "cache"]);
        gate.run(["true"]).exits(0);
        assert_eq!(fs::read_dir(&gate.dir).unwrap().count(), 0);
        let gate = gate.flags(["--json"]);
        let plan: serde_json::Value = serde_json::from_str(&gate.run(["true"]).exits(0).stdout()).unwrap();
        assert_eq!(plan["schema"], 1);
        assert!(plan["steps"].as_array().is_some_and(|steps| steps.len() > 7));
        gate.run(["no-such-command"]).exits(127);
        Gate::new(*user).verb("plan").run([&gate.file("text", "x")]).exits(126);
    }
}

#[test]
fn quiet_says_nothing_and_denials_are_told_otherwise() {
    let act = act();
    let words = [act.to_str().unwrap(), "tcp", ",", "exit", "1"];
    let told = Gate::new(unprivileged()).run(words);
    assert!(
        told.exits(1).stderr().starts_with("gatekeeper: act: socket(AF_INET, SOCK_STREAM, 0) was denied"),
        "{told}"
    );
    Gate::new(unprivileged()).flags(["--quiet"]).run(words).exits(1).complains("");
    // gatekeeper prints nothing about a command that fails by itself.
    Gate::new(unprivileged()).run(["false"]).exits(1).complains("");
}

/// `--report` and `--json` together: both get the whole report, and standard output gets it once.
#[test]
fn a_report_file_does_not_take_the_document_from_standard_output() {
    for user in users() {
        let gate = Gate::new(*user).flags(["--json"]);
        let (done, written) = gate.report(["sh", "-c", "echo out; echo err >&2; exit 3"]);
        let printed: serde_json::Value = serde_json::from_str(&done.exits(3).stdout()).expect("one document");
        assert_eq!(printed, written);
        assert_eq!((&printed["stdout"], &printed["stderr"]), (&"out\n".into(), &"err\n".into()), "{printed:#}");
        for same in [["--report-fd", "1"], ["--report", "/dev/stdout"], ["--report", "/dev/fd/1"]] {
            let done = Gate::new(*user).flags(["--json"]).flags(same).run(["echo", "x"]);
            let once: serde_json::Value = serde_json::from_str(&done.exits(0).stdout()).expect("one document");
            assert_eq!(once["stdout"], "x\n", "{same:?}");
        }
    }
}

#[test]
fn with_json_every_report_has_both_streams() {
    for user in users() {
        for (flags, words, outcome) in [
            (&["--deny-path", "/"][..], &["true"][..], "refused"),
            (&[], &["no-such-command-anywhere"], "not_found"),
            (&["--config", "no-such-file.toml"], &["true"], "setup_failed"),
            (&["--cwd", "no-such-directory"], &["true"], "setup_failed"),
            (&[], &["true"], "exited"),
        ] {
            let done = Gate::new(*user).flags(["--json"]).flags(flags).run(words);
            let report: serde_json::Value = serde_json::from_str(&done.stdout()).unwrap_or_else(|_| panic!("{done}"));
            assert_eq!(report["outcome"], outcome, "{done}");
            for name in ["stdout", "stderr"] {
                assert_eq!((&report[name], &report[format!("{name}_truncated")]), (&"".into(), &0.into()), "{done}");
            }
        }
    }
}
