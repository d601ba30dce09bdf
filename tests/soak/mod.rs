//! Mixed runs, eight at once, with trouble. Whatever happens to gatekeeper, no process survives, nothing is left
//! behind, no report is incomplete, and no denied call succeeds. SOAK_SECONDS sets the duration; `make soak` takes an
//! hour.

mod trouble;
mod work;

use crate::plumbing::{PATIENCE, Place, eventually, users};
use crate::support::cgroup::Cgroup;
use crate::support::random::Random;
use crate::support::{is_root, note, skip};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use trouble::Trouble;
use work::Work;

const AT_ONCE: u64 = 8;
/// The duration as a part of `make test`.
const SHORT: u64 = 60;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    AsExpected,
    NotSetUp,
    Killed,
    /// The command itself failed, because it lacked the same resources as gatekeeper.
    OfItsOwn,
}

type Totals = Mutex<BTreeMap<(Trouble, End), u64>>;

#[test]
fn a_soak() {
    let seconds = std::env::var("SOAK_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SHORT);
    let until = Instant::now() + Duration::from_secs(seconds);
    let cgroup = Cgroup::new("soak");
    if cgroup.is_none() {
        skip("no cgroup can be created here, so none can be left behind");
    }
    if !is_root() {
        skip("only root can mount the small disk of the trouble FullDisk");
    }
    let seed = u64::from(std::process::id());
    let totals = Totals::default();
    let failed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in 0..AT_ONCE {
            let (totals, failed, cgroup) = (&totals, &failed, cgroup.as_ref());
            scope.spawn(move || {
                let users = users();
                let worker = Worker::new(users[number as usize % users.len()], Random::new(seed * AT_ONCE + number));
                // All workers stop at the first failure, so that its message is not lost among others.
                let stopped = Stopped(failed);
                worker.work(until, totals, failed, cgroup);
                std::mem::forget(stopped);
            });
        }
    });
    let totals = totals.into_inner().expect("no worker failed");
    let runs: u64 = totals.values().sum();
    let mut told = format!("soak: {runs} runs in {seconds} s, seed {seed}\n");
    for ((trouble, end), count) in &totals {
        told += &format!("  {trouble:?}: {end:?} {count}\n");
    }
    note(&told);
    assert!(runs > AT_ONCE, "{told}");
    if let Some(cgroup) = cgroup {
        // The next run that creates a cgroup removes those of runs that were killed before they had a guardian.
        let mut next = Place::new(None).command(&["run", "--processes", "50", "--", "true"]);
        cgroup.enter(&mut next);
        assert!(next.status().expect("it starts").success());
        eventually("every cgroup of a run is gone", || cgroup.left().is_empty());
    }
}

/// Reports when dropped that its worker has panicked. A worker that succeeds forgets it.
struct Stopped<'a>(&'a AtomicBool);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Worker {
    place: Place,
    random: Random,
    /// The current duration of an undisturbed run, within which trouble happens.
    usual: Duration,
}

/// One run, and everything that failure messages show about it.
struct Run {
    work: Work,
    trouble: Trouble,
    mark: String,
    stdout: PathBuf,
    stderr: PathBuf,
    report: PathBuf,
}

impl Worker {
    fn new(user: Option<u32>, random: Random) -> Worker {
        let place = Place::new(user);
        fs::write(place.at("work").join("text"), "not a program\n").expect("own directory");
        Worker { place, random, usual: Duration::from_millis(50) }
    }

    fn work(mut self, until: Instant, totals: &Totals, failed: &AtomicBool, cgroup: Option<&Cgroup>) {
        while Instant::now() < until && !failed.load(Ordering::Relaxed) {
            let run = self.choose();
            let end = self.one(&run, cgroup);
            *totals.lock().expect("no worker failed").entry((run.trouble, end)).or_default() += 1;
        }
    }

