//! `box exec --audit`: the trail of a command in a container is on the host, and as complete as that of a run there.

use super::World;
use super::tools::Client;
use crate::support::{fresh, gatekeeper, run};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Stdio};

fn lines(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).expect("written");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn verified(file: &Path) {
    run(Command::new(gatekeeper()).args(["audit", "verify"]).arg(file)).exits(0);
}

#[test]
fn every_decision_in_a_container_is_a_line_on_the_host() {
    let Some(world) = World::new(&json!({"docker": {"env": {"TOKEN": "the-secret"}}})) else { return };
    let file = fresh("trail").join("audit.jsonl");
    let name = file.to_str().expect("UTF-8");
    world.exec(&["--audit", name, "-p", "read", "-c", "cat /etc/hostname; touch /workspace/new; exit 3"]).exits(3);
    let lines_of = lines(&file);
    let container = world.containers().remove(0);
    let has = |kind: &str, decision: &str, path: &str| {
        let is = |line: &&Value| line["kind"] == kind && line["decision"] == decision && line["path"] == path;
        let found = lines_of.iter().find(is).unwrap_or_else(|| panic!("{kind} {decision} {path}: {lines_of:#?}"));
        assert_eq!(found["container"], container.as_str(), "{found}");
    };
    has("exec", "allowed", "/bin/busybox");
    has("open", "allowed", "/etc/hostname");
    has("open", "denied", "/workspace/new");
    let (first, last) = (&lines_of[0], &lines_of[lines_of.len() - 1]);
    assert_eq!((&first["kind"], &last["kind"], &last["exit_code"]), (&json!("start"), &json!("end"), &json!(3)));
    assert!(lines_of.iter().all(|line| line["run"] == first["run"]), "one run: {lines_of:#?}");
    assert!(!std::fs::read_to_string(&file).expect("written").contains("the-secret"));
    verified(&file);
    // The variable asks for it too, also for the tools of a model.
    let other = file.with_file_name("other.jsonl");
    run(world.command(&["exec", "--", "true"]).env("GATEKEEPER_AUDIT", &other)).exits(0);
    let mut client = Client::start(&world, &["-p", "read", "--audit", other.to_str().expect("UTF-8")]);
    client.call("exec", json!({"line": "cat /etc/hostname"}));
    client.call("write", json!({"path": "x", "content": "y"}));
    client.end();
    verified(&other);
    let starts = lines(&other).iter().filter(|line| line["kind"] == "start").count();
    assert_eq!(starts, 3, "{:#?}", lines(&other));
}

#[test]
fn without_its_trail_nothing_runs_in_a_container() {
    let Some(world) = World::new(&json!({"workspaceAccess": "rw"})) else { return };
    let workspace = world.workspace();
    let words = |file: &str| ["--workspace", workspace.to_str().expect("UTF-8"), "--audit", file].map(str::to_owned);
    for (file, why) in [
        (workspace.join("audit.jsonl"), "which the container sees; keep the trail elsewhere"),
        (world.dir.join("no/such/directory/x"), "No such file"),
    ] {
        let words = words(file.to_str().expect("UTF-8"));
        let words: Vec<&str> = words.iter().map(String::as_str).chain(["--", "echo", "ran"]).collect();
        let done = world.exec(&words);
        assert!(done.code() == Some(125) && done.stdout().is_empty() && done.stderr().contains(why), "{done}");
    }
    // A trail that cannot be written any more ends the run.
    let file = fresh("trail").join("audit.jsonl");
    let words = words(file.to_str().expect("UTF-8"));
    let mut all = vec!["exec"];
    all.extend(words.iter().map(String::as_str));
    all.extend(["-p", "read", "-c", "echo started; cat; cat /etc/hostname; echo went on"]);
    let mut child = world
        .command(&all)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !file.exists() || !lines(&file).iter().any(|line| line["kind"] == "exec") {
        assert!(std::time::Instant::now() < deadline);
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    // The shell reads its input by now, or is about to.
    std::thread::sleep(std::time::Duration::from_millis(500));
    std::fs::remove_file(&file).expect("own directory");
    std::fs::create_dir(&file).expect("own directory");
    drop(child.stdin.take());
    let ended = child.wait_with_output().expect("ends");
    let out = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.code() == Some(125) && !out.contains("went on"), "{ended:?}");
    assert!(String::from_utf8_lossy(&ended.stderr).contains("lines are missing"), "{ended:?}");
}
