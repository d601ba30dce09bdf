//! Exit codes and signals, and what is left at the end.

use super::{Gate, NOTHING, act, unprivileged, users};
use std::fs;
use std::process::Stdio;
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

/// A signal that arrives before the command starts is not lost.
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
            if began.elapsed() > super::PATIENCE {
                let _ = child.kill();
                panic!("SIGTERM after {} us was lost", delay * 400);
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        // gatekeeper dies by the signal itself if it arrives before the handler is installed.
        use std::os::unix::process::ExitStatusExt;
        assert!(status.code() == Some(143) || status.signal() == Some(libc::SIGTERM), "{status}");
    }
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

/// Two hundred runs at once all end, each with its own exit code and output.
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
        assert_eq!(output.stdout, b"tcp 97\n", "{output:?}");
    }
}
