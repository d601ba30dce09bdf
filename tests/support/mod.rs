//! Shared by all tests: the programs under test, probes compiled from C, users to run as, and skips that are never
//! silent.

pub mod cgroup;
pub mod descriptors;
pub mod fetched;
pub mod random;

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

/// The gatekeeper under test: the one in TESTED_GATEKEEPER, or the one that cargo built for these tests.
pub fn gatekeeper() -> &'static Path {
    static GATEKEEPER: OnceLock<PathBuf> = OnceLock::new();
    GATEKEEPER.get_or_init(|| {
        let named = std::env::var_os("TESTED_GATEKEEPER").map(PathBuf::from);
        named.unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_gatekeeper")))
    })
}

/// What cargo built beside its own gatekeeper, which need not be the one under test.
pub fn built(name: &str) -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_gatekeeper")).with_file_name(name)
}

/// A copy of gatekeeper that every user may execute: the build directory may be closed to other users.
pub fn gatekeeper_for_all() -> &'static Path {
    static COPY: OnceLock<PathBuf> = OnceLock::new();
    COPY.get_or_init(|| {
        let copy = scratch().join("gatekeeper");
        copy_program(gatekeeper(), &copy);
        copy
    })
}

/// Copies a program with cp(1). If this process wrote the copy itself, a concurrent fork in another test could hold it
/// open for writing, and executing it would fail with ETXTBSY.
pub fn copy_program(from: &Path, to: &Path) {
    run(Command::new("cp").arg(from).arg(to)).exits(0);
    open_to_all(to);
}

static SCRATCH: OnceLock<PathBuf> = OnceLock::new();

/// A directory for the files of this test run. Every user may read it, and it is removed at exit.
pub fn scratch() -> &'static Path {
    SCRATCH.get_or_init(|| {
        let dir = std::env::temp_dir().join(format!("gatekeeper-tests-{}", std::process::id()));
        // An earlier run with the same process id may have been killed.
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).expect("the temporary directory is writable");
        open_to_all(&dir);
        tell_failures_at_once();
        // SAFETY: `remove_scratch` is a static function and does not unwind.
        unsafe { libc::atexit(remove_scratch) };
        // Tests that run in the background of a script or under nohup inherit these as ignored, and would pass that on.
        for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
            // SAFETY: SIG_DFL runs no code of ours.
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

/// A new directory that every user may read and write.
pub fn fresh(name: &str) -> PathBuf {
    static COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let dir = scratch().join(format!("{name}-{count}"));
    fs::create_dir_all(&dir).expect("the scratch directory is writable");
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).expect("own directory");
    dir
}

/// Prints why a test failed when it fails. The harness prints it after the last test, and a log that was cut has lost it.
fn tell_failures_at_once() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |failure| {
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        let text: String = failure.to_string().chars().take(2000).collect();
        note(&format!("FAILED {name}: {text}"));
        usual(failure);
    }));
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

/// Compiles a C program of tests/probes once, with these extra arguments for cc.
pub fn probe(name: &str, flags: &[&str]) -> PathBuf {
    let source = probes().join(format!("{name}.c"));
    compiled(name, &[source], flags)
}

/// Compiles all C files of a directory of tests/probes into one program.
pub fn probe_of_many(directory: &str, flags: &[&str]) -> PathBuf {
    if let Some(built) = prebuilt(directory, flags) {
        return built;
    }
    let files = fs::read_dir(probes().join(directory)).expect("a directory of probes");
    let files = files.map(|entry| entry.expect("readable").path());
    let sources: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|ending| ending == "c")).collect();
    compiled(directory, &sources, flags)
}

fn probes() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/probes")
}

/// The name of a compiled probe.
fn built_as(name: &str, flags: &[&str]) -> String {
    let tag: String = flags.join("_").chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    format!("{name}{tag}")
}

/// Whether this is one of the machines of tests/kernels.
pub fn emulated() -> bool {
    std::env::var_os("TESTED_PROBES").is_some()
}

/// A probe in the directory TESTED_PROBES, for machines without a compiler.
fn prebuilt(name: &str, flags: &[&str]) -> Option<PathBuf> {
    let directory = std::env::var_os("TESTED_PROBES")?;
    Some(Path::new(&directory).join(built_as(name, flags)))
}

fn compiled(name: &str, sources: &[PathBuf], flags: &[&str]) -> PathBuf {
    if let Some(built) = prebuilt(name, flags) {
        return built;
    }
    static BUILT: Mutex<()> = Mutex::new(());
    let _one_at_a_time = BUILT.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let path = scratch().join(built_as(name, flags));
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

/// A finished command. Its `Display` shows the command, its status and both streams.
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

/// Runs a command to its end. SIGALRM ends a command that hangs, so that its test fails instead of hanging too.
#[track_caller]
pub fn run(command: &mut Command) -> Done {
    // Long enough for the slowest command, which runs the whole corpus of profiles.
    const SECONDS: u32 = 600;
    let shown = format!("{command:?}");
    // SAFETY: alarm is async-signal-safe. It survives the exec, so it ends the command and not this process.
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

/// Whether a program is installed. If it is not, the test or the part of it that needs the program counts as skipped.
#[track_caller]
pub fn has(program: &str) -> bool {
    let found = on_path(program);
    if !found {
        skip(&format!("{program} is not installed"));
    }
    found
}

/// Prints that a test, or a part of it, cannot run here. With SANDBOX_TESTS_MUST_RUN=1, as in CI, that is a failure.
#[track_caller]
pub fn skip(why: &str) {
    assert!(!must_run(), "must not be skipped: {why}");
    note(&format!("SKIPPED: {why}"));
}

/// Prints a line even if the test passes. Not eprintln, whose output the test harness then discards; and in one write, so
/// that lines of parallel tests do not mix.
pub fn note(text: &str) {
    let _ = std::io::stderr().write_all(format!("{text}\n").as_bytes());
}

fn must_run() -> bool {
    std::env::var_os("SANDBOX_TESTS_MUST_RUN").is_some_and(|value| value == "1")
}

pub const NOBODY: u32 = 65534;

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The users that a test runs as: the current one (`None`) and, if that is root, also `nobody`.
#[track_caller]
pub fn users() -> Vec<Option<u32>> {
    if as_root_too() { vec![None, Some(NOBODY)] } else { vec![None] }
}

/// Whether tests run both as root and as `nobody`. If not, root's half is skipped, which is printed once.
#[track_caller]
pub fn as_root_too() -> bool {
    static PRINTED: AtomicBool = AtomicBool::new(false);
    if !is_root() && (must_run() || !PRINTED.swap(true, Ordering::Relaxed)) {
        skip("tests run as the current user only; started by root, they run as root and as nobody");
    }
    is_root()
}
