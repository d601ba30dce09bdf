//! What one supervised call costs: a granted open, a refused one and a denied socket, each compared with the same call
//! without a supervisor; and what that adds to a commit and a small build. Interleaved runs, smallest and median.
//!
//! `cargo bench -p gatekeeper-sandbox --bench notify -- ROUNDS`. Asserts nothing, because times differ between machines.

#[allow(dead_code)]
mod interleaved;

use std::path::Path;
use std::process::Command;
use std::time::Instant;

const CALLS: &str = "400";

type Measure<'a> = (&'static str, Box<dyn Fn() -> f64 + 'a>, Vec<f64>);

fn main() {
    let rounds = std::env::args().find_map(|word| word.parse::<usize>().ok()).unwrap_or(25);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let dir = dir.path().canonicalize().expect("a real path");
    let probe = dir.join("violate");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/probes/violate.c");
    let built = Command::new("cc").args(["-O1", "-pthread", "-o"]).args([&probe, &source]).status();
    assert!(built.is_ok_and(|status| status.success()), "cc {}", source.display());
    let file = dir.join("file");
    std::fs::write(&file, "").expect("own directory");

    let probe = &probe;
    let (dir, file) = (&dir, &file);
    let confined = |flags: &'static [&'static str]| {
        move || {
            let mut command = Command::new(interleaved::program());
            command.args(["run", "-q"]).args(flags).arg("--").current_dir(dir);
            command
        }
    };
    let calls = |start: &dyn Fn() -> Command, what: &str| {
        let mut command = start();
        match what {
            "time-denied" => command.args([what, CALLS]),
            _ => command.arg(what).arg(file).arg(CALLS),
        };
        let output = command.output().expect("it starts");
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        text.parse::<f64>().unwrap_or_else(|_| panic!("{command:?}: {output:?}"))
    };
    let run = |flags: &'static [&'static str], what: &'static str| -> Box<dyn Fn() -> f64> {
        Box::new(move || {
            calls(
                &|| {
                    let mut command = confined(flags)();
                    command.arg(probe);
                    command
                },
                what,
            )
        })
    };
    let plain = |what: &'static str| -> Box<dyn Fn() -> f64> { Box::new(move || calls(&|| Command::new(probe), what)) };
    let mut measures: Vec<Measure<'_>> = vec![
        ("open to write, outside", plain("time-writes"), Vec::new()),
        ("open to read, outside", plain("time-reads"), Vec::new()),
        ("open to write, granted and watched", run(&["--profile", "write"], "time-writes"), Vec::new()),
        ("open to read, granted and watched", run(&["--profile", "write"], "time-reads"), Vec::new()),
        ("open to read, --explain", run(&["--profile", "write", "--explain"], "time-reads"), Vec::new()),
        ("open to write, refused and recorded", run(&[], "time-writes"), Vec::new()),
        ("socket, denied and recorded", run(&[], "time-denied"), Vec::new()),
    ];
    for _ in 0..rounds {
        for (_, measure, found) in &mut measures {
            found.push(measure());
        }
    }
    println!("{:<38}{:>12}{:>12}", "ns per call", "smallest", "median");
    for (name, _, found) in &mut measures {
        found.sort_by(f64::total_cmp);
        println!("{name:<38}{:>12.0}{:>12.0}", found[0], found[found.len() / 2]);
    }
    work(dir, rounds.min(10));
}

/// A commit and a build: unconfined, confined, and with reads supervised too.
fn work(dir: &Path, rounds: usize) {
    let commit =
        "rm -rf r; git init -q r; cd r; echo x > f; git add f; git -c user.name=a -c user.email=a@b commit -qm x";
    let build = "for i in 1 2 3 4; do echo \"int f$i(void) { return $i; }\" > $i.c; cc -c $i.c; done; ar rc x.a *.o; rm -f *.o x.a";
    println!("\n{:<38}{:>12}{:>12}{:>12}", "ms, median", "outside", "confined", "--explain");
    for (name, line) in [("git init, add and commit", commit), ("four files compiled", build)] {
        let mut found = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..rounds {
            for (at, flags) in [None, Some(&[][..]), Some(&["--explain"])].into_iter().enumerate() {
                let mut command = match flags {
                    None => Command::new("sh"),
                    Some(flags) => {
                        let mut command = Command::new(interleaved::program());
                        command.args(["run", "-q", "--profile", "write"]).args(flags).args(["--", "sh"]);
                        command
                    }
                };
                let began = Instant::now();
                let output = command.args(["-c", line]).current_dir(dir).output().expect("it starts");
                assert!(output.status.success(), "{command:?}: {output:?}");
                found[at].push(began.elapsed().as_secs_f64() * 1000.0);
            }
        }
        let median = found.map(|mut times| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        });
        println!("{name:<38}{:>12.1}{:>12.1}{:>12.1}", median[0], median[1], median[2]);
    }
}
