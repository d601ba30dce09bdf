//! If gatekeeper's own processes are killed, no process and no file is left.

use super::{Place, eventually, mark, marked, none_left, signal, users};
use std::fs;
use std::time::Duration;

/// A process tree that tries every way to escape, and files to clean up.
fn line(mark: &str) -> String {
    format!(
        "mkdir $TMPDIR/deep $TMPDIR/closed; echo x > $TMPDIR/deep/file; chmod 0 $TMPDIR/closed; \
         setsid sleep {mark} & nohup sleep {mark} >/dev/null 2>&1 & (setsid sh -c 'sleep {mark} & sleep {mark}' &); \
         sleep {mark}"
    )
}

fn is_clean(place: &Place) -> bool {
    fs::read_dir(place.at("tmp")).expect("readable").next().is_none()
}

#[test]
fn fifty_fronts_killed_at_random_leave_nothing() {
    for user in users() {
        let place = Place::new(user);
        let mark = mark();
        for round in 0..50u64 {
            let mut front = place.command(&["run", "-p", "write", "-c", &line(&mark)]).spawn().expect("starts");
            // Kill it at moments from before its first instruction to long after the tree is running. 41 is prime, so
            // the moments do not align with timer ticks.
            std::thread::sleep(Duration::from_micros(round * round * 41));
            front.kill().expect("own child");
            front.wait().expect("own child");
        }
        none_left(&mark);
        eventually("no directory is left", || is_clean(&place));
    }
}

#[test]
fn a_killed_guardian_takes_the_tree_with_it() {
    for user in users() {
        let place = Place::new(user);
        let mark = mark();
        let report = place.at("home").join("report");
        let words = ["run", "-p", "write", "--report", report.to_str().expect("text"), "-c", &line(&mark)];
        let front = place.command(&words).stderr(std::process::Stdio::piped()).spawn().expect("starts");
        // The command lines of the front, the guardian and the shell contain the line, and those of four sleeps the
        // mark.
        eventually("the tree is up", || marked(&mark).len() >= 8);
        let guardian = fs::read_to_string(format!("/proc/{0}/task/{0}/children", front.id())).expect("children");
        signal(guardian.trim().parse().expect("one child"), "KILL");
        let output = front.wait_with_output().expect("waits");
        assert_eq!(output.status.code(), Some(137), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(marked(&mark).is_empty(), "{:?}", marked(&mark));
        assert!(is_clean(&place));
        let report: serde_json::Value = serde_json::from_slice(&fs::read(&report).expect("written")).expect("a report");
        assert_eq!(report["outcome"], "signaled", "{report:#}");
        assert!(report["error"].as_str().expect("told").contains("guardian"), "{report:#}");
    }
}
