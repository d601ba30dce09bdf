//! What a command in a warm box costs against the engine's own exec, in turn, and how long a container takes to make. Needs
//! root, podman and busybox; prints why if it cannot run. `cargo bench --bench container [ROUNDS]`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn main() {
    let rounds = std::env::args().filter_map(|word| word.parse().ok()).next().unwrap_or(30);
    let there = |name: &str| {
        Command::new("sh").args(["-c", &format!("command -v {name}")]).output().is_ok_and(|done| done.status.success())
    };
    if !rustix::process::geteuid().is_root() || !there("podman") || !there("busybox") {
        println!("not measured: it needs root, podman and busybox");
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let engine = Engine::new(dir.path());
    let gatekeeper =
        std::env::var_os("GATEKEEPER").map_or_else(|| PathBuf::from("target/release/gatekeeper"), PathBuf::from);
    let gatekeeper = std::fs::canonicalize(&gatekeeper).expect("a gatekeeper");
    let boxed = |word: &str| {
        let mut command = Command::new(&gatekeeper);
        command.args(["box", word, "--config"]).arg(dir.path().join("config.json"));
        command.env("XDG_STATE_HOME", dir.path().join("state")).env("GATEKEEPER_ENGINE", "podman");
        command.env("GATEKEEPER_ENGINE_ARGS", engine.arguments.join(" ")).stdin(Stdio::null()).stdout(Stdio::piped());
        command
    };
    let (mut cold, mut plain_cold) = (Vec::new(), Vec::new());
    let mut name = String::new();
    for _ in 0..5 {
        engine.run(&["rm", "--force", "--all", "--time", "0"]);
        let (took, output) = timed(&mut boxed("up"));
        cold.push(took);
        name = String::from_utf8(output).expect("text").trim().to_owned();
        let mut words =
            vec!["run", "--detach", "--name", "plain", "--network", "none", "--read-only", "--cap-drop", "ALL"];
        words.extend(["--ulimit", "nofile=1000:1000", "--ulimit", "nproc=1000:1000", "tiny:1", "sleep", "600"]);
        plain_cold.push(timed(&mut engine.command(&words)).0);
    }
    println!("cold, medians of 5: box up {:.0} ms, podman run --detach {:.0} ms", median(cold), median(plain_cold));
    let (mut box_exec, mut own_exec, mut differences) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds + 3 {
        let mut command = boxed("exec");
        command.args(["--", "true"]);
        let ours = timed(&mut command).0;
        let theirs = timed(&mut engine.command(&["exec", "--interactive", "--user", "501:501", &name, "true"])).0;
        if round >= 3 {
            differences.push(ours.as_secs_f64() * 1e3 - theirs.as_secs_f64() * 1e3);
            box_exec.push(ours);
            own_exec.push(theirs);
        }
    }
    differences.sort_by(f64::total_cmp);
    let (ours, theirs) = (median(box_exec), median(own_exec));
    println!(
        "warm, true, medians of {rounds} pairs: box exec {ours:.1} ms, podman exec {theirs:.1} ms ({:.2} x), median of the differences {:.1} ms",
        ours / theirs,
        differences[differences.len() / 2]
    );
    engine.run(&["rm", "--force", "--all", "--time", "0"]);
}

struct Engine {
    arguments: Vec<String>,
}

impl Engine {
    /// An empty storage with the image `tiny`.
    fn new(dir: &Path) -> Engine {
        let text =
            format!("--root {0}/root --runroot {0}/runroot --runtime runc --cgroup-manager cgroupfs", dir.display());
        let engine = Engine { arguments: text.split(' ').map(str::to_owned).collect() };
        let script = "mkdir -p root/bin root/tmp && chmod 1777 root/tmp && b=$(command -v busybox) && cp -L $b root/bin/ && for n in true sleep sh; do ln -s busybox root/bin/$n; done
            for l in $(ldd $b | grep -o '/[^ ]*'); do mkdir -p root/$(dirname $l) && cp -L $l root/$l; done; tar -C root -cf image.tar .";
        assert!(Command::new("sh").args(["-c", script]).current_dir(dir).status().expect("sh").success());
        engine.run(&["import", "-q", dir.join("image.tar").to_str().expect("text"), "tiny:1"]);
        let config = format!(
            "{{agents: {{defaults: {{sandbox: {{workspaceRoot: '{}/boxes', docker: {{image: 'tiny:1', user: '501:501'}}}}}}}}}}",
            dir.display()
        );
        std::fs::write(dir.join("config.json"), config).expect("own directory");
        engine
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("podman");
        command.args(&self.arguments).args(words).stdin(Stdio::null()).stdout(Stdio::piped());
        command
    }

    fn run(&self, words: &[&str]) {
        assert!(self.command(words).output().expect("podman").status.success(), "{words:?}");
    }
}

fn timed(command: &mut Command) -> (Duration, Vec<u8>) {
    let began = Instant::now();
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{command:?}: {output:?}");
    (began.elapsed(), output.stdout)
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e3
}
