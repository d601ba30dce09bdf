//! Exit codes, signals, streams and the report.

use super::{Gate, NOTHING, act, finish, gatekeeper, layer, unprivileged, users};
use crate::support::{probe, run};
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

#[test]
fn the_commands_own_code_is_the_exit_code() {
    for user in users() {
        for code in [0, 1, 2, 77, 124, 125, 126, 127, 255] {
            let gate = Gate::new(*user);
            let (done, report) = gate.report(["sh", "-c", &format!("exit {code}")]);
            done.exits(code).complains("");
            assert_eq!(report["outcome"], "exited", "{report:#}");
            assert_eq!(report["exit_code"], code);
            assert_eq!(report["signal"], serde_json::Value::Null);
        }
    }
}

#[test]
fn death_by_a_signal_is_128_and_the_signal() {
    for user in users() {
        for signal in [libc::SIGTERM, libc::SIGKILL, libc::SIGSEGV, libc::SIGABRT] {
            let gate = Gate::new(*user);
            let words = [act().into_os_string(), "die".into(), signal.to_string().into()];
            let (done, report) = gate.report(words);
            done.exits(128 + signal);
            assert_eq!(report["outcome"], "signaled", "{report:#}");
            assert_eq!(report["signal"], signal);
            assert_eq!(report["exit_code"], 128 + signal);
        }
    }
}

#[test]
fn a_denied_call_under_kill_is_159() {
    for user in users() {
        let gate = Gate::new(*user).flags(["--on-violation", "kill"]);
        let (done, report) = gate.report([act().to_str().unwrap(), "tcp", ",", "create", "marker"]);
        done.exits(159).prints("");
        assert_eq!(report["outcome"], "signaled");
        assert_eq!(report["signal"], libc::SIGSYS);
        assert_eq!(report["denials"][0]["syscall"], "socket", "{report:#}");
        assert!(!gate.dir.join("marker").exists());
    }
}

#[test]
fn the_time_is_up_at_124() {
    for user in users() {
        let gate = Gate::new(*user).flags(["--timeout", "300ms"]);
        let (done, report) = gate.report(["sleep", "60"]);
        done.exits(124);
        assert_eq!(report["outcome"], "timeout", "{report:#}");
        assert_eq!(report["exit_code"], 124);
    }
}

#[test]
fn what_is_not_there_is_127_and_what_cannot_run_is_126() {
    let gate = Gate::new(unprivileged());
    let (done, report) = gate.report(["no-such-command-anywhere"]);
    done.exits(127);
    assert_eq!(report["outcome"], "not_found");
    assert_eq!(report["verdict"]["reasons"][0]["code"], "not_found");

    let text = gate.file("not-executable", "#!/bin/sh\n");
    let (done, report) = gate.report([&text]);
    done.exits(126);
    assert_eq!(report["outcome"], "refused");
    assert_eq!(report["verdict"]["reasons"][0]["code"], "not_executable");
    gate.run([gate.dir.as_path()]).exits(126);
    gate.run([""]).exits(127);
}

#[test]
fn mistakes_in_the_words_are_125_and_run_nothing() {
    let gate = Gate::new(unprivileged());
    for flags in [
        vec!["--no-such-flag"],
        vec!["--profile", "minimul"],
        vec!["--allow", "opennat"],
        vec!["--deny", "@no-such-group"],
        vec!["--timeout", "soon"],
        vec!["--memory", "much"],
        vec!["--net", "some"],
        vec!["--on-violation", "ask"],
        vec!["--static", "maybe"],
        vec!["--require-sandbox=perhaps"],
        vec!["--env", "LD_LIBRARY_PATH=/tmp"],
        vec!["--env", "GATEKEEPER_SANDBOX=none"],
        vec!["--config", "missing.toml"],
        vec!["--cwd", "missing"],
        vec!["--report", "missing/report.json"],
        vec!["--report-fd", "77"],
        vec!["--profile", "custom"],
    ] {
        let gate = Gate::profile(unprivileged(), "write");
        let gate = if flags[0] == "--profile" { Gate::new(unprivileged()) } else { gate };
        let done = gate.flags(&flags).run(["sh", "-c", "echo ran; touch marker"]);
        done.exits(125).prints("");
        assert!(done.stderr().len() > 10, "{done}");
    }
    gate.run(NOTHING).exits(125);
}

#[test]
fn signals_are_passed_on() {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2, libc::SIGQUIT] {
        let gate = Gate::new(unprivileged());
        let line = format!("trap 'echo got; exit 7' {signal}; echo ready; while :; do sleep 0.05; done");
        let mut command = gate.flags(["-c", &line]).command(NOTHING);
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
        let mut stdout = std::io::BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        std::io::BufRead::read_line(&mut stdout, &mut line).expect("reads");
        assert_eq!(line, "ready\n");
        rustix::process::kill_process(
            rustix::process::Pid::from_child(&child),
            rustix::process::Signal::from_named_raw(signal).expect("known"),
        )
        .expect("ours");
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut stdout, &mut rest).expect("reads");
        assert_eq!(rest, "got\n", "signal {signal}");
        assert_eq!(child.wait().expect("ours").code(), Some(7));
    }
}

