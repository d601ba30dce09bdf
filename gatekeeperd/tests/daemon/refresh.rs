//! Refreshing a login from the outside: an operator logs in through the live view, the cookies are stored, and a task gets
//! exactly these.

use crate::secrets::{contents, finds};
use crate::support::{Daemon, html, sent_cookies, site};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const FORM: &str = "<!doctype html><title>Log in</title><body style='margin:0'><form method=post action=/session>
<input name=who style='position:absolute;left:40px;top:40px;width:200px;height:30px'>
<input name=word type=password style='position:absolute;left:40px;top:100px;width:200px;height:30px'>
<button style='position:absolute;left:40px;top:160px'>In</button></form>";
const SESSION: &str = "session=value-of-the-login";

#[derive(Default)]
struct Seen {
    logins: Mutex<Vec<String>>,
    /// The cookies of each request for /private.
    cookies: Mutex<Vec<String>>,
}

/// A site with a login. /private gives every visitor new cookies, as sites do that rotate them.
fn shop(seen: Arc<Seen>) -> u16 {
    site(move |head, body| match head.split(' ').nth(1).unwrap_or_default() {
        "/login" => html("", FORM),
        "/session" => {
            seen.logins.lock().expect("no panic").push(body.to_owned());
            let cookies = format!("Set-Cookie: {SESSION}; HttpOnly; Path=/\r\nSet-Cookie: theme=dark; Path=/\r\n");
            html(&cookies, "<!doctype html><title>Welcome</title>")
        }
        "/private" => {
            seen.cookies.lock().expect("no panic").push(sent_cookies(head).unwrap_or("none").to_owned());
            html("Set-Cookie: session=rotated; Path=/\r\nSet-Cookie: extra=1; Path=/\r\n", "<title>private</title>")
        }
        _ => html("", ""),
    })
}

async fn input(daemon: &Daemon, token: &str, id: &str, event: Value) {
    let (status, answer) = daemon.post(token, &format!("/v1/sessions/{id}/input"), event.clone()).await;
    assert_eq!(status, 204, "{event}: {answer}");
}

/// One picture of the live view, as JPEG.
async fn frame(daemon: &Daemon, token: &str, id: &str) -> Vec<u8> {
    let url = format!("{}/v1/sessions/{id}/view", daemon.url);
    let mut answer = reqwest::Client::new().get(url).bearer_auth(token).send().await.expect("sent");
    assert!(answer.headers()["content-type"].to_str().expect("text").starts_with("multipart/x-mixed-replace"));
    let mut got = Vec::new();
    let whole = async {
        while !got.windows(4).any(|end| end == b"\xff\xd9\r\n") {
            got.extend(answer.chunk().await.expect("a stream").expect("it goes on"));
        }
    };
    tokio::time::timeout(Duration::from_secs(20), whole).await.expect("a picture");
    let start = got.windows(2).position(|two| two == b"\xff\xd8").expect("a JPEG");
    got.split_off(start)
}

