//! `gatekeeper run` and `plan` from outside, as the user who runs the tests and, if that is root, also as nobody.

mod audit;
mod commands;
mod denied;
mod environment;
mod exits;
mod faults;
mod looking;
mod messages;
mod metadata;
mod outer;
mod paths;
mod patterns;
mod policy;
mod programs;
mod protected;
mod report;
mod rights;
mod sockets;
mod starting;
mod streams;
mod temporary;

pub use crate::support::gatekeeper_for_all as gatekeeper;
use crate::support::{self, Done, NOBODY, as_root_too, fresh, probe};
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Longer than any command takes on a busy machine. One that is still running hangs.
const PATIENCE: Duration = Duration::from_secs(240);

/// The same inside of an emulated machine, which is slower (tests/kernels).
fn patience() -> Duration {
    PATIENCE * if support::emulated() { 6 } else { 1 }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    /// The user who runs the tests.
    Own,
    Nobody,
}

/// No command, for runs with `-c`.
pub const NOTHING: [&str; 0] = [];

/// The users that a test runs as.
#[track_caller]
pub fn users() -> &'static [User] {
    if as_root_too() { &[User::Own, User::Nobody] } else { &[User::Own] }
}

/// A user without privileges: nobody, or the one who runs the tests.
pub fn unprivileged() -> User {
    *users().last().expect("there is always one")
}

/// A directory for reports, writable by every user.
pub fn reports() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| fs::canonicalize(fresh("reports")).expect("just made"))
}

/// A directory that every user may write to, but that no run is granted.
pub fn outside() -> PathBuf {
    fs::canonicalize(fresh("outside")).expect("just made")
}

/// The probe that makes the calls named by its arguments.
pub fn act() -> PathBuf {
    probe("act", &[])
}

/// A builder for one run of gatekeeper.
pub struct Gate {
    pub user: User,
    pub dir: PathBuf,
    before: Vec<OsString>,
    verb: &'static str,
    flags: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    stdin: Option<Vec<u8>>,
}

impl Gate {
    /// A run in a new directory of the user, with a separate home.
    pub fn new(user: User) -> Gate {
        let dir = fs::canonicalize(fresh("run")).expect("just made");
        owned_by(user, &dir);
        let env = [("PATH", "/usr/local/bin:/usr/bin:/bin"), ("LC_ALL", "C.UTF-8")];
        let mut env: Vec<(OsString, OsString)> = env.map(|(name, value)| (name.into(), value.into())).into();
        let home = fs::canonicalize(fresh("home")).expect("just made");
        owned_by(user, &home);
        env.push(("HOME".into(), home.into()));
        Gate { user, dir, before: Vec::new(), verb: "run", flags: Vec::new(), env, stdin: None }
    }

    pub fn profile(user: User, profile: &str) -> Gate {
        Gate::new(user).flags(["--profile", profile])
    }

    /// Uses an existing directory instead.
    pub fn in_directory(mut self, dir: &Path) -> Gate {
        self.dir = dir.to_owned();
        self
    }

