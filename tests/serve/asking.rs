//! `"ask": true`: refused calls are put to the client as lines, and wait for its answer.

use super::*;

fn order(id: u64, line: &str) -> Value {
    json!({"id": id, "line": line, "flags": ["-p", "write"], "ask": true})
}

#[track_caller]
fn question(server: &mut Server, id: u64) -> Value {
    let line = server.next(&json!(id));
    assert!(line["ask"]["kind"].is_string(), "no question: {line}");
    line["ask"].clone()
}

fn decisions(report: &Value) -> Vec<String> {
    let asked = report["asked"].as_array().cloned().unwrap_or_default();
    asked.iter().map(|asked| format!("{} {}", asked["decision"], asked["because"]).replace('"', "")).collect()
}

#[test]
fn a_refused_call_waits_for_the_clients_answer() {
    for user in users() {
        let place = Place::new(user);
        let home = place.at("home");
        let mut server = Server::start(&place);
        // Two runs that ask at the same time: each question belongs to its own run.
        for id in [1, 2] {
            server.ask(order(id, &format!("echo {id} > {}/f{id}; echo {id} > {0}/g{id}", home.display())));
        }
        for id in [2, 1] {
            let asked = question(&mut server, id);
            assert_eq!((&asked["kind"], &asked["access"]), (&json!("path"), &json!("write")), "{asked}");
            assert_eq!(asked["path"], format!("{}/f{id}", home.display()), "{asked}");
            server.ask(json!({"id": id, "answer": {"id": asked["id"], "decision": "once"}}));
            let asked = question(&mut server, id);
            server.ask(json!({"id": id, "answer": {"id": asked["id"], "decision": "deny"}}));
            let report = server.report(id);
            assert_eq!(decisions(&report), ["once answer", "deny answer"], "{report}");
            assert!(home.join(format!("f{id}")).exists() && !home.join(format!("g{id}")).exists());
        }
        // The flag means the same; without either, nothing is asked.
        let line = format!("echo x > {}/flag", home.display());
        server.ask(json!({"id": 3, "line": line, "flags": ["-p", "write", "--ask", "--ask-timeout", "300ms"]}));
        let asked = question(&mut server, 3);
        let withdrawn = server.next(&json!(3));
        assert_eq!(withdrawn["ask"], json!({"id": asked["id"], "withdrawn": true}));
        // It came too late, and is ignored.
        server.ask(json!({"id": 3, "answer": {"id": asked["id"], "decision": "once"}}));
        assert_eq!(decisions(&server.report(3)), ["deny timeout"]);
        assert!(server.run(json!({"id": 4, "line": line, "flags": ["-p", "write"]})).get("asked").is_none());
        assert!(!home.join("flag").exists());
        assert_eq!(server.leave(), Some(0));
    }
}

#[test]
fn a_wrong_answer_denies_what_waits_and_is_named() {
    let place = Place::new(None);
    let line = format!("echo x > {}/x", place.at("home").display());
    for wrong in [
        r#"{"id":1,"answer":{"id":99,"decision":"once"}}"#,
        r#"{"id":1,"answer":{"id":1,"decision":"yes"}}"#,
        r#"{"id":1,"answer":"once"}"#,
        "garbage",
    ] {
        let mut server = Server::start(&place);
        server.ask(order(1, &line));
        question(&mut server, 1);
        server.say(wrong.as_bytes());
        let id = if wrong == "garbage" { Value::Null } else { json!(1) };
        let error = server.error(id);
        assert!(error.contains("answer") || error.contains("not JSON"), "{wrong}: {error}");
        assert_eq!(decisions(&server.report(1)), ["deny invalid"], "{wrong}");
        server.ask(json!({"id": 7, "answer": {"id": 1, "decision": "once"}}));
        assert_eq!(server.leave(), Some(0), "{wrong}");
    }
    assert!(!place.at("home/x").exists());
}

#[test]
fn a_client_that_leaves_or_dies_has_denied() {
    let place = Place::new(None);
    let line = format!("echo x > {}/x; echo went on", place.at("home").display());
    // No more answers come after the end of the input: the run goes on without.
    let mut server = Server::start(&place);
    server.ask(order(1, &line));
    question(&mut server, 1);
    server.stdin = None;
    let report = server.report(1);
    assert_eq!((decisions(&report), &report["stdout"]), (vec!["deny closed".to_owned()], &json!("went on\n")));
    assert_eq!(server.leave(), Some(0));
    // Nothing reads the questions either: the run ends.
    let mut server = Server::unread(&place);
    server.ask(order(1, &line));
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert_eq!(server.leave_without_reading(), Some(0));
    // A run that is cancelled while it waits.
    let mut server = Server::start(&place);
    server.ask(order(1, &line));
    question(&mut server, 1);
    server.ask(json!({"id": 1, "cancel": true}));
    let mut last = server.next(&json!(1));
    while last.get("report").is_none() {
        last = server.next(&json!(1));
    }
    assert_eq!(decisions(&last["report"]), ["deny withdrawn"], "{last}");
    assert!(!place.at("home/x").exists());
}
