//! Many clients, and many of one kind: those without a token, or those of one tenant, do not keep out the others.

use crate::support::Daemon;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

#[tokio::test]
async fn strangers_who_read_nothing_do_not_keep_out_a_client_with_a_token() {
    let daemon = Daemon::start(&[]);
    let token = daemon.token("alice", false);
    let own = daemon.url.trim_start_matches("http://").to_owned();
    let asked = format!("GET /openapi.json HTTP/1.1\r\nHost: {own}\r\n\r\n").repeat(400);
    let stranger = || {
        let mut stream = TcpStream::connect(&own).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket");
        stream.write_all(asked.as_bytes()).expect("small enough for the buffers");
        stream
    };
    let mut first = stranger();
    let begin = Instant::now();
    // More than all places.
    let crowd: Vec<TcpStream> = (0..530).map(|_| stranger()).collect();
    let (status, answer) = daemon.ask(&token, "GET", "/v1/sessions", None).await;
    assert_eq!(status, 200, "{answer}");
    assert!(begin.elapsed() < Duration::from_secs(15), "{:?}", begin.elapsed());
    drop(crowd);
    // One that stays alone and reads nothing is cut off as well, and one that reads gets all.
    let mut silent = stranger();
    let mut reader = stranger();
    let answers = |stream: &mut TcpStream| {
        let (mut got, mut part) = (0, vec![0; 1 << 20]);
        while let Ok(count @ 1..) = stream.read(&mut part) {
            got += part[..count].windows(15).filter(|window| window == b"HTTP/1.1 200 OK").count();
            if got >= 399 {
                break;
            }
        }
        got
    };
    assert!(answers(&mut reader) >= 399, "the control");
    assert!(answers(&mut first) < 399, "the oldest had to leave");
    std::thread::sleep(Duration::from_secs(24));
    let got = answers(&mut silent);
    assert!(got < 399, "{got} answers waited for a client that read none of them");
}

#[tokio::test]
async fn many_logins_of_one_token_end_its_own_oldest_and_no_other() {
    let daemon = Daemon::start(&[]);
    let (agent, operator) = (daemon.token("eve", false), daemon.token("alice", true));
    let client = reqwest::Client::new();
    let login = async |token: &str| {
        let answer = client.post(format!("{}/v1/login", daemon.url)).json(&json!({ "token": token })).send().await;
        let answer = answer.expect("sent");
        assert_eq!(answer.status(), 200);
        let set = answer.headers()["set-cookie"].to_str().expect("text");
        let cookie = set.split(';').next().expect("a pair").to_owned();
        let who: Value = serde_json::from_str(&answer.text().await.expect("a body")).expect("JSON");
        (cookie, who["key"].as_str().expect("a key").to_owned())
    };
    let asked = async |cookie: &str, key: &str| {
        let request = client.get(format!("{}/v1/login", daemon.url)).header("cookie", cookie);
        request.header("x-gatekeeperd-key", key).send().await.expect("sent").status().as_u16()
    };
    let (page, key) = login(&operator).await;
    let first = login(&agent).await;
    let mut last = first.clone();
    for _ in 0..1005 {
        last = login(&agent).await;
    }
    assert_eq!((asked(&first.0, &first.1).await, asked(&last.0, &last.1).await), (401, 200));
    assert_eq!(asked(&page, &key).await, 200);
    login(&operator).await;
    // Another site of this host may set a cookie of this name, and the browser sends both.
    for cookies in [format!("gatekeeperd=evil; {page}"), format!("{page}; gatekeeperd=evil"), format!("a=b; {page}")] {
        assert_eq!(asked(&cookies, &key).await, 200, "{cookies}");
    }
    assert_eq!(asked("gatekeeperd=evil", &key).await, 401);
}

#[tokio::test]
async fn names_that_no_row_has_are_not_found_on_both_stores() {
    let server = crate::support::Postgres::start();
    let postgres = match &server {
        Some(server) => {
            server.store().await;
            vec!["--store".to_owned(), server.url()]
        }
        None => Vec::new(),
    };
    for flags in [Vec::new(), postgres] {
        let daemon = Daemon::start(&flags.iter().map(String::as_str).collect::<Vec<_>>());
        let operator = daemon.token("alice", true);
        for (method, path, expected) in [
            ("GET", "/v1/sessions/%00", 404),
            ("DELETE", "/v1/sessions/%00", 404),
            ("POST", "/v1/sessions/a%00/screenshot", 404),
            ("DELETE", "/v1/grants/%00", 404),
            ("DELETE", "/v1/credentials/%00", 404),
            ("GET", "/v1/audit?session_id=%00", 200),
            ("GET", "/v1/audit?action=%00", 200),
            ("GET", "/v1/sessions/%ff", 400),
            ("GET", "/v1/sessions/%C3%BC", 404),
            ("GET", "/%ff", 400),
        ] {
            let (status, answer) = daemon.ask(&operator, method, path, None).await;
            assert_eq!(status, expected, "{method} {path} {flags:?}: {answer}");
            match status {
                200 => assert_eq!(answer, json!({ "audit": [] })),
                _ => assert!(answer["error"]["code"].is_string(), "{method} {path}: {answer}"),
            }
        }
        let grant = json!({ "domains": ["a.org"], "origin_session_id": "\0" });
        assert_eq!(daemon.post(&operator, "/v1/grants", grant).await.0, 400, "{flags:?}");
    }
}
