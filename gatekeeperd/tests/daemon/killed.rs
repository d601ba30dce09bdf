//! A daemon that is killed at any moment: the next one finds everything, and what was consumed stays consumed.

use crate::support::{Daemon, Postgres, cookie, echo, skip};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// What the daemon does when it is killed, some milliseconds after it was asked.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Doing {
    /// Opens a session without cookies.
    Open,
    /// Starts a browser, decrypts cookies, consumes a grant and injects them.
    Inject,
    Navigate,
    /// Takes one screenshot after the other and writes each to disk, in the mode transient or audit. Counts from the first.
    Ring,
    Record,
    Close,
    /// Starts, and reaps what the daemon before left.
    Reap,
}

use Doing::*;

/// At once after the answer.
const ANSWERED: u64 = 30_000;

/// On SQLite.
const MOMENTS: [(Doing, u64); 24] = [
    (Open, 0),
    (Open, 25),
    (Reap, 10),
    (Open, 100),
    (Open, 400),
    (Inject, 6),
    (Inject, 25),
    (Inject, 200),
    (Inject, 450),
    (Reap, 30),
    (Inject, 600),
    (Inject, 900),
    (Inject, ANSWERED),
    (Reap, 60),
    (Navigate, 4),
    (Navigate, 40),
    (Navigate, 150),
    (Ring, 180),
    (Reap, 110),
    (Record, 90),
    (Record, 300),
    (Record, 620),
    (Close, 10),
    (Close, 120),
];
const ON_POSTGRESQL: [(Doing, u64); 6] =
    [(Inject, 500), (Inject, ANSWERED), (Reap, 60), (Record, 400), (Navigate, 20), (Close, 60)];

#[tokio::test]
async fn after_a_kill_at_any_of_24_moments_the_next_daemon_finds_everything() {
    kill_at(&MOMENTS, &[]).await;
}

#[tokio::test]
async fn after_a_kill_at_any_of_6_moments_the_next_daemon_on_postgresql_does_too() {
    let Some(server) = Postgres::start() else { return };
    server.store().await;
    kill_at(&ON_POSTGRESQL, &["--store", &server.url()]).await;
}

/// What clients were told before the kill.
#[derive(Default)]
struct Told {
    /// The grant of a session that was opened.
    consumed: Option<String>,
    /// Pictures of the mode audit.
    kept: Vec<PathBuf>,
    closed: Option<String>,
}

async fn kill_at(moments: &[(Doing, u64)], flags: &[&str]) {
    let port = echo().to_string();
    let flags = [&["--local-port", &port][..], flags].concat();
    let daemon = Daemon::start(&flags);
    let token = daemon.token("alice", true);
    let file = daemon.state.path().join("cookies.json");
    std::fs::write(&file, json!([cookie("sid", "v", "a.org")]).to_string()).expect("own directory");
    let path = file.display().to_string();
    daemon.json(&["credential", "import", "--tenant", "alice", "--domain", "a.org", "--file", &path]);
    let mut daemon = daemon;
    let (mut kept, mut consumed) = (Vec::new(), 0);
    for (doing, moment) in moments.iter().copied() {
        let at = format!("{doing:?} {moment} ms");
        let (state, told) = match doing {
            Reap => {
                // A session that is half open, for the next daemon to find.
                let told = kill_while(&daemon, &token, &port, Open, 250).await;
                (kill_while_it_reaps(daemon.kill(), &flags, moment), told)
            }
            _ => {
                let told = kill_while(&daemon, &token, &port, doing, moment).await;
                (daemon.kill(), told)
            }
        };
        gone(state.path());
        kept.extend(told.kept);

        daemon = Daemon::start_in(state, &flags);
        let sessions = daemon.json(&["session", "list"])["sessions"].clone();
        for session in sessions.as_array().expect("a list") {
            assert!(!["open", "opening"].contains(&session["state"].as_str().expect("text")), "{at}: {session}");
        }
        if let Some(id) = &told.closed {
            let row = sessions.as_array().expect("a list").iter().find(|row| row["session_id"] == **id);
            assert_eq!(row.expect("there")["state"], "closed", "{at}: the client was told so");
        }
        let grants = daemon.json(&["grant", "list"])["grants"].clone();
        for row in grants.as_array().expect("a list") {
            // Consumed with the session that did it, or whole: never one half.
            assert_eq!(row["consumed_at"].is_string(), row["consumed_by"].is_string(), "{at}: {row}");
            assert!(told.consumed != row["jti"].as_str().map(str::to_owned) || row["consumed_at"].is_string(), "{at}");
            consumed += usize::from(row["consumed_at"].is_string());
        }
        assert_eq!(
            daemon.json(&["session", "reap"]),
            json!({ "reaped": [], "directories": 0 }),
            "{at}: a second reaper finds nothing"
        );
        whole(&daemon, &kept, &at);
    }
    assert!(consumed > 0, "no moment was late enough to consume a grant");
    assert!(moments.iter().all(|moment| moment.0 != Record) || !kept.is_empty(), "no moment was in a recording");
    // A consumed grant stays consumed; one that is whole still opens exactly one session.
    let (_, issued) = daemon.post(&token, "/v1/grants", json!({ "domains": ["a.org"] })).await;
    let open = inject(&issued["grant_token"]);
    daemon.open(&token, open.clone()).await;
    assert_eq!(daemon.post(&token, "/v1/sessions", open.clone()).await.0, 403, "consumed");
    let state = daemon.kill();
    gone(state.path());
    let last = Daemon::start_in(state, &flags);
    assert_eq!(last.post(&token, "/v1/sessions", open).await.0, 403, "consumed before the kill");
}

