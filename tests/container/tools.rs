//! `gatekeeper mcp --agent`: the tools of an agent in its container.

use super::World;
use crate::support::{fresh, gatekeeper_for_all, has, run};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// A client of the MCP server.
pub struct Client {
    child: Child,
    lines: BufReader<ChildStdout>,
    last: u64,
}

impl Client {
    pub fn start(world: &World, flags: &[&str]) -> Client {
        let mut command = Command::new(gatekeeper_for_all());
        command.args(["mcp", "--agent", "a1", "--session", "s7", "--config"]).arg(&world.config).args(flags);
        world.surround(&mut command);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
        let lines = BufReader::new(child.stdout.take().expect("piped"));
        let mut client = Client { child, lines, last: 0 };
        client.ask(
            "initialize",
            json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}),
        );
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.child.stdin.as_mut().expect("piped"), "{message}").expect("it reads");
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let id = self.last;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).expect("it answers") > 0, "the server ended");
            let value: Value = serde_json::from_str(&line).expect("JSON");
            if value["id"] == id {
                return value;
            }
        }
    }

    pub fn call(&mut self, name: &str, arguments: Value) -> Value {
        let answer = self.ask("tools/call", json!({"name": name, "arguments": arguments}));
        if answer["error"].is_null() { answer["result"].clone() } else { answer["error"].clone() }
    }

    /// Disconnects, and waits until the server has ended.
    pub fn end(mut self) {
        drop(self.child.stdin.take());
        self.child.wait().expect("ends");
    }
}

