//! What a call costs that was approved for the rest of the run with `--ask`, compared with the same call granted by the policy;
//! and what `--ask` costs a run that asks nothing. Interleaved runs, smallest and median.
//!
//! `cargo bench -p gatekeeper-sandbox --bench ask -- ROUNDS`. Asserts nothing, because times differ between machines.

#[allow(dead_code)]
mod interleaved;

use interleaved::{command, place, rounds, user};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

const CALLS: &str = "2000";
/// The descriptor on which the runs ask.
const FD: i32 = 9;

fn main() {
    let (dir, gatekeeper) = place();
    let top = dir.path().canonicalize().expect("there");
    let (probe, work, other) = (top.join("violate"), top.join("work"), top.join("other"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/probes/violate.c");
    let built = Command::new("cc").args(["-O1", "-pthread", "-o"]).args([&probe, &source]).status();
    assert!(built.is_ok_and(|status| status.success()), "cc {}", source.display());
    for file in [work.join("file"), other.join("file"), top.join("home/.ssh/id")] {
        let above = file.parent().expect("a directory");
        std::fs::create_dir_all(above).expect("own directory");
        std::fs::write(&file, "").expect("own directory");
        if rustix::process::geteuid().is_root() {
            for path in [above, &file] {
                std::os::unix::fs::chown(path, Some(user()), Some(user())).expect("root's to give");
            }
        }
    }
    let text = |path: &Path| path.to_str().expect("text").to_owned();
    let run = |flags: &[&str], what: &str, file: &Path| -> f64 {
        let mut words = vec![text(&gatekeeper), "run".to_owned(), "-q".to_owned()];
        words.extend(flags.iter().map(|flag| (*flag).to_owned()));
        words.extend(["--".to_owned(), text(&probe), what.to_owned(), text(file), CALLS.to_owned()]);
        let mut command = command(&words, &work);
        command.env("HOME", top.join("home"));
        approved(command)
    };
    let (inside, outside, key) = (work.join("file"), other.join("file"), top.join("home/.ssh/id"));
    let asks = ["--profile", "write", "--ask-fd", "9"];
    type Measure<'a> = (&'static str, Box<dyn Fn() -> f64 + 'a>, Vec<f64>);
    let mut measures: Vec<Measure<'_>> = vec![
        (
            "open to write, granted by the policy",
            Box::new(|| run(&["--profile", "write"], "time-writes", &inside)),
            Vec::new(),
        ),
        ("the same, with --ask", Box::new(|| run(&asks, "time-writes", &inside)), Vec::new()),
        ("open to write, approved for the run", Box::new(|| run(&asks, "time-writes", &outside)), Vec::new()),
        ("open to read, approved for the run", Box::new(|| run(&asks, "time-reads", &key)), Vec::new()),
    ];
    for _ in 0..rounds(15) {
        for (_, measure, found) in &mut measures {
            found.push(measure());
        }
    }
    println!("{:<42}{:>12}{:>12}", "ns per call", "smallest", "median");
    for (name, _, found) in &mut measures {
        found.sort_by(f64::total_cmp);
        println!("{name:<42}{:>12.0}{:>12.0}", found[0], found[found.len() / 2]);
    }
}

/// Runs a command, approves everything that it asks for the rest of the run, and returns the number that it prints.
fn approved(mut command: Command) -> f64 {
    let (ours, theirs) = UnixStream::pair().expect("a socket pair");
    let number = theirs.as_raw_fd();
    // SAFETY: dup2 and fcntl are async-signal-safe; the number is open until the child has started.
    unsafe {
        command.pre_exec(move || {
            let placed =
                if number == FD { libc::fcntl(FD, libc::F_SETFD, 0) == 0 } else { libc::dup2(number, FD) == FD };
            if placed { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        })
    };
    let child = command.stdout(Stdio::piped()).spawn().expect("it starts");
    drop(theirs);
    for line in BufReader::new(&ours).lines().map_while(Result::ok) {
        let question: serde_json::Value = serde_json::from_str(&line).expect("a question");
        let answer = format!("{{\"id\":{},\"decision\":\"run\"}}\n", question["id"]);
        (&ours).write_all(answer.as_bytes()).expect("it reads");
    }
    let output = child.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    text.parse().unwrap_or_else(|_| panic!("{command:?}: {output:?}"))
}