    fn choose(&mut self) -> Run {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let mark = format!("3600.{}{:07}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let outside = self.place.at("home").join("outside");
        let work = work::choose(&mut self.random, &mark, &outside);
        let trouble = trouble::choose(&mut self.random);
        let [stdout, stderr, report] = ["stdout", "stderr", "report"].map(|name| self.place.at("home").join(name));
        let _ = fs::remove_file(&report);
        Run { work, trouble, mark, stdout, stderr, report }
    }

    fn one(&mut self, run: &Run, cgroup: Option<&Cgroup>) -> End {
        let began = Instant::now();
        let mut command = run.trouble.command(&self.place, run, &mut self.random);
        command.stdout(File::create(&run.stdout).expect("own directory"));
        command.stderr(File::create(&run.stderr).expect("own directory"));
        if let Some(cgroup) = cgroup {
            cgroup.enter(&mut command);
        }
        let mut front = command.spawn().expect("it starts");
        run.trouble.make(&front, self.usual, &mut self.random);
        let status = loop {
            match front.try_wait().expect("own child") {
                Some(status) => break status,
                None if began.elapsed() > PATIENCE => panic!("it hangs: {run}"),
                None => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        if run.trouble == Trouble::None {
            self.usual = (self.usual * 7 + began.elapsed().min(Duration::from_secs(1))) / 8;
        }
        let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        let end = run.judge(code, run.trouble == Trouble::KillFront && status.signal() == Some(libc::SIGKILL));
        eventually(&format!("nothing is left of {run}"), || !survives(&run.mark));
        let tmp = self.place.at("tmp");
        eventually(&format!("no file is left of {run}"), || fs::read_dir(&tmp).expect("own").next().is_none());
        end
    }
}

impl Run {
    /// What this exit code means. Panics if the run may not end with it.
    #[track_caller]
    fn judge(&self, code: i32, killed: bool) -> End {
        let stdout = fs::read_to_string(&self.stdout).unwrap_or_default();
        // Whatever else went wrong, no denied call may have succeeded.
        assert!(!stdout.contains("tcp 0"), "a denied socket was made: {self}");
        assert!(!self.work.outside.exists(), "a file was written outside: {self}");
        let report = fs::read(&self.report).unwrap_or_default();
        let report: Option<Value> = (!report.is_empty())
            .then(|| serde_json::from_slice(&report).unwrap_or_else(|error| panic!("half a report, {error}: {self}")));
        if killed {
            return End::Killed;
        }
        assert_ne!(code, 98, "a file is left on the full disk: {self}");
        // The kernel kills a process whose stack cannot grow, the loader ends a program that cannot be mapped, and Rust's runtime one
        // whose new thread gets no stack for signals.
        let says = |what: &str| fs::read_to_string(&self.stderr).is_ok_and(|text| text.contains(what));
        let ended = || {
            code == 128 + libc::SIGSEGV
                || says("while loading shared libraries")
                || code == 128 + libc::SIGABRT && says("failed to allocate an alternative stack")
        };
        if report.is_none() && self.trouble == Trouble::LittleMemory && ended() {
            return End::Killed;
        }
        let Some(report) = report.or_else(|| self.work.json.then(|| serde_json::from_str(&stdout).ok()).flatten())
        else {
            assert_eq!(code, 125, "neither a report nor 125: {self}");
            return End::NotSetUp;
        };
        assert_eq!(report["exit_code"], code, "{report:#} of {self}");
        if code == self.work.code && report["outcome"] == self.work.outcome {
            self.work.agrees(&report, &stdout, self);
            return End::AsExpected;
        }
        match report["outcome"].as_str() {
            Some("setup_failed") if self.trouble.may_fail() => End::NotSetUp,
            Some("signaled") if code == 137 && self.trouble == Trouble::KillGuardian => End::Killed,
            // gatekeeper's limits apply to the command too.
            Some("exited" | "signaled" | "limit") if self.trouble.starves() => End::OfItsOwn,
            // A file or a program could not be opened.
            Some("refused" | "not_found") if self.trouble.starves() => End::NotSetUp,
            _ => panic!("not what was expected: code {code}, {report:#} of {self}"),
        }
    }
}

impl std::fmt::Display for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        writeln!(f, "{:?} with {:?}, mark {}", self.work.words, self.trouble, self.mark)?;
        write!(f, "stdout:\n{}\nstderr:\n{}\nreport:\n{}", text(&self.stdout), text(&self.stderr), text(&self.report))
    }
}

/// Whether a process has the mark in its command line or in its environment, which its children inherit.
fn survives(mark: &str) -> bool {
    let processes = fs::read_dir("/proc").expect("/proc").flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.any(|pid| {
        ["cmdline", "environ"].iter().any(|file| {
            let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            bytes.windows(mark.len()).any(|window| window == mark.as_bytes())
        })
    })
}

fn gatekeeper_run(place: &Place, words: &[String]) -> Command {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    place.command(&[&["run"], words.as_slice()].concat())
}
