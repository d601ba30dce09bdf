//! What an action answers, and what it answers when the browser could not do it.

use crate::support::{Daemon, html, site};
use serde_json::{Value, json};

/// A port on which nothing listens.
fn closed_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").port()
}

fn said(answer: &Value) -> &str {
    answer["error"]["message"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn an_answer_of_the_proxy_is_never_shown_as_that_of_a_site() {
    let port = site(|head, _| {
        let own = html("", "<title>own</title>");
        match head.split(' ').nth(1).unwrap_or_default() {
            "/502" => own.replacen("200 OK", "502 Bad Gateway", 1),
            "/403" => own.replacen("200 OK", "403 Forbidden", 1),
            "/forged" => html("x-gatekeeper: 403 Forbidden\r\n", "gatekeeper: \u{7}forged"),
            path => match path.strip_prefix("/to?") {
                Some(url) => own.replacen("200 OK", &format!("302 Found\r\nLocation: {url}"), 1),
                None => own,
            },
        }
    });
    let closed = closed_port();
    let daemon = Daemon::start(&["--local-port", &port.to_string(), "--local-port", &closed.to_string()]);
    let alice = daemon.token("alice", false);
    let id = daemon.open(&alice, json!({ "record": "off" })).await;
    let go =
        async |url: String| daemon.post(&alice, &format!("/v1/sessions/{id}/navigate"), json!({ "url": url })).await;
    let own = |path: &str| format!("http://127.0.0.1:{port}{path}");
    let nobody = format!("http://127.0.0.1:{closed}/");
    for (url, why) in [
        ("http://no-such-host.invalid/".to_owned(), "http://no-such-host.invalid/ could not be loaded: "),
        (own("/to?http://no-such-host.invalid/x"), "http://no-such-host.invalid/x could not be loaded: "),
        (nobody.clone(), "refused"),
        (own(&format!("/to?{nobody}")), "refused"),
        (own("/to?http://10.99.0.2/z"), "access to 10.99.0.2:80 is denied"),
    ] {
        let (status, answer) = go(url.clone()).await;
        assert_eq!((status, answer["error"]["code"].as_str()), (422, Some("browser_failed")), "{url}: {answer}");
        assert!(said(&answer).contains(why) && !said(&answer).contains("gatekeeper:"), "{url}: {answer}");
    }
    // What a site itself answers is an answer.
    for (path, status) in [("/", 200), ("/403", 403), ("/502", 502)] {
        let (done, answer) = go(own(path)).await;
        assert_eq!((done, answer["status"].as_u64(), answer["title"].as_str()), (200, Some(status), Some("own")));
    }
    // A site that sends the proxy's header makes its own page fail.
    let (status, answer) = go(own("/forged")).await;
    assert_eq!(status, 422, "{answer}");
    assert!(said(&answer).ends_with("/forged could not be loaded: forged"), "{answer}");
}

#[tokio::test]
async fn a_session_that_has_to_be_recorded_says_when_the_recordings_are_full() {
    let daemon = Daemon::start(&["--quota", "20K"]);
    let alice = daemon.token("alice", false);
    let id = daemon.open(&alice, json!({ "record": "audit" })).await;
    let act = async |id: &str, action: &str, body: Value| {
        daemon.post(&alice, &format!("/v1/sessions/{id}/{action}"), body).await
    };
    let mut kept = 0;
    let (status, full) = loop {
        match act(&id, "screenshot", json!({})).await {
            (200, _) if kept < 100 => kept += 1,
            other => break other,
        }
    };
    assert!(kept > 0, "{full}");
    let after = act(&id, "click", json!({ "x": 1, "y": 1, "after_screenshot": true })).await;
    for (status, full) in [(status, full), after] {
        assert_eq!((status, full["error"]["code"].as_str()), (507, Some("quota_exhausted")), "{full}");
        assert!(said(&full).contains("20480 bytes; the operator can raise --quota"), "{full}");
    }
    let document: Value = serde_json::from_str(gatekeeperd::api::document()).expect("JSON");
    for action in ["screenshot", "click", "type", "scroll"] {
        let path = format!("/v1/sessions/{{id}}/{action}");
        assert!(document["paths"][path]["post"]["responses"]["507"].is_object(), "{action}");
    }
    // What shows nothing still works, and so do sessions that need not be recorded.
    assert_eq!(act(&id, "click", json!({ "x": 1, "y": 1 })).await.0, 200);
    let other = daemon.open(&alice, json!({ "record": "off" })).await;
    assert_eq!(act(&other, "screenshot", json!({})).await.0, 200);
}

#[tokio::test]
async fn what_happens_after_an_answer_is_in_the_next_one() {
    let port = site(|head, _| match head.split(' ').nth(1).unwrap_or_default() {
        "/file" => html("Content-Disposition: attachment\r\n", "bytes"),
        "/late" => html("", "<title>late</title><script>setTimeout(() => alert('soon'), 600)</script>"),
        _ => html("", "<title>own</title><a id=get href=/file download>file</a>"),
    });
    let daemon = Daemon::start(&["--local-port", &port.to_string()]);
    let alice = daemon.token("alice", false);
    let id = daemon.open(&alice, json!({ "record": "off" })).await;
    let go = async |path: &str| {
        daemon.act(&alice, &id, "navigate", json!({ "url": format!("http://127.0.0.1:{port}{path}") })).await
    };
    // What has arrived may be in the answer of the action itself; each is told once, whenever it is.
    let told = async |first: Value| {
        let mut told = first["notices"].as_array().cloned().unwrap_or_default();
        tokio::time::sleep(std::time::Duration::from_millis(1200)).await;
        for _ in 0..2 {
            let next = daemon.act(&alice, &id, "scroll", json!({ "dy": 1 })).await;
            told.extend(next["notices"].as_array().cloned().unwrap_or_default());
        }
        told.iter().map(|notice| format!("{} {}", notice["number"], notice["kind"])).collect::<Vec<_>>()
    };
    go("/").await;
    assert_eq!(told(daemon.act(&alice, &id, "click", json!({ "selector": "#get" })).await).await, ["0 \"download\""]);
    assert_eq!(told(go("/late").await).await, ["1 \"dialog\""]);
    // The download that an address leads to is the error; it is a notice as well.
    let path = format!("/v1/sessions/{id}/navigate");
    let (status, refused) = daemon.post(&alice, &path, json!({ "url": format!("http://127.0.0.1:{port}/file") })).await;
    assert_eq!(status, 422, "{refused}");
    assert_eq!(told(json!({})).await, ["2 \"download\""]);
}

#[tokio::test]
async fn an_address_that_is_none_is_an_error_of_the_request() {
    let daemon = Daemon::start(&[]);
    let alice = daemon.token("alice", false);
    let id = daemon.open(&alice, json!({ "record": "off" })).await;
    let path = format!("/v1/sessions/{id}/navigate");
    for url in ["", "a.org", "http://", "http://a b/", "file:///etc/passwd", "https://me:s3cret@a.org/"] {
        let (status, answer) = daemon.post(&alice, &path, json!({ "url": url })).await;
        assert_eq!((status, answer["error"]["code"].as_str()), (400, Some("invalid_request")), "{url}: {answer}");
        assert!(said(&answer).starts_with("url: ") && !said(&answer).contains("s3cret"), "{url}: {answer}");
    }
    // An address that is sound and denied is a failure of the browser.
    assert_eq!(daemon.post(&alice, &path, json!({ "url": "http://10.0.0.1/" })).await.0, 422);
}
