//! What `gatekeeper run` costs: interleaved medians compared with plain exec, bubblewrap, and the C launcher floor.c,
//! which installs the same Landlock rules and a filter of the same length. Runs as the user nobody if started by root.
//! `cargo bench --bench run [ROUNDS]`.

#[allow(dead_code)]
mod interleaved;

use gatekeeper::plan::table::{Answers, Table};
use gatekeeper::policy::{Document, NetworkMode, OnViolation, Policy, Profile};
use interleaved::{command, medians, open_to_all, peer, place, rounds, user};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A home, and a directory in which nothing is.
const HOME: &str = "home";
const EMPTY: &str = "empty";

struct Bench {
    dir: tempfile::TempDir,
    gatekeeper: PathBuf,
    floor: PathBuf,
    rounds: usize,
}

fn main() {
    let bench = Bench::new(rounds(60));
    bench.start_up();
    bench.syscalls();
    bench.workloads();
}

impl Bench {
    fn new(rounds: usize) -> Bench {
        let (dir, gatekeeper) = place();
        let floor = compiled(dir.path(), &Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/floor.c"), &["-static"]);
        for name in [HOME, EMPTY] {
            fs::create_dir(dir.path().join(name)).expect("new");
            open_to_all(&dir.path().join(name), 0o777);
        }
        Bench { dir, gatekeeper, floor, rounds }
    }

    /// The command of another sandbox, if it is installed.
    fn peer(&self, name: &'static str, words: &str) -> Option<(&'static str, Vec<String>)> {
        let copy = peer(name, self.dir.path())?;
        let words = std::iter::once(copy.to_str()?).chain(words.split(' '));
        Some((name, words.map(str::to_owned).collect()))
    }

    /// The commands to compare, by name; the first is plain exec.
    fn contestants(&self, profile: Profile, cwd: &Path, words: &[&str]) -> Vec<(&'static str, Vec<String>)> {
        let name = if profile == Profile::Minimal { "minimal" } else { "write" };
        let own = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<String>>();
        let with = |before: Vec<String>| before.into_iter().chain(own(words)).collect::<Vec<String>>();
        let gate = own(&[self.gatekeeper.to_str().unwrap(), "run", "--quiet", "--profile", name, "--"]);
        let filter = self.filter(profile);
        let mut floor = own(&[self.floor.to_str().unwrap(), filter.to_str().unwrap(), "8", "/", "8", "/dev"]);
        for tree in fs::read_dir("/").expect("/").flatten().filter(|tree| tree.file_name() != "dev") {
            let rights = match tree.file_type().expect("in /") {
                kind if kind.is_dir() => "d",
                kind if kind.is_file() => "5",
                _ => continue,
            };
            floor.extend(own(&[rights, tree.path().to_str().unwrap()]));
        }
        for device in ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"] {
            floor.extend(own(&["c006", device]));
        }
        if profile == Profile::Write {
            floor.extend(own(&["c006", "/dev/ptmx", "c00e", "/dev/pts"]));
            for tree in [cwd.to_str().unwrap(), "/dev/shm"] {
                floor.extend(own(&["77bf", tree]));
            }
        }
        floor.push("--".to_owned());
        let bind = if profile == Profile::Minimal { "--ro-bind" } else { "--bind" };
        let bwrap = own(&["/usr/bin/bwrap", bind, "/", "/", "--unshare-all", "--proc", "/proc", "--dev", "/dev"]);
        let mut all = vec![("plain", own(words)), ("floor.c", with(floor)), ("gatekeeper", with(gate))];
        if Path::new("/usr/bin/bwrap").exists() {
            all.push(("bwrap", with(bwrap)));
        }
        all
    }

    /// The filter that gatekeeper would load, as a file.
    fn filter(&self, profile: Profile) -> PathBuf {
        let document = Document { profile: Some(vec![profile]), ..Document::default() };
        let policy = Policy::resolve(document).expect("a built-in profile");
        let table = Table::new(&policy, &NetworkMode::None, profile == Profile::Write, false);
        // floor.c has no supervisor, so allow all calls that one would decide. Otherwise the workload would differ.
        let allow = sandbox_contract::bpf::ret::ALLOW;
        let answers = Answers { supervise: allow, ..Answers::new(OnViolation::Errno, false) };
        let mut program = table.program(&answers, None).expect("compiles");
        program.iter_mut().filter(|insn| insn.code == 6 && insn.k == answers.deny).for_each(|insn| insn.k = allow);
        let bytes: Vec<u8> = program
            .iter()
            .flat_map(|insn| {
                let [a, b] = insn.code.to_ne_bytes();
                let [c, d, e, f] = insn.k.to_ne_bytes();
                [a, b, insn.jt, insn.jf, c, d, e, f]
            })
            .collect();
        let path = self.dir.path().join(if profile == Profile::Minimal { "minimal.bpf" } else { "write.bpf" });
        fs::write(&path, bytes).expect("written");
        path
    }

