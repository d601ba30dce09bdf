//! What a run costs in a process that stays: the library in hosts of several sizes, and `gatekeeper serve`, one at a time and
//! many at once, against plain exec. Runs as the user nobody if started by root. `cargo bench --bench warm [ROUNDS]`.

#[allow(dead_code)]
mod interleaved;

use gatekeeper::Sandbox;
use interleaved::{command, place, rounds};
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Started again with this word and a size in MB, this program measures the library in a host of that size.
const HOST: &str = "as-host";

/// How many rounds a host makes before it is the turn of the next.
const BATCH: usize = 10;

fn main() {
    let words: Vec<String> = std::env::args().collect();
    if let Some(at) = words.iter().position(|word| word == HOST) {
        return host(words[at + 1].parse().expect("a size"));
    }
    let rounds = rounds(200);
    let (dir, gatekeeper) = place();
    library(dir.path(), rounds);
    println!("\ngatekeeper serve, /bin/true");
    serve(&gatekeeper, dir.path(), rounds, 1);
    serve(&gatekeeper, dir.path(), rounds * 5, 2);
    serve(&gatekeeper, dir.path(), rounds * 5, 200);
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e3
}

/// A process that embeds the library and has so many MB in use.
struct Host {
    megabytes: usize,
    process: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    plain: Vec<Duration>,
    confined: Vec<Duration>,
}

impl Host {
    fn start(program: &Path, dir: &Path, megabytes: usize) -> Host {
        let words = [program.to_str().expect("text"), HOST, &megabytes.to_string()].map(str::to_owned);
        let mut process = command(&words, dir).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let (orders, answers) = (process.stdin.take().expect("piped"), process.stdout.take().expect("piped"));
        let (plain, confined) = (Vec::new(), Vec::new());
        Host { megabytes, process, orders, answers: BufReader::new(answers).lines(), plain, confined }
    }

    /// Makes a batch of rounds: one plain exec and one run each.
    fn batch(&mut self) {
        writeln!(self.orders).expect("it reads");
        for answer in self.answers.by_ref().take(BATCH) {
            let answer = answer.expect("an answer");
            let (plain, confined) = answer.split_once(' ').expect("two times");
            let time = |text: &str| Duration::from_nanos(text.parse().expect("nanoseconds"));
            self.plain.push(time(plain));
            self.confined.push(time(confined));
        }
    }
}

/// The library in hosts of several sizes, a batch of rounds in each in turn.
fn library(dir: &Path, rounds: usize) {
    println!("the library, /bin/true, medians of {rounds} rounds");
    let own = dir.join("warm");
    std::fs::copy(std::env::current_exe().expect("this program"), &own).expect("a copy");
    let mut hosts = [0, 200, 1024].map(|megabytes| Host::start(&own, dir, megabytes));
    for host in &mut hosts {
        // The first rounds start the guardian program and fill the page cache.
        host.batch();
        host.plain.clear();
        host.confined.clear();
    }
    for _ in 0..rounds.div_ceil(BATCH) {
        hosts.iter_mut().for_each(Host::batch);
    }
    for Host { megabytes, mut process, orders, plain, confined, .. } in hosts {
        let (plain, confined) = (median(plain), median(confined));
        println!(
            "  host of {megabytes:4} MB   plain {plain:6.2} ms   confined {confined:6.2} ms   added {:6.2} ms",
            confined - plain
        );
        drop(orders);
        assert!(process.wait().expect("own child").success());
    }
}

/// For each line of input, makes a batch of rounds, and prints what the plain exec and the run took in nanoseconds.
fn host(megabytes: usize) {
    let memory: Vec<u8> = (0..megabytes << 20).map(|at| (at >> 12) as u8).collect();
    let sandbox = Sandbox::builder().command(["/bin/true"]).build();
    for _ in std::io::stdin().lines() {
        let mut times = String::new();
        for _ in 0..BATCH {
            let began = Instant::now();
            assert!(Command::new("/bin/true").status().expect("it is there").success());
            let (between, report) = (Instant::now(), sandbox.run());
            let confined = between.elapsed();
            assert_eq!(report.exit_code, 0, "{report:?}");
            times += &format!("{} {}\n", (between - began).as_nanos(), confined.as_nanos());
        }
        print!("{times}");
    }
    std::hint::black_box(&memory);
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
