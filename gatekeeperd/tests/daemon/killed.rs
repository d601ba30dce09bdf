//! A daemon that is killed at any moment: the next one finds everything, and what was consumed stays consumed.

use crate::support::{Daemon, Postgres, cookie};
use serde_json::json;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Browsers and supervisors whose command line or working directory is of this state directory.
fn processes(state: &std::path::Path) -> usize {
    let of = |entry: std::fs::DirEntry| {
        let cwd = std::fs::read_link(entry.path().join("cwd")).ok()?;
        cwd.starts_with(state).then_some(())
    };
    std::fs::read_dir("/proc").expect("proc").flatten().filter_map(of).count()
}

fn gone(state: &std::path::Path) {
    let begin = Instant::now();
    while processes(state) > 0 {
        assert!(begin.elapsed() < Duration::from_secs(15), "processes are left of a killed daemon");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[tokio::test]
async fn the_next_daemon_reaps_what_a_killed_one_left() {
    // Before the request arrives, while the grant is consumed, while the browser starts, and when it runs.
    kill_at(&[0, 20, 60, 150, 300, 600, 2500], &[]).await;
}

#[tokio::test]
async fn the_next_daemon_on_postgresql_reaps_too() {
    let Some(server) = Postgres::start() else { return };
    server.store().await;
    kill_at(&[40, 2500], &["--store", &server.url()]).await;
}

async fn kill_at(moments: &[u64], flags: &[&str]) {
    let mut state = TempDir::new().expect("a temporary directory");
    let mut granted = None;
    for moment in moments.iter().copied() {
        let daemon = Daemon::start_in(state, flags);
        let alice = daemon.token("alice", true);
        if granted.is_none() {
            let file = daemon.state.path().join("cookies.json");
            std::fs::write(&file, json!([cookie("sid", "v", "a.org")]).to_string()).expect("own directory");
            let path = file.display().to_string();
            daemon.json(&["credential", "import", "--tenant", "alice", "--domain", "a.org", "--file", &path]);
            granted = Some(());
        }
        let (_, issued) = daemon.post(&alice, "/v1/grants", json!({ "domains": ["a.org"] })).await;
        let grant = issued["grant_token"].clone();
        let open = json!({ "credential_mode": "operator", "domains": ["a.org"], "grant_token": grant });
        let opening =
            reqwest::Client::new().post(format!("{}/v1/sessions", daemon.url)).bearer_auth(&alice).json(&open).send();
        let killed = tokio::time::timeout(Duration::from_millis(moment), opening).await;
        let answered = matches!(&killed, Ok(Ok(answer)) if answer.status() == 201);
        state = daemon.kill();
        gone(state.path());

        let next = Daemon::start_in(state, flags);
        let sessions = next.json(&["session", "list"]);
        for session in sessions["sessions"].as_array().expect("a list") {
            assert!(!["open", "opening"].contains(&session["state"].as_str().expect("text")), "{moment} ms: {session}");
        }
        let grants = next.json(&["grant", "list"]);
        let row =
            grants["grants"].as_array().expect("a list").iter().find(|row| row["jti"] == issued["jti"]).expect("there");
        assert!(
            !answered || row["consumed_at"].is_string(),
            "{moment} ms: the session was open, so the grant is consumed"
        );
        // A grant is consumed or whole: a consumed one opens nothing, a whole one opens exactly one session.
        let (status, answer) = next.post(&alice, "/v1/sessions", open.clone()).await;
        let expected = if row["consumed_at"].is_string() { 403 } else { 201 };
        assert_eq!(status, expected, "{moment} ms: {answer}");
        assert_eq!(
            next.json(&["session", "reap"]),
            json!({ "reaped": [], "directories": 0 }),
            "a second reaper finds nothing"
        );
        state = next.kill();
        gone(state.path());
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
    let reaped: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(reaped, json!({ "reaped": [left], "directories": 1 }));
    gone(state.path());
}
