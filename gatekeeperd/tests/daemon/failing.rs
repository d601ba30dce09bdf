//! What is reported when the log or the store fails, or the daemon stops in the middle.

use crate::support::{Daemon, html, site};
use serde_json::{Value, json};
use sqlx::{Connection, Executor, SqliteConnection};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Keeps all others from writing.
struct Locked(SqliteConnection);

impl Locked {
    async fn lock(daemon: &Daemon) -> Locked {
        let path = daemon.state.path().join("gatekeeperd.db");
        let mut store = SqliteConnection::connect(&format!("sqlite://{}", path.display())).await.expect("it opens");
        store.execute("PRAGMA busy_timeout = 5000").await.expect("a setting");
        store.execute("BEGIN IMMEDIATE").await.expect("the lock");
        Locked(store)
    }

    async fn unlock(mut self) {
        self.0.execute("ROLLBACK").await.expect("the lock is gone");
    }
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let begin = Instant::now();
    while !holds().await {
        assert!(begin.elapsed() < Duration::from_secs(40), "{what}: not in time");
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
}

async fn sessions(daemon: &Daemon, token: &str) -> Vec<Value> {
    let (_, found) = daemon.ask(token, "GET", "/v1/sessions", None).await;
    found["sessions"].as_array().expect("a list").clone()
}

#[tokio::test]
async fn a_session_that_closes_while_the_store_fails_is_reported_as_closed() {
    let daemon = Daemon::start(&["--max-sessions", "1"]);
    let alice = daemon.token("alice", false);
    let id = daemon.open(&alice, json!({ "record": "off" })).await;
    let path = format!("/v1/sessions/{id}");
    let closing = daemon.ask(&alice, "DELETE", &path, None);
    let locking = async {
        until("the row of the closing", async || {
            let (_, audit) = daemon.ask(&alice, "GET", "/v1/audit?action=close_session", None).await;
            audit["audit"][0].is_object()
        })
        .await;
        Locked::lock(&daemon).await
    };
    let ((status, answer), locked) = tokio::join!(closing, locking);
    assert_eq!(status, 500, "its row is not written: {answer}");
    let row = sessions(&daemon, &alice).await.remove(0);
    assert_eq!((row["state"].as_str(), row["end_reason"].as_str()), (Some("closed"), Some("closed by the client")));
    assert!(row["ended_at"].is_string(), "{row}");
    assert_eq!(daemon.ask(&alice, "GET", &path, None).await.1, row);
    let (status, answer) = daemon.post(&alice, &format!("{path}/screenshot"), json!({})).await;
    assert_eq!((status, answer["error"]["code"].as_str()), (410, Some("session_ended")), "{answer}");
    locked.unlock().await;
    until("the row", async || daemon.json(&["session", "list"])["sessions"][0]["state"] == "closed").await;
    assert_eq!(daemon.ask(&alice, "DELETE", &path, None).await.1["closed_at"], row["ended_at"]);
    daemon.open(&alice, json!({ "record": "off" })).await;
}

#[tokio::test]
async fn a_session_that_opens_while_the_store_fails_is_no_session() {
    let daemon = Daemon::start(&["--max-sessions", "1"]);
    let alice = daemon.token("alice", false);
    let opening = daemon.post(&alice, "/v1/sessions", json!({ "record": "off" }));
    let locking = async {
        until("the row of the session", async || !sessions(&daemon, &alice).await.is_empty()).await;
        Locked::lock(&daemon).await
    };
    let ((status, answer), locked) = tokio::join!(opening, locking);
    assert_eq!((status, answer["error"]["code"].as_str()), (500, Some("internal")), "{answer}");
    let row = sessions(&daemon, &alice).await.remove(0);
    assert_eq!(
        (row["state"].as_str(), row["end_reason"].as_str()),
        (Some("failed"), Some("the store failed while it opened"))
    );
    locked.unlock().await;
    until("the row", async || daemon.json(&["session", "list"])["sessions"][0]["state"] == "failed").await;
    assert_eq!(
        std::fs::read_dir(daemon.state.path().join("sessions"))
            .expect("there")
            .flatten()
            .map(|instance| std::fs::read_dir(instance.path()).expect("there").count())
            .sum::<usize>(),
        0
    );
    daemon.open(&alice, json!({ "record": "off" })).await;
}

#[tokio::test]
async fn a_daemon_that_stops_closes_a_session_that_is_opening() {
    let daemon = Daemon::start(&[]);
    let alice = daemon.token("alice", false);
    let opening = daemon.post(&alice, "/v1/sessions", json!({ "record": "audit" }));
    let begun = until("the row of the session", async || !sessions(&daemon, &alice).await.is_empty());
    tokio::select! {
        _ = opening => panic!("it opened too early"),
        () = begun => {}
    }
    let state = daemon.ended_by(rustix::process::Signal::TERM);
    let listed = crate::support::program().args(["session", "list", "--json", "--state"]).arg(state.path()).output();
    let listed: Value = serde_json::from_slice(&listed.expect("runs").stdout).expect("JSON");
    assert_eq!(listed["sessions"][0]["state"], "closed", "{listed}");
    assert_eq!(std::fs::read_dir(state.path().join("sessions")).expect("there").count(), 0, "directories are left");
}

#[tokio::test]
async fn a_log_that_cannot_be_written_ends_neither_daemon_nor_command() {
    let full = || std::fs::File::options().write(true).open("/dev/full").expect("there");
    let state = TempDir::new().expect("a temporary directory");
    let daemon = Daemon::start_as(state, &[], |command| {
        command.stderr(full());
    });
    let alice = daemon.token("alice", false);
    let id = daemon.open(&alice, json!({ "record": "audit" })).await;
    let recordings = format!("/v1/sessions/{id}/recordings");
    let (status, answer) = daemon.ask(&alice, "GET", &format!("{recordings}/{}.png", "0".repeat(300)), None).await;
    assert_eq!((status, answer["error"]["code"].as_str()), (404, Some("not_found")), "{answer}");
    let directory = daemon.state.path().join("recordings/alice");
    std::fs::rename(&directory, directory.with_extension("away")).expect("own directory");
    std::fs::write(&directory, "no directory").expect("own directory");
    for _ in 0..2 {
        let (status, answer) = daemon.ask(&alice, "GET", &recordings, None).await;
        assert_eq!((status, answer["error"]["code"].as_str()), (500, Some("internal")), "{answer}");
    }
    assert_eq!(daemon.act(&alice, &id, "click", json!({ "x": 1, "y": 1 })).await["success"], true, "it lives");
    let mut command = crate::support::program();
    command.args(["token", "rm", "nope", "--state"]).arg(daemon.state.path()).stderr(full());
    assert_eq!(command.status().expect("runs").code(), Some(1));
}

#[tokio::test]
async fn an_action_whose_session_is_closed_under_it_says_so() {
    let port = site(|_, _| {
        html("", "<title>slow</title><input id=i onkeydown='const t = Date.now(); while (Date.now() - t < 900);'>")
    });
    let daemon = Daemon::start(&["--local-port", &port.to_string()]);
    let alice = daemon.token("alice", false);
    let id = daemon.open(&alice, json!({ "record": "off" })).await;
    daemon.act(&alice, &id, "navigate", json!({ "url": format!("http://127.0.0.1:{port}/") })).await;
    let (action, path) = (format!("/v1/sessions/{id}/type"), format!("/v1/sessions/{id}"));
    let typing = daemon.post(&alice, &action, json!({ "text": "abcdefgh", "selector": "#i" }));
    let closing = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        daemon.ask(&alice, "DELETE", &path, None).await
    };
    let ((status, answer), (closed, _)) = tokio::join!(typing, closing);
    assert_eq!(closed, 200);
    assert_eq!((status, answer["error"]["code"].as_str()), (410, Some("session_ended")), "{answer}");
}

