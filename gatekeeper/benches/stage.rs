//! What `--stage` adds: to /bin/true, to 1,000 file operations, to a git checkout of 20,000 files and to npm install; and the
//! time of diff and apply of 10,000 changes. As root also on a tmpfs, where no disk decides. `cargo bench --bench stage [ROUNDS]`.

#[allow(dead_code)]
mod interleaved;

use interleaved::{command, median, millis, place, rounds, user};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// 200 packages of ten files each, as archives, and a project that needs them all.
const PACKAGES: &str = "mkdir -p npm/tgz; cd npm; { printf '{\"name\":\"all\",\"version\":\"1.0.0\",\"dependencies\":{'; \
    for i in $(seq 200); do mkdir package; printf '{\"name\":\"p%s\",\"version\":\"1.0.0\"}' $i > package/package.json; \
    for f in $(seq 10); do echo $f > package/$f.js; done; tar czf tgz/$i.tgz package; rm -rf package; \
    [ $i = 1 ] || printf ,; printf '\"p%s\":\"file:tgz/%s.tgz\"' $i $i; done; printf '}}'; } > package.json";

const OPERATIONS: &str =
    "i=0; while [ $i -lt 250 ]; do echo $i > f$i; read x < f$i; mv f$i g$i; rm g$i; i=$((i+1)); done";

const REPOSITORY: &str = "git init -q r && cd r && mkdir d && cd d && seq 20000 | split -l 1 -a 4 - f && cd .. && git add -A && \
    git -c user.name=n -c user.email=e@e commit -qm all && rm -r d";

struct Bench {
    dir: PathBuf,
    gatekeeper: String,
    /// What the lines of this place begin with.
    title: &'static str,
}

fn main() {
    let is_root = rustix::process::geteuid().is_root();
    if is_root && std::env::var_os("BENCH_MOUNTS").is_none() {
        // A mount namespace, so that the tmpfs goes with this process.
        let mut again = Command::new("unshare");
        again.arg("-m").arg(std::env::current_exe().expect("this program")).args(std::env::args_os().skip(1));
        panic!("unshare: {}", again.env("BENCH_MOUNTS", "1").exec());
    }
    let (dir, gatekeeper) = place();
    let top = dir.path().canonicalize().expect("there");
    let bench = |title: &'static str, dir: PathBuf| {
        std::fs::create_dir_all(dir.join("work")).expect("own directory");
        if is_root {
            for path in [&dir, &dir.join("work")] {
                std::os::unix::fs::chown(path, Some(user()), Some(user())).expect("root's to give");
            }
        }
        Bench { dir: dir.join("work"), gatekeeper: gatekeeper.to_str().expect("text").to_owned(), title }
    };
    let (disk, rounds) = (bench("", top.join("disk")), rounds(20));
    disk.compare("/bin/true", "", "true", rounds);
    disk.compare("1,000 file operations", "", OPERATIONS, rounds);
    disk.checkout(rounds.min(5));
    disk.sh(PACKAGES);
    let install = "cd npm; npm install --offline --silent --no-audit --no-fund --ignore-scripts --cache $PWD/cache";
    disk.compare("npm install, 200 packages", "rm -rf npm/node_modules npm/package-lock.json", install, 3.min(rounds));
    disk.many();
    if !is_root {
        return println!("tmpfs: skipped, only root mounts one");
    }
    let memory = top.join("memory");
    std::fs::create_dir(&memory).expect("own directory");
    let mount = Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(&memory).status().expect("mount starts");
    assert!(mount.success(), "tmpfs");
    let memory = bench("tmpfs: ", memory);
    memory.compare("/bin/true", "", "true", rounds);
    memory.checkout(rounds.min(5));
    memory.many();
}

impl Bench {
    fn run(&self, words: &[&str]) -> Command {
        let words: Vec<String> =
            std::iter::once(self.gatekeeper.as_str()).chain(words.iter().copied()).map(str::to_owned).collect();
        let mut command = command(&words, &self.dir);
        command.env("XDG_STATE_HOME", self.dir.with_file_name("state"));
        command
    }

    fn shell(&self, line: &str) -> Command {
        command(&["/bin/sh", "-ec", line].map(str::to_owned), &self.dir)
    }

    fn sh(&self, line: &str) {
        assert!(self.shell(line).status().expect("sh starts").success(), "{line}");
    }

    fn discard(&self, name: &str) {
        let _ = self.run(&["stage", "discard", name]).stderr(std::process::Stdio::null()).status();
    }

    fn checkout(&self, rounds: usize) {
        self.sh(REPOSITORY);
        self.compare("git checkout of 20,000 files", "rm -rf r/d", "cd r && git checkout -q -- .", rounds);
    }

    /// Times a line unconfined, in a plain run and in a staged one, in turn. Before each of them, if there is something to put
    /// back: it is put back, the stage is discarded, and the disk has everything; none of this is timed.
    fn compare(&self, title: &str, back: &str, line: &str, rounds: usize) {
        let mut runs = [
            self.shell(line),
            self.run(&["run", "-q", "-p", "write", "-c", line]),
            self.run(&["run", "-q", "-p", "write", "--stage", "bench", "-c", line]),
        ];
        let mut times = [const { Vec::new() }; 3];
        for round in 0..=rounds {
            for (run, times) in runs.iter_mut().zip(&mut times) {
                if !back.is_empty() {
                    self.discard("bench");
                    self.sh(&format!("{back}; sync -f ."));
                }
                let began = Instant::now();
                assert!(run.status().expect("it starts").success(), "{run:?}");
                // The first round fills the page cache.
                if round > 0 {
                    times.push(began.elapsed());
                }
            }
        }
        let [free, plain, staged] = times.map(|times| millis(median(times)));
        let title = format!("{}{title}", self.title);
        println!(
            "{title:<36} ms: unconfined {free:.2}, plain {plain:.2}, staged {staged:.2}, {:.2} times",
            staged / plain
        );
        self.discard("bench");
    }

    fn many(&self) {
        self.sh("mkdir -p many && cd many && seq 5000 | split -l 1 -a 3 - f");
        let line = "cd many; for f in f*; do echo x >> $f; done; i=0; while [ $i -lt 5000 ]; do echo $i > n$i; i=$((i+1)); done";
        assert!(
            self.run(&["run", "-q", "-p", "write", "--stage", "many", "-c", line]).status().expect("runs").success()
        );
        for words in
            [vec!["stage", "diff", "many"], vec!["stage", "diff", "--json", "many"], vec!["stage", "apply", "many"]]
        {
            let title = format!("{}10,000 changes, {}", self.title, words[1..words.len() - 1].join(" "));
            println!("{title:<36} ms: {:.0}", millis(self.timed(&words)));
        }
    }

    fn timed(&self, words: &[&str]) -> Duration {
        let began = Instant::now();
        self.run(words).stdout(std::process::Stdio::null()).status().expect("runs");
        began.elapsed()
    }
}
