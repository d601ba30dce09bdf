//! Requests that no rule allows wait for a decision.

use super::{always, ask};
use crate::network::requests::Tls;
use crate::network::server::Server;
use crate::plumbing::Place;
use crate::support::has;
use serde_json::json;

#[test]
fn a_refused_request_is_asked_and_passes_if_it_is_approved() {
    if !has("curl") {
        return;
    }
    let place = Place::new(None);
    std::fs::write(place.at("work/index.html"), "hello").expect("own directory");
    let server = Server::of(&place.at("work"));
    let rule = format!("GET {}/v1/**", server.host());
    let curl = |path: &str| format!("curl -sS -o /dev/null -w '%{{http_code}} ' {}", server.url(path));
    let words = |line: &str| -> Vec<String> {
        ["--profile", "read", "--http", &rule, "-c", line].iter().map(|word| (*word).to_owned()).collect()
    };
    let line = format!("{0}; {0}; {1}", curl("index.html?q=secret"), curl("../index.html --path-as-is"));
    let words = words(&line);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    for (decision, codes, questions) in
        [("once", "200 200 403", 2), ("run", "200 200 403", 1), ("deny", "403 403 403", 2)]
    {
        let ran = ask(&place, &words, always(decision));
        assert_eq!(ran.done.exits(0).stdout().trim(), codes, "{decision}: {}", ran.done);
        assert_eq!(ran.lines.len(), questions, "{decision}: what no rule can allow is not asked");
        let question = &ran.lines[0];
        assert_eq!(
            (&question["kind"], &question["access"], &question["syscall"]),
            (&"host".into(), &"connect".into(), &"http".into())
        );
        assert_eq!((&question["host"], &question["path"]), (&server.host().into(), &"/index.html".into()));
        assert_eq!(question["method"], "GET");
        assert_eq!(question["allow_with"], format!("--http 'GET {}/index.html'", server.host()));
        let passed = server.seen();
        assert_eq!(passed.len(), if decision == "deny" { 0 } else { 2 }, "{decision}: {passed:?}");
        assert_eq!(ran.report["asked"].as_array().map(Vec::len), Some(questions));
    }
    // Without an answer it is denied, and a client that goes away takes its question along.
    let line = format!("curl -sS -m 1 {}; true", server.url("index.html"));
    let words = ["--profile", "read", "--http", &rule, "-c", &line];
    let ran = ask(&place, &words, |_, _| None);
    ran.done.exits(0);
    assert_eq!(ran.report["asked"][0]["because"], "withdrawn", "{:#}", ran.report["asked"]);
    assert_eq!(ran.report["asked"][0]["decision"], json!("deny"));
    assert!(server.seen().is_empty());
}

/// As over plain HTTP: the list has the name, and the address that it leads to is asked about.
#[test]
fn a_private_address_of_a_host_with_rules_is_asked_about_over_tls_too() {
    let Some(tls) = Tls::new("both") else { return };
    let place = Place::new(None);
    let rules = format!("[[network.http]]\nhost = 'localhost:{}'\npaths = ['/v1/**']\n", tls.port);
    let policy = tls.policy(&place.at("work"), &rules);
    let line = format!("curl -sS -o /dev/null -w '%{{http_code}}' https://localhost:{}/v1/x", tls.port);
    for (decision, code) in [("once", "200"), ("deny", "403")] {
        let words = ["--config", policy.to_str().expect("text"), "-c", &line];
        let ran = ask(&place, &words, always(decision));
        assert_eq!(ran.done.exits(0).stdout(), code, "{decision}: {}", ran.done);
        assert_eq!(ran.lines.len(), 1, "{decision}: {:?}", ran.lines);
        assert_eq!(ran.lines[0]["host"], tls.host(), "{decision}");
    }
}
