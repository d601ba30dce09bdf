//! Shared by the benchmarks: runs all contestants in turn, round after round, so that other load affects them equally.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The user that runs the timed commands if root runs the benchmark: nobody, or `BENCH_UID`.
pub fn user() -> u32 {
    std::env::var("BENCH_UID").ok().and_then(|uid| uid.parse().ok()).unwrap_or(65534)
}

/// The gatekeeper to time: the one in `GATEKEEPER`, or the one that cargo built.
pub fn program() -> PathBuf {
    std::env::var_os("GATEKEEPER").map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_gatekeeper")), PathBuf::from)
}

/// A directory that every user may use, with a copy of gatekeeper in it.
pub fn place() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    open_to_all(dir.path(), 0o777);
    let gatekeeper = dir.path().join("gatekeeper");
    std::fs::copy(program(), &gatekeeper).expect("copied");
    (dir, gatekeeper)
}

/// Another sandbox, if it is installed: a copy in `dir` that every user may execute. `make peers` installs some in target/peers.
pub fn peer(name: &str, dir: &Path) -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/peers/bin");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let copy = dir.join(name);
    let mut files = std::env::split_paths(&path).chain([built]).map(|directory| directory.join(name));
    if !files.any(|file| std::fs::copy(file, &copy).is_ok()) {
        println!("{name} is left out: it is not installed");
        return None;
    }
    open_to_all(&copy, 0o755);
    Some(copy)
}

pub fn open_to_all(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("own file");
}

/// The number of rounds from the command line.
pub fn rounds(otherwise: usize) -> usize {
    std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(otherwise)
}

/// A command to time: without output, with a small environment, and as `user()` if root runs the benchmark.
pub fn command(words: &[String], cwd: &Path) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).current_dir(cwd).stdin(Stdio::null()).stdout(Stdio::null());
    // TMPDIR in memory: on a disk mounted with discard, removing a directory takes longer than the run itself.
    // A home that does not exist, like nobody's: gatekeeper refuses to make a directory writable that contains a home.
    command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", "/nonexistent").env("TMPDIR", "/dev/shm");
    if rustix::process::geteuid().is_root() {
        command.uid(user()).gid(user());
    }
    command
}

/// The median time of each command.
pub fn medians(contestants: &mut [Command], rounds: usize) -> Vec<Duration> {
    let mut times = vec![Vec::new(); contestants.len()];
    for round in 0..rounds + 2 {
        for (command, times) in contestants.iter_mut().zip(&mut times) {
            let began = Instant::now();
            let status = command.status().expect("it starts");
            let took = began.elapsed();
            assert!(status.success(), "{command:?}: {status}");
            // The first rounds fill the page cache.
            if round >= 2 {
                times.push(took);
            }
        }
    }
    times.into_iter().map(median).collect()
}

pub fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

pub fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
