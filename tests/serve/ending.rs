//! Commands end with the client, the server, the guardian program or the guardian.

use super::Server;
use crate::plumbing::{Place, eventually, mark, marked, none_left, users};
use serde_json::json;
use std::fs;

/// Starts a run with two sleeping processes, one in the process group and one outside of it.
fn two_sleep(server: &mut Server, id: u32, mark: &str) {
    let line = format!("touch $TMPDIR/file; setsid sleep {mark} & exec sleep {mark}");
    server.ask(json!({"id": id, "line": line, "flags": ["-p", "write"]}));
    eventually("both sleep", || marked(mark).len() >= 2);
}

/// The children of a process, of all its threads.
fn children(pid: i32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>()).collect()
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).expect("a process id");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it runs");
}

fn is_clean(place: &Place) {
    eventually("the directory is gone", || fs::read_dir(place.at("tmp")).expect("readable").count() == 0);
}

#[test]
fn a_server_that_is_killed_leaves_nothing() {
    for user in users() {
        let place = Place::new(user);
        let mut server = Server::start(&place);
        let mark = mark();
        two_sleep(&mut server, 1, &mark);
        let program = children(server.child.id() as i32);
        assert_eq!(program.len(), 1, "the server has one child, the guardian program");
        server.child.kill().expect("own child");
        none_left(&mark);
        is_clean(&place);
        eventually("the guardian program is gone", || !fs::exists(format!("/proc/{}", program[0])).unwrap_or(true));
    }
}

#[test]
fn a_client_that_is_killed_takes_everything_with_it() {
    for user in users() {
        let place = Place::new(user);
        let mut server = Server::unread(&place);
        let mark = mark();
        two_sleep(&mut server, 1, &mark);
        // Both pipes close, as at the end of a process; the server itself lives on until it has ended the runs.
        assert_eq!(server.leave_without_reading(), Some(0));
        none_left(&mark);
        is_clean(&place);
    }
}

#[test]
fn the_end_of_the_input_lets_runs_finish() {
    let place = Place::new(users().pop().expect("a user"));
    let mut server = Server::start(&place);
    server.ask(json!({"id": 1, "line": "sleep 1; echo late", "flags": ["-p", "read"]}));
    assert_eq!(server.leave(), Some(0));
    assert_eq!(server.report(1)["stdout"], "late\n");
}

#[test]
fn a_guardian_program_that_is_killed_takes_its_commands_with_it_and_another_follows() {
    for user in users() {
        let place = Place::new(user);
        let mut server = Server::start(&place);
        let mark = mark();
        two_sleep(&mut server, 1, &mark);
        let program = children(server.child.id() as i32);
        kill(program[0]);
        let report = server.report(1);
        assert_eq!((&report["outcome"], &report["exit_code"]), (&json!("signaled"), &json!(137)), "{report}");
        none_left(&mark);
        assert_eq!(server.run(json!({"id": 2, "argv": ["echo", "on"]}))["stdout"], "on\n");
        is_clean(&place);
    }
}

#[test]
fn a_guardian_that_is_killed_takes_only_its_own_tree_with_it() {
    for user in users() {
        let place = Place::new(user);
        let mut server = Server::start(&place);
        let (first, second) = (mark(), mark());
        two_sleep(&mut server, 1, &first);
        two_sleep(&mut server, 2, &second);
        let program = children(server.child.id() as i32)[0];
        let below = |guardian: &i32| children(*guardian).iter().any(|pid| marked(&first).contains(pid));
        let guardian = children(program).into_iter().find(below).expect("the first run has a guardian");
        kill(guardian);
        let report = server.report(1);
        assert!(report["error"].as_str().is_some_and(|error| error.contains("guardian")), "{report}");
        none_left(&first);
        eventually("another run goes on", || marked(&second).len() == 2);
        server.ask(json!({"id": 2, "cancel": true}));
        server.report(2);
        none_left(&second);
    }
}

