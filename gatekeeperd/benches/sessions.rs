//! What a session costs, next to plain Chromium driven by Playwright. Both run in turn, so that a busy machine slows both.
//!
//! Needs target/node/node_modules/playwright-core (`make test` installs it). $GATEKEEPERD is the program to measure, $ROUNDS
//! the number of rounds.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PAGE: &str = "<!doctype html><title>page</title><body style='font:18px sans-serif'><h1>Fruit of the day</h1>
<p>Three kilos of apricots, picked this morning.</p><button style='position:absolute;left:20px;top:20px;width:90px;height:60px'>Order</button>";
const AT_ONCE: usize = 10;

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let _ = rustls::crypto::ring::default_provider().install_default();
    runtime.block_on(measure());
}

async fn measure() {
    let rounds: usize = std::env::var("ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(10);
    let port = site();
    let url = format!("http://127.0.0.1:{port}/");
    let daemon = Daemon::start(port);
    let mut plain = Plain::start();
    let (mut ours, mut theirs) = (Times::default(), Times::default());
    for round in 0..=rounds {
        let (one, other) = (daemon.once(&url).await, plain.once(&url));
        // The first round fills the caches of the disk.
        if round > 0 {
            ours.add(one);
            theirs.add(other);
        }
    }
    println!("{rounds} rounds, medians in ms        session    plain   ratio");
    for (what, pick) in Times::ROWS {
        let (own, other) = (median(pick(&mut ours)), median(pick(&mut theirs)));
        println!("{what:<36}{own:>9.1}{other:>9.1}{:>8.2}", own / other);
    }
    let rest = daemon.memory();
    let begin = Instant::now();
    let opening = (0..AT_ONCE).map(|_| daemon.open_and_look(&url));
    let ids = futures_util::future::join_all(opening).await;
    println!(
        "{AT_ONCE} sessions at once, until the last has its first screenshot: {:.1} s",
        begin.elapsed().as_secs_f64()
    );
    let per = |kilobytes: i64| kilobytes as f64 / 1024.0 / AT_ONCE as f64;
    println!("memory of the daemon for each of them: {:.2} MiB", per(daemon.memory() - rest));
    println!("memory of the browsers and their supervisors, each (PSS): {:.0} MiB", per(daemon.browsers()));
    let begin = Instant::now();
    futures_util::future::join_all(ids.iter().map(|id| daemon.close(id))).await;
    println!("closing all {AT_ONCE}: {:.1} s", begin.elapsed().as_secs_f64());
    println!("memory of the daemon afterwards, above that before: {:.1} MiB", (daemon.memory() - rest) as f64 / 1024.0);
}

#[derive(Default)]
struct Times {
    open: Vec<f64>,
    first: Vec<f64>,
    screenshot: Vec<f64>,
    click: Vec<f64>,
}

type Row = (&'static str, fn(&mut Times) -> &mut Vec<f64>);

impl Times {
    const ROWS: [Row; 4] = [
        ("open", |times| &mut times.open),
        ("open, load a page, first screenshot", |times| &mut times.first),
        ("screenshot", |times| &mut times.screenshot),
        ("click", |times| &mut times.click),
    ];

    fn add(&mut self, other: Times) {
        self.open.extend(other.open);
        self.first.extend(other.first);
        self.screenshot.extend(other.screenshot);
        self.click.extend(other.click);
    }
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    times[times.len() / 2]
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1000.0
}

struct Daemon {
    child: Child,
    url: String,
    token: String,
    http: reqwest::Client,
    _state: tempfile::TempDir,
}

impl Daemon {
    fn start(port: u16) -> Daemon {
        let state = tempfile::tempdir().expect("a directory");
        let program = std::env::var_os("GATEKEEPERD").unwrap_or_else(|| env!("CARGO_BIN_EXE_gatekeeperd").into());
        let command = |words: &[&str]| {
            let mut command = Command::new(&program);
            command.arg("--state").arg(state.path()).arg("--json").args(words);
            command
        };
        let made = command(&["token", "create", "--tenant", "bench"]).output().expect("runs");
        let made: Value = serde_json::from_slice(&made.stdout).expect("JSON");
        let limits = ["--max-sessions", "20", "--max-sessions-per-tenant", "20", "--action-timeout", "2m"];
        let mut child = command(&["serve", "--listen", "127.0.0.1:0", "--local-port", &port.to_string()])
            .args(limits)
            .stdout(Stdio::piped())
            .spawn()
            .expect("runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        let said: Value = serde_json::from_str(&line).expect("JSON");
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        Daemon {
            child,
            url: text(&said["listen"]),
            token: text(&made["token"]),
            http: reqwest::Client::new(),
            _state: state,
        }
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let request = self.http.post(format!("{}/v1/sessions{path}", self.url)).bearer_auth(&self.token).json(&body);
        let answer = request.send().await.expect("an answer");
        assert!(answer.status().is_success(), "{path}: {answer:?}");
        answer.json().await.expect("JSON")
    }

    async fn open(&self) -> String {
        let opened = self.post("", json!({ "record": "off" })).await;
        opened["session_id"].as_str().expect("an id").to_owned()
    }

    async fn open_and_look(&self, url: &str) -> String {
        let id = self.open().await;
        self.post(&format!("/{id}/navigate"), json!({ "url": url })).await;
        self.post(&format!("/{id}/screenshot"), json!({})).await;
        id
    }

    async fn close(&self, id: &str) {
        let request = self.http.delete(format!("{}/v1/sessions/{id}", self.url)).bearer_auth(&self.token);
        assert!(request.send().await.expect("an answer").status().is_success());
    }

    async fn once(&self, url: &str) -> Times {
        let begin = Instant::now();
        let id = self.open().await;
        let mut times = Times { open: vec![milliseconds(begin)], ..Times::default() };
        self.post(&format!("/{id}/navigate"), json!({ "url": url })).await;
        self.post(&format!("/{id}/screenshot"), json!({})).await;
        times.first.push(milliseconds(begin));
        for _ in 0..10 {
            let begin = Instant::now();
            self.post(&format!("/{id}/screenshot"), json!({})).await;
            times.screenshot.push(milliseconds(begin));
        }
        for _ in 0..10 {
            let begin = Instant::now();
            self.post(&format!("/{id}/click"), json!({ "x": 50, "y": 50 })).await;
            times.click.push(milliseconds(begin));
        }
        self.close(&id).await;
        times
    }

    /// Kilobytes that only the daemon uses.
    fn memory(&self) -> i64 {
        number(&format!("/proc/{}/status", self.child.id()), "RssAnon:")
    }

    /// Kilobytes of everything below the daemon; shared pages count in parts.
    fn browsers(&self) -> i64 {
        let parents: Vec<(u32, u32)> = std::fs::read_dir("/proc")
            .expect("proc")
            .flatten()
            .filter_map(|entry| {
                let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
                let parent = stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()?;
                Some((entry.file_name().into_string().ok()?.parse().ok()?, parent))
            })
            .collect();
        let mut below = vec![self.child.id()];
        let mut at = 0;
        while let Some(parent) = below.get(at).copied() {
            below.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
            at += 1;
        }
        below.iter().skip(1).map(|pid| number(&format!("/proc/{pid}/smaps_rollup"), "Pss:")).sum()
    }
}

/// A number of kilobytes from a file below /proc; 0 if the process has ended.
fn number(file: &str, name: &str) -> i64 {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse().unwrap_or(0)
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.child.wait();
    }
}

struct Plain(Child);

impl Plain {
    fn start() -> Plain {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let modules = root.join("../target/node/node_modules").canonicalize().expect("run `make test` once");
        let mut node = Command::new("node");
        node.arg(root.join("benches/plain.js")).env("MODULES", modules);
        Plain(node.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("node runs"))
    }

    fn once(&mut self, url: &str) -> Times {
        let ask = self.0.stdin.as_mut().expect("piped");
        writeln!(ask, "{url}").expect("it listens");
        let mut line = Vec::new();
        let answer = self.0.stdout.as_mut().expect("piped");
        let mut byte = [0];
        while answer.read(&mut byte).expect("it answers") == 1 && byte[0] != b'\n' {
            line.push(byte[0]);
        }
        let said: Value = serde_json::from_slice(&line).expect("JSON");
        let all = |name: &str| match &said[name] {
            Value::Array(list) => list.iter().filter_map(Value::as_f64).collect(),
            one => one.as_f64().into_iter().collect(),
        };
        Times { open: all("open"), first: all("first"), screenshot: all("screenshot"), click: all("click") }
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

fn site() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
                let _ = stream.read(&mut [0; 4096]);
                let length = PAGE.len();
                let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n";
                let _ = write!(stream, "{head}Content-Length: {length}\r\n\r\n{PAGE}");
            });
        }
    });
    port
}