#[tokio::test]
async fn a_login_through_the_live_view_is_stored_and_later_sessions_get_exactly_its_cookies() {
    let seen = Arc::new(Seen::default());
    let port = shop(Arc::clone(&seen));
    let daemon = Daemon::start(&["--local-port", &port.to_string()]);
    let (operator, task) = (daemon.token("alice", true), daemon.token("alice", false));
    let (status, refused) = daemon.post(&task, "/v1/refreshes", json!({})).await;
    assert_eq!((status, refused["error"]["code"].as_str()), (403, Some("forbidden")));

    let (status, opened) = daemon.post(&operator, "/v1/refreshes", json!({})).await;
    assert_eq!((status, opened["record"].as_str()), (201, Some("off")), "{opened}");
    let id = opened["session_id"].as_str().expect("an id");
    let page = |path: &str| format!("http://localhost:{port}{path}");
    daemon.act(&operator, id, "navigate", json!({ "url": page("/login") })).await;
    assert!(frame(&daemon, &operator, id).await.len() > 500);
    for kind in ["move", "down", "up"] {
        let button = if kind == "move" { "none" } else { "left" };
        let at = json!({ "type": "mouse", "kind": kind, "x": 100, "y": 55, "button": button, "clicks": 1 });
        input(&daemon, &operator, id, at).await;
    }
    for key in ["A", "d", "a", "Tab", "s", "3", "c", "r", "3", "t"] {
        for down in [true, false] {
            input(&daemon, &operator, id, json!({ "type": "key", "down": down, "key": key })).await;
        }
    }

    // Another token of the same tenant, such as a task's, must not see or use the operator's login.
    let refuse = async |method: &str, path: &str, body: Value| {
        let (status, answer) = daemon.ask(&task, method, &format!("/v1/sessions/{id}{path}"), Some(body)).await;
        assert_eq!((status, answer["error"]["code"].as_str()), (403, Some("forbidden")), "{method} {path}: {answer}");
    };
    refuse("POST", "/navigate", json!({ "url": page("/private") })).await;
    refuse("POST", "/read_dom", json!({})).await;
    refuse("POST", "/screenshot", json!({})).await;
    refuse("POST", "/click", json!({ "x": 1, "y": 1 })).await;
    refuse("POST", "/type", json!({ "text": "x" })).await;
    refuse("POST", "/input", json!({ "type": "text", "text": "x" })).await;
    refuse("POST", "/store", json!({ "domains": ["localhost"] })).await;
    refuse("GET", "/view", Value::Null).await;
    refuse("GET", "/denials", Value::Null).await;
    refuse("DELETE", "", Value::Null).await;

    input(&daemon, &operator, id, json!({ "type": "key", "down": true, "key": "Enter" })).await;
    for _ in 0..200 {
        if !seen.logins.lock().expect("no panic").is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(*seen.logins.lock().expect("no panic"), ["who=Ada&word=s3cr3t"]);
    let store = async |domains: Value| {
        daemon.post(&operator, &format!("/v1/sessions/{id}/store"), json!({ "domains": domains })).await
    };
    // The answer with the cookies may still be on its way.
    let mut wrong = store(json!(["localhost", "other.org"])).await;
    for _ in 0..100 {
        if wrong.1.to_string().contains("other.org") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        wrong = store(json!(["localhost", "other.org"])).await;
    }
    assert_eq!((wrong.0, wrong.1["error"]["code"].as_str()), (400, Some("invalid_request")), "{}", wrong.1);
    assert_eq!(daemon.json(&["credential", "list"])["credentials"], json!([]), "all domains or none");
    let (status, stored) = store(json!(["localhost"])).await;
    assert_eq!((status, stored), (200, json!({ "stored": [{ "domain": "localhost", "cookie_count": 2 }] })));
    let (_, row) = daemon.ask(&operator, "GET", &format!("/v1/sessions/{id}"), None).await;
    assert_eq!((row["state"].as_str(), row["end_reason"].as_str()), (Some("closed"), Some("the login was stored")));
    assert_eq!(store(json!(["localhost"])).await.0, 410, "the session is gone");

    // Two tasks, one after the other: both get what was stored, whatever the site changes meanwhile.
    let before = daemon.json(&["credential", "list"])["credentials"][0]["last_refreshed_at"].clone();
    for round in 0..2 {
        let issued = daemon.json(&["grant", "issue", "--tenant", "alice", "--domain", "localhost"]);
        let open =
            json!({ "credential_mode": "operator", "domains": ["localhost"], "grant_token": issued["grant_token"] });
        let id = daemon.open(&task, open).await;
        daemon.act(&task, &id, "navigate", json!({ "url": page("/private") })).await;
        let cookies = seen.cookies.lock().expect("no panic").last().cloned().expect("asked");
        let mut cookies: Vec<&str> = cookies.split("; ").collect();
        cookies.sort_unstable();
        assert_eq!(cookies, [SESSION, "theme=dark"], "round {round}");
        // Only a refresh session takes keys and stores cookies.
        for (path, body) in
            [("store", json!({ "domains": ["localhost"] })), ("input", json!({ "type": "text", "text": "x" }))]
        {
            let (status, answer) = daemon.post(&operator, &format!("/v1/sessions/{id}/{path}"), body).await;
            assert_eq!((status, answer["error"]["code"].as_str()), (403, Some("forbidden")), "{path}");
        }
        daemon.ask(&task, "DELETE", &format!("/v1/sessions/{id}"), None).await;
    }
    assert_eq!(daemon.json(&["credential", "list"])["credentials"][0]["last_refreshed_at"], before, "not written back");

    let (_, audit) = daemon.ask(&operator, "GET", "/v1/audit?limit=1000", None).await;
    assert!(!audit.to_string().contains("Ada"), "{audit}");
    let mut kept = audit.to_string().into_bytes();
    contents(daemon.state.path(), &mut kept);
    for secret in ["s3cr3t", "value-of-the-login"] {
        assert!(!finds(&kept, secret), "{secret} is in the audit, the store or a log");
    }
}