#[test]
fn times_that_cannot_be_are_refused_and_mcp_ends_when_interrupted() {
    let state = TempDir::new().expect("a temporary directory");
    let program = |words: &[&str]| {
        let mut command = crate::support::program();
        command.args(words).arg("--state").arg(state.path()).stdout(std::process::Stdio::null());
        command
    };
    for flag in ["--action-timeout", "--deadline", "--idle", "--retention"] {
        let done = program(&["serve", flag, "18446744073709551615s"]).output().expect("runs");
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.code() == Some(2) && said.contains("at most 100 years"), "{flag}: {said}");
    }
    let mut mcp = program(&["mcp"]).stdin(std::process::Stdio::piped()).spawn().expect("runs");
    let instances = || std::fs::read_dir(state.path().join("instances")).map_or(0, |entries| entries.count());
    let begin = Instant::now();
    while instances() == 0 {
        assert!(begin.elapsed() < Duration::from_secs(30), "it does not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(500));
    let pid = rustix::process::Pid::from_child(&mcp);
    // wait(2) by Rust closes the input first, and its end could arrive before the signal.
    let _input = mcp.stdin.take();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("ours");
    assert_eq!(mcp.wait().expect("ours").code(), Some(0));
    assert_eq!(instances(), 0, "it has tidied up");
}
