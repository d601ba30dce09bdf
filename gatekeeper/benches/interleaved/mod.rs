//! What several benchmarks share: one run of each, over and over, so that whatever else the machine does falls on all.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Who runs what is timed where root runs the benchmark: nobody, or whom `BENCH_UID` names.
pub fn user() -> u32 {
    std::env::var("BENCH_UID").ok().and_then(|uid| uid.parse().ok()).unwrap_or(65534)
}

/// The program to be timed: what cargo built, or what `GATEKEEPER` names.
pub fn program() -> PathBuf {
    std::env::var_os("GATEKEEPER").map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_gatekeeper")), PathBuf::from)
}

/// A place that everybody may use, and gatekeeper in it.
pub fn place() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    open_to_all(dir.path(), 0o777);
    let gatekeeper = dir.path().join("gatekeeper");
    std::fs::copy(program(), &gatekeeper).expect("copied");
    (dir, gatekeeper)
}

pub fn open_to_all(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("own file");
}

/// How many rounds the command line asks for.
pub fn rounds(otherwise: usize) -> usize {
    std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(otherwise)
}

/// The words as a command that is to be timed: quiet, with little of an environment, and as nobody where root runs it.
pub fn command(words: &[String], cwd: &Path) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).current_dir(cwd).stdin(Stdio::null()).stdout(Stdio::null());
    // In memory: on a disk that discards at once, removing a directory takes longer than all that is to be measured.
    command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", cwd).env("TMPDIR", "/dev/shm");
    if rustix::process::geteuid().is_root() {
        command.uid(user()).gid(user());
    }
    command
}

/// The median time of each.
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

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

pub fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
