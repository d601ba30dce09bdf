//! Many runs: in sequence without growth, and at once without loss.

use super::{Place, mark, none_left, users};
use gatekeeper::policy::Document;
use gatekeeper::report::Outcome;
use gatekeeper::request::{Asked, Request};
use gatekeeper::run::{Options, run};
use std::fs;
use std::process::{Command, Stdio};

const TOLD: &str = "GATEKEEPER_TEST_TMP";

/// Not a test by itself: `a_thousand_runs_leave_nothing_behind` runs it in a separate process.
#[test]
#[ignore = "a_thousand_runs_leave_nothing_behind runs it in a process of its own"]
fn a_thousand_runs_in_this_process() {
    let Some(tmp) = std::env::var_os(TOLD) else { return };
    let flags = Document { profile: Some(vec![gatekeeper::policy::Profile::Write]), ..Document::default() };
    let asked = Asked::Line("echo x > $TMPDIR/file; sleep 5 & exit 4".into());
    let environment = vec![("PATH".into(), "/usr/bin:/bin".into()), ("TMPDIR".into(), tmp.clone())];
    let request = Request { flags, ..Request::new(asked, fs::canonicalize(&tmp).expect("there"), environment) };
    let counts = || {
        let entries = |path: &str| fs::read_dir(path).expect("readable").count();
        let children: usize = fs::read_dir("/proc/self/task")
            .expect("readable")
            .flatten()
            .map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default().split_whitespace().count())
            .sum();
        (entries("/proc/self/fd"), entries("/proc/self/task"), children, entries(tmp.to_str().expect("text")))
    };
    // The thread that answered a run's calls ends a moment after the run.
    let settled = || {
        let looks = (0..40).map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            counts()
        });
        looks.min().expect("some")
    };
    let resident = || {
        let text = fs::read_to_string("/proc/self/statm").expect("readable");
        text.split(' ').nth(1).expect("a field").parse::<usize>().expect("a number")
    };
    let once = |capture: bool| {
        let options = Options {
            capture,
            spill: None,
            signals: None,
            warn: &|_| {},
            outside: None,
            embedding: None,
            answerer: None,
            audit: None,
            refused: None,
        };
        let report = run(&request, &options);
        assert_eq!((report.outcome, report.exit_code), (Outcome::Exited, 4), "{report:?}");
    };
    (0..20).for_each(|round| once(round % 2 == 0));
    let (before, memory) = (settled(), resident());
    (0..1000).for_each(|round| once(round % 2 == 0));
    assert_eq!(settled(), before, "descriptors, threads, children, files");
    assert!(resident() < memory + 1024, "{} pages after {memory}", resident());
}

#[test]
fn a_thousand_runs_leave_nothing_behind() {
    let place = Place::new(None);
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--ignored", "--exact", "plumbing::many::a_thousand_runs_in_this_process", "--nocapture"]);
    let done = crate::support::run(command.env(TOLD, place.at("tmp")));
    done.exits(0);
    assert!(done.stdout().contains("1 passed"), "{done}");
}

#[test]
fn two_hundred_at_once() {
    for user in users() {
        let place = Place::new(user);
        let mark = mark();
        let line = format!("echo $$ > $TMPDIR/own; setsid sleep {mark} & sleep 0.5; cat $TMPDIR/own; echo $$; exit 3");
        let runs: Vec<_> = (0..200)
            .map(|_| {
                place.command(&["run", "-p", "write", "-c", &line]).stdout(Stdio::piped()).spawn().expect("starts")
            })
            .collect();
        for run in runs {
            let output = run.wait_with_output().expect("waits");
            assert_eq!(output.status.code(), Some(3));
            let text = String::from_utf8_lossy(&output.stdout);
            let lines: Vec<&str> = text.lines().collect();
            assert!(lines.len() == 2 && lines.first() == lines.last(), "{text}");
        }
        none_left(&mark);
        assert_eq!(fs::read_dir(place.at("tmp")).expect("readable").count(), 0);
    }
}
