//! What gatekeeper adds to bubblewrap: interleaved medians of the same mounts with and without it, and of a request through
//! the proxy. As nobody where root runs it. `cargo bench --bench isolate [ROUNDS]`.

use gatekeeper::isolate::SandboxConfig;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const NOBODY: u32 = 65534;

fn main() {
    let rounds = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(100);
    let dir = tempfile::tempdir().expect("a temporary directory");
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).expect("own");
    let gatekeeper = dir.path().join("gatekeeper");
    std::fs::copy(env!("CARGO_BIN_EXE_gatekeeper"), &gatekeeper).expect("copied");
    let cwd = dir.path().canonicalize().expect("real");

    let mut config = SandboxConfig::for_working_dir(&cwd);
    config.new_session = false;
    let mut bwrap = Command::new("bwrap");
    bwrap.args(config.program_args(&["/bin/true".into()]));
    let mut isolated = Command::new(&gatekeeper);
    isolated.args(["run", "-q", "--profile", "write", "--isolate", "required", "--", "/bin/true"]);
    let mut alone = Command::new(&gatekeeper);
    alone.args(["run", "-q", "--profile", "write", "--", "/bin/true"]);
    let mut plain = Command::new("/bin/true");
    plain.arg0("true");
    let mut hosts = Command::new(&gatekeeper);
    hosts.args(["run", "-q", "--profile", "write", "--net", "hosts=a.test", "--", "/bin/true"]);

    let mut all =
        [("plain", plain), ("gatekeeper", alone), ("with a proxy", hosts), ("bwrap", bwrap), ("isolated", isolated)];
    let mut times = vec![Vec::new(); all.len()];
    for _ in 0..rounds {
        for ((_, command), times) in all.iter_mut().zip(&mut times) {
            times.push(timed(command, &cwd));
        }
    }
    let medians: Vec<Duration> = times.into_iter().map(median).collect();
    println!("one /bin/true     median ms");
    for ((name, _), median) in all.iter().zip(&medians) {
        println!("{name:16} {:9.2}", millis(*median));
    }
    println!(
        "gatekeeper's own part above bwrap with the same mounts: {:.2} ms",
        millis(medians[4]) - millis(medians[3])
    );
    println!("without isolation it adds to plain: {:.2} ms", millis(medians[1]) - millis(medians[0]));
}

fn timed(command: &mut Command, cwd: &Path) -> Duration {
    // SAFETY: no memory is passed.
    if unsafe { libc::geteuid() } == 0 {
        command.uid(NOBODY).gid(NOBODY);
    }
    command.current_dir(cwd).env("HOME", cwd.join("home")).stdin(Stdio::null()).stdout(Stdio::null());
    let began = Instant::now();
    let status = command.status().expect("it starts");
    let took = began.elapsed();
    assert!(status.success(), "{command:?}: {status}");
    took
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
