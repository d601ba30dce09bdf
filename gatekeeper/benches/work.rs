//! Real work under `write`, as ratios to the same work unconfined: tools that make, change and remove many small files, searches,
//! builds and tests; beside bubblewrap, unshare and the other launchers that are installed. In memory, as the user nobody if
//! started by root. `cargo bench --bench work [ROUNDS]`; `WORK="tar touch"` runs some of it.

#[allow(dead_code)]
mod interleaved;

use interleaved::{command, open_to_all, peer, program, rounds};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Each job ends after this time, with at least one round done.
const LONGEST: Duration = Duration::from_secs(25);

/// Some work: what is prepared before each round, and what is timed. Lines of a shell.
struct Job {
    name: &'static str,
    title: &'static str,
    /// Made once, before the first round.
    once: &'static str,
    before: &'static str,
    timed: &'static str,
}

const TREE: &str = "[ -e src ] || { mkdir src; for d in $(seq 200); do mkdir src/$d; for f in $(seq 100); do echo $d $f > src/$d/$f; \
                    done; done; tar cf src.tar src; }";
const LARGE: &str =
    "[ -e large ] || { mkdir large; for d in $(seq 100); do mkdir large/$d; (cd large/$d; touch $(seq 1000)); done; }";

const JOBS: &[Job] = &[
    Job {
        name: "tar",
        title: "tar x, 20,000 files",
        once: TREE,
        before: "rm -rf out; mkdir out",
        timed: "tar xf src.tar -C out",
    },
    Job { name: "cp", title: "cp -a, 20,000 files", once: TREE, before: "rm -rf out", timed: "cp -a src out" },
    Job {
        name: "rsync",
        title: "rsync -a, 20,000 files",
        once: TREE,
        before: "rm -rf out",
        timed: "rsync -a src/ out",
    },
    Job {
        name: "touch",
        title: "touch, 10,000 files",
        once: "",
        before: "rm -rf out; mkdir out",
        timed: "cd out; touch $(seq 10000)",
    },
    Job {
        name: "chmod",
        title: "chmod -R, 20,000 files",
        once: TREE,
        before: "rm -rf out; cp -r src out",
        timed: "chmod -R g+w out",
    },
    Job {
        name: "rm",
        title: "rm -rf, 20,000 files",
        once: TREE,
        before: "rm -rf out; cp -r src out",
        timed: "rm -rf out",
    },
    Job {
        name: "git",
        title: "git checkout, 20,000 files",
        once: "git init -q repo; mkdir repo/src; for d in $(seq 200); do mkdir repo/src/$d; for f in $(seq 100); do \
               echo $d $f > repo/src/$d/$f; done; done; cd repo; git add .; \
               git -c user.name=a -c user.email=a@b commit -qm x",
        before: "rm -rf repo/src",
        timed: "cd repo; git checkout -q -f HEAD -- .",
    },
    Job { name: "find", title: "find, 100,000 files", once: LARGE, before: "", timed: "find large -size +1k" },
    Job { name: "grep", title: "grep -r, 100,000 files", once: LARGE, before: "", timed: "! grep -rq word large" },
    Job {
        name: "cc",
        title: "C build of 20 files",
        once: "mkdir c; for i in $(seq 20); do printf '#include <stdio.h>\\n#include <stdlib.h>\\nint f%s(void){return %s;}\\n' $i $i > c/$i.c; done",
        before: "rm -f c/*.o",
        timed: "cd c; for i in $(seq 20); do cc -c $i.c; done",
    },
    Job {
        name: "cargo",
        title: "cargo build of a small crate",
        once: "cargo init -q --vcs none --name small crate",
        before: "rm -rf crate/target",
        timed: "cd crate; CARGO_HOME=$PWD/home cargo build -q --offline",
    },
    Job {
        name: "pytest",
        title: "pytest, 1,000 tests",
        once: "mkdir py; for i in $(seq 100); do for t in $(seq 10); do \
               echo \"def test_$t(): open(__file__).read()\"; done > py/test_$i.py; done",
        before: "find py -name __pycache__ -exec rm -rf {} +",
        timed: "cd py; python3 -m pytest -q",
    },
    Job {
        name: "npm",
        title: "npm install, 500 packages",
        once: "mkdir -p npm/tgz; cd npm; { printf '{\"name\":\"all\",\"version\":\"1.0.0\",\"dependencies\":{'; for i in $(seq 500); do \
               mkdir package; printf '{\"name\":\"p%s\",\"version\":\"1.0.0\"}' $i > package/package.json; \
               for f in $(seq 10); do echo $f > package/$f.js; done; tar czf tgz/$i.tgz package; rm -rf package; \
               [ $i = 1 ] || printf ,; printf '\"p%s\":\"file:tgz/%s.tgz\"' $i $i; done; printf '}}'; } > package.json",
        before: "rm -rf npm/node_modules npm/package-lock.json",
        timed: "cd npm; npm install --offline --silent --no-audit --no-fund --ignore-scripts --cache $PWD/cache",
    },
];