    fn start_up(&self) {
        let cwd = self.dir.path().join(EMPTY);
        let mut contestants = self.contestants(Profile::Minimal, &cwd, &["/bin/true"]);
        let mut three = contestants[1].1.clone();
        three.insert(1, "three".to_owned());
        contestants.push(("floor.c, three processes", three));
        let firejail = ["firejail", "--quiet", "--noprofile", "--net=none", "--seccomp", "--private-dev", "/bin/true"];
        contestants.push(("firejail", firejail.map(str::to_owned).to_vec()));
        // util-linux's unshare: namespaces alone, without a filter or path rules.
        let unshare =
            ["unshare", "--map-root-user", "--mount", "--pid", "--net", "--fork", "--mount-proc", "/bin/true"];
        contestants.push(("unshare", unshare.map(str::to_owned).to_vec()));
        contestants.extend(self.peer("sandlock", "run -r / -- /bin/true"));
        // nono refuses to grant / or a directory that holds its own state.
        contestants.extend(self.peer("nono", "run --silent --allow-cwd --read /usr -- /bin/true"));
        contestants.retain(|(name, words)| {
            let works = self.command(words, &cwd).stderr(Stdio::null()).status().is_ok_and(|ended| ended.success());
            if !works {
                println!("{name} is left out: it is not installed, or not for this user");
            }
            works
        });
        let medians = self.measure(&contestants, &cwd, self.rounds * 5);
        let plain = medians[0];
        println!("one /bin/true                 median     added   x floor   of bwrap");
        let added = |time: &Duration| time.saturating_sub(plain).as_secs_f64() * 1e3;
        let added_by = |who: &str| {
            contestants.iter().zip(&medians).find(|((name, _), _)| *name == who).map(|(_, time)| added(time))
        };
        for ((name, _), median) in contestants.iter().zip(&medians) {
            let ratio = |to: Option<f64>| to.filter(|to| *to > 0.0).map(|to| added(median) / to);
            let shown = |ratio: Option<f64>| ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
            println!(
                "  {name:<24} {:>8.3} ms {:>6.3} ms {:>7} {:>9}",
                median.as_secs_f64() * 1e3,
                added(median),
                shown(ratio(added_by("floor.c"))),
                shown(ratio(added_by("bwrap")))
            );
        }
    }

    fn syscalls(&self) {
        let source = self.dir.path().join("calls.c");
        let text = "#include <stdio.h>\n#include <time.h>\n#include <unistd.h>\n#include <sys/syscall.h>\nint main(void){struct timespec a,b;clock_gettime(CLOCK_MONOTONIC,&a);for(int i=0;i<1000000;i++)syscall(SYS_getppid);clock_gettime(CLOCK_MONOTONIC,&b);printf(\"%.1f\\n\",((b.tv_sec-a.tv_sec)*1e9+(b.tv_nsec-a.tv_nsec))/1e6);}";
        fs::write(&source, text).expect("written");
        let probe = compiled(self.dir.path(), &source, &[]);
        println!("one allowed syscall, ns (least of 5)");
        for (name, words) in self.contestants(Profile::Minimal, self.dir.path(), &[probe.to_str().unwrap()]) {
            let figures = (0..5).map(|_| {
                let output = self.command(&words, self.dir.path()).stdout(Stdio::piped()).output().expect("starts");
                String::from_utf8_lossy(&output.stdout).trim().parse::<f64>().expect("a figure")
            });
            println!("  {name:<24} {:>8.1}", figures.fold(f64::MAX, f64::min));
        }
    }

    fn workloads(&self) {
        let tree = self.dir.path().join("tree");
        let build = self.dir.path().join("build");
        self.prepare(&tree, "git init -q . && for d in $(seq 40); do mkdir d$d; for f in $(seq 50); do echo $d $f >d$d/f$f; done; done && git add . && git -c user.name=n -c user.email=e commit -qm x");
        self.prepare(&build, "for f in $(seq 20); do echo \"#include <stdio.h>\nint f$f(int x){printf(\\\"%d\\\",x);return x*$f;}\" >f$f.c; done; echo 'int main(void){return 0;}' >main.c");
        let line = "rm -f *.o prog; for f in *.c; do cc -c $f || exit 1; done; cc -o prog *.o";
        for (name, cwd, words) in [
            ("git status in 2,000 files", &tree, &["/usr/bin/git", "status", "--porcelain"][..]),
            ("C build of 20 files", &build, &["/bin/sh", "-c", line]),
        ] {
            let contestants = self.contestants(Profile::Write, cwd, words);
            let rounds = if words.len() == 3 && words[0] == "/bin/sh" { self.rounds.div_ceil(6) } else { self.rounds };
            let medians = self.measure(&contestants, cwd, rounds);
            println!("{name:<30} median   x plain   x floor");
            for ((who, _), median) in contestants.iter().zip(&medians) {
                let to = |at: usize| median.as_secs_f64() / medians[at].as_secs_f64();
                println!("  {who:<24} {:>8.2} ms {:>7.3} {:>9.3}", median.as_secs_f64() * 1e3, to(0), to(1));
            }
        }
    }

    fn prepare(&self, dir: &Path, line: &str) {
        fs::create_dir(dir).expect("fresh");
        open_to_all(dir, 0o777);
        if rustix::process::geteuid().is_root() {
            // git refuses to work in a directory of another user.
            std::os::unix::fs::chown(dir, Some(user()), Some(user())).expect("root");
        }
        let words = ["/bin/sh", "-c", line].map(str::to_owned);
        assert!(self.command(&words, dir).status().expect("sh starts").success(), "{line}");
    }

    fn measure(&self, contestants: &[(&str, Vec<String>)], cwd: &Path, rounds: usize) -> Vec<Duration> {
        let mut commands: Vec<Command> = contestants.iter().map(|(_, words)| self.command(words, cwd)).collect();
        medians(&mut commands, rounds)
    }

    fn command(&self, words: &[String], cwd: &Path) -> Command {
        let mut command = command(words, cwd);
        command.env("HOME", self.dir.path().join(HOME));
        command
    }
}

fn compiled(dir: &Path, source: &Path, flags: &[&str]) -> PathBuf {
    let to = dir.join(source.file_stem().expect("a file"));
    let status = Command::new("cc").args(["-O2", "-o"]).arg(&to).arg(source).args(flags).status().expect("cc starts");
    assert!(status.success(), "{}", source.display());
    open_to_all(&to, 0o755);
    to
}
