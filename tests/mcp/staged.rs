//! A server with a stage: the client sees its changes, and applies them only if the operator said so.

use super::*;

fn names(client: &mut Client) -> Vec<String> {
    let tools = client.call("tools/list", json!({}));
    let tools = tools["result"]["tools"].as_array().expect("a list").clone();
    tools.iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
}

fn tool(client: &mut Client, name: &str) -> Value {
    client.call("tools/call", json!({"name": name, "arguments": {}}))
}

#[test]
fn changes_wait_in_the_stage_of_the_operator() {
    for user in users() {
        let place = Place::new(user);
        let mut client = Client::start(&place, &["-p", "write", "--stage", "s"]);
        assert_eq!(names(&mut client), ["exec", "stage_diff"]);
        client.exec(json!({"line": "echo x > new"}));
        assert!(!place.at("work/new").exists());
        let shown = tool(&mut client, "stage_diff");
        assert!(
            shown["result"]["content"][0]["text"]
                .as_str()
                .is_some_and(|text| text.contains("+++ b/new\n+") || text.contains("+x")),
            "{shown}"
        );
        let refused = tool(&mut client, "stage_apply");
        assert!(refused["error"].is_object(), "an agent does not approve its own changes: {refused}");
        drop(client);
        place.run(&["stage", "apply", "s"]).exits(0);
        assert!(place.at("work/new").exists());
    }
}

#[test]
fn with_the_operators_word_the_client_decides() {
    for user in users() {
        let place = Place::new(user);
        let mut client = Client::start(&place, &["-p", "write", "--stage", "s", "--stage-decides"]);
        assert_eq!(names(&mut client), ["exec", "stage_diff", "stage_apply", "stage_discard"]);
        client.exec(json!({"line": "echo x > new"}));
        let applied = tool(&mut client, "stage_apply");
        assert_eq!(applied["result"]["content"][0]["text"], "1 changes applied, 0 left in the stage", "{applied}");
        assert!(place.at("work/new").exists());
        client.exec(json!({"line": "rm new"}));
        tool(&mut client, "stage_discard");
        assert!(place.at("work/new").exists());
    }
}
