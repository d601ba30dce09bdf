//! The live view and the events: who gets them, what they leave, and when they end.

use crate::support::{Daemon, html, site};
use serde_json::{Value, json};
use std::time::Duration;

async fn stream(daemon: &Daemon, token: &str, path: &str) -> reqwest::Response {
    reqwest::Client::new().get(format!("{}{path}", daemon.url)).bearer_auth(token).send().await.expect("sent")
}

#[tokio::test]
async fn a_stream_leaves_an_audit_row_and_shows_an_agent_nothing_that_must_be_recorded() {
    let daemon = Daemon::start(&[]);
    let (agent, operator) = (daemon.token("alice", false), daemon.token("alice", true));
    let recorded = daemon.open(&agent, json!({ "record": "audit" })).await;
    let other = daemon.open(&agent, json!({ "record": "transient" })).await;
    for (token, id, status) in
        [(&agent, &recorded, 403), (&operator, &recorded, 200), (&agent, &other, 200), (&operator, &other, 200)]
    {
        assert_eq!(stream(&daemon, token, &format!("/v1/sessions/{id}/view")).await.status(), status);
    }
    let rows = async |id: &str| {
        let (_, audit) =
            daemon.ask(&operator, "GET", &format!("/v1/audit?session_id={id}&action=view_session"), None).await;
        audit["audit"].as_array().expect("rows").len()
    };
    assert_eq!((rows(&recorded).await, rows(&other).await), (1, 2), "one for each stream");
}

#[tokio::test]
async fn streams_end_with_the_token_and_with_the_login() {
    let port =
        site(|_, _| html("", "<script>setInterval(() => document.body.textContent = performance.now(), 100)</script>"));
    let daemon = Daemon::start(&["--local-port", &port.to_string()]);
    let (agent, operator) = (daemon.token("alice", false), daemon.token("alice", true));
    let id = daemon.open(&agent, json!({ "record": "off" })).await;
    daemon.act(&agent, &id, "navigate", json!({ "url": format!("http://127.0.0.1:{port}/") })).await;
    let view = format!("/v1/sessions/{id}/view");
    let client = reqwest::Client::new();
    let login = client.post(format!("{}/v1/login", daemon.url)).json(&json!({ "token": agent })).send().await;
    let login = login.expect("sent");
    let cookie = login.headers()["set-cookie"].to_str().expect("text").split(';').next().expect("a pair").to_owned();
    let who: Value = serde_json::from_str(&login.text().await.expect("a body")).expect("JSON");
    let key = who["key"].as_str().expect("a key").to_owned();
    let page = client.get(format!("{}/v1/events?key={key}", daemon.url)).header("cookie", &cookie);

    let mut others = [stream(&daemon, &agent, "/v1/events").await, stream(&daemon, &agent, &view).await];
    let ending = [
        stream(&daemon, &operator, "/v1/events").await,
        stream(&daemon, &operator, &view).await,
        page.send().await.expect("sent"),
    ];
    let tokens = daemon.json(&["token", "list"]);
    let removed = tokens["tokens"].as_array().expect("a list").iter().find(|token| token["operator"] == true);
    daemon.json(&["token", "rm", removed.expect("there")["id"].as_str().expect("text")]);
    let out = client.delete(format!("{}/v1/login", daemon.url)).header("cookie", &cookie);
    assert_eq!(out.header("x-gatekeeperd-key", &key).send().await.expect("sent").status(), 204);
    for mut answer in ending {
        let whole = async { while answer.chunk().await.expect("it ends in order").is_some() {} };
        tokio::time::timeout(Duration::from_secs(15), whole).await.expect("it has ended");
    }
    // Those of a token that is still known go on.
    for answer in &mut others {
        tokio::time::timeout(Duration::from_secs(20), answer.chunk())
            .await
            .expect("in time")
            .expect("open")
            .expect("more");
    }
}
