//! What a run costs in a process that stays: the library in hosts of several sizes, and `gatekeeper serve`, one at a time and
//! many at once, against plain exec. Runs as the user nobody if started by root. `cargo bench --bench warm [ROUNDS]`.

#[allow(dead_code)]
mod interleaved;

use gatekeeper::Sandbox;
use interleaved::{command, place, rounds};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Started again with this word and a size in MB, this program measures the library in a host of that size.
const HOST: &str = "as-host";

fn main() {
    let words: Vec<String> = std::env::args().collect();
    if let Some(at) = words.iter().position(|word| word == HOST) {
        return host(words[at + 1].parse().expect("a size"), words[at + 2].parse().expect("rounds"));
    }
    let rounds = rounds(200);
    let (dir, gatekeeper) = place();
    println!("the library, /bin/true, medians of {rounds} rounds");
    let own = dir.path().join("warm");
    std::fs::copy(std::env::current_exe().expect("this program"), &own).expect("a copy");
    for size in ["0", "200", "1024"] {
        let words = [own.to_str().expect("text"), HOST, size, &rounds.to_string()].map(str::to_owned);
        let status = command(&words, dir.path()).stdout(Stdio::inherit()).status().expect("it starts");
        assert!(status.success());
    }
    println!("\ngatekeeper serve, /bin/true");
    serve(&gatekeeper, dir.path(), rounds, 1);
    serve(&gatekeeper, dir.path(), rounds * 5, 2);
    serve(&gatekeeper, dir.path(), rounds * 5, 200);
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e3
}

/// Measures plain exec and the library in turn, in a process with so many MB in use.
fn host(megabytes: usize, rounds: usize) {
    let memory: Vec<u8> = (0..megabytes << 20).map(|at| (at >> 12) as u8).collect();
    let sandbox = Sandbox::builder().command(["/bin/true"]).build();
    let (mut plain, mut confined) = (Vec::new(), Vec::new());
    for round in 0..rounds + 5 {
        let began = Instant::now();
        assert!(Command::new("/bin/true").status().expect("it is there").success());
        let (between, report) = (Instant::now(), sandbox.run());
        assert_eq!(report.exit_code, 0, "{report:?}");
        if round >= 5 {
            plain.push(between - began);
            confined.push(between.elapsed());
        }
    }
    std::hint::black_box(&memory);
    let (plain, confined) = (median(plain), median(confined));
    println!(
        "  host of {megabytes:4} MB   plain {plain:6.2} ms   confined {confined:6.2} ms   added {:6.2} ms",
        confined - plain
    );
}

/// Keeps so many runs going until all are done.
fn serve(gatekeeper: &Path, dir: &Path, runs: usize, at_once: usize) {
    let mut server = command(&[gatekeeper.to_str().expect("text").to_owned(), "serve".to_owned()], dir);
    let mut server = server.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let (mut orders, answers) = (server.stdin.take().expect("piped"), server.stdout.take().expect("piped"));
    let mut answers = BufReader::new(answers).lines();
    let ask = |orders: &mut dyn Write, id: usize| {
        writeln!(orders, "{{\"id\":{id},\"argv\":[\"/bin/true\"]}}").expect("it reads")
    };
    let mut answer = || assert!(answers.next().expect("an answer").expect("an answer").contains("\"exit_code\":0"));
    // The first run starts the guardian program.
    ask(&mut orders, 0);
    answer();
    let began = Instant::now();
    (1..=at_once).for_each(|id| ask(&mut orders, id));
    for id in at_once + 1..=runs + at_once {
        answer();
        if id <= runs {
            ask(&mut orders, id);
        }
    }
    let second = runs as f64 / began.elapsed().as_secs_f64();
    println!(
        "  {at_once:3} at once   {second:6.0} runs a second{}",
        if at_once == 1 { format!("   {:.2} ms each", 1e3 / second) } else { String::new() }
    );
    drop(orders);
    server.wait().expect("own child");
}