fn inject(grant: &Value) -> Value {
    json!({ "credential_mode": "operator", "domains": ["a.org"], "grant_token": grant, "record": "off" })
}

/// Asks the daemon for something, and waits as long as told. The caller kills the daemon then.
async fn kill_while(daemon: &Daemon, token: &str, port: &str, doing: Doing, moment: u64) -> Told {
    let wait = Duration::from_millis(moment);
    let mut told = Told::default();
    let record = if doing == Record { "audit" } else { "transient" };
    match doing {
        Open => {
            let opening = daemon.post(token, "/v1/sessions", json!({ "record": "audit" }));
            let _ = tokio::time::timeout(wait, opening).await;
        }
        Inject => {
            let (_, issued) = daemon.post(token, "/v1/grants", json!({ "domains": ["a.org"] })).await;
            let opening = daemon.post(token, "/v1/sessions", inject(&issued["grant_token"]));
            if let Ok((201, _)) = tokio::time::timeout(wait, opening).await {
                told.consumed = issued["jti"].as_str().map(str::to_owned);
            }
        }
        _ => {
            let id = daemon.open(token, json!({ "record": record })).await;
            let path = |action: &str| format!("/v1/sessions/{id}/{action}");
            match doing {
                Navigate => {
                    let page = json!({ "url": format!("http://127.0.0.1:{port}/") });
                    let _ = tokio::time::timeout(wait, daemon.post(token, &path("navigate"), page)).await;
                }
                Close => {
                    let path = format!("/v1/sessions/{id}");
                    let closing = daemon.ask(token, "DELETE", &path, None);
                    if let Ok((200, _)) = tokio::time::timeout(wait, closing).await {
                        told.closed = Some(id.clone());
                    }
                }
                _ => {
                    let kept = std::sync::Mutex::new(Vec::new());
                    let shoot = async || {
                        let answer = daemon.act(token, &id, "screenshot", json!({})).await;
                        let path = answer["persisted_path"].as_str().expect("recorded");
                        kept.lock().expect("no panic").push(PathBuf::from(path));
                    };
                    shoot().await;
                    let shooting = async {
                        loop {
                            shoot().await;
                        }
                    };
                    let _: Result<(), _> = tokio::time::timeout(wait, shooting).await;
                    if doing == Record {
                        told.kept = kept.into_inner().expect("no panic");
                    }
                }
            }
        }
    }
    told
}

