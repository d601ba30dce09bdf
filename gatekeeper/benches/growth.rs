//! How the cost of a run grows with the number of paths and syscalls in the policy and with the number of processes to
//! end, and how many denials per second are recorded. `cargo bench --bench growth [ROUNDS]`.

#[allow(dead_code)]
mod interleaved;

use interleaved::{command, medians, millis, place, rounds};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

struct Bench {
    dir: PathBuf,
    gatekeeper: String,
    rounds: usize,
}

fn main() {
    let (dir, gatekeeper) = place();
    let bench = Bench {
        dir: dir.path().to_owned(),
        gatekeeper: gatekeeper.to_str().expect("text").to_owned(),
        rounds: rounds(30),
    };
    bench.paths();
    bench.calls();
    bench.tree();
    bench.denials();
}

impl Bench {
    fn gatekeeper(&self, words: &[&str]) -> Command {
        let words: Vec<String> =
            std::iter::once(self.gatekeeper.as_str()).chain(words.iter().copied()).map(str::to_owned).collect();
        command(&words, &self.dir)
    }

    /// The same run under each policy.
    fn policies(&self, title: &str, policies: &[(usize, String)]) {
        let paths: Vec<PathBuf> = policies
            .iter()
            .map(|(size, text)| {
                let path = self.dir.join(format!("{title}-{size}.toml"));
                std::fs::write(&path, text).expect("own directory");
                path
            })
            .collect();
        let mut runs: Vec<Command> = paths
            .iter()
            .map(|path| self.gatekeeper(&["run", "-q", "--config", path.to_str().expect("text"), "--", "/bin/true"]))
            .collect();
        let times = medians(&mut runs, self.rounds);
        println!("{title:<30} median ms");
        for ((size, _), time) in policies.iter().zip(times) {
            println!("  {size:<28}{:>10.2}", millis(time));
        }
    }

    fn paths(&self) {
        let tree = self.dir.join("tree");
        std::fs::create_dir(&tree).expect("own directory");
        for at in 0..10_000 {
            std::fs::write(tree.join(format!("{at}")), "").expect("own directory");
        }
        let policy = |count: usize| {
            let listed: Vec<String> = (0..count).map(|at| format!("{:?}", tree.join(at.to_string()))).collect();
            (count, format!("profile = \"minimal\"\n[paths]\nwrite = [{}]\n", listed.join(", ")))
        };
        self.policies("paths listed", &[0, 10, 100, 1_000, 10_000].map(policy));
    }

    fn calls(&self) {
        let names: Vec<String> = (0..sandbox_contract::bpf::LIMIT)
            .filter_map(|nr| {
                sandbox_contract::syscalls::with_name(nr, |name| String::from_utf8_lossy(name).into_owned())
            })
            .collect();
        // With a `default` the list applies from exec on. Every second name is listed, so that no ranges can be merged.
        let policy = |count: usize| {
            let mut text = "profile = \"custom\"\n[syscalls]\ndefault = \"allow\"\ndeny = [".to_owned();
            let denied = names.iter().rev().filter(|name| !NEEDED.contains(&name.as_str())).step_by(if count < 150 {
                2
            } else {
                1
            });
            for name in denied.take(count) {
                let _ = write!(text, "{name:?}, ");
            }
            (count, text + "]\n")
        };
        self.policies("calls listed", &[5, 25, 100, 200, 300].map(policy));
    }

    /// Starts processes that sleep and leaves them, against a shell that starts as many and kills them itself.
    fn tree(&self) {
        let sizes = [0, 10, 50, 200];
        let started =
            |size: usize| format!("p=; i=0; while [ $i -lt {size} ]; do sleep 60 & p=\"$p $!\"; i=$((i+1)); done");
        let plain = |size: usize| {
            let line = format!("{}; [ -z \"$p\" ] || kill -9 $p; wait", started(size));
            command(&["/bin/sh", "-c", &line].map(str::to_owned), &self.dir)
        };
        let confined = |size: usize| self.gatekeeper(&["run", "-q", "--profile", "write", "-c", &started(size)]);
        let mut runs: Vec<Command> = sizes.iter().flat_map(|size| [plain(*size), confined(*size)]).collect();
        let times = medians(&mut runs, self.rounds.div_ceil(3));
        println!("children left to be ended      median ms   unconfined");
        for (size, times) in sizes.iter().zip(times.chunks(2)) {
            println!("  {size:<28}{:>10.2}{:>13.2}", millis(times[1]), millis(times[0]));
        }
    }

    fn denials(&self) {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/probes/violate.c");
        let probe = self.dir.join("violate");
        let built = Command::new("cc").args(["-O1", "-pthread", "-o"]).args([&probe, &source]).status();
        assert!(built.is_ok_and(|status| status.success()), "cc {}", source.display());
        interleaved::open_to_all(&probe, 0o755);
        let mut best = f64::MAX;
        for _ in 0..self.rounds {
            let mut run = self.gatekeeper(&["run", "-q", "--", probe.to_str().expect("text"), "time-denied", "2000"]);
            let output = run.stdout(std::process::Stdio::piped()).output().expect("it starts");
            best = best.min(String::from_utf8_lossy(&output.stdout).trim().parse().expect("nanoseconds"));
        }
        println!("denials recorded in a second   {:>10.0}", 1e9 / best);
    }
}

/// The syscalls of `true` and its loader.
const NEEDED: [&str; 24] = [
    "access",
    "arch_prctl",
    "brk",
    "close",
    "execve",
    "execveat",
    "exit_group",
    "faccessat",
    "fstat",
    "futex",
    "getrandom",
    "mmap",
    "mprotect",
    "munmap",
    "newfstatat",
    "open",
    "openat",
    "pread64",
    "prlimit64",
    "read",
    "rseq",
    "sendmsg",
    "set_robust_list",
    "set_tid_address",
];
