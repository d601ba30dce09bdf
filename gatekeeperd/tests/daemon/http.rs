//! The HTTP interface: who may ask, what is answered, and what a hostile or slow client gets.

use crate::support::{Daemon, echo};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Sends bytes as they are, and returns the answer.
fn raw(daemon: &Daemon, request: &str) -> String {
    let mut stream = TcpStream::connect(daemon.url.trim_start_matches("http://")).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

fn get(daemon: &Daemon, path: &str, headers: &str) -> String {
    raw(daemon, &format!("GET {path} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n"))
}

fn code(answer: &str) -> String {
    let status = answer.split(' ').nth(1).unwrap_or_default();
    let body: Value =
        answer.split("\r\n\r\n").nth(1).and_then(|body| serde_json::from_str(body).ok()).unwrap_or_default();
    format!("{status} {}", body["error"]["code"].as_str().unwrap_or_default())
}

#[tokio::test]
async fn without_a_token_nothing_is_answered() {
    let daemon = Daemon::start(&[]);
    let token = daemon.token("alice", false);
    let document: Value = serde_json::from_str(gatekeeperd::api::document()).expect("JSON");
    for (path, operations) in document["paths"].as_object().expect("paths") {
        for (method, operation) in operations.as_object().expect("operations") {
            let path =
                path.replace("{id}", "x").replace("{jti}", "x").replace("{domain}", "x").replace("{name}", "x.png");
            let open = operation.get("security").is_some_and(|security| security == &json!([]));
            for wrong in ["", "gkt_wrong", "Basic"] {
                let (status, answer) = daemon.ask(wrong, &method.to_uppercase(), &path, None).await;
                assert!(status == 401 || open, "{method} {path} with {wrong:?}: {status} {answer}");
            }
            // With a token, no operation of the document is unknown to the server.
            if path != "/v1/events" && path != "/mcp" {
                let (status, answer) = daemon.ask(&token, &method.to_uppercase(), &path, None).await;
                assert_ne!(status, 401, "{method} {path}: {answer}");
                assert_ne!(status, 405, "{method} {path}: {answer}");
                assert!(status != 404 || path.contains('x'), "{method} {path}: {answer}");
                let codes = operation["responses"].as_object().expect("responses");
                assert!(codes.contains_key(&status.to_string()), "{method} {path}: {status} is not in the document");
            }
        }
    }
    let host = daemon.url.trim_start_matches("http://");
    assert_eq!(
        code(&get(&daemon, "/v1/sessions", &format!("Host: {host}\r\nAuthorization: Basic {token}\r\n"))),
        "401 unauthorized"
    );
    let twice = format!("Host: {host}\r\nAuthorization: Bearer {token}\r\nAuthorization: Bearer {token}\r\n");
    assert_eq!(code(&get(&daemon, "/v1/sessions", &twice)), "401 unauthorized");
    let good = get(&daemon, "/v1/sessions", &format!("Host: {host}\r\nAuthorization: Bearer {token}\r\n"));
    assert!(good.starts_with("HTTP/1.1 200"), "{good}");
}

#[test]
fn requests_of_other_sites_are_refused() {
    let daemon = Daemon::start(&[]);
    let token = daemon.token("alice", false);
    let own = daemon.url.trim_start_matches("http://").to_owned();
    let port = own.rsplit(':').next().expect("a port");
    let ask =
        |headers: &str| code(&get(&daemon, "/v1/sessions", &format!("Authorization: Bearer {token}\r\n{headers}")));
    for host in
        ["evil.org", &format!("evil.org:{port}"), "127.0.0.1", "127.0.0.1:1", &format!("127.0.0.1.evil.org:{port}"), ""]
    {
        assert_eq!(ask(&format!("Host: {host}\r\n")), "403 wrong_host", "{host}");
    }
    for good in [own.clone(), format!("localhost:{port}"), format!("[::1]:{port}")] {
        assert_eq!(ask(&format!("Host: {good}\r\n")), "200 ", "{good}");
        assert_eq!(ask(&format!("Host: {good}\r\nOrigin: http://{good}\r\n")), "200 ", "{good}");
    }
    for origin in
        ["http://evil.org", "null", "http://127.0.0.1", &format!("https://{own}"), &format!("http://localhost:{port}")]
    {
        assert_eq!(ask(&format!("Host: {own}\r\nOrigin: {origin}\r\n")), "403 wrong_origin", "{origin}");
    }
    let answer = get(&daemon, "/openapi.json", &format!("Host: {own}\r\n"));
    let head = answer.split("\r\n\r\n").next().expect("a head").to_ascii_lowercase();
    assert!(!head.contains("access-control-"), "no CORS: {head}");
    for header in
        ["content-security-policy: default-src 'none'", "x-content-type-options: nosniff", "x-frame-options: deny"]
    {
        assert!(head.contains(header), "{header} is missing: {head}");
    }
}

#[test]
fn long_and_slow_and_wrong_requests_get_an_error() {
    let daemon = Daemon::start(&[]);
    let token = daemon.token("alice", false);
    let own = daemon.url.trim_start_matches("http://").to_owned();
    let head = |length: usize, kind: &str| {
        format!(
            "POST /v1/sessions HTTP/1.1\r\nHost: {own}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\
             Content-Type: {kind}\r\nContent-Length: {length}\r\n\r\n"
        )
    };
    let post = |body: &str| code(&raw(&daemon, &(head(body.len(), "application/json") + body)));
    assert_eq!(post("{"), "400 invalid_request");
    assert_eq!(post("[]"), "400 invalid_request");
    assert_eq!(post(r#"{"record":"everything"}"#), "400 invalid_request");
    assert_eq!(post(r#"{"recrod":"off"}"#), "400 invalid_request");
    assert_eq!(post(r#"{"credential_mode":"clean","grant_token":"x"}"#), "400 invalid_request");
    assert_eq!(post(r#"{"credential_mode":"operator","domains":["a.org"]}"#), "403 grant_required");
    assert_eq!(code(&raw(&daemon, &(head(2, "text/plain") + "{}"))), "415 invalid_request");
    assert_eq!(post(&format!("{{\"grant_token\":\"{}\"}}", "x".repeat(2 << 20))), "413 too_large");
    for (path, body) in [
        ("/v1/sessions", r#"{"record":"audit","record":"off"}"#),
        ("/v1/login", r#"{"token":"x","token":"y"}"#),
        (
            "/mcp",
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"url":"a","url":"b"}}}"#,
        ),
    ] {
        let head = head(body.len(), "application/json").replace("/v1/sessions", path);
        let answer = raw(&daemon, &(head + body));
        assert_eq!(code(&answer), "400 invalid_request", "{path}: {answer}");
        assert!(answer.contains(r#"\" is given twice"#), "{path}: {answer}");
    }
    // The value of a field is not in the message: it may be a secret.
    let answer = raw(&daemon, &(head(29, "application/json") + r#"{"domains":"secret-in-field"}"#));
    assert!(answer.contains("400") && !answer.contains("secret-in-field"), "{answer}");
    let begin = Instant::now();
    let slow = raw(&daemon, "GET /v1/sessions HTTP/1.1\r\nHost:");
    assert!(begin.elapsed() < Duration::from_secs(20), "a client that never finishes its head is cut off: {slow}");
}

#[tokio::test]
async fn a_session_does_what_the_table_says_and_belongs_to_its_tenant() {
    let port = echo();
    let daemon = Daemon::start(&["--local-port", &port.to_string()]);
    let (alice, bob) = (daemon.token("alice", false), daemon.token("bob", true));
    let (status, opened) = daemon.post(&alice, "/v1/sessions", json!({ "record": "off" })).await;
    assert_eq!(status, 201, "{opened}");
    assert_eq!(
        opened.as_object().expect("fields").keys().collect::<Vec<_>>(),
        ["session_id", "credential_mode", "record", "started_at"]
    );
    let id = opened["session_id"].as_str().expect("an id");
    let navigated =
        daemon.act(&alice, id, "navigate", json!({ "url": format!("http://127.0.0.1:{port}/a?b=secret") })).await;
    assert_eq!((navigated["status"].as_u64(), navigated["title"].as_str()), (Some(200), Some("echo")), "{navigated}");
    let picture = daemon.act(&alice, id, "screenshot", json!({})).await;
    assert!(picture["image_base64"].as_str().expect("text").starts_with("iVBOR"));
    assert_eq!((picture["width"].as_u64(), picture["height"].as_u64()), (Some(1280), Some(800)));
    assert!(picture.get("persisted_path").is_none(), "record is off");
    let clicked = daemon.act(&alice, id, "click", json!({ "selector": "#in", "after_screenshot": true })).await;
    assert_eq!(clicked["success"], true);
    assert!(clicked["after_screenshot"]["image_base64"].is_string());
    assert_eq!(daemon.act(&alice, id, "type", json!({ "text": "typed-secret" })).await, json!({ "success": true }));
    assert_eq!(daemon.act(&alice, id, "scroll", json!({ "dy": 10 })).await, json!({ "success": true }));
    let dom = daemon.act(&alice, id, "read_dom", json!({ "max_bytes": 40 })).await;
    assert_eq!(dom["truncated_to"], 40, "{dom}");

    // To bob the session does not exist, although he is an operator.
    for (method, path) in [
        ("GET", ""),
        ("DELETE", ""),
        ("POST", "/screenshot"),
        ("GET", "/view"),
        ("GET", "/denials"),
        ("GET", "/recordings"),
    ] {
        let (status, answer) = daemon.ask(&bob, method, &format!("/v1/sessions/{id}{path}"), None).await;
        assert_eq!((status, answer["error"]["code"].as_str()), (404, Some("not_found")), "{method} {path}");
    }
    assert_eq!(daemon.ask(&bob, "GET", "/v1/sessions", None).await.1, json!({ "sessions": [] }));
    assert_eq!(daemon.ask(&bob, "GET", "/v1/audit?action=navigate", None).await.1, json!({ "audit": [] }));

    let (_, audit) = daemon.ask(&alice, "GET", &format!("/v1/audit?session_id={id}"), None).await;
    let actions: Vec<&str> = audit["audit"]
        .as_array()
        .expect("rows")
        .iter()
        .rev()
        .map(|row| row["action"].as_str().expect("text"))
        .collect();
    assert_eq!(actions, ["open_session", "navigate", "screenshot", "click", "type", "scroll", "read_dom"]);
    assert!(!audit.to_string().contains("secret"), "typed text and queries are not in the audit trail: {audit}");

    let (status, closed) = daemon.ask(&alice, "DELETE", &format!("/v1/sessions/{id}"), None).await;
    assert_eq!(status, 200);
    assert_eq!(daemon.ask(&alice, "DELETE", &format!("/v1/sessions/{id}"), None).await.1, closed, "closing again");
    let (status, ended) = daemon.post(&alice, &format!("/v1/sessions/{id}/screenshot"), json!({})).await;
    assert_eq!((status, ended["error"]["code"].as_str()), (410, Some("session_ended")));
}

#[tokio::test]
async fn limits_answer_429() {
    let daemon = Daemon::start(&["--max-sessions", "2", "--max-sessions-per-tenant", "1"]);
    let (alice, bob, carol) = (daemon.token("alice", false), daemon.token("bob", false), daemon.token("carol", false));
    let id = daemon.open(&alice, json!({ "record": "off" })).await;
    let answer = reqwest::Client::new()
        .post(format!("{}/v1/sessions", daemon.url))
        .bearer_auth(&alice)
        .send()
        .await
        .expect("sent");
    assert_eq!(answer.status(), 429, "one of each tenant");
    assert!(answer.headers()["retry-after"].to_str().expect("text").parse::<u32>().is_ok());
    daemon.open(&bob, json!({})).await;
    assert_eq!(daemon.post(&carol, "/v1/sessions", json!({})).await.0, 429, "two in all");
    daemon.ask(&alice, "DELETE", &format!("/v1/sessions/{id}"), None).await;
    daemon.open(&carol, json!({})).await;
}

#[tokio::test]
async fn a_session_that_rests_too_long_ends() {
    let daemon = Daemon::start(&["--idle", "1s"]);
    let alice = daemon.token("alice", false);
    let id = daemon.open(&alice, json!({})).await;
    let begin = Instant::now();
    loop {
        let (_, row) = daemon.ask(&alice, "GET", &format!("/v1/sessions/{id}"), None).await;
        if row["state"] == "closed" {
            assert_eq!(row["end_reason"], "it was not used for 1s");
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "{row}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test]
async fn the_page_exchanges_a_token_for_a_cookie() {
    let daemon = Daemon::start(&[]);
    let token = daemon.token("alice", true);
    let client = reqwest::Client::new();
    let login = |token: &str| client.post(format!("{}/v1/login", daemon.url)).json(&json!({ "token": token })).send();
    assert_eq!(login("gkt_wrong").await.expect("sent").status(), 401);
    let answer = login(&token).await.expect("sent");
    assert_eq!(answer.status(), 200);
    let set = answer.headers()["set-cookie"].to_str().expect("text").to_owned();
    assert!(set.contains("HttpOnly") && set.contains("SameSite=Strict"), "{set}");
    let cookie = set.split(';').next().expect("a pair").to_owned();
    assert!(!cookie.contains(&token), "the cookie is not the token");
    let who: Value = serde_json::from_str(&answer.text().await.expect("a body")).expect("JSON");
    let key = who["key"].as_str().expect("a key").to_owned();
    let with = |path: &str, key: &str| {
        let request = client.get(format!("{}{path}", daemon.url)).header("cookie", &cookie);
        request.header("x-gatekeeperd-key", key).send()
    };
    let ask = |path: &str| with(path, &key);
    assert_eq!(ask("/v1/grants").await.expect("sent").status(), 200);
    // Cookies know no ports: a server on another port of this machine gets the cookie, but not the key.
    let alone = client.get(format!("{}/v1/grants", daemon.url)).header("cookie", &cookie).send().await.expect("sent");
    assert_eq!(alone.status(), 401, "the cookie alone");
    assert_eq!(with("/v1/grants", "key_wrong").await.expect("sent").status(), 401);
    let query = format!("{}/v1/grants?key={key}", daemon.url);
    let shown = client.get(&query).header("cookie", &cookie).send().await.expect("sent");
    assert_eq!(shown.status(), 200, "for pictures, the key is in the query");
    assert_eq!(client.get(&query).send().await.expect("sent").status(), 401, "the key alone");
    for site in ["cross-site", "same-site"] {
        let picture = client.get(&query).header("cookie", &cookie).header("sec-fetch-site", site).send().await;
        assert_eq!(picture.expect("sent").status(), 403, "{site}");
    }
    let out = client.delete(format!("{}/v1/login", daemon.url)).header("cookie", &cookie);
    let out = out.header("x-gatekeeperd-key", &key).send().await.expect("sent");
    assert_eq!(out.status(), 204);
    assert_eq!(ask("/v1/grants").await.expect("sent").status(), 401, "logged out");
}

#[tokio::test]
async fn a_unix_socket_serves_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::TempDir::new().expect("a temporary directory");
    let socket = directory.path().join("socket");
    let start = || {
        let mut child = crate::support::program()
            .args(["serve", "--json", "--listen", &format!("unix:{}", socket.display()), "--state"])
            .arg(directory.path().join("state"))
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("runs");
        let mut line = String::new();
        let mut out = std::io::BufReader::new(child.stdout.take().expect("piped"));
        std::io::BufRead::read_line(&mut out, &mut line).expect("a line");
        assert!(line.contains("unix:"), "{line}");
        child
    };
    let mut child = start();
    assert_eq!(std::fs::metadata(&socket).expect("there").permissions().mode() & 0o777, 0o600);
    let mut made = crate::support::program();
    made.args(["token", "create", "--tenant", "alice", "--state"]).arg(directory.path().join("state"));
    // JSON also without --json.
    let made: Value = serde_json::from_slice(&made.output().expect("runs").stdout).expect("JSON");
    let token = made["token"].as_str().expect("a token").to_owned();
    let ask = |host: &str, token: &str| {
        let done = std::process::Command::new("curl")
            .args(["-s", "-o", "/dev/null", "-w", "%{http_code}", "-H", &format!("Authorization: Bearer {token}")])
            .arg("--unix-socket")
            .arg(&socket)
            .arg(format!("http://{host}/v1/sessions"))
            .output()
            .expect("curl runs");
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    assert_eq!(ask("localhost", &token), "200");
    assert_eq!((ask("localhost", "gkt_wrong").as_str(), ask("evil.org", &token).as_str()), ("401", "403"));
    // The socket of a daemon that was killed does not keep the next one from starting.
    child.kill().expect("ours");
    child.wait().expect("ours");
    let mut next = start();
    assert_eq!(ask("localhost", &token), "200");
    next.kill().expect("ours");
    next.wait().expect("ours");
}