/// A signal that comes before the command is there is not lost.
#[test]
fn a_signal_in_the_first_moment_ends_the_run() {
    for delay in 0..20 {
        let gate = Gate::new(unprivileged());
        let mut command = gate.command(["sleep", "60"]);
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
        std::thread::sleep(Duration::from_micros(delay * 400));
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM)
            .expect("ours");
        let began = std::time::Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().expect("ours") {
                break status;
            }
            if began.elapsed() > Duration::from_secs(20) {
                let _ = child.kill();
                panic!("SIGTERM after {} us was lost", delay * 400);
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        // By the signal itself where it came before gatekeeper took it over.
        use std::os::unix::process::ExitStatusExt;
        assert!(status.code() == Some(143) || status.signal() == Some(libc::SIGTERM), "{status}");
    }
}

#[test]
fn the_report_has_every_field_of_the_contract() {
    for user in users() {
        let gate = Gate::new(*user).flags(["--memory", "4G"]);
        let act = act();
        let words = [act.to_str().unwrap(), "tcp", ",", "tcp", ",", "exit", "5"];
        let (done, report) = gate.report(words);
        done.exits(5).prints("tcp 1\ntcp 1\n");
        assert_eq!(report["schema"], 1);
        assert_eq!(report["outcome"], "exited");
        assert_eq!(report["exit_code"], 5);
        assert!(report["signal"].is_null());
        assert!(report["duration_ms"].as_u64().is_some_and(|ms| ms < 60_000), "{report:#}");
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
        // Of a whole tree where there is a cgroup to be had, of each process elsewhere.
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
        // What the record says would allow it does.
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

#[test]
fn a_report_goes_to_any_descriptor() {
    let gate = Gate::new(unprivileged());
    // A pipe, and a socket, which cannot be opened a second time by name.
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
fn streams_are_the_callers_own() {
    for user in users() {
        let gate = Gate::new(*user).stdin("through\n");
        gate.run(["cat"]).exits(0).prints("through\n").complains("");
        let big: Vec<u8> = (0..3_000_000u32).map(|n| n as u8).collect();
        let done = Gate::new(*user).stdin(big.clone()).run(["cat"]);
        assert!(done.output.stdout == big);
    }
}

#[test]
fn closed_streams_are_nobodys_files() {
    let gate = Gate::new(unprivileged());
    for closed in ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"] {
        let mut command = Command::new("sh");
        let line = format!(r#"exec {closed}; exec "$@""#);
        command.args(["-c", &line, "sh"]).arg(gatekeeper()).args(["run", "--report", "report", "--", "sh", "-c"]);
        command.arg("test -e /dev/fd/0 -a -e /dev/fd/1 -a -e /dev/fd/2 && exit 9").current_dir(&gate.dir);
        super::become_user(&mut command, gate.user);
        finish(command, None).exits(9);
    }
}

#[test]
fn huge_words_and_environments_pass_or_are_refused_as_a_whole() {
    for user in users() {
        let word = "x".repeat(100_000);
        let words: Vec<&str> = std::iter::once("echo").chain(std::iter::repeat_n(word.as_str(), 10)).collect();
        let done = Gate::new(*user).run(&words);
        assert_eq!(done.exits(0).output.stdout.len(), 10 * 100_001);
        let gate = Gate::new(*user).env("BIG", "y".repeat(120_000)).flags(["--env", "BIG"]);
        gate.run(["sh", "-c", "echo ${#BIG}"]).exits(0).prints("120000\n");
        // Together with what gatekeeper itself was given, more than the kernel takes: its errno, its step, nothing run.
        let many: Vec<String> = (0..30_000).map(|n| format!("word-{n}")).collect();
        let done = Gate::new(*user).run(std::iter::once("echo").chain(many.iter().map(String::as_str)));
        assert!(done.exits(0).stdout().ends_with("word-29999\n"));
    }
}

#[test]
fn words_need_not_be_text() {
    use std::os::unix::ffi::OsStrExt;
    for user in users() {
        let word = std::ffi::OsStr::from_bytes(b"a\xff\xfeb");
        let (done, report) = Gate::new(*user).report([std::ffi::OsStr::new("printf"), "%s".as_ref(), word]);
        assert_eq!(done.exits(0).output.stdout, b"a\xff\xfeb");
        assert_eq!(report["command"][2], "a\u{fffd}\u{fffd}b");
        let gate = Gate::new(*user).env("LC_ODD", std::ffi::OsStr::from_bytes(b"\xff"));
        assert_eq!(gate.run(["sh", "-c", "printf %s \"$LC_ODD\""]).exits(0).output.stdout, b"\xff");
    }
}

/// The caller's mask and ignored signals reach the command as without gatekeeper, and nothing of gatekeeper's own.
#[test]
fn signal_dispositions_are_the_callers() {
    let gate = Gate::new(unprivileged());
    let line = "grep -E '^Sig(Blk|Ign|Cgt)|^ShdPnd' /proc/self/status";
    // Started by fork, as gatekeeper is here: posix_spawn leaves traces of its own in the mask.
    let plain = {
        let mut command = Command::new("sh");
        command.args(["-c", line]);
        // SAFETY: the closure does nothing.
        unsafe { command.pre_exec(|| Ok(())) };
        run(&mut command).stdout()
    };
    let mut command = gate.flags(["-c", line]).command(NOTHING);
    // SAFETY: the closure does nothing.
    unsafe { command.pre_exec(|| Ok(())) };
    finish(command, None).exits(0).prints(&plain);
    let nohup = Gate::new(unprivileged()).under(["nohup"]);
    let done = nohup.flags(["-c", line]).run(NOTHING);
    let text = done.stdout();
    let ignored = text.lines().find_map(|line| line.strip_prefix("SigIgn:\t")).expect("a line");
    // SIGHUP; a test started in the background by a shell ignores two more.
    assert_eq!(u64::from_str_radix(ignored, 16).expect("a mask") & 1, 1, "{done}");
}

#[test]
fn nothing_is_left_behind() {
    for user in users() {
        for profile in ["minimal", "network", "write", "unrestricted"] {
            let gate = Gate::profile(*user, profile);
            let tmp = gate.dir.join("tmp");
            fs::create_dir(&tmp).unwrap();
            super::owned_by(*user, &tmp);
            let gate = gate.env("TMPDIR", &tmp);
            gate.run(["true"]).exits(0);
            gate.run(["false"]).exits(1);
            assert_eq!(fs::read_dir(&tmp).unwrap().count(), 0, "{profile}");
            let names: Vec<_> = fs::read_dir(&gate.dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            assert_eq!(names, ["tmp"], "{profile}");
        }
    }
}

/// Two hundred at once: every one ends, with its own code and its own output.
#[test]
fn two_hundred_runs_at_once() {
    let user = unprivileged();
    let gate = Gate::new(user);
    let act = act();
    let start = |number: usize| {
        let code = (number % 100).to_string();
        let mut command = gate.command([act.to_str().unwrap(), "tcp", ",", "exit", &code]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("starts")
    };
    let children: Vec<_> = (0..200).map(start).collect();
    for (number, child) in children.into_iter().enumerate() {
        let output = child.wait_with_output().expect("ours");
        assert_eq!(output.status.code(), Some((number % 100) as i32), "{output:?}");
        assert_eq!(output.stdout, b"tcp 1\n", "{output:?}");
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
        told.exits(1).stderr().starts_with("gatekeeper: socket(AF_INET, SOCK_STREAM, 0) of act was denied"),
        "{told}"
    );
    Gate::new(unprivileged()).flags(["--quiet"]).run(words).exits(1).complains("");
    // A command that fails by itself is not commented on.
    Gate::new(unprivileged()).run(["false"]).exits(1).complains("");
}

/// Started without a single descriptor of 0 to 2, and with a leaked directory above: nothing passes.
#[test]
fn descriptors_above_two_are_closed() {
    let gate = Gate::new(unprivileged());
    let act = act();
    let mut command = Command::new("sh");
    command.args(["-c", r#"exec 3</ 7</etc/passwd 9<.; exec "$@""#, "sh"]).arg(gatekeeper()).args(["run", "--"]);
    command.arg(&act).args(["fd", "3", ",", "fd", "7", ",", "fd", "9", ",", "fd", "0", ",", "fd", "2"]);
    command.current_dir(&gate.dir);
    super::become_user(&mut command, gate.user);
    finish(command, None).exits(0).prints("fd 9\nfd 9\nfd 9\nfd 0\nfd 0\n");
    // And what the filter and the launcher themselves had open.
    let ls = Gate::new(unprivileged()).run(["ls", "/proc/self/fd"]);
    ls.exits(0).prints("0\n1\n2\n3\n");
}

/// Whoever starts gatekeeper with many descriptors and a low limit still gets a run.
#[test]
fn a_caller_with_a_low_limit_of_files_is_served() {
    let gate = Gate::new(unprivileged());
    let mut command = Command::new("sh");
    command.args(["-c", r#"ulimit -n 24; exec "$@""#, "sh"]).arg(gatekeeper()).args(["run", "--", "echo", "ran"]);
    command.current_dir(&gate.dir);
    super::become_user(&mut command, gate.user);
    finish(command, None).exits(0).prints("ran\n");
}

/// A probe that is a program of its own: not the shell's word for it.
#[test]
fn zero_words_and_odd_names() {
    let gate = Gate::new(unprivileged());
    let copy = gate.dir.join("a b'c\n$(d)");
    fs::copy(probe("act", &[]), &copy).unwrap();
    gate.run([copy.as_os_str(), "tcp".as_ref()]).exits(0).prints("tcp 1\n");
    let mut command = gate.command(["./a b'c\n$(d)"]);
    command.arg0("");
    finish(command, None).exits(0);
}