fn main() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    open_to_all(dir.path(), 0o777);
    let gatekeeper = dir.path().join("gatekeeper");
    fs::copy(program(), &gatekeeper).expect("copied");
    let area = dir.path().join("area");
    fs::create_dir(&area).expect("own directory");
    open_to_all(&area, 0o777);
    let home = dir.path().join("home");
    fs::create_dir(&home).expect("own directory");
    open_to_all(&home, 0o777);
    let chosen = std::env::var("WORK").unwrap_or_default();
    let wants = |job: &Job| chosen.is_empty() || chosen.split_whitespace().any(|name| name == job.name);
    // On the disk: it is large.
    let tools = tempfile::tempdir().expect("a temporary directory");
    open_to_all(tools.path(), 0o755);
    if JOBS.iter().any(|job| job.name == "cargo" && wants(job)) {
        copy_toolchain(tools.path());
    }
    let area = Area { path: area, tools: tools.path().join("bin") };
    let launchers = launchers(&gatekeeper, &area);
    let names: Vec<&str> = launchers.iter().map(|(name, _)| *name).collect();
    println!(
        "{:<30}{:>10}  x plain: {}",
        "ms, median",
        names[0],
        names[1..].iter().map(|name| format!("{name:>12}")).collect::<String>()
    );
    let mut made = "";
    for job in JOBS.iter().filter(|job| wants(job)) {
        // gatekeeper looks for secrets in the whole working directory, so the files of other work are not left there.
        if job.once != made {
            let emptied = shell(&[], "find . -mindepth 1 -delete", &area).status();
            assert!(emptied.is_ok_and(|status| status.success()), "{} could not be emptied", area.path.display());
            made = job.once;
        }
        match measured(job, &launchers, &area) {
            Some(times) => {
                let ratios: String = times[1..].iter().map(|time| format!("{:>12.2}", time / times[0])).collect();
                println!("{:<30}{:>10.1}           {ratios}", job.title, times[0]);
            }
            None => println!("{:<30} left out: its tools are not installed for this user", job.title),
        }
    }
}

/// Where the work is done.
struct Area {
    path: PathBuf,
    /// Programs that the user would not find otherwise.
    tools: PathBuf,
}

/// Copies the Rust toolchain of root, which the user may not read.
fn copy_toolchain(to: &Path) {
    let line = "top=$(rustc --print sysroot) && mkdir -p bin lib/rustlib && cp $top/bin/cargo $top/bin/rustc bin && \
                cp -P $top/lib/lib* lib && cp -r $top/lib/rustlib/*-linux-* lib/rustlib";
    if rustix::process::geteuid().is_root() {
        let copied = Command::new("sh").args(["-c", line]).current_dir(to).status();
        assert!(copied.is_ok_and(|status| status.success()), "{line}");
    }
}

/// What starts the work, by name. The first is a plain shell.
fn launchers(gatekeeper: &Path, place: &Area) -> Vec<(&'static str, Vec<String>)> {
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<String>>();
    let area = place.path.to_str().expect("text");
    let mut all = vec![
        ("plain", Vec::new()),
        ("gatekeeper", words(&format!("{} run -q --profile write --", gatekeeper.to_str().expect("text")))),
        ("bwrap", words(&format!("bwrap --ro-bind / / --dev /dev --proc /proc --bind {area} {area} --unshare-all --"))),
        // As the same user: as root of its own namespace, tar and cp would change owners, which is refused.
        ("unshare", words("unshare --map-current-user -m -n --")),
    ];
    for (name, line) in
        [("sandlock", format!("run -r / -w {area} --")), ("nono", format!("run --silent --read / --allow {area} --"))]
    {
        let found = peer(name, gatekeeper.parent().expect("a directory"));
        all.extend(found.map(|copy| (name, words(&format!("{} {line}", copy.to_str().expect("text"))))));
    }
    all.retain(|(name, words)| {
        let installed =
            words.is_empty() || shell(words, "true", place).output().is_ok_and(|done| done.status.success());
        if !installed {
            println!("{name} is left out: it is not installed, or not for this user");
        }
        installed
    });
    all
}

fn shell(launcher: &[String], line: &str, area: &Area) -> Command {
    let tail = ["/bin/sh", "-c", line].map(str::to_owned);
    let mut started = command(&launcher.iter().cloned().chain(tail).collect::<Vec<String>>(), &area.path);
    started.stderr(std::process::Stdio::null());
    // gatekeeper does not make the directory above a home writable.
    started.env("HOME", area.path.with_file_name("home"));
    started.env("PATH", format!("{}:/usr/bin:/bin", area.tools.display()));
    started
}

/// The median milliseconds under each launcher; `None` if the work does not succeed unconfined.
fn measured(job: &Job, launchers: &[(&'static str, Vec<String>)], area: &Area) -> Option<Vec<f64>> {
    let succeeds = |line: &str| shell(&[], line, area).status().is_ok_and(|status| status.success());
    if !(succeeds(job.once) && succeeds(job.before) && succeeds(job.timed)) {
        return None;
    }
    let began = Instant::now();
    let mut times = vec![Vec::new(); launchers.len()];
    for round in 0..rounds(7) {
        if round > 0 && began.elapsed() > LONGEST {
            break;
        }
        for ((name, launcher), times) in launchers.iter().zip(&mut times) {
            assert!(succeeds(job.before), "{}", job.before);
            let started = Instant::now();
            let status = shell(launcher, job.timed, area).status().expect("it starts");
            assert!(status.success(), "{name}: {}: {status}", job.timed);
            times.push(started.elapsed().as_secs_f64() * 1000.0);
        }
    }
    Some(
        times
            .into_iter()
            .map(|mut times| {
                times.sort_by(f64::total_cmp);
                times[times.len() / 2]
            })
            .collect(),
    )
}
