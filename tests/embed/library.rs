//! `gatekeeper::Sandbox` in a program with threads, children and a runtime, which is this test program.

use crate::plumbing::{eventually, mark, marked, none_left};
use crate::support::fresh;
use gatekeeper::{LayerStatus, OnViolation, Outcome, Report, Sandbox};
use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

fn stdout(report: &Report) -> &str {
    report.captured.as_ref().map_or("", |captured| &captured.stdout)
}

/// Waits for the process that sleeps for this mark, and returns it and its parent.
fn find(mark: &str) -> (i32, i32) {
    let wanted = format!("sleep\0{mark}\0");
    let found = || {
        let mut pids = marked(mark).into_iter();
        pids.find(|pid| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|words| words == wanted))
    };
    eventually("it sleeps", || found().is_some());
    let pid = found().expect("it sleeps for an hour");
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it sleeps for an hour");
    let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)?.parse().ok());
    (pid, parent.expect("it has a parent"))
}

#[test]
fn a_command_is_run_confined_and_reported() {
    let report = Sandbox::builder().input("one\ntwo\n").command(["wc", "-l"]).run();
    assert_eq!((report.outcome, report.exit_code, stdout(&report)), (Outcome::Exited, 0, "2\n"), "{report:?}");
    assert!(report.layers.iter().any(|layer| layer.status == LayerStatus::Enforced), "{report:?}");
    assert!(report.denials.is_empty(), "{report:?}");
}

/// A plan is used again only while nothing that it depends on has changed.
#[test]
fn what_appears_between_two_runs_is_closed_to_the_second() {
    let directory = fresh("again");
    let (plain, secret) = (directory.join("plain"), directory.join(".env"));
    std::fs::write(&plain, "text").expect("own");
    let cat = |path: &Path| Sandbox::builder().profile("read").cwd(&directory).command([Path::new("cat"), path]).run();
    let reads = |path: &Path, text: &str| {
        let report = cat(path);
        assert_eq!((report.exit_code, stdout(&report)), (0, text), "{report:?}");
    };
    for _ in 0..3 {
        (0..8).for_each(|_| reads(&plain, "text"));
        std::fs::write(&secret, "secret").expect("own");
        let report = cat(&secret);
        let path = report.denials.first().and_then(|denial| denial.path.clone());
        assert_eq!((report.exit_code, path.as_deref().map(Path::new)), (1, Some(secret.as_path())), "{report:?}");
        // Control: the same bytes by a name that suggests no secret.
        std::fs::rename(&secret, directory.join("open")).expect("own");
        reads(&directory.join("open"), "secret");
    }
}

#[test]
fn standard_input_is_nobodys() {
    let report = Sandbox::builder().command(["readlink", "/proc/self/fd/0"]).run();
    assert_eq!(stdout(&report), "/dev/null\n", "{report:?}");
}

#[test]
fn a_denial_names_the_grant_and_the_grant_allows_it() {
    let dir = fresh("library").canonicalize().expect("a fresh directory");
    // A name that careless splitting would turn into three flags.
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
    // Nothing else is granted with it.
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
        (touch().grant("--timeout 5s"), "not a grant"),
        (touch().grant("--config /tmp/x"), "not a grant"),
        (touch().grant("--write /x -- sh"), "not a grant"),
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
        // SAFETY: the kernel writes one int, and the other call passes no memory.
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
fn a_guardian_that_is_killed_takes_its_tree_with_it_and_nothing_else() {
    let (group, away) = (mark(), mark());
    let mut own = Command::new("sleep").arg("3600").spawn().expect("sleep is there");
    let line = format!("setsid sleep {away} & exec sleep {group}");
    let running = Sandbox::builder().profile("write").line(line).spawn();
    eventually("both sleep", || marked(&away).len() + marked(&group).len() >= 2);
    find(&away);
    let (_, guardian) = find(&group);
    // SAFETY: no memory is passed; the guardian runs as long as its command.
    unsafe { libc::kill(guardian, libc::SIGKILL) };
    let report = running.wait();
    assert_eq!((report.outcome, report.exit_code), (Outcome::Signaled, 137), "{report:?}");
    assert!(report.error.as_deref().is_some_and(|error| error.contains("guardian")), "{report:?}");
    none_left(&group);
    // Also the process that has left the group: the guardian program is the parent of orphans.
    none_left(&away);
    assert!(own.try_wait().expect("own child").is_none(), "the program's own child was ended");
    own.kill().expect("own child");
    own.wait().expect("own child");
}

#[test]
fn a_dropped_run_is_ended_with_everything_it_started() {
    let mark = mark();
    let line = format!("setsid sleep {mark} & exec sleep {mark}");
    let running = Sandbox::builder().profile("write").line(line).spawn();
    eventually("both sleep", || marked(&mark).len() == 2);
    drop(running);
    none_left(&mark);

    let mut running = Sandbox::builder().command(["sleep", &mark]).spawn();
    find(&mark);
    running.cancel();
    let report = running.wait();
    assert_eq!((report.outcome, report.exit_code), (Outcome::Signaled, 137), "{report:?}");
    assert_eq!(report.error.as_deref(), Some("cancelled by the caller"), "{report:?}");
}

/// Runs a future on a single thread, so that nothing may block it.
fn on_tokio<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(future)
}

