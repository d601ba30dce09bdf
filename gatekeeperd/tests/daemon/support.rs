//! A real PostgreSQL in a temporary directory, a daemon with its own state directory, and a client for it.

use gatekeeperd::store::{Address, Store};
use gatekeeperd::vault::{KeyFile, Vault};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Prints why a test does not run; fails if all tests have to.
pub fn skip(reason: &str) {
    assert!(std::env::var_os("SANDBOX_TESTS_MUST_RUN").is_none(), "SKIPPED: {reason}");
    println!("SKIPPED: {reason}");
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// An unprivileged user, for servers that refuse to run as root.
const NOBODY: u32 = 65534;

/// The PostgreSQL of one test. It listens on a UNIX socket in its directory, and stops with the test.
pub struct Postgres {
    directory: TempDir,
    server: Child,
}

impl Postgres {
    pub fn start() -> Option<Postgres> {
        let bin = glob_one("/usr/lib/postgresql")?.join("bin");
        let directory = TempDir::new().expect("a temporary directory");
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).expect("own directory");
        let data = directory.path().join("data");
        std::fs::create_dir(&data).expect("own directory");
        std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o700)).expect("own directory");
        if is_root() {
            chown(&data, Some(NOBODY), Some(NOBODY)).expect("root may");
            chown(directory.path(), Some(NOBODY), Some(NOBODY)).expect("root may");
        }
        let made = unprivileged(&bin.join("initdb"))
            .args(["--auth=trust", "--username=gatekeeperd", "--no-sync", "--encoding=UTF8", "--locale=C", "-D"])
            .arg(&data)
            .output()
            .expect("initdb starts");
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        let server = unprivileged(&bin.join("postgres"))
            .args(["-c", "listen_addresses=", "-c", "fsync=off", "-c", "log_min_messages=fatal", "-k"])
            .arg(directory.path())
            .arg("-D")
            .arg(&data)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("postgres starts");
        Some(Postgres { directory, server })
    }

    pub fn url(&self) -> String {
        let host = self.directory.path().display().to_string().replace('/', "%2F");
        format!("postgres://gatekeeperd@localhost/postgres?host={host}")
    }

    /// Waits until the server answers.
    pub async fn store(&self) -> Store {
        let address: Address = self.url().parse().expect("an address");
        let begin = Instant::now();
        loop {
            match Store::open(&address).await {
                Ok(store) => return store,
                Err(error) if begin.elapsed() > Duration::from_secs(30) => panic!("{error}"),
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // SIGQUIT ends it and its children at once.
        let pid = rustix::process::Pid::from_child(&self.server);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::QUIT);
        let _ = self.server.wait();
    }
}

