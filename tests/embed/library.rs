//! `gatekeeper::Sandbox` in a program with threads, children and a runtime of its own: this one.

use crate::support::fresh;
use gatekeeper::{LayerStatus, OnViolation, Outcome, Report, Sandbox};
use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

fn stdout(report: &Report) -> &str {
    report.captured.as_ref().map_or("", |captured| &captured.stdout)
}

/// The process with exactly this command line, and its parent; waits for it to appear.
fn find(words: &[&str]) -> (i32, i32) {
    let wanted = words.iter().flat_map(|word| [word, "\0"]).collect::<String>();
    let until = Instant::now() + Duration::from_secs(30);
    while Instant::now() < until {
        for entry in std::fs::read_dir("/proc").expect("proc").flatten() {
            let read = |file: &str| std::fs::read_to_string(entry.path().join(file)).unwrap_or_default();
            if read("cmdline") == wanted {
                let stat = read("stat");
                let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)?.parse().ok());
                let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
                if let (Some(pid), Some(parent)) = (pid, parent) {
                    return (pid, parent);
                }
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{words:?} does not run");
}

#[track_caller]
fn is_gone(pid: i32) {
    let until = Instant::now() + Duration::from_secs(30);
    let runs = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with('Z'))
    };
    while runs() {
        assert!(Instant::now() < until, "{pid} still runs");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_command_is_run_confined_and_reported() {
    let report = Sandbox::builder().input("one\ntwo\n").command(["wc", "-l"]).run();
    assert_eq!((report.outcome, report.exit_code, stdout(&report)), (Outcome::Exited, 0, "2\n"), "{report:?}");
    assert!(report.layers.iter().any(|layer| layer.status == LayerStatus::Enforced), "{report:?}");
    assert!(report.denials.is_empty(), "{report:?}");
}

#[test]
fn standard_input_is_nobodys() {
    let report = Sandbox::builder().command(["readlink", "/proc/self/fd/0"]).run();
    assert_eq!(stdout(&report), "/dev/null\n", "{report:?}");
}

#[test]
fn a_denial_names_the_grant_and_the_grant_allows_it() {
    let dir = fresh("library").canonicalize().expect("a fresh directory");
    // A name that would be three more flags, were it taken apart carelessly.
    let odd = dir.join("a b' --profile unrestricted");
    std::fs::create_dir(&odd).expect("a fresh directory");
    let touch = Sandbox::builder().cwd(&odd).command(["touch", "new"]);
    let report = touch.clone().run();
    let Some(denial) = report.denials.first() else { panic!("no denial: {report:?}") };
    assert_eq!(denial.path.as_deref(), odd.join("new").to_str());
    let grant = denial.allow_with.as_deref().expect("it can be granted");
    let granted = touch.clone().grant(grant).run();
    assert_eq!((granted.exit_code, granted.denials.len()), (0, 0), "{granted:?}");
    assert!(odd.join("new").exists());
    // And nothing else is granted with it.
    let beside = touch.grant(grant).command(["touch", "../beside"]).run();
    assert_eq!(beside.denials.first().and_then(|denial| denial.path.as_deref()), dir.join("beside").to_str());
    assert!(!dir.join("beside").exists());
}

#[test]
fn what_is_described_wrongly_does_not_run() {
    let mark = fresh("library").join("ran");
    let touch = || Sandbox::builder().profile("write").write("/").command([Path::new("touch"), &mark]);
    for (wrong, why) in [
        (touch().profile("wriet"), "wriet"),
        (touch().network("lopback"), "lopback"),
        (touch().allow("opne"), "opne"),
        (touch().grant("--timeout 5s"), "no grant"),
        (touch().grant("--config /tmp/x"), "no grant"),
        (touch().grant("--write /x -- sh"), "no grant"),
        (touch().grant("--write $HOME"), "not quoted"),
        (touch().gatekeeper("gatekeeper"), "absolute"),
        (touch().cwd("/nonexistent"), "/nonexistent"),
        (touch().policy("/nonexistent"), "/nonexistent"),
        (touch().env("LD_PRELOAD", "/x"), "LD_PRELOAD"),
    ] {
        let report = wrong.run();
        assert_eq!((report.outcome, report.exit_code), (Outcome::SetupFailed, 125), "{report:?}");
        assert!(report.error.as_deref().is_some_and(|error| error.contains(why)), "{why}: {report:?}");
        assert!(!mark.exists(), "{why}");
    }
    assert_eq!(Sandbox::builder().run().outcome, Outcome::Refused);
    assert_eq!(touch().run().exit_code, 0);
    assert!(mark.exists(), "the positive control");
}

#[test]
fn namespaces_without_the_program_are_refused() {
    let policy = fresh("library").join("policy.toml");
    std::fs::write(&policy, "[bubblewrap]\nmode = \"required\"\n").expect("a fresh directory");
    let report = Sandbox::builder().policy(&policy).command(["true"]).run();
    assert_eq!((report.outcome, report.exit_code), (Outcome::SetupFailed, 125), "{report:?}");
    assert!(report.error.as_deref().is_some_and(|error| error.contains("isolation is required")), "{report:?}");
}

#[test]
fn a_report_can_be_read_back() {
    let reports = [
        Sandbox::builder().command(["touch", "/usr/new"]).run(),
        Sandbox::builder().timeout(Duration::from_millis(50)).command(["sleep", "30"]).run(),
        Sandbox::builder().on_violation(OnViolation::Kill).command(["touch", "/usr/new"]).run(),
        Sandbox::builder().command(["no-such-program"]).run(),
    ];
    for report in reports {
        let text = serde_json::to_string(&report).expect("a report");
        let back: Report = serde_json::from_str(&text).expect("the same report");
        assert_eq!(serde_json::to_string(&back).expect("a report"), text);
    }
}

#[test]
fn the_process_around_it_stays_as_it_was() {
    let state = || {
        let status = std::fs::read_to_string("/proc/thread-self/status").expect("proc");
        let kept = |line: &&str| line.starts_with("Sig") && !line.starts_with("SigQ") || line.starts_with("NoNewPrivs");
        let lines: Vec<String> = status.lines().filter(kept).map(str::to_owned).collect();
        let mut subreaper = 0;
        // SAFETY: the kernel writes one int; the other call passes no memory.
        let dumpable = unsafe {
            libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut subreaper, 0, 0, 0);
            libc::prctl(libc::PR_GET_DUMPABLE, 0, 0, 0, 0)
        };
        (lines, subreaper, dumpable, std::env::current_dir().expect("it is there"))
    };
    let before = state();
    assert_eq!(before.0.len(), 5, "{before:?}");
    let report = Sandbox::builder().profile("write").cwd(fresh("library")).line("echo x > y; cat y").run();
    assert_eq!(stdout(&report), "x\n", "{report:?}");
    assert_eq!(state(), before);
}