#[test]
fn tokio_goes_on_meanwhile() {
    on_tokio(async {
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
    });
}

#[test]
fn to_stop_waiting_is_to_end_it() {
    let mark = mark();
    on_tokio(async {
        let long = Sandbox::builder().command(["sleep", &mark]).spawn();
        let appears = async {
            while marked(&mark).is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            report = long => panic!("it has ended: {report:?}"),
            () = appears => {}
        }
    });
    none_left(&mark);
}

#[test]
fn twenty_run_at_once_on_one_thread() {
    on_tokio(async {
        // Each prints its number only when all have started, so that runs one after another would never finish.
        let dir = fresh("library");
        let line = "touch started-$1; while [ $(ls | wc -l) -lt 20 ]; do sleep 0.02; done; echo $1";
        let start = |n: usize| {
            let words = ["sh", "-c", line, "sh", &n.to_string()].map(str::to_owned);
            let wait = Duration::from_secs(60);
            Sandbox::builder().profile("write").cwd(&dir).timeout(wait).command(words).spawn()
        };
        let all: Vec<_> = (0..20).map(start).collect();
        for (n, running) in all.into_iter().enumerate() {
            let report = running.await;
            assert_eq!(stdout(&report), format!("{n}\n"), "{report:?}");
        }
    });
}

#[test]
fn a_plan_tells_what_a_run_would_do_and_does_nothing() {
    let dir = fresh("library").canonicalize().expect("a fresh directory");
    let touch = Sandbox::builder().profile("write").cwd(&dir).command(["touch", "new"]).build();
    let plan = touch.plan().expect("it can be run");
    assert_eq!(plan.verdict.path, Path::new("/usr/bin/touch"));
    assert!(plan.summary().contains(dir.to_str().expect("text")), "{}", plan.summary());
    assert!(plan.steps().iter().any(|step| step.step == "working directory"));
    assert_eq!(std::fs::read_dir(&dir).expect("own directory").count(), 0);
    assert_eq!(touch.run().exit_code, 0, "the positive control");

    let refused = Sandbox::builder().command(["no-such-program"]).build().plan().err().expect("there is none");
    assert_eq!((refused.outcome, refused.exit_code), (Outcome::NotFound, 127));
    let wrong = Sandbox::builder().profile("wriet").command(["true"]).build().plan().err().expect("there is none");
    assert_eq!((wrong.outcome, wrong.exit_code), (Outcome::SetupFailed, 125));
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

/// Landlock shows its rules nowhere, so nothing else but this could tell that the thread has changed.
#[test]
fn a_thread_that_restricts_itself_after_a_run_restricts_its_next_commands() {
    use landlock::{ABI, AccessFs, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr};
    let dir = fresh("restricted").canonicalize().expect("a fresh directory");
    let elsewhere = ["/dev", "/proc"].map(|path| PathFd::new(path).expect("there"));
    std::thread::spawn(move || {
        let touch = |name: &str| Sandbox::builder().cwd(&dir).profile("write").command(["touch", name]).run();
        rustix::thread::set_no_new_privs(true).expect("always possible");
        let before = touch("before");
        assert!(dir.join("before").exists(), "{before:?}");
        let writes = AccessFs::from_write(ABI::V3);
        let rules = elsewhere.map(|place| Ok::<_, landlock::RulesetError>(PathBeneath::new(place, writes)));
        let restricted = Ruleset::default().handle_access(writes).and_then(|set| set.create());
        let restricted = restricted.and_then(|set| set.add_rules(rules)).and_then(|set| set.restrict_self());
        restricted.expect("Landlock is there");
        // The run fails, in the command or before it. A guardian program from before would have started it unrestricted.
        let after = touch("after");
        assert!(!dir.join("after").exists(), "{after:?}");
    })
    .join()
    .expect("the thread does not panic");
}