fn unprivileged(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command
        .args([format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")])
        .args(["--clear-groups", "--"])
        .arg(program);
    command.current_dir("/");
    command
}

fn glob_one(directory: &str) -> Option<PathBuf> {
    let found = std::fs::read_dir(directory).ok()?.filter_map(Result::ok).map(|entry| entry.path());
    let found = found.filter(|path| path.join("bin/initdb").exists()).max();
    if found.is_none() {
        skip("PostgreSQL is not installed");
    }
    found
}

/// Both kinds of store, empty, each with a vault.
pub struct Both {
    pub sqlite: Vault,
    pub postgres: Option<Vault>,
    pub directory: TempDir,
    _server: Option<Postgres>,
}

impl Both {
    pub async fn new() -> Both {
        let directory = TempDir::new().expect("a temporary directory");
        let keys = || KeyFile::choose(None, directory.path());
        let address = Address::Sqlite(directory.path().join("store/gatekeeperd.db"));
        let sqlite = Vault::new(Store::open(&address).await.expect("SQLite opens"), keys());
        let server = Postgres::start();
        let postgres = match &server {
            Some(server) => Some(Vault::new(server.store().await, keys())),
            None => None,
        };
        Both { sqlite, postgres, directory, _server: server }
    }

    pub fn each(&self) -> impl Iterator<Item = (&'static str, &Vault)> {
        [("sqlite", Some(&self.sqlite)), ("postgres", self.postgres.as_ref())]
            .into_iter()
            .filter_map(|(name, vault)| Some((name, vault?)))
    }
}

pub fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_gatekeeperd"))
}

/// A running `gatekeeperd serve`, and the client that talks to it.
pub struct Daemon {
    pub state: TempDir,
    pub url: String,
    /// `--store STORE`, or nothing.
    store: Vec<String>,
    child: Mutex<Child>,
    http: reqwest::Client,
}

impl Daemon {
    pub fn start(flags: &[&str]) -> Daemon {
        Daemon::start_in(TempDir::new().expect("a temporary directory"), flags)
    }

    pub fn start_in(state: TempDir, flags: &[&str]) -> Daemon {
        Daemon::start_as(state, flags, |_| {})
    }

    /// Lets a test change the command before it starts, such as its environment.
    pub fn start_as(state: TempDir, flags: &[&str], change: impl FnOnce(&mut Command)) -> Daemon {
        let log = state.path().join("log");
        let store = match flags.iter().position(|flag| *flag == "--store") {
            Some(at) => flags[at..at + 2].iter().map(|word| (*word).to_owned()).collect(),
            None => Vec::new(),
        };
        let mut command = program();
        command
            .args(["serve", "--json", "--listen", "127.0.0.1:0", "--state"])
            .arg(state.path())
            .args(flags)
            .stdout(Stdio::piped())
            .stderr(std::fs::File::options().create(true).append(true).open(&log).expect("own directory"));
        change(&mut command);
        let mut child = command.spawn().expect("gatekeeperd starts");
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        out.read_line(&mut line).expect("a line");
        let value: Value = serde_json::from_str(&line)
            .unwrap_or_else(|_| panic!("{line:?}, {}", std::fs::read_to_string(&log).unwrap_or_default()));
        let url = value["listen"].as_str().expect("an address").to_owned();
        let _ = rustls::crypto::ring::default_provider().install_default();
        Daemon { state, url, store, child: Mutex::new(child), http: reqwest::Client::new() }
    }

    /// A command of the program on the daemon's state.
    pub fn cli(&self, words: &[&str]) -> Output {
        program().args(words).args(&self.store).arg("--state").arg(self.state.path()).output().expect("it runs")
    }

    /// The JSON that a command prints.
    pub fn json(&self, words: &[&str]) -> Value {
        let done = self.cli(&[words, &["--json"]].concat());
        assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
        serde_json::from_slice(&done.stdout).expect("JSON")
    }

    pub fn token(&self, tenant: &str, operator: bool) -> String {
        let mut words = vec!["token", "create", "--tenant", tenant];
        words.extend(operator.then_some("--operator"));
        self.json(&words)["token"].as_str().expect("a token").to_owned()
    }

    /// Status and JSON of a request.
    pub async fn ask(&self, token: &str, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let method = method.parse().expect("a method");
        let mut request = self.http.request(method, format!("{}{path}", self.url)).bearer_auth(token);
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = request.send().await.expect("an answer");
        let status = answer.status().as_u16();
        let text = answer.text().await.expect("a body");
        (status, serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    pub async fn post(&self, token: &str, path: &str, body: Value) -> (u16, Value) {
        self.ask(token, "POST", path, Some(body)).await
    }

    /// Opens a session and returns its id.
    pub async fn open(&self, token: &str, body: Value) -> String {
        let (status, answer) = self.post(token, "/v1/sessions", body).await;
        assert_eq!(status, 201, "{answer}");
        answer["session_id"].as_str().expect("an id").to_owned()
    }

    pub async fn act(&self, token: &str, id: &str, action: &str, body: Value) -> Value {
        let (status, answer) = self.post(token, &format!("/v1/sessions/{id}/{action}"), body).await;
        assert_eq!(status, 200, "{action}: {answer}");
        answer
    }

    pub fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child.lock().expect("one thread"))
    }

    /// kill -9; returns the state directory for the next daemon.
    pub fn kill(self) -> TempDir {
        self.ended_by(rustix::process::Signal::KILL)
    }

    /// Ends it by a signal, and waits until it has ended.
    pub fn ended_by(self, signal: rustix::process::Signal) -> TempDir {
        rustix::process::kill_process(self.pid(), signal).expect("ours");
        let mut child = self.child.lock().expect("one thread");
        child.wait().expect("ours");
        drop(child);
        let empty = TempDir::new().expect("a temporary directory");
        // The daemon's Drop must not touch it any more.
        let mut this = self;
        std::mem::replace(&mut this.state, empty)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let mut child = self.child.lock().expect("one thread");
        let _ = rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM);
        let _ = child.wait();
    }
}

/// A cookie in CDP's shape.
pub fn cookie(name: &str, value: &str, domain: &str) -> Value {
    json!({ "name": name, "value": value, "domain": domain, "path": "/", "expires": -1, "httpOnly": true,
        "secure": false, "session": true, "size": 10, "priority": "Medium", "sourceScheme": "NonSecure" })
}

/// A server on this machine that answers every request with its cookies. Returns its port.
pub fn echo() -> u16 {
    site(|head, _| {
        let cookie = sent_cookies(head).unwrap_or("none");
        let body = format!("<!doctype html><title>echo</title><p id=cookie>[{cookie}]</p><input id=in>");
        html("Set-Cookie: fresh=fresh-value\r\n", &body)
    })
}

/// The value of the request's Cookie header.
pub fn sent_cookies(head: &str) -> Option<&str> {
    head.lines().find_map(|line| line.strip_prefix("Cookie: "))
}

/// An answer with more headers, each with its line end.
pub fn html(headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

/// A server on this machine. The function gets the head and the body of each request; an empty answer means none at all.
pub fn site(answer: impl Fn(&str, &str) -> String + Send + Sync + 'static) -> u16 {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let answer = std::sync::Arc::new(answer);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().filter_map(Result::ok) {
            let answer = std::sync::Arc::clone(&answer);
            std::thread::spawn(move || {
                let (mut got, mut part) = (Vec::new(), [0; 65536]);
                let (head, body) = loop {
                    match stream.read(&mut part) {
                        Ok(count) if count > 0 => got.extend_from_slice(&part[..count]),
                        _ => return,
                    }
                    let text = String::from_utf8_lossy(&got);
                    let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                    let length = head
                        .lines()
                        .find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
                    if body.len() >= length.unwrap_or(0) {
                        break (head.to_owned(), body.to_owned());
                    }
                };
                let said = answer(&head, &body);
                if said.is_empty() {
                    std::thread::sleep(Duration::from_secs(40));
                }
                let _ = stream.write_all(said.as_bytes());
            });
        }
    });
    port
}