    pub fn flags(mut self, flags: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Gate {
        self.flags.extend(flags.into_iter().map(|flag| flag.as_ref().to_owned()));
        self
    }

    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Gate {
        self.env.retain(|(known, _)| known != name.as_ref());
        self.env.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    pub fn env_of(&self, name: &str) -> &OsStr {
        &self.env.iter().find(|(known, _)| known == name).expect("it is set").1
    }

    pub fn verb(mut self, verb: &'static str) -> Gate {
        self.verb = verb;
        self
    }

    /// Puts a command in front of gatekeeper, such as an outer sandbox or strace.
    pub fn under(mut self, words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Gate {
        self.before.extend(words.into_iter().map(|word| word.as_ref().to_owned()));
        self
    }

    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Gate {
        self.stdin = Some(bytes.into());
        self
    }

    /// Creates a file in the run's directory, owned by its user.
    pub fn file(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.dir.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).expect("own directory");
        }
        fs::write(&path, text).expect("own directory");
        let mut above = path.as_path();
        while above != self.dir {
            owned_by(self.user, above);
            above = above.parent().expect("below the run's directory");
        }
        path
    }

    pub fn command(&self, words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
        let mut all = self.before.clone();
        all.push(gatekeeper().into());
        all.push(self.verb.into());
        all.extend(self.flags.iter().cloned());
        let mut rest = words.into_iter().map(|word| word.as_ref().to_owned()).peekable();
        if rest.peek().is_some() {
            all.push("--".into());
        }
        all.extend(rest);
        let mut command = Command::new(&all[0]);
        command.args(&all[1..]).env_clear().envs(self.env.iter().cloned()).current_dir(&self.dir);
        become_user(&mut command, self.user);
        command
    }

    /// Runs a command under gatekeeper to its end.
    #[track_caller]
    pub fn run(&self, words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Done {
        finish(self.command(words), self.stdin.clone())
    }

    /// The same, and returns the report too.
    #[track_caller]
    pub fn report(&self, words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> (Done, Value) {
        static COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = reports().join(format!("report-{count}.json"));
        let mut flags = self.flags.clone();
        flags.extend(["--report".into(), path.clone().into()]);
        let with = Gate {
            flags,
            dir: self.dir.clone(),
            before: self.before.clone(),
            env: self.env.clone(),
            stdin: self.stdin.clone(),
            ..*self
        };
        let done = with.run(words);
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("no report: {error}{done}"));
        let report = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}{done}"));
        (done, report)
    }
}

pub fn owned_by(user: User, path: &Path) {
    if user == User::Nobody {
        std::os::unix::fs::lchown(path, Some(NOBODY), Some(NOBODY)).expect("root may");
    }
}

/// Gives a whole tree to a user.
pub fn tree_owned_by(user: User, tree: &Path) {
    owned_by(user, tree);
    if tree.is_dir() && !tree.is_symlink() {
        fs::read_dir(tree).unwrap().for_each(|entry| tree_owned_by(user, &entry.unwrap().path()));
    }
}

/// The errnos that the probe `act` printed, one per operation.
#[track_caller]
pub fn errnos(done: &Done) -> Vec<i32> {
    let text = done.exits(0).stdout();
    text.lines().map(|line| line.rsplit(' ').next().unwrap().parse().unwrap_or_else(|_| panic!("{done}"))).collect()
}

pub fn become_user(command: &mut Command, user: User) {
    if user == User::Nobody {
        command.uid(NOBODY).gid(NOBODY);
    }
}

/// Runs a command to its end, and fails if it hangs.
#[track_caller]
pub fn finish(mut command: Command, stdin: Option<Vec<u8>>) -> Done {
    let shown = format!("{command:?}");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.stdin(if stdin.is_some() { Stdio::piped() } else { Stdio::null() });
    let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {shown}: {error}"));
    let feed = child.stdin.take().map(|mut pipe| {
        std::thread::spawn(move || {
            use std::io::Write;
            let _ = pipe.write_all(&stdin.unwrap_or_default());
        })
    });
    let drain = |mut from: Box<dyn Read + Send>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = from.read_to_end(&mut bytes);
            bytes
        })
    };
    let stdout = drain(Box::new(child.stdout.take().expect("piped")));
    let stderr = drain(Box::new(child.stderr.take().expect("piped")));
    let began = Instant::now();
    let mut hung = false;
    let status = loop {
        if let Some(status) = child.try_wait().expect("our child") {
            break status;
        }
        if began.elapsed() > patience() && !hung {
            hung = true;
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    if let Some(feed) = feed {
        let _ = feed.join();
    }
    let output = Output { status, stdout: stdout.join().expect("reader"), stderr: stderr.join().expect("reader") };
    let done = Done { shown, output };
    assert!(!hung, "did not end in {:?}: {done}", patience());
    done
}

/// The status and detail of a layer in a report.
#[track_caller]
pub fn layer<'a>(report: &'a Value, name: &str) -> (&'a str, &'a str) {
    let layers = report["layers"].as_array().expect("layers is a list");
    let found: Vec<_> = layers.iter().filter(|layer| layer["layer"] == name).collect();
    let [one] = found[..] else { panic!("not exactly one layer {name}: {report:#}") };
    (one["status"].as_str().expect("text"), one["detail"].as_str().expect("text"))
}

/// The denials of a call in a report.
pub fn denials<'a>(report: &'a Value, syscall: &str) -> Vec<&'a Value> {
    report["denials"].as_array().expect("denials is a list").iter().filter(|one| one["syscall"] == syscall).collect()
}

/// The file that the command creates if it runs.
pub fn marker(gate: &Gate) -> PathBuf {
    gate.dir.join("marker")
}
