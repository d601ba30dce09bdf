//! What `--stage` adds: to /bin/true, to 1,000 file operations, to a git checkout of 20,000 files and to npm install; and the
//! time of diff and apply of 10,000 changes. `cargo bench --bench stage [ROUNDS]`.

#[allow(dead_code)]
mod interleaved;

use interleaved::{command, medians, millis, place, rounds, user};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// 200 packages of ten files each, as archives, and a project that needs them all.
const PACKAGES: &str = "mkdir -p npm/tgz; cd npm; { printf '{\"name\":\"all\",\"version\":\"1.0.0\",\"dependencies\":{'; \
    for i in $(seq 200); do mkdir package; printf '{\"name\":\"p%s\",\"version\":\"1.0.0\"}' $i > package/package.json; \
    for f in $(seq 10); do echo $f > package/$f.js; done; tar czf tgz/$i.tgz package; rm -rf package; \
    [ $i = 1 ] || printf ,; printf '\"p%s\":\"file:tgz/%s.tgz\"' $i $i; done; printf '}}'; } > package.json";

struct Bench {
    dir: PathBuf,
    gatekeeper: String,
}

fn main() {
    let (dir, gatekeeper) = place();
    let work = dir.path().canonicalize().expect("there").join("work");
    std::fs::create_dir(&work).expect("own directory");
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&work, Some(user()), Some(user())).expect("root's to give");
    }
    let bench = Bench { dir: work, gatekeeper: gatekeeper.to_str().expect("text").to_owned() };
    let rounds = rounds(20);
    bench.compare("/bin/true", "true", rounds);
    let files = "i=0; while [ $i -lt 250 ]; do echo $i > f$i; read x < f$i; mv f$i g$i; rm g$i; i=$((i+1)); done";
    bench.compare("1,000 file operations", files, rounds);
    bench.sh("git init -q r && cd r && mkdir d && cd d && seq 20000 | split -l 1 -a 4 - f && cd .. && git add -A && \
              git -c user.name=n -c user.email=e@e commit -qm all && git rm -qr --cached d && rm -r d && git reset -q");
    bench.compare("git checkout of 20,000 files", "cd r && rm -rf d && git checkout -q -- .", 3.min(rounds));
    bench.sh(PACKAGES);
    let install = "cd npm; rm -rf node_modules package-lock.json; npm install --offline --silent --no-audit --no-fund \
                   --ignore-scripts --cache $PWD/cache";
    bench.compare("npm install, 200 packages", install, 3.min(rounds));
    bench.many();
}

impl Bench {
    fn run(&self, words: &[&str]) -> Command {
        let words: Vec<String> =
            std::iter::once(self.gatekeeper.as_str()).chain(words.iter().copied()).map(str::to_owned).collect();
        let mut command = command(&words, &self.dir);
        command.env("XDG_STATE_HOME", self.dir.with_file_name("state"));
        command
    }

    fn sh(&self, line: &str) {
        let words = ["/bin/sh", "-ec", line].map(str::to_owned);
        let status = command(&words, &self.dir).status().expect("sh starts");
        assert!(status.success(), "{line}");
    }

    fn compare(&self, title: &str, line: &str, rounds: usize) {
        let mut runs = vec![
            self.run(&["run", "-q", "-p", "write", "-c", line]),
            self.run(&["run", "-q", "-p", "write", "--stage", "bench", "-c", line]),
        ];
        let times = medians(&mut runs, rounds);
        let [plain, staged] = [millis(times[0]), millis(times[1])];
        println!("{title:<30} ms: plain {plain:.2}, staged {staged:.2}, {:.2} times", staged / plain);
        let _ = self.run(&["stage", "discard", "bench"]).status();
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
            println!(
                "10,000 changes, {:<14} ms: {:.0}",
                words[1..words.len() - 1].join(" "),
                millis(self.timed(&words))
            );
        }
    }

    fn timed(&self, words: &[&str]) -> Duration {
        let began = Instant::now();
        self.run(words).stdout(std::process::Stdio::null()).status().expect("runs");
        began.elapsed()
    }
}
