//! How runs end: the time limit, the whole tree, pipes that a background process holds, and forwarded signals.

use super::{Place, eventually, mark, marked, none_left, signal, users};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Whether the line got as far as printing `ready`.
fn said_ready(report: &serde_json::Value) -> bool {
    report["stdout"].as_str().expect("text").starts_with("ready\n")
}

#[test]
fn a_timeout_asks_first_and_reports_itself() {
    for user in users() {
        let place = Place::new(user);
        let line = "trap 'echo asked; exit 3' TERM; echo ready; sleep 600 & wait";
        let report = place.report_of_timeout(&["-p", "write", "-c", line], said_ready);
        assert_eq!(
            (report["outcome"].as_str(), report["exit_code"].as_i64()),
            (Some("timeout"), Some(124)),
            "{report:#}"
        );
        assert_eq!(report["stdout"], "ready\nasked\n", "{report:#}");
        assert_eq!(report["limit"]["which"], "time");
        assert!(report["limit"]["value"].as_u64().expect("a number") >= 1000);
    }
}

#[test]
fn a_command_that_ignores_the_request_is_killed() {
    for user in users() {
        let place = Place::new(user);
        let mark = mark();
        let line = format!("trap '' TERM; echo ready; setsid sleep {mark} & while :; do sleep {mark}; done");
        let report = place.report_of_timeout(&["-p", "write", "-c", &line], said_ready);
        assert_eq!((report["outcome"].as_str(), report["exit_code"].as_i64()), (Some("timeout"), Some(124)));
        let limit = report["limit"]["value"].as_u64().expect("a number");
        let took = report["duration_ms"].as_u64().expect("a number");
        assert!(took >= limit + 1900, "it was given time to end by itself: {report:#}");
        none_left(&mark);
    }
}

#[test]
fn a_stopped_command_is_ended_as_well() {
    for user in users() {
        let place = Place::new(user);
        let line = "trap 'echo asked; exit 0' TERM; echo ready; kill -STOP $$; echo woken";
        let report = place.report_of_timeout(&["-p", "write", "-c", line], said_ready);
        assert_eq!(report["outcome"], "timeout", "{report:#}");
        assert!(report["stdout"].as_str().expect("text").starts_with("ready\nasked\n"), "{report:#}");
    }
}

#[test]
fn what_the_command_leaves_behind_is_ended_with_it() {
    for user in users() {
        let place = Place::new(user);
        let mark = mark();
        // setsid, nohup, a double fork, a process substitution, and a daemon that ignores every signal it can.
        let line = format!(
            "setsid sleep {mark} & nohup sleep {mark} >/dev/null 2>&1 & (sleep {mark} & ) ; \
             setsid sh -c 'trap \"\" HUP INT TERM; sleep {mark} & sleep {mark}' & \
             echo x > >(tee /dev/null; sleep {mark}); sleep 0.3; echo done; exit 7"
        );
        let began = Instant::now();
        let report = place.report(&["-p", "write", "--", "bash", "-c", &line]);
        assert!(marked(&mark).is_empty(), "nothing is left when gatekeeper has ended: {:?}", marked(&mark));
        assert_eq!((report["outcome"].as_str(), report["exit_code"].as_i64()), (Some("exited"), Some(7)), "{report:#}");
        assert!(report["stdout"].as_str().expect("text").contains("done\n"), "{report:#}");
        assert!(began.elapsed() < super::PATIENCE, "a child that holds the pipe does not hang it");
    }
}

#[test]
fn a_command_that_closes_its_output_goes_on() {
    for user in users() {
        let place = Place::new(user);
        let report = place.report(&["-p", "write", "-c", "echo first; exec >&- 2>&-; sleep 0.3; echo > there; exit 5"]);
        assert_eq!((report["exit_code"].as_i64(), report["stdout"].as_str()), (Some(5), Some("first\n")), "{report:#}");
        assert!(place.at("work").join("there").exists());
    }
}

#[test]
fn a_reader_that_goes_away_ends_the_writer() {
    let place = Place::new(None);
    let line = format!("{} run -- yes | head -n 1", super::gatekeeper().display());
    let done = crate::support::run(place.any("/bin/sh".as_ref(), &["-c", &line]).stderr(Stdio::piped()));
    done.exits(0).prints("y\n");
}

#[test]
fn signals_are_passed_on() {
    for user in users() {
        let place = Place::new(user);
        for (name, number) in [("TERM", 15), ("INT", 2), ("HUP", 1), ("USR1", 10), ("USR2", 12), ("QUIT", 3)] {
            let line = format!("trap 'exit {}' {name}; echo > ready; while :; do sleep 0.05; done", 40 + number);
            let mut front = place.command(&["run", "-p", "write", "-c", &line]).spawn().expect("starts");
            eventually("it is ready", || place.at("work").join("ready").exists());
            signal(front.id(), name);
            assert_eq!(front.wait().expect("waits").code(), Some(40 + number), "{name}");
            std::fs::remove_file(place.at("work").join("ready")).expect("made");
        }
    }
}

