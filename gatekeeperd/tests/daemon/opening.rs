//! Opening a session for a grant: what consumes the grant, and what leaves it whole.

use crate::support::{Daemon, cookie, echo};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;

/// Stores a cookie of localhost for alice.
fn import(daemon: &Daemon) {
    let file = daemon.state.path().join("cookies.json");
    std::fs::write(&file, json!([cookie("sid", "v", "localhost")]).to_string()).expect("own directory");
    let path = file.display().to_string();
    daemon.json(&["credential", "import", "--tenant", "alice", "--domain", "localhost", "--file", &path]);
}

fn issue(daemon: &Daemon, hosts: &[&str]) -> Value {
    let mut words = vec!["grant", "issue", "--tenant", "alice"];
    words.extend(hosts.iter().flat_map(|host| ["--domain", host]));
    daemon.json(&words)["grant_token"].clone()
}

fn open(grant: &Value, hosts: &[&str]) -> Value {
    json!({ "credential_mode": "operator", "domains": hosts, "grant_token": grant, "record": "off" })
}

fn is_whole(daemon: &Daemon) -> bool {
    daemon.json(&["grant", "list"])["grants"][0]["consumed_at"].is_null()
}

fn error((status, answer): &(u16, Value)) -> (u16, &str) {
    (*status, answer["error"]["code"].as_str().unwrap_or_default())
}

#[tokio::test]
async fn a_browser_that_does_not_start_says_why_and_leaves_the_grant_whole() {
    let directory = tempfile::TempDir::new().expect("a temporary directory");
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).expect("own directory");
    let broken = directory.path().join("broken");
    std::fs::write(&broken, "#!/bin/sh\necho first >&2\nprintf 'no \\033[2J display\\n' >&2\nexit 7\n").expect("own");
    std::fs::set_permissions(&broken, std::fs::Permissions::from_mode(0o755)).expect("own file");
    let broken = broken.display().to_string();
    let mut daemon = Daemon::start(&["--chromium", "/bin/false", "--model", "http://127.0.0.1:9/v1"]);
    let alice = daemon.token("alice", false);
    import(&daemon);
    let grant = issue(&daemon, &["localhost"]);
    let request = open(&grant, &["localhost"]);

    let failed = daemon.post(&alice, "/v1/sessions", request.clone()).await;
    assert_eq!(error(&failed), (422, "browser_failed"), "{failed:?}");
    assert_eq!(failed.1["error"]["message"], "the browser did not start: the browser exited with 1");
    // A task whose request is wrong does not come that far.
    for (key, wrong) in [("url", json!("a.org")), ("max_steps", json!(0)), ("instruction", json!(" "))] {
        let mut task = open(&grant, &["localhost"]);
        task["instruction"] = json!("x");
        task[key] = wrong;
        assert_eq!(error(&daemon.post(&alice, "/v1/tasks", task).await), (400, "invalid_request"), "{key}");
    }
    assert!(is_whole(&daemon));

    daemon = Daemon::start_in(daemon.kill(), &["--chromium", &broken]);
    let (_, failed) = daemon.post(&alice, "/v1/sessions", request.clone()).await;
    let why = failed["error"]["message"].as_str().expect("text");
    assert!(why.starts_with("the browser did not start: the browser exited with 7; it said: "), "{why}");
    assert!(why.ends_with("no  [2J display"), "{why}");
    assert!(is_whole(&daemon));

    daemon = Daemon::start_in(daemon.kill(), &[]);
    daemon.open(&alice, request.clone()).await;
    assert!(!is_whole(&daemon));
    assert_eq!(error(&daemon.post(&alice, "/v1/sessions", request).await), (403, "grant_invalid"));
}

#[tokio::test]
async fn of_sessions_opened_at_once_for_one_grant_one_gets_the_cookies() {
    let port = echo();
    let daemon = Daemon::start(&["--local-port", &port.to_string()]);
    let alice = daemon.token("alice", false);
    import(&daemon);
    let request = open(&issue(&daemon, &["localhost"]), &["localhost"]);
    let one = || daemon.post(&alice, "/v1/sessions", request.clone());
    let answers: [_; 3] = tokio::join!(one(), one(), one()).into();
    let opened: Vec<&Value> = answers.iter().filter(|(status, _)| *status == 201).map(|(_, answer)| answer).collect();
    assert_eq!(opened.len(), 1, "{answers:?}");
    assert_eq!(answers.iter().filter(|answer| error(answer) == (403, "grant_invalid")).count(), 2, "{answers:?}");
    let id = opened[0]["session_id"].as_str().expect("an id");
    let sessions = daemon.json(&["session", "list"])["sessions"].clone();
    for session in sessions.as_array().expect("a list") {
        assert!(session["session_id"] == id || session["state"] == "failed", "{session}");
    }
    daemon.act(&alice, id, "navigate", json!({ "url": format!("http://localhost:{port}/") })).await;
    let dom = daemon.act(&alice, id, "read_dom", json!({})).await;
    assert!(dom["html"].as_str().expect("text").contains("[sid=v]"), "{dom}");
    let (_, audit) = daemon.ask(&alice, "GET", "/v1/audit?action=inject_cookies", None).await;
    assert_eq!(audit["audit"].as_array().map(Vec::len), Some(1), "{audit}");
}

#[tokio::test]
async fn without_a_grant_nobody_learns_for_which_hosts_cookies_are_stored() {
    let daemon = Daemon::start(&[]);
    let alice = daemon.token("alice", false);
    import(&daemon);
    let ask = async |grant: &Value, host: &str| daemon.post(&alice, "/v1/sessions", open(grant, &[host])).await;
    let (none, other) = (json!("gkg_none"), issue(&daemon, &["b.org"]));
    for grant in [none, other] {
        let (stored, lacking) = (ask(&grant, "localhost").await, ask(&grant, "a.org").await);
        assert_eq!((error(&stored), error(&lacking)), ((403, "grant_invalid"), (403, "grant_invalid")));
        let same = |answer: &(u16, Value), host: &str| answer.1.to_string().replace(host, "HOST");
        assert_eq!(same(&stored, "localhost"), same(&lacking, "a.org"));
    }
    // With one, it is said.
    assert_eq!(error(&ask(&issue(&daemon, &["a.org"]), "a.org").await), (409, "no_credential"));
}
