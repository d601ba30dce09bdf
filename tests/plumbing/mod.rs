//! Everything around a confined command: its terminal, end, limits, leftovers, and the messages about it.

mod caches;
mod capture;
mod doctor;
mod end;
mod killed;
mod limits;
mod many;
mod session;
mod terminal;
mod trial;
mod words;

use crate::support::{self, Done, fresh};
pub(crate) use crate::support::{gatekeeper_for_all as gatekeeper, users};
use serde_json::Value;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Longer than any step takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);

/// A working directory, a home and a directory for temporary files, all owned by the user.
pub(crate) struct Place {
    pub(crate) user: Option<u32>,
    top: PathBuf,
}

impl Place {
    pub(crate) fn new(user: Option<u32>) -> Place {
        Place::below(fresh("plumbing"), user)
    }

    /// The same in another directory, which exists.
    pub(crate) fn below(top: PathBuf, user: Option<u32>) -> Place {
        let place = Place { user, top: fs::canonicalize(top).expect("it exists") };
        for name in ["work", "home", "tmp"] {
            fs::create_dir(place.at(name)).expect("just made");
        }
        for path in [place.top.clone(), place.at("work"), place.at("home"), place.at("tmp")] {
            std::os::unix::fs::chown(&path, user, user).expect("own, or root's to give");
        }
        place
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.top.join(name)
    }

    /// `gatekeeper` with these arguments, as the user of the place, without the environment of the tests.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        self.any(gatekeeper(), words)
    }

    pub fn any(&self, program: &Path, words: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(words).current_dir(self.at("work")).env_clear();
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("LC_ALL", "C.UTF-8");
        command.env("HOME", self.at("home")).env("TMPDIR", self.at("tmp")).stdin(std::process::Stdio::null());
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command
    }

    #[track_caller]
    pub(crate) fn run(&self, words: &[&str]) -> Done {
        support::run(&mut self.command(words))
    }

    /// The report of `run --json` with these arguments.
    #[track_caller]
    fn report(&self, words: &[&str]) -> Value {
        let all: Vec<&str> = ["run", "--quiet", "--json"].iter().chain(words).copied().collect();
        let done = self.run(&all);
        let report: Value = serde_json::from_str(&done.stdout()).unwrap_or_else(|error| panic!("{error}: {done}"));
        assert_eq!(report["exit_code"], done.code().expect("exits"), "{done}");
        report
    }

    /// The same with a time limit. Retries with longer ones if a busy machine did not get far enough.
    #[track_caller]
    fn report_of_timeout(&self, words: &[&str], far_enough: impl Fn(&Value) -> bool) -> Value {
        let limits = ["1s", "5s", "25s", "125s"];
        let report = |limit: &str| self.report(&[&["--timeout", limit], words].concat());
        limits.into_iter().map(report).find(far_enough).expect("it gets far enough in some minutes")
    }

    /// All files below it with their sizes.
    fn tree(&self) -> Vec<(PathBuf, u64)> {
        let mut found = Vec::new();
        let mut stack = vec![self.top.clone()];
        while let Some(directory) = stack.pop() {
            for entry in fs::read_dir(&directory).expect("readable").map(|entry| entry.expect("readable")) {
                let stat = entry.path().symlink_metadata().expect("there");
                if stat.is_dir() {
                    stack.push(entry.path());
                }
                found.push((entry.path(), if stat.is_dir() { 0 } else { stat.len() }));
            }
        }
        found.sort();
        found
    }
}

/// A number that no other command line contains. `sleep` with it takes about an hour.
pub(crate) fn mark() -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    format!("3600.{}{:05}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// The processes whose command line contains the mark, without zombies.
pub(crate) fn marked(mark: &str) -> Vec<i32> {
    let processes = fs::read_dir("/proc").expect("/proc").flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.windows(mark.len()).any(|window| window == mark.as_bytes())
    })
    .collect()
}

/// Waits until a condition holds, and fails after some minutes.
#[track_caller]
pub(crate) fn eventually(what: &str, holds: impl Fn() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "never came true: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Asserts that no process with the mark is left, at once or soon.
#[track_caller]
pub(crate) fn none_left(mark: &str) {
    eventually("everything has ended", || marked(mark).is_empty());
}

/// Sends a signal by its name, with kill(1).
pub fn signal(pid: u32, name: &str) {
    let done = support::run(Command::new("kill").args(["-s", name, &pid.to_string()]));
    assert!(done.output.status.success(), "{done}");
}