#[test]
fn a_front_that_is_stopped_goes_on_where_it_was() {
    for user in users() {
        let place = Place::new(user);
        // chmod waits for the supervisor, which is stopped.
        let line = "echo > ready; while [ ! -e go ]; do sleep 0.05; done; chmod 600 ready && echo changed; exit 6";
        let mut command = place.command(&["run", "-p", "write", "-c", line]);
        let front = command.stdout(Stdio::piped()).spawn().expect("starts");
        eventually("it is ready", || place.at("work").join("ready").exists());
        signal(front.id(), "STOP");
        std::fs::write(place.at("work").join("go"), "").expect("own directory");
        std::thread::sleep(Duration::from_millis(300));
        signal(front.id(), "CONT");
        let output = front.wait_with_output().expect("waits");
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(6), &b"changed\n"[..]));
    }
}

/// Only the filter and Landlock keep signals inside. Without both, the command can signal its guardian.
#[test]
fn a_guardian_that_is_stopped_goes_on() {
    for user in users() {
        let place = Place::new(user);
        let mark = mark();
        let line = format!("setsid sleep {mark} & kill -STOP $PPID; exit 7");
        place.run(&["run", "-p", "unrestricted", "--timeout", "300s", "-c", &line]).exits(7);
        none_left(&mark);
    }
}

/// The process above the guardian: `kill -STOP $front`.
const FRONT: &str = "front=$(sed 's/.*) . //; s/ .*//' /proc/$PPID/stat)";

/// The front process enforces the limits. If the command stops it, the guardian continues it.
#[test]
fn a_front_that_its_command_stops_enforces_the_time() {
    for user in users() {
        for stops in ["kill -STOP $front", "kill -STOP $front $PPID", "kill -STOP $PPID $front"] {
            let place = Place::new(user);
            let line = format!("{FRONT}; trap 'echo asked; exit 3' TERM; echo ready; {stops}; sleep 600 & wait");
            let report = place.report_of_timeout(&["-p", "unrestricted", "-c", &line], said_ready);
            assert_eq!((report["outcome"].as_str(), report["exit_code"].as_i64()), (Some("timeout"), Some(124)));
            assert_eq!(report["stdout"], "ready\nasked\n", "{stops}: {report:#}");
            let (took, limit) = (report["duration_ms"].as_u64(), report["limit"]["value"].as_u64());
            assert!(took < limit.map(|limit| limit + 30_000), "{report:#}");
        }
    }
}

#[test]
fn a_front_that_its_command_stops_learns_of_the_end() {
    for user in users() {
        let place = Place::new(user);
        let mark = mark();
        let line = format!("{FRONT}; setsid sleep {mark} & kill -STOP $front $PPID; exit 7");
        let report = place.report(&["-p", "unrestricted", "-c", &line]);
        assert_eq!((report["outcome"].as_str(), report["exit_code"].as_i64()), (Some("exited"), Some(7)), "{report:#}");
        none_left(&mark);
    }
}

/// Without a cgroup the front process measures the tree.
#[test]
fn a_front_that_its_command_stops_measures_on() {
    for user in users() {
        let place = Place::new(user);
        let line = format!("{FRONT}; kill -STOP $front; while :; do :; done");
        let report = place.report(&["-p", "unrestricted", "--cpu", "1s", "--timeout", "300s", "-c", &line]);
        assert_eq!((report["outcome"].as_str(), report["limit"]["which"].as_str()), (Some("limit"), Some("cpu")));
        assert!(report["duration_ms"].as_u64() < Some(200_000), "{report:#}");
    }
}

/// Nor does it help to stop it again and again. Its own report may come from the guardian then.
#[test]
fn a_front_that_is_stopped_again_and_again_does_not_outlive_its_time() {
    for user in users() {
        let place = Place::new(user);
        let line = format!("{FRONT}; trap '' TERM; echo ready; while kill -STOP $front; do :; done; sleep 600");
        let report = place.report_of_timeout(&["-p", "unrestricted", "-c", &line], said_ready);
        assert_eq!((report["outcome"].as_str(), report["exit_code"].as_i64()), (Some("timeout"), Some(124)));
    }
}

/// While it lasts, this may delay the limits. They are not lost by it.
#[test]
fn stopping_the_front_and_the_guardian_for_a_while_does_not_end_the_time_limit() {
    for user in users() {
        let place = Place::new(user);
        let line = format!(
            "{FRONT}; echo ready; n=0; while [ $n -lt 300000 ]; do n=$((n+1)); kill -STOP $front $PPID; done; sleep 600"
        );
        let report = place.report_of_timeout(&["-p", "unrestricted", "-c", &line], said_ready);
        assert_eq!((report["outcome"].as_str(), report["exit_code"].as_i64()), (Some("timeout"), Some(124)));
        assert!(report["duration_ms"].as_u64() < Some(300_000), "{report:#}");
    }
}

/// Some daemons ignore SIGCHLD, and the programs they start inherit that.
#[test]
fn a_caller_that_ignores_its_children_does_not_hang_it() {
    for user in users() {
        let place = Place::new(user);
        let gatekeeper = super::gatekeeper().display();
        let line = format!("trap '' CHLD; exec {gatekeeper} run -p write --timeout 300s -c 'sleep 0.1; exit 3'");
        crate::support::run(&mut place.any("/bin/bash".as_ref(), &["-c", &line])).exits(3);
    }
}