/// Then no process of gatekeeper is above what the command has started.
#[test]
fn the_report_claims_no_end_of_what_a_guardian_and_its_program_left() {
    let place = Place::new(users().pop().expect("a user"));
    let mut server = Server::start(&place);
    let mark = mark();
    let kill = "P=$(cut -d' ' -f4 /proc/$PPID/stat); kill -STOP $P $PPID; kill -9 $P $PPID; sleep 60";
    let line = format!("setsid sleep {mark} & until pgrep -f '^sleep {mark}$' >pids; do sleep 0.01; done; {kill}");
    server.ask(json!({"id": 1, "line": line, "flags": ["-p", "unrestricted"], "cwd": place.at("work")}));
    let report = server.report(1);
    let left = fs::read_to_string(place.at("work").join("pids")).unwrap_or_default();
    let left: Vec<i32> = left.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
    let lives = left.iter().any(|pid| marked(&mark).contains(pid));
    left.iter().filter(|pid| marked(&mark).contains(pid)).for_each(|pid| self::kill(*pid));
    assert!(lives, "the test no longer shows what it is about");
    let error = report["error"].as_str().unwrap_or_default();
    assert!(error.contains("guardian process was killed") && error.contains("may still run"), "{report}");
    assert_eq!(server.run(json!({"id": 2, "argv": ["echo", "on"]}))["stdout"], "on\n");
}

#[test]
fn what_changed_since_the_first_run_holds_for_the_next() {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    // Only of a process of the same user may the limits be changed without a capability.
    for user in users().into_iter().filter(Option::is_none) {
        let place = Place::new(user);
        let mut server = Server::start(&place);
        let files = json!({"id": 1, "line": "ulimit -n", "flags": ["-p", "read"]});
        assert_ne!(server.run(files.clone())["stdout"], "321\n");
        let program = children(server.child.id() as i32);
        // As if the server had lowered its own limit: commands inherit it from the guardian program, which is started again.
        let limit = Rlimit { current: Some(321), maximum: Some(321) };
        prlimit(Pid::from_raw(server.child.id() as i32), Resource::Nofile, limit).expect("own child");
        assert_eq!(server.run(files)["stdout"], "321\n");
        // Ended, but perhaps not reaped yet.
        let state = || fs::read_to_string(format!("/proc/{}/stat", program[0])).unwrap_or_default();
        eventually("the former one has ended", || state().is_empty() || state().contains(") Z "));
    }
}

#[test]
fn a_command_that_stops_its_guardians_neither_hangs_nor_escapes_its_time() {
    let place = Place::new(users().pop().expect("a user"));
    let mut server = Server::start(&place);
    let both = "$(cut -d' ' -f4 /proc/$PPID/stat) $PPID";
    for (id, line, flags, code) in [
        (1, "kill -STOP $PPID; exit 3".to_owned(), vec!["-p", "unrestricted"], 3),
        (2, format!("kill -STOP {both}; exit 4"), vec!["-p", "unrestricted"], 4),
        (3, format!("trap '' TERM; kill -STOP {both}; sleep 60"), vec!["-p", "unrestricted", "--timeout", "1s"], 124),
    ] {
        server.ask(json!({"id": id, "line": line, "flags": flags}));
        assert_eq!(server.report(id)["exit_code"], code, "{line}");
    }
    assert_eq!(server.leave(), Some(0));
}

/// Another command of the same user stops the guardian program while a run waits for its guardian.
#[test]
fn a_guardian_program_that_is_stopped_is_woken_for_the_run_that_waits_for_it() {
    use rustix::process::{Pid, Signal, kill_process};
    let place = Place::new(users().pop().expect("a user"));
    let mut server = Server::start(&place);
    assert_eq!(server.run(json!({"id": 1, "argv": ["echo", "on"]}))["stdout"], "on\n");
    let program = Pid::from_raw(children(server.child.id() as i32)[0]).expect("a process id");
    let stopping = std::thread::spawn(move || {
        let until = std::time::Instant::now() + std::time::Duration::from_secs(1);
        while std::time::Instant::now() < until {
            kill_process(program, Signal::STOP).expect("it runs");
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
    });
    for id in 2..6 {
        server.ask(json!({"id": id, "argv": ["echo", "on"]}));
    }
    stopping.join().expect("it panicked");
    for id in 2..6 {
        assert_eq!(server.report(id)["stdout"], "on\n");
    }
    // Nor does it stay when it is stopped and its server ends.
    kill_process(program, Signal::STOP).expect("it runs");
    assert_eq!(server.leave(), Some(0));
    let place = format!("/proc/{}", program.as_raw_nonzero());
    eventually("the guardian program is gone", || !fs::exists(&place).unwrap_or(true));
}