/// Starts the next daemon on what a killed one left, and kills it while it starts.
fn kill_while_it_reaps(state: TempDir, flags: &[&str], moment: u64) -> TempDir {
    let mut child = crate::support::program()
        .args(["serve", "--listen", "127.0.0.1:0", "--state"])
        .arg(state.path())
        .args(flags)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("gatekeeperd starts");
    std::thread::sleep(Duration::from_millis(moment));
    child.kill().expect("ours");
    child.wait().expect("ours");
    state
}

/// Processes whose working directory is in this state directory: browsers' supervisors.
fn processes(state: &Path) -> usize {
    let of = |entry: std::fs::DirEntry| {
        let cwd = std::fs::read_link(entry.path().join("cwd")).ok()?;
        cwd.starts_with(state).then_some(())
    };
    std::fs::read_dir("/proc").expect("proc").flatten().filter_map(of).count()
}

fn gone(state: &Path) {
    let begin = Instant::now();
    while processes(state) > 0 {
        assert!(begin.elapsed() < Duration::from_secs(15), "processes are left of a killed daemon");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The files of the state directory are those of a daemon without sessions, and every recorded picture is whole.
fn whole(daemon: &Daemon, kept: &[PathBuf], at: &str) {
    let state = daemon.state.path();
    let entries = |path: PathBuf| {
        let names = std::fs::read_dir(path).into_iter().flatten().flatten();
        names.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    assert_eq!(entries(state.join("instances")).len(), 1, "{at}: of the daemon that runs");
    assert!(entries(state.join("sessions")).is_empty(), "{at}: directories of sessions are left");
    for session in entries(state.join("recordings/alice")) {
        let mode = std::fs::read_to_string(session.join("mode")).unwrap_or_default();
        // Killed before the file with the mode was written, the directory is empty.
        assert!(mode == "audit" || entries(session.clone()).is_empty(), "{at}: {} is left", session.display());
        for file in entries(session).iter().filter(|file| !file.ends_with("mode")) {
            assert!(file.extension().is_some_and(|ending| ending == "png"), "{at}: {} is left", file.display());
            let decoder = png::Decoder::new(std::io::BufReader::new(std::fs::File::open(file).expect("there")));
            let mut reader = decoder.read_info().unwrap_or_else(|error| panic!("{at}: {error}"));
            let mut pixels = vec![0; reader.output_buffer_size().expect("a size")];
            reader.next_frame(&mut pixels).unwrap_or_else(|error| panic!("{at}: half of a picture: {error}"));
        }
    }
    for picture in kept {
        assert!(picture.is_file(), "{at}: {} was promised to a client", picture.display());
    }
    let database = state.join("gatekeeperd.db");
    if database.exists() {
        match std::process::Command::new("sqlite3").arg(&database).arg("PRAGMA integrity_check").output() {
            Ok(done) => assert_eq!(String::from_utf8_lossy(&done.stdout), "ok\n", "{at}"),
            Err(error) => skip(&format!("sqlite3: {error}")),
        }
    }
}

#[tokio::test]
async fn an_operator_closes_and_reaps_from_the_command_line() {
    let daemon = Daemon::start(&[]);
    let alice = daemon.token("alice", false);
    let id = daemon.open(&alice, json!({})).await;
    assert_eq!(daemon.json(&["session", "reap"])["reaped"], json!([]), "the session of a running daemon is not reaped");
    assert_eq!(daemon.json(&["session", "close", &id]), json!({ "closed": id }));
    let (_, row) = daemon.ask(&alice, "GET", &format!("/v1/sessions/{id}"), None).await;
    assert_eq!((row["state"].as_str(), row["end_reason"].as_str()), (Some("closed"), Some("closed by an operator")));
    assert!(!daemon.cli(&["session", "close", &id]).status.success(), "closed already");
    let left = daemon.open(&alice, json!({})).await;
    let state = daemon.kill();
    let output = crate::support::program()
        .args(["session", "reap", "--json", "--state"])
        .arg(state.path())
        .output()
        .expect("runs");
    let reaped: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(reaped, json!({ "reaped": [left], "directories": 1 }));
    gone(state.path());
}
