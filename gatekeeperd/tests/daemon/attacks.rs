//! What hostile tenants, pages and clients try.

use crate::support::{Daemon, html, site};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A server that only counts.
fn counter() -> (u16, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&count);
    let port = site(move |_, _| {
        seen.fetch_add(1, Ordering::Relaxed);
        html("", "<title>inside</title>")
    });
    (port, count)
}

#[tokio::test]
async fn no_redirect_frame_script_or_spelling_reaches_an_internal_address() {
    let (inside, reached) = counter();
    let port = site(move |head, _| {
        let path = head.split(' ').nth(1).unwrap_or_default();
        match path.split_once('?') {
            Some(("/to", url)) => {
                format!("HTTP/1.1 302 Found\r\nLocation: {url}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            }
            Some(("/page", _)) => html("", &PAGE.replace("INSIDE", &inside.to_string())),
            _ => html("", "<title>own</title>"),
        }
    });
    let daemon = Daemon::start(&["--local-port", &port.to_string(), "--action-timeout", "8s"]);
    let alice = daemon.token("alice", false);
    let id = daemon.open(&alice, json!({ "record": "off" })).await;
    let go =
        async |url: String| daemon.post(&alice, &format!("/v1/sessions/{id}/navigate"), json!({ "url": url })).await;
    let own = |path: &str| format!("http://127.0.0.1:{port}{path}");
    let spellings = [
        "127.0.0.1",
        "localhost",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0.0.0.0",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "127.0.0.2",
    ];
    for host in spellings {
        let (status, answer) = go(format!("http://{host}:{inside}/")).await;
        assert_eq!((status, answer["error"]["code"].as_str()), (422, Some("browser_failed")), "{host}: {answer}");
    }
    for host in ["127.0.0.1", "localhost", "[::1]"] {
        for scheme in ["http", "https"] {
            let (status, answer) = go(own(&format!("/to?{scheme}://{host}:{inside}/"))).await;
            let said = answer["error"]["message"].as_str().unwrap_or_default();
            let denied = format!("access to {host}:{inside} is denied");
            assert!(status == 422 && said.contains(&denied), "a redirect to {scheme}://{host}: {answer}");
        }
    }
    // The proxy's resolver may not know this name.
    let (status, answer) = go(format!("http://x.localhost:{inside}/")).await;
    assert_eq!((status, answer["error"]["code"].as_str()), (422, Some("browser_failed")), "{answer}");
    // A local port is this machine's only, not that of other private addresses.
    for host in ["10.0.0.1", "192.168.0.1", "169.254.169.254", "[fd00::1]", "[fe80::1]"] {
        assert_eq!(go(format!("http://{host}:{port}/")).await.0, 422, "{host}");
    }
    // Frames, pictures, fetch, beacons, WebSocket and WebRTC of a page. The title says when it has tried all.
    assert_eq!(go(own("/page?")).await.0, 200);
    let begin = Instant::now();
    loop {
        let dom = daemon.act(&alice, &id, "read_dom", json!({ "max_bytes": 200 })).await;
        if dom["html"].as_str().expect("text").contains("tried all") {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "{dom}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(reached.load(Ordering::Relaxed), 0, "a request has reached the port that is not open");
    let (_, denied) = daemon.ask(&alice, "GET", &format!("/v1/sessions/{id}/denials"), None).await;
    assert!(denied.to_string().contains(&format!("127.0.0.1:{inside}")), "{denied}");
    assert_eq!(go(own("/")).await.1["title"], "own", "the control");
}

const PAGE: &str = "<!doctype html><title>trying</title><script>
const at = '127.0.0.1:INSIDE', tried = [];
for (const [tag, name] of [['img', 'src'], ['iframe', 'src'], ['script', 'src'], ['object', 'data']]) {
  const element = document.createElement(tag);
  tried.push(new Promise((done) => { element.onload = element.onerror = done; setTimeout(done, 3000); }));
  element[name] = 'http://' + at + '/' + tag;
  document.documentElement.append(element);
}
tried.push(fetch('http://' + at + '/fetch', {mode: 'no-cors'}).catch(() => 0));
navigator.sendBeacon('http://' + at + '/beacon', 'x');
tried.push(new Promise((done) => { const s = new WebSocket('ws://' + at + '/'); s.onerror = s.onopen = done; setTimeout(done, 3000); }));
try { const peer = new RTCPeerConnection({iceServers: [{urls: 'turn:' + at + '?transport=tcp', username: 'u', credential: 'c'}]});
  peer.createDataChannel('x'); peer.createOffer().then((offer) => peer.setLocalDescription(offer)); } catch {}
Promise.all(tried).then(() => setTimeout(() => document.title = 'tried all', 500));
</script>";

#[tokio::test]
async fn another_tenants_ids_are_unknown_in_every_operation() {
    let daemon = Daemon::start(&[]);
    let (alice, bob) = (daemon.token("alice", true), daemon.token("bob", true));
    let id = daemon.open(&alice, json!({ "record": "audit" })).await;
    daemon.act(&alice, &id, "screenshot", json!({})).await;
    let file = daemon.state.path().join("cookies.json");
    std::fs::write(&file, json!([crate::support::cookie("a", "b", "a.org")]).to_string()).expect("own directory");
    let file = file.display().to_string();
    daemon.json(&["credential", "import", "--tenant", "alice", "--domain", "a.org", "--file", &file]);
    let (_, grant) = daemon.post(&alice, "/v1/grants", json!({ "domains": ["a.org"] })).await;
    let jti = grant["jti"].as_str().expect("an id");
    let fitting = |path: &str| match path.rsplit('/').next().unwrap_or_default() {
        "navigate" => json!({ "url": "about:blank" }),
        "click" => json!({ "x": 1, "y": 1 }),
        "type" => json!({ "text": "x" }),
        "input" => json!({ "type": "text", "text": "x" }),
        "store" => json!({ "domains": ["a.org"] }),
        _ => json!({}),
    };
    let document: Value = serde_json::from_str(gatekeeperd::api::document()).expect("JSON");
    let mut tried = 0;
    for (path, operations) in document["paths"].as_object().expect("paths") {
        if !path.contains('{') {
            continue;
        }
        let path = path
            .replace("{id}", &id)
            .replace("{jti}", jti)
            .replace("{domain}", "a.org")
            .replace("{name}", "000001.png");
        for method in operations.as_object().expect("operations").keys() {
            let body = (method == "post").then(|| fitting(&path));
            let (status, answer) = daemon.ask(&bob, &method.to_uppercase(), &path, body).await;
            assert_eq!(
                (status, answer["error"]["code"].as_str()),
                (404, Some("not_found")),
                "{method} {path}: {answer}"
            );
            tried += 1;
        }
    }
    assert!(tried >= 15, "{tried}");
    // A grant of another tenant is as good as none.
    let open = json!({ "credential_mode": "operator", "domains": ["a.org"], "grant_token": grant["grant_token"] });
    daemon.json(&["credential", "import", "--tenant", "bob", "--domain", "a.org", "--file", &file]);
    let (status, refused) = daemon.post(&bob, "/v1/sessions", open).await;
    assert_eq!((status, refused["error"]["code"].as_str()), (403, Some("grant_invalid")));
    for path in ["/v1/grants", "/v1/sessions", "/v1/audit", "/v1/credentials"] {
        let (_, shown) = daemon.ask(&bob, "GET", path, None).await;
        let shown = shown.to_string();
        // Bob's own attempt to revoke the grant is in his audit trail.
        assert!(path == "/v1/audit" || !shown.contains(jti), "{path}: {shown}");
        assert!(!shown.contains(&id) && !shown.contains("alice"), "{path}: {shown}");
    }
    // All of it is still there.
    assert_eq!(daemon.act(&alice, &id, "screenshot", json!({})).await["width"], 1280);
    assert_eq!(daemon.json(&["grant", "list"])["grants"][0]["consumed_at"], Value::Null);
}

#[tokio::test]
async fn names_of_recordings_lead_nowhere_else() {
    let daemon = Daemon::start(&[]);
    let alice = daemon.token("alice", false);
    let id = daemon.open(&alice, json!({ "record": "audit" })).await;
    let kept =
        daemon.act(&alice, &id, "screenshot", json!({})).await["persisted_path"].as_str().expect("a path").to_owned();
    let directory = std::path::Path::new(&kept).parent().expect("a directory").to_owned();
    std::os::unix::fs::symlink("/etc/passwd", directory.join("000009.png")).expect("own directory");
    std::os::unix::fs::symlink(daemon.state.path().join("gatekeeperd.db"), directory.join("000010.png"))
        .expect("own directory");
    let get = async |name: &str| daemon.ask(&alice, "GET", &format!("/v1/sessions/{id}/recordings/{name}"), None).await;
    for name in [
        "000009.png",
        "000010.png",
        "mode",
        "..%2fmode",
        "..%2f..%2f..%2fkey",
        "%2e%2e%2fx.png",
        "%2fetc%2fpasswd",
        ".png",
        "000001.png%00",
    ] {
        let (status, answer) = get(name).await;
        assert!((400..500).contains(&status), "{name}: {status} {answer}");
        assert!(!answer.to_string().contains(&directory.display().to_string()), "{name}: {answer}");
    }
    assert_eq!(get("000001.png").await.0, 200, "the control");
    let mode = |path: &std::path::Path| {
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(path).expect("there").permissions()) & 0o777
    };
    assert_eq!((mode(std::path::Path::new(&kept)), mode(&directory)), (0o600, 0o700));
}

#[tokio::test]
async fn a_page_cannot_write_into_messages_rows_or_notices_more_than_text() {
    let port = site(|head, _| match head.split(' ').nth(1).unwrap_or_default() {
        "/loud" => html(
            "",
            "<title>x</title><script>alert('a\\nb\\u001b[2J\\u202e' + 'x'.repeat(100000)); document.title = 'T'.repeat(1000000)</script>",
        ),
        _ => html("", "<title>x</title>"),
    });
    let daemon = Daemon::start(&["--local-port", &port.to_string()]);
    let alice = daemon.token("alice", false);
    let id = daemon.open(&alice, json!({ "record": "off" })).await;
    let loud = daemon.act(&alice, &id, "navigate", json!({ "url": format!("http://127.0.0.1:{port}/loud") })).await;
    let text = loud.to_string();
    assert!(text.len() < 20_000, "{} bytes", text.len());
    assert!(!text.contains("\\u001b") && !text.contains("\\n"), "{text}");
    // A selector of the length of a book makes no row of that length.
    let long = "a".repeat(500_000);
    daemon.post(&alice, &format!("/v1/sessions/{id}/click"), json!({ "selector": long })).await;
    daemon.post(&alice, &format!("/v1/sessions/{id}/navigate"), json!({ "url": format!("http://a.org/{long}") })).await;
    let (_, audit) = daemon.ask(&alice, "GET", "/v1/audit", None).await;
    assert!(audit.to_string().len() < 20_000, "{} bytes", audit.to_string().len());
}

#[test]
fn slow_silent_and_large_clients_are_cut_off_and_others_are_served() {
    let daemon = Daemon::start(&[]);
    let token = daemon.token("alice", false);
    let own = daemon.url.trim_start_matches("http://").to_owned();
    let connect = || {
        let stream = TcpStream::connect(&own).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket");
        stream
    };
    let mut silent = connect();
    let mut slow = connect();
    let head = |length: usize, more: &str| {
        format!(
            "POST /v1/sessions HTTP/1.1\r\nHost: {own}\r\n{more}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        )
    };
    let begin = Instant::now();
    slow.write_all((head(100, &format!("Authorization: Bearer {token}\r\n")) + "{").as_bytes()).expect("sent");
    // Without a token, not a byte of the body is waited for.
    let mut stranger = connect();
    stranger.write_all(head(1 << 20, "").as_bytes()).expect("sent");
    let mut answer = [0; 4096];
    let count = stranger.read(&mut answer).expect("an answer");
    assert!(answer[..count].starts_with(b"HTTP/1.1 401"), "{}", String::from_utf8_lossy(&answer[..count]));
    assert!(begin.elapsed() < Duration::from_secs(5));
    let mut login = connect();
    let long = format!("{{\"token\":\"{}\"}}", "x".repeat(8000));
    let request = format!(
        "POST /v1/login HTTP/1.1\r\nHost: {own}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{long}",
        long.len()
    );
    login.write_all(request.as_bytes()).expect("sent");
    let count = login.read(&mut answer).expect("an answer");
    assert!(answer[..count].starts_with(b"HTTP/1.1 413"), "{}", String::from_utf8_lossy(&answer[..count]));
    let count = slow.read(&mut answer).expect("an answer");
    assert!(answer[..count].starts_with(b"HTTP/1.1 408"), "{}", String::from_utf8_lossy(&answer[..count]));
    assert!(begin.elapsed() < Duration::from_secs(25));
    assert_eq!(silent.read(&mut answer).expect("closed"), 0, "a client that says nothing is cut off");
    assert!(begin.elapsed() < Duration::from_secs(25));
}

#[tokio::test]
async fn no_spelling_of_an_address_hides_it_from_the_audit_trail() {
    let (port, count) = counter();
    let daemon = Daemon::start(&["--local-port", &port.to_string()]);
    let alice = daemon.token("alice", false);
    let id = daemon.open(&alice, json!({ "record": "off" })).await;
    let at = format!("127.0.0.1:{port}/x");
    let spellings = [
        format!(" http://{at}"),
        format!("ht\ttp://{at}"),
        format!("http:{}//{at}", "\t".repeat(1100)),
        format!("http:\\{at}"),
    ];
    for url in &spellings {
        daemon.act(&alice, &id, "navigate", json!({ "url": url })).await;
        let (_, audit) = daemon.ask(&alice, "GET", "/v1/audit?action=navigate&limit=1", None).await;
        assert_eq!(audit["audit"][0]["detail"]["url"], format!("http://{at}"), "{url:?}");
    }
    assert!(count.load(Ordering::Relaxed) >= spellings.len(), "the site was reached each time");
}
