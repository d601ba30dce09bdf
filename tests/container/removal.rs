//! Containers that are of no use any more are removed, and those that others still want are not.

use super::World;
use crate::support::{gatekeeper_for_all, run};
use serde_json::{Value, json};
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

fn up(world: &World, agent: &str) -> String {
    world.gatekeeper(&["up", "--agent", agent]).exits(0).stdout().trim().to_owned()
}

/// As if the container was last used then.
fn used(world: &World, name: &str, hours_ago: u64) {
    let file = world.dir.join(format!("state/gatekeeper/box/{name}.use"));
    let then = SystemTime::now() - Duration::from_secs(hours_ago * 3600);
    fs::File::open(file).and_then(|file| file.set_modified(then)).expect("its lock");
}

#[test]
fn each_container_is_pruned_by_the_rule_of_the_configuration_that_used_it_last() {
    let Some(world) = World::new(&json!({})) else { return };
    let configure = |own: Value| {
        let sandbox = json!({"workspaceRoot": world.dir.join("boxes"), "prune": {"idleHours": 1},
            "docker": {"image": "tiny:1", "user": "501:501"}});
        let list = json!([{"id": "keep", "sandbox": {"prune": own}}]);
        world.write(&json!({"agents": {"defaults": {"sandbox": sandbox}, "list": list}}));
    };
    configure(json!({"idleHours": 0, "maxAgeDays": 0}));
    let (keep, idle) = (up(&world, "keep"), up(&world, "idle"));
    for name in [&keep, &idle] {
        used(&world, name, 1000);
    }
    // Neither the up of another agent nor prune with or without a configuration takes what its own rule keeps.
    let other = up(&world, "other");
    assert!(!world.containers().contains(&idle), "the control");
    world.gatekeeper(&["prune"]).exits(0).prints("");
    let mut without = Command::new(gatekeeper_for_all());
    world.surround(without.args(["box", "prune"]));
    run(&mut without).exits(0).prints("");
    assert!(world.containers().contains(&keep) && world.containers().contains(&other));
    // A changed rule counts from the next use on, which makes no new container.
    configure(json!({"idleHours": 5}));
    world.exec(&["--agent", "keep", "--", "true"]).exits(0);
    used(&world, &keep, 4);
    world.gatekeeper(&["prune"]).exits(0).prints("");
    used(&world, &keep, 6);
    let text = world.gatekeeper(&["prune"]).exits(0).stdout();
    assert_eq!(text, format!("removed {keep}: idle for longer than prune.idleHours\n"));
}

#[test]
fn a_box_whose_workspace_was_deleted_is_made_anew() {
    let Some(world) = World::new(&json!({})) else { return };
    let touch = || world.exec(&["-p", "write", "-c", "echo > here"]);
    touch().exits(0);
    let workspace = world.dir.join("boxes/main");
    fs::remove_dir_all(&workspace).expect("there");
    let done = touch();
    done.exits(0);
    assert!(done.stderr().contains("was made anew") && workspace.join("here").exists(), "{done}");
    touch().exits(0).complains("");
    fs::remove_dir_all(&workspace).expect("there");
    let done = world.gatekeeper(&["up"]);
    done.exits(0);
    assert!(done.stderr().contains("it is made anew"), "{done}");
    touch().exits(0).complains("");
    assert_eq!(world.containers().len(), 1);
}

#[test]
fn a_container_that_was_replaced_while_a_command_ran_goes_with_that_command() {
    let Some(world) = World::new(&json!({})) else { return };
    let start = |line: &str| {
        let mut command = world.command(&["exec", "-p", "write", "-c", line]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts")
    };
    let began = |name: &str| {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !world.dir.join("boxes/main").join(name).exists() {
            assert!(Instant::now() < deadline, "it does not start");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    let configure = |pids: u64| world.configure(&json!({"docker": {"pidsLimit": pids}}));
    configure(77);
    let mut child = start("echo > one; cat");
    began("one");
    configure(78);
    let done = world.exec(&["--", "true"]);
    assert!(done.code() == Some(0) && done.stderr().contains("will be removed when it is idle"), "{done}");
    assert_eq!(world.containers().len(), 2);
    drop(child.stdin.take());
    assert_eq!(child.wait().expect("ends").code(), Some(0));
    assert_eq!(world.containers().len(), 1, "{:?}", world.containers());
    // If nobody was there to remove it, the next up does.
    let old = world.containers().remove(0);
    let mut child = start("echo > two; cat");
    began("two");
    configure(79);
    world.exec(&["--", "true"]).exits(0);
    child.kill().expect("it runs");
    child.wait().expect("ended");
    assert_eq!(world.containers().len(), 2);
    let deadline = Instant::now() + Duration::from_secs(30);
    let gone = format!("removed {old}: the configuration changed");
    loop {
        let done = world.gatekeeper(&["up"]);
        if done.exits(0).stderr().contains(&gone) {
            break;
        }
        assert!(Instant::now() < deadline, "{done}");
    }
    assert_eq!(world.containers().len(), 1);
}
