//! Limits that must hold while a program keeps the supervisor busy, blocks it or stops itself.

use super::{Hole, Severity, supervised, words};
use crate::run::{Gate, become_user, denials, finish, reports, users};
use crate::support::{has, probe, run};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub const HOLES: &[Hole] = &[
    Hole {
        severity: Severity::High,
        attack: "flip O_NONBLOCK on a socket while the supervisor connects it",
        reached: "the supervisor blocked: time limit, memory limit and SIGTERM had no effect",
        held_by: &["flipped_flags_do_not_stop_the_clock", "flipped_flags_do_not_keep_sigterm_out"],
    },
    Hole {
        severity: Severity::Low,
        attack: "the command stops itself on a shared terminal and leaves a child running",
        reached: "no time limit and no memory limit while the shell waited",
        held_by: &["a_command_that_stops_itself_stops_no_clock"],
    },
];

#[test]
fn flipped_flags_do_not_stop_the_clock() {
    let program = supervised();
    for user in users() {
        // A single attempt wins the race more often than not.
        for _ in 0..3 {
            let gate = Gate::profile(*user, "write").flags(["--timeout", "3s"]);
            let began = Instant::now();
            let (done, report) = gate.report(words(&program, &["flip", "."]));
            done.exits(124).prints("flipping\n");
            assert_eq!(report["outcome"], "timeout");
            assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
        }
    }
}

#[test]
fn flipped_flags_do_not_keep_sigterm_out() {
    let program = supervised();
    for user in users() {
        let gate = Gate::profile(*user, "write").flags(["--quiet"]);
        let mut command = gate.command(words(&program, &["flip", "."]));
        let mut child = command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().expect("gatekeeper starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("readable");
        assert_eq!(line, "flipping\n");
        std::thread::sleep(Duration::from_millis(700));
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("own child");
        let status = ends(&mut child, Duration::from_secs(30)).expect("SIGTERM is passed on");
        assert_eq!(status.code(), Some(128 + libc::SIGTERM), "{status}");
    }
}

fn ends(child: &mut Child, patience: Duration) -> Option<std::process::ExitStatus> {
    let began = Instant::now();
    while began.elapsed() < patience {
        if let Some(status) = child.try_wait().expect("own child") {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}

/// Never a hole, but it must stay so now that a separate thread judges the calls.
#[test]
fn a_flood_of_denied_calls_does_not_delay_the_end() {
    let program = supervised();
    for user in users() {
        let gate = Gate::profile(*user, "write").flags(["--timeout", "1s"]);
        let began = Instant::now();
        let (done, report) = gate.report(words(&program, &["flood"]));
        done.exits(124).prints("flooding\n");
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        // Equal denials are one record with a count.
        let [mount] = denials(&report, "mount")[..] else { panic!("{report:#}") };
        assert!(mount["count"].as_u64().is_some_and(|count| count > 100), "{mount:#}");
    }
}

/// Never a hole either. Without the bound, each blocked connection would take a thread and three descriptors.
#[test]
fn blocked_connections_are_bounded() {
    let program = supervised();
    for user in users() {
        // 128 connections may wait in the supervisor. Further ones fail with EAGAIN, and the run continues.
        let gate = Gate::profile(*user, "write").flags(["--timeout", "60s"]);
        let count = (128 + 12).to_string();
        gate.run(words(&program, &["crowd", &count, "."])).exits(0).prints(&format!("12 {}\n", libc::EAGAIN));
        // With fewer descriptors, the program gets EMFILE and the supervisor survives.
        let gate = Gate::profile(*user, "write").flags(["--timeout", "60s"]);
        let mut command = Command::new("sh");
        let line = "ulimit -n 80; exec \"$0\" run --profile write --timeout 60s -- \"$1\" crowd 70 .";
        command.args(["-c", line]).arg(crate::run::gatekeeper()).arg(&program);
        command.current_dir(&gate.dir).env("HOME", "/nonexistent");
        become_user(&mut command, *user);
        let done = finish(command, None);
        let (turned_away, errno) = (done.exits(0).stdout(), libc::EMFILE.to_string());
        let mut parts = turned_away.split_whitespace();
        let count: u32 = parts.next().and_then(|text| text.parse().ok()).expect("a number");
        assert!(count > 0 && count < 70 && parts.next() == Some(errno.as_str()), "{done}");
    }
}

#[test]
fn a_command_that_stops_itself_stops_no_clock() {
    if !has("bash") {
        return;
    }
    let program = supervised();
    for (at, user) in users().iter().enumerate() {
        let gate = Gate::new(*user);
        let report = reports().join(format!("stopped-{at}.json"));
        let _ = fs::remove_file(&report);
        let mut command = Command::new(probe("pty", &[]));
        command.args([
            "<ready$ ",
            ">\"$G\" run -q -p write --timeout 5s --report \"$R\" -- \"$A\" stop grows\\r",
            "<stopping",
            "<Stopped",
            // The child, which did not stop itself, was stopped too.
            ">a=$(stat -c %s grows); sleep 1; b=$(stat -c %s grows); [ $a = $b ] && echo it-\"stands\"\\r",
            "<it-stands",
            // The shell never continues it, so the time limit has to end it.
            ">while [ ! -s \"$R\" ]; do sleep 0.1; done; echo report-\"there\"\\r",
            "<report-there",
            ">exit 0\\r",
            ">exit 0\\r",
            "--",
            "bash",
            "--norc",
            "--noprofile",
            "-i",
        ]);
        command.env_clear().envs([("PS1", "ready$ "), ("TERM", "xterm"), ("PATH", "/usr/bin:/bin"), ("LC_ALL", "C")]);
        command.env("G", crate::run::gatekeeper()).env("A", &program).env("R", &report).env("HOME", "/nonexistent");
        command.current_dir(&gate.dir);
        become_user(&mut command, *user);
        let done = run(&mut command);
        done.exits(0);
        assert!(!done.stdout().contains("continued"), "it was ended where it stood{done}");
        let text = fs::read_to_string(&report).expect("a report");
        let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(report["outcome"], "timeout", "{report:#}");
        let millis = report["duration_ms"].as_u64().expect("a number");
        assert!((5000..30_000).contains(&millis), "{report:#}");
    }
}