#[test]
fn other_children_outlive_a_guardian_that_is_killed() {
    let mut own = Command::new("sleep").arg("60.5").spawn().expect("sleep is there");
    let running = Sandbox::builder().profile("write").line("setsid sleep 61.25 & exec sleep 61.5").spawn();
    let (command, guardian) = find(&["sleep", "61.5"]);
    // SAFETY: no memory is passed; the guardian is a child of this process, not yet waited for.
    unsafe { libc::kill(guardian, libc::SIGKILL) };
    let report = running.wait();
    assert_eq!((report.outcome, report.exit_code), (Outcome::Signaled, 137), "{report:?}");
    assert!(report.error.as_deref().is_some_and(|error| error.contains("guardian")), "{report:?}");
    is_gone(command);
    assert!(own.try_wait().expect("own child").is_none(), "the program's own child was ended");
    own.kill().expect("own child");
    own.wait().expect("own child");
    // As documented: what had left the group goes on; it is this test's to end.
    let (left, _) = find(&["sleep", "61.25"]);
    // SAFETY: no memory is passed.
    unsafe { libc::kill(left, libc::SIGKILL) };
}

#[test]
fn a_dropped_run_is_ended_with_everything_it_started() {
    let running = Sandbox::builder().profile("write").line("setsid sleep 62.25 & exec sleep 62.5").spawn();
    let pids = [find(&["sleep", "62.5"]).0, find(&["sleep", "62.25"]).0];
    drop(running);
    pids.into_iter().for_each(is_gone);

    let mut running = Sandbox::builder().command(["sleep", "62.75"]).spawn();
    find(&["sleep", "62.75"]);
    running.cancel();
    let report = running.wait();
    assert_eq!((report.outcome, report.exit_code), (Outcome::Signaled, 137), "{report:?}");
    assert_eq!(report.error.as_deref(), Some("ended by the caller"), "{report:?}");
}

#[test]
fn tokio_goes_on_meanwhile() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let mut running = Sandbox::builder().command(["sleep", "1"]).spawn();
        let mut ticks = 0;
        let report = loop {
            tokio::select! {
                report = &mut running => break report,
                () = tokio::time::sleep(Duration::from_millis(10)) => ticks += 1,
            }
        };
        assert_eq!((report.outcome, report.exit_code), (Outcome::Exited, 0), "{report:?}");
        assert!(ticks >= 5, "one thread did both, and only {ticks} times the other");

        // To stop waiting is to end it.
        let long = Sandbox::builder().command(["sleep", "63.5"]).spawn();
        let waited = tokio::time::timeout(Duration::from_millis(300), long).await;
        assert!(waited.is_err());
        let until = Instant::now() + Duration::from_secs(30);
        let runs =
            || Command::new("pgrep").args(["-xf", "sleep 63.5"]).output().is_ok_and(|out| !out.stdout.is_empty());
        while runs() {
            assert!(Instant::now() < until, "it still runs");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // Many at once.
        let all: Vec<_> = (0..20).map(|n| Sandbox::builder().command(["echo", &n.to_string()]).spawn()).collect();
        for (n, running) in all.into_iter().enumerate() {
            let report = running.await;
            assert_eq!(stdout(&report), format!("{n}\n"), "{report:?}");
        }
    });
}

#[test]
fn output_streams_while_it_runs() {
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let errors = std::fs::File::create("/dev/null").expect("it is there");
    let running = Sandbox::builder().output_to(writer, errors).line("echo first; read go; echo last").spawn();
    let mut first = [0; 6];
    reader.read_exact(&mut first).expect("it comes at once");
    assert_eq!(&first, b"first\n");
    let report = running.wait();
    let mut rest = String::new();
    reader.read_to_string(&mut rest).expect("nobody holds it open");
    assert_eq!((rest.as_str(), report.exit_code, report.captured), ("last\n", 0, None));
}
