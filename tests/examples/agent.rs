//! The agent of examples/python, with a scripted model behind a real HTTP connection.

use super::{interpreter, sources};
use crate::support::{fresh, gatekeeper, run};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

/// Reads a request and returns its body.
fn body(connection: &mut BufReader<TcpStream>) -> Value {
    let mut length = 0;
    loop {
        let mut line = String::new();
        connection.read_line(&mut line).expect("a request");
        match line.trim().to_lowercase().split_once(": ") {
            Some(("content-length", value)) => length = value.parse().expect("a number"),
            Some(_) => {}
            None if line.trim().is_empty() => break,
            None => assert!(line.starts_with("POST /v1/chat/completions "), "{line}"),
        }
    }
    let mut body = vec![0; length];
    connection.read_exact(&mut body).expect("the body");
    serde_json::from_slice(&body).expect("JSON")
}

/// Gives these answers, one to a request, and returns what was asked.
fn scripted(listener: &TcpListener, answers: &[Value]) -> Vec<Value> {
    let mut asked = Vec::new();
    for answer in answers {
        let (connection, _) = listener.accept().expect("the agent asks");
        let mut connection = BufReader::new(connection);
        asked.push(body(&mut connection));
        let text = json!({"choices": [{"message": answer}]}).to_string();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", text.len());
        connection.get_mut().write_all((head + &text).as_bytes()).expect("the agent reads");
    }
    asked
}

#[test]
fn the_agent_runs_what_a_model_says_in_a_stage() {
    let Some(python) = interpreter("python3") else { return };
    let (dir, cwd, state) = (sources("python"), fresh("cwd"), fresh("state"));
    let call = |line: &str| {
        let arguments = json!({"line": line}).to_string();
        json!({"role": "assistant", "content": null, "tool_calls":
            [{"id": "1", "type": "function", "function": {"name": "exec", "arguments": arguments}}]})
    };
    let answers =
        [call("echo made > file; cat file"), call("touch /usr/new"), json!({"role": "assistant", "content": "done"})];
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}/v1", listener.local_addr().expect("bound"));
    let (done, asked) = std::thread::scope(|scope| {
        let model = scope.spawn(|| scripted(&listener, &answers));
        let mut agent = Command::new(python);
        agent.arg(dir.join("examples/python/agent.py")).arg("make a file").current_dir(&cwd);
        agent.env("OPENAI_BASE_URL", address).env("GATEKEEPER", gatekeeper()).env("XDG_STATE_HOME", &state);
        agent.env("PYTHONPATH", dir.join("bindings/python/src")).env("PYTHONDONTWRITEBYTECODE", "1");
        for proxy in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
            agent.env_remove(proxy);
        }
        let done = run(&mut agent);
        if done.code() != Some(0) {
            // The model may wait for a request that never comes.
            let _ = TcpStream::connect(listener.local_addr().expect("bound"));
        }
        done.exits(0).prints("done\n");
        (done, model.join().expect("the model saw every request"))
    });
    // The model learns what happened, from gatekeeper.
    let told = |at: usize| -> Value {
        let last = asked[at]["messages"].as_array().and_then(|all| all.last()).expect("a message");
        serde_json::from_str(last["content"].as_str().expect("text")).expect("JSON")
    };
    assert_eq!(asked[0]["messages"][0]["content"], "make a file");
    assert_eq!((told(1)["outcome"].as_str(), told(1)["stdout"].as_str()), (Some("exited"), Some("made\n")));
    assert_eq!(
        (told(2)["exit_code"].as_i64(), told(2)["denied"][0]["path"].as_str()),
        (Some(1), Some("/usr/new")),
        "{done}"
    );
    // The file waits in the stage.
    assert!(!cwd.join("file").exists());
    let mut diff = Command::new(gatekeeper());
    let changes = run(diff.args(["stage", "diff", "--json", "agent"]).env("XDG_STATE_HOME", &state));
    changes.exits(1);
    let changes: Value = serde_json::from_str(&changes.stdout()).expect("JSON");
    assert_eq!((changes[0]["path"].as_str(), changes[1].is_null()), (Some("file"), true));
}