#[test]
fn the_tools_of_an_agent_work_in_its_container_and_denied_ones_are_refused_by_name() {
    let Some(world) = World::new(&json!({})) else { return };
    let sandbox = json!({"workspaceRoot": world.dir.join("boxes"), "docker": {"image": "tiny:1", "user": "501:501"}});
    world.write(&json!({"agents": {"defaults": {"sandbox": sandbox}}, "tools": {"sandbox": {"tools": {
        "allow": ["group:runtime", "group:fs", "group:sessions"], "deny": ["sessions_list"]}}}}));
    let mut client = Client::start(&world, &["-p", "read"]);
    let listed = client.ask("tools/list", json!({}));
    let names: Vec<&str> =
        listed["result"]["tools"].as_array().expect("a list").iter().filter_map(|tool| tool["name"].as_str()).collect();
    assert_eq!(names, ["exec", "process", "read", "write", "edit", "apply_patch", "session_status"]);
    let denied = client.call("sessions_list", json!({}));
    assert_eq!(denied["message"], "tool sessions_list is not allowed here: tools.sandbox.tools.deny", "{denied}");

    let ran = client.call("exec", json!({"line": "id -u; cat; pwd", "stdin": "in\n"}));
    assert_eq!(ran["structuredContent"]["stdout"], "501\nin\n/workspace\n", "{ran}");
    let wrote = client.call("write", json!({"path": "dir/file", "content": "one\ntwo\nthree\n"}));
    assert_eq!(wrote["isError"], false, "{wrote}");
    let part = client.call("read", json!({"path": "dir/file", "offset": 2, "limit": 1}));
    assert_eq!(part["structuredContent"]["stdout"], "two\n", "{part}");
    let edited = client.call("edit", json!({"path": "dir/file", "old": "two", "new": "2"}));
    assert_eq!(edited["isError"], false, "{edited}");
    let missing = client.call("edit", json!({"path": "dir/file", "old": "two", "new": "2"}));
    assert_eq!(missing["isError"], true, "{missing}");
    let patch =
        "*** Begin Patch\n*** Update File: dir/file\n@@\n one\n-2\n+zwei\n*** Add File: new\n+new\n*** End Patch\n";
    let patched = client.call("apply_patch", json!({"patch": patch}));
    assert_eq!(patched["isError"], false, "{patched}");
    let boxes = world.dir.join("boxes/a1");
    assert_eq!(std::fs::read_to_string(boxes.join("dir/file")).expect("there"), "one\nzwei\nthree\n");
    assert_eq!(std::fs::read_to_string(boxes.join("new")).expect("there"), "new\n");
    // A link out of the workspace leads to the container's own file system, which is read-only.
    std::os::unix::fs::symlink("/etc", boxes.join("link")).expect("own directory");
    assert_eq!(client.call("write", json!({"path": "link/evil", "content": "x"}))["isError"], true);
    assert!(!std::path::Path::new("/etc/evil").exists());

    let started = client.call("exec", json!({"line": "cat; sleep 600", "background": true}));
    let id = started["structuredContent"]["id"].as_u64().expect("an id");
    client.call("process", json!({"action": "write", "id": id, "data": "hello\n", "end": true}));
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut output = String::new();
    while output != "hello\n" {
        let polled = client.call("process", json!({"action": "poll", "id": id}));
        output.push_str(polled["structuredContent"]["stdout"].as_str().expect("text"));
        assert!(polled["structuredContent"]["running"] == true && Instant::now() < deadline, "{polled}");
        std::thread::sleep(Duration::from_millis(50));
    }
    let status = client.call("session_status", json!({}));
    assert_eq!(status["structuredContent"]["processes"][0]["running"], true, "{status}");
    client.call("process", json!({"action": "kill", "id": id}));
    while client.call("process", json!({"action": "poll", "id": id}))["structuredContent"]["running"] == true {
        assert!(Instant::now() < deadline + Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(50));
    }
    // What still runs ends with the server.
    client.call("exec", json!({"line": "sleep 555", "background": true}));
    let name = world.containers().remove(0);
    let sleeps = || world.podman(&["top", &name, "args"]).stdout().contains("sleep 555");
    while !sleeps() {
        assert!(Instant::now() < deadline + Duration::from_secs(40));
        std::thread::sleep(Duration::from_millis(100));
    }
    drop(client.child.stdin.take());
    client.child.wait().expect("ends");
    let deadline = Instant::now() + Duration::from_secs(20);
    while sleeps() {
        assert!(Instant::now() < deadline, "a background command outlives the session");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_read_only_workspace_has_no_tools_that_write() {
    let Some(world) = World::new(&json!({"workspaceAccess": "ro"})) else { return };
    let mut client = Client::start(&world, &[]);
    let denied = client.call("write", json!({"path": "x", "content": "x"}));
    assert_eq!(
        denied["message"], "tool write is not allowed here: agents.defaults.sandbox.workspaceAccess",
        "{denied}"
    );
    drop(client.child.stdin.take());
    client.child.wait().expect("ends");
}

/// Chromium of this machine under `gatekeeper browser`, for this session.
#[test]
fn the_browser_of_the_host_is_controlled_only_if_the_configuration_allows_it() {
    if !has("chromium") || !crate::isolate::works() {
        return;
    }
    let tools = json!({"sandbox": {"tools": {"allow": ["group:ui", "group:runtime"]}}});
    let configure = |world: &World, allowed: bool| {
        let sandbox = json!({
            "workspaceRoot": world.dir.join("boxes"), "docker": {"image": "tiny:1", "user": "501:501", "network": "bridge"},
            "browser": {"allowHostControl": allowed, "autoStart": true, "autoStartTimeoutMs": 60000},
        });
        world.write(&json!({"agents": {"defaults": {"sandbox": sandbox}}, "tools": tools}));
    };
    let Some(world) = World::new(&json!({})) else { return };
    configure(&world, false);
    let mut client = Client::start(&world, &[]);
    let refused = client.call("browser", json!({"action": "open", "url": "about:blank", "target": "host"}));
    let told =
        "target host is refused: browser.allowHostControl is false (agents.defaults.sandbox.browser.allowHostControl)";
    assert!(refused["isError"] == true && refused.to_string().contains(told), "{refused}");
    client.end();
    configure(&world, true);
    let trail = fresh("trail").join("audit.jsonl");
    let mut client = Client::start(&world, &["--audit", trail.to_str().expect("UTF-8")]);
    let mut host = |action: &str, more: Value| {
        let mut given = json!({"action": action, "target": "host"});
        given.as_object_mut().expect("a table").extend(more.as_object().expect("a table").clone());
        client.call("browser", given)["structuredContent"].clone()
    };
    assert_eq!(host("status", json!({})), json!({"running": false, "target": "host"}));
    let started = host("start", json!({}));
    assert!(
        started["started"] == true && started["version"].as_str().is_some_and(|text| text.contains("Chrome/")),
        "{started}"
    );
    let opened = host("open", json!({"url": "about:blank"}));
    let id = opened["id"].as_str().unwrap_or_else(|| panic!("no tab: {opened}")).to_owned();
    let has_tab =
        |listed: &Value| listed["tabs"].as_array().is_some_and(|all| all.iter().any(|one| one["id"] == id.as_str()));
    assert!(has_tab(&host("tabs", json!({}))));
    assert_eq!(host("close", json!({"tab": id})), json!({"closed": id}));
    let deadline = Instant::now() + Duration::from_secs(10);
    while has_tab(&host("tabs", json!({}))) {
        assert!(Instant::now() < deadline, "the tab stays");
        std::thread::sleep(Duration::from_millis(50));
    }
    // It is confined, its decisions are in the trail, and it ends with the session.
    let pid = client.child.id().to_string();
    let below = || run(Command::new("ps").args(["-o", "args=", "--ppid", &pid])).stdout();
    assert!(below().contains(" browser --audit ") && below().contains(" --deny-private "), "{}", below());
    // Services of this machine are out of its reach.
    let service = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}/", service.local_addr().expect("bound"));
    service.set_nonblocking(true).expect("a socket");
    client.call("browser", json!({"action": "open", "url": address, "target": "host"}));
    std::thread::sleep(Duration::from_secs(3));
    assert!(service.accept().is_err(), "a page reaches loopback");
    client.end();
    let last = std::fs::read_to_string(&trail).expect("written");
    assert!(last.lines().any(|line| line.contains("\"kind\":\"exec\"") && line.contains("chromium")), "{last}");
    let deadline = Instant::now() + Duration::from_secs(20);
    while run(Command::new("ps").args(["-eo", "args="])).stdout().contains(trail.to_str().expect("UTF-8")) {
        assert!(Instant::now() < deadline, "the browser outlives the session");
        std::thread::sleep(Duration::from_millis(100));
    }
}
