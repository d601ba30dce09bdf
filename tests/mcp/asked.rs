//! `gatekeeper mcp --ask`: refused calls are put to the client's user by elicitation.

use super::*;

/// Starts a command that writes outside, and returns its id and the request for an answer.
fn ask(client: &mut Client, line: &str) -> (u64, Value) {
    let id = client.ask("tools/call", json!({"name": "exec", "arguments": {"line": line}}));
    let asked = client.wait_for(|message| message["method"] == "elicitation/create");
    (id, asked)
}

#[test]
fn the_user_of_the_client_decides() {
    for user in users() {
        let place = Place::new(user);
        let home = place.at("home");
        let mut client = Client::able(&place, &["--ask", "-p", "write"], json!({"elicitation": {}}));
        for (at, (answer, decision, because)) in [
            (json!({"action": "accept", "content": {"decision": "once"}}), "once", "answer"),
            (json!({"action": "accept", "content": {"decision": "deny"}}), "deny", "answer"),
            (json!({"action": "accept", "content": {"decision": "always"}}), "deny", "invalid"),
            (json!({"action": "accept"}), "deny", "invalid"),
            (json!({"action": "decline"}), "deny", "answer"),
            (json!({"action": "cancel"}), "deny", "answer"),
        ]
        .into_iter()
        .enumerate()
        {
            let path = home.join(format!("f{at}"));
            let (id, asked) = ask(&mut client, &format!("echo x > {}", path.display()));
            let (message, schema) = (&asked["params"]["message"], &asked["params"]["requestedSchema"]);
            assert!(message.as_str().is_some_and(|text| text.contains(path.to_str().expect("text"))), "{asked}");
            assert_eq!(schema["properties"]["decision"]["enum"], json!(["once", "run", "deny"]), "{asked}");
            client.write(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": answer}));
            let report = &client.answer(id)["result"]["structuredContent"].clone();
            assert_eq!(
                (&report["asked"][0]["decision"], &report["asked"][0]["because"]),
                (&json!(decision), &json!(because)),
                "{answer}: {report}"
            );
            assert_eq!(path.exists(), decision == "once", "{answer}");
        }
        // An error instead of an answer.
        let (id, asked) = ask(&mut client, &format!("echo x > {}/g", home.display()));
        let error = json!({"code": -32603, "message": "no"});
        client.write(&json!({"jsonrpc": "2.0", "id": asked["id"], "error": error}));
        client.answer(id);
        assert!(!home.join("g").exists());
        // The client leaves while its user thinks.
        ask(&mut client, &format!("echo x > {}/h", home.display()));
        client.leave();
        assert!(!home.join("h").exists());
    }
}

#[test]
fn a_client_without_forms_is_not_asked() {
    let place = Place::new(None);
    let line = format!("echo x > {}/x", place.at("home").display());
    for capabilities in [json!({}), json!({"elicitation": {"url": {}}})] {
        let mut client = Client::able(&place, &["--ask", "-p", "write"], capabilities);
        let report = client.exec(json!({"line": line}))["structuredContent"].clone();
        assert_eq!((report.get("asked"), report["denials"].as_array().map(Vec::len)), (None, Some(1)), "{report}");
    }
    assert!(!place.at("home/x").exists());
}
