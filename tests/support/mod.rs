//! What every test needs: the programs under test, probes compiled from C, and failures that show everything.
#![allow(dead_code)]

pub mod cgroup;
pub mod fetched;
pub mod random;

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, OnceLock};

/// The gatekeeper under test: the one that TESTED_GATEKEEPER names, else the one that was built for these tests.
pub fn gatekeeper() -> &'static Path {
    static GATEKEEPER: OnceLock<PathBuf> = OnceLock::new();
    GATEKEEPER.get_or_init(|| {
        let named = std::env::var_os("TESTED_GATEKEEPER").map(PathBuf::from);
        named.unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_gatekeeper")))
    })
}

static SCRATCH: OnceLock<PathBuf> = OnceLock::new();

/// A directory for this run's things, which every user may read and which goes away with the run.
pub fn scratch() -> &'static Path {
    SCRATCH.get_or_init(|| {
        let dir = std::env::temp_dir().join(format!("gatekeeper-tests-{}", std::process::id()));
        // Left by a run that was killed and had the same number.
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).expect("the temporary directory is writable");
        open_to_all(&dir);
        // SAFETY: the function lives as long as the program and does not unwind.
        unsafe { libc::atexit(remove_scratch) };
        // Tests in the background of a script, or under nohup, start with these ignored, and so would what they start.
        for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
            // SAFETY: the default action, which this program has not changed.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        dir
    })
}

extern "C" fn remove_scratch() {
    if let Some(dir) = SCRATCH.get() {
        let _ = fs::remove_dir_all(dir);
    }
}

/// A fresh directory of the caller's own, readable and writable by every user.
pub fn fresh(name: &str) -> PathBuf {
    static COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let dir = scratch().join(format!("{name}-{count}"));
    fs::create_dir_all(&dir).expect("the scratch directory is writable");
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).expect("own directory");
    dir
}

fn open_to_all(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("own file");
}

/// The embedded libsandbox.so as a file, written once.
pub fn libsandbox() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let path = scratch().join("libsandbox.so");
        let output = Command::new(gatekeeper()).arg("extract").arg(&path).output().expect("gatekeeper starts");
        assert!(output.status.success(), "extract: {output:?}");
        path
    })
}

/// A C program under tests/probes, compiled once with these extra arguments of cc.
pub fn probe(name: &str, flags: &[&str]) -> PathBuf {
    let source = probes().join(format!("{name}.c"));
    compiled(name, &[source], flags)
}

/// One made of all the C files of a directory under tests/probes.
pub fn probe_of_many(directory: &str, flags: &[&str]) -> PathBuf {
    let files = fs::read_dir(probes().join(directory)).expect("a directory of probes");
    let files = files.map(|entry| entry.expect("readable").path());
    let sources: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|ending| ending == "c")).collect();
    compiled(directory, &sources, flags)
}

fn probes() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/probes")
}

fn compiled(name: &str, sources: &[PathBuf], flags: &[&str]) -> PathBuf {
    static BUILT: Mutex<()> = Mutex::new(());
    let _one_at_a_time = BUILT.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let tag: String = flags.join("_").chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let path = scratch().join(format!("{name}{tag}"));
    if !path.exists() {
        let beside = path.with_extension("new");
        let output = Command::new("cc")
            .args(["-O1", "-Wall", "-o"])
            .arg(&beside)
            .args(sources)
            .args(flags)
            .output()
            .expect("cc starts");
        assert!(output.status.success(), "cc {sources:?}: {}", String::from_utf8_lossy(&output.stderr));
        open_to_all(&beside);
        fs::rename(&beside, &path).expect("same directory");
    }
    path
}

/// What a finished command did, with everything a failure needs to show.
pub struct Done {
    pub shown: String,
    pub output: Output,
}

impl Done {
    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    pub fn code(&self) -> Option<i32> {
        self.output.status.code()
    }

    pub fn signal(&self) -> Option<i32> {
        use std::os::unix::process::ExitStatusExt;
        self.output.status.signal()
    }

    #[track_caller]
    pub fn exits(&self, code: i32) -> &Done {
        assert_eq!(self.code(), Some(code), "{self}");
        self
    }

    #[track_caller]
    pub fn dies_by(&self, signal: i32) -> &Done {
        assert_eq!(self.signal(), Some(signal), "{self}");
        self
    }

    #[track_caller]
    pub fn prints(&self, stdout: &str) -> &Done {
        assert_eq!(self.stdout(), stdout, "{self}");
        self
    }

    #[track_caller]
    pub fn complains(&self, stderr: &str) -> &Done {
        assert_eq!(self.stderr(), stderr, "{self}");
        self
    }
}

impl std::fmt::Display for Done {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "\ncommand: {}\nstatus: {}", self.shown, self.output.status)?;
        write!(f, "stdout:\n{}\nstderr:\n{}", self.stdout(), self.stderr())
    }
}

/// Runs a command to its end, which comes by SIGALRM at the latest: a test that hangs is red, not silent.
#[track_caller]
pub fn run(command: &mut Command) -> Done {
    // The whole corpus of profiles is one command.
    const SECONDS: u32 = 600;
    let shown = format!("{command:?}");
    // SAFETY: alarm is async-signal-safe; it survives the exec and ends the command and not the test.
    unsafe {
        command.pre_exec(|| {
            libc::alarm(SECONDS);
            Ok(())
        })
    };
    match command.output() {
        Ok(output) => Done { shown, output },
        Err(error) => panic!("cannot start {shown}: {error}"),
    }
}

/// Whether a program is on PATH.
pub fn on_path(program: impl AsRef<OsStr>) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program.as_ref()).is_file())
}

/// Says aloud that a test cannot be done here; where it must be (SANDBOX_TESTS_MUST_RUN=1), that is a failure.
#[track_caller]
pub fn skip(why: &str) {
    assert!(std::env::var_os("SANDBOX_TESTS_MUST_RUN").is_none_or(|value| value != "1"), "must not be skipped: {why}");
    // Not by eprintln, which the test harness keeps to itself when a test passes.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}
