//! Containers are made once, replaced when their configuration changes or when they died, and removed when they are idle.

use super::World;
use crate::support::{descriptors, run};
use serde_json::{Value, json};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::process::Stdio;
use std::time::{Duration, Instant};

#[test]
fn two_commands_at_once_make_one_container() {
    let Some(world) = World::new(&json!({})) else { return };
    let start = || world.command(&["exec", "--", "id"]).stdout(Stdio::piped()).spawn().expect("starts");
    let children = [start(), start(), start()];
    for child in children {
        let output = child.wait_with_output().expect("ends");
        assert!(output.status.success() && output.stdout.starts_with(b"uid=501"), "{output:?}");
    }
    assert_eq!(world.containers().len(), 1, "{:?}", world.containers());
}

/// An agent that waits for the end of a pipe would wait as long as the container lives.
#[test]
fn a_container_holds_nothing_open_that_its_caller_left_open() {
    let Some(world) = World::new(&json!({})) else { return };
    let (mut from, to) = std::io::pipe().expect("a pipe");
    let mut command = world.command(&["exec", "--json", "--", "id"]);
    // The engine puts descriptors of its own on the first numbers, so one there would not show.
    descriptors::place(&mut command, [3, 4, 5, 6, 7, 40].map(|number| (to.as_raw_fd(), number)));
    // Its output is a pipe as well, of which `--json` keeps a copy; `run` waits for its end.
    run(&mut command).exits(0);
    drop((command, to));
    assert_eq!(world.containers().len(), 1, "the container is still there");
    let mut waiting = [rustix::event::PollFd::new(&from, rustix::event::PollFlags::IN)];
    let second = rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut waiting, Some(&second)), Ok(1), "somebody holds the pipe");
    assert_eq!(from.read(&mut [0; 8]).expect("readable"), 0);
}

#[test]
fn scopes_decide_who_shares_a_container() {
    let Some(world) = World::new(&json!({"scope": "session"})) else { return };
    let names = |world: &World, agent: &str, session: &str| {
        world.gatekeeper(&["up", "--agent", agent, "--session", session]).exits(0).stdout()
    };
    assert_ne!(names(&world, "a1", "s1"), names(&world, "a1", "s2"));
    let listed: Value = serde_json::from_str(&world.gatekeeper(&["list", "--json"]).stdout()).expect("JSON");
    let one = listed.as_array().expect("a list").iter().find(|entry| entry["session"] == "s1").expect("s1");
    assert_eq!(
        (&one["agent"], &one["scope"], &one["running"], &one["kind"]),
        (&json!("a1"), &json!("session"), &json!(true), &json!("main"))
    );
    world.gatekeeper(&["rm", "--session", "s1"]).exits(0);
    assert_eq!(world.containers().len(), 1);
    world.configure(&json!({"scope": "agent"}));
    assert_eq!(names(&world, "a1", "s1"), names(&world, "a1", "s2"));
    world.configure(&json!({"scope": "shared"}));
    assert_eq!(names(&world, "a1", "s1"), names(&world, "a2", "s2"));
    world.gatekeeper(&["rm", "--all"]).exits(0);
    assert!(world.containers().is_empty());
}

#[test]
fn a_dead_or_unfinished_container_is_made_anew_and_a_changed_configuration_replaces_it() {
    let Some(world) = World::new(&json!({})) else { return };
    let first = world.gatekeeper(&["up"]).exits(0).stdout();
    let name = first.trim();
    world.podman(&["kill", name]).exits(0);
    world.exec(&["--", "true"]).exits(0);
    // Removed behind our back.
    world.podman(&["rm", "--force", "--time", "0", name]).exits(0);
    world.exec(&["--", "true"]).exits(0);
    // Made by a gatekeeper that was killed before it was done.
    std::fs::remove_file(world.dir.join(format!("state/gatekeeper/box/{name}.json"))).expect("the note");
    world.exec(&["--", "true"]).exits(0);
    assert_eq!(world.containers(), [name]);
    world.configure(&json!({"docker": {"pidsLimit": 77}}));
    let done = world.exec(&["--", "true"]);
    assert!(done.stderr().contains(&format!("the configuration changed: {name} was replaced")), "{done}");
    assert!(world.containers().len() == 1 && world.containers() != [name]);
}

#[test]
fn killing_gatekeeper_leaves_nothing_running_in_the_container() {
    let Some(world) = World::new(&json!({})) else { return };
    let name = world.gatekeeper(&["up"]).exits(0).stdout();
    let name = name.trim();
    let running = || world.podman(&["top", name, "args"]).stdout().matches("sleep 777").count();
    let mut child = world
        .command(&["exec", "-p", "read", "-c", "sleep 777 & sleep 777"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("starts");
    let until = |wanted: &dyn Fn() -> bool| {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !wanted() {
            assert!(Instant::now() < deadline, "{}", world.podman(&["top", name, "args"]));
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    until(&|| running() >= 2);
    child.kill().expect("it runs");
    child.wait().expect("it ended");
    until(&|| running() == 0);
    assert!(!world.podman(&["top", name, "args"]).stdout().contains("serve"));
    // The container itself goes on, and so do signals while gatekeeper lives.
    let mut child = world.command(&["exec", "--", "sleep", "777"]).stdin(Stdio::piped()).spawn().expect("starts");
    until(&|| running() == 1);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    assert_eq!(child.wait().expect("ended").code(), Some(143));
}

/// Whatever the engine has done by then, the next command finds one whole container.
#[test]
fn killing_gatekeeper_while_it_makes_or_removes_a_container_leaves_no_half_of_one() {
    let Some(world) = World::new(&json!({})) else { return };
    let cases: [(&[&str], u64); 6] = [
        (&["up"], 60),
        (&["up"], 200),
        (&["rm", "--all", "--force"], 40),
        (&["up"], 350),
        (&["rm", "--all", "--force"], 150),
        (&["exec", "--", "true"], 120),
    ];
    for (words, milliseconds) in cases {
        let mut child = world.command(words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
        std::thread::sleep(Duration::from_millis(milliseconds));
        child.kill().expect("our own child");
        child.wait().expect("our own child");
        if words[0] == "rm" || milliseconds == 350 {
            let done = world.exec(&["--", "id", "-u"]);
            assert!(done.code() == Some(0) && done.stdout() == "501\n", "{words:?} {milliseconds}: {done}");
            assert_eq!(world.containers().len(), 1, "{words:?} {milliseconds}: {:?}", world.containers());
        }
    }
    world.exec(&["--", "true"]).exits(0);
    assert_eq!(world.containers().len(), 1);
}

#[test]
fn prune_removes_what_is_idle_old_or_dead_and_keeps_what_is_in_use() {
    let Some(world) = World::new(&json!({"prune": {"idleHours": 24, "maxAgeDays": 7}})) else { return };
    let up = |agent: &str| world.gatekeeper(&["up", "--agent", agent]).exits(0).stdout().trim().to_owned();
    let (idle, fresh, busy) = (up("idle"), up("fresh"), up("busy"));
    let state = world.dir.join("state/gatekeeper/box");
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(25 * 3600);
    for name in [&idle, &busy] {
        std::fs::File::open(state.join(format!("{name}.use")))
            .and_then(|file| file.set_modified(long_ago))
            .expect("its lock");
    }
    let mut busily = world.command(&["exec", "--agent", "busy", "--", "sleep", "60"]);
    let child = busily.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    std::thread::sleep(Duration::from_secs(2));
    std::fs::File::open(state.join(format!("{busy}.use")))
        .and_then(|file| file.set_modified(long_ago))
        .expect("its lock");
    let listed: Value = serde_json::from_str(&world.gatekeeper(&["list", "--json"]).stdout()).expect("JSON");
    assert!(
        listed
            .as_array()
            .expect("a list")
            .iter()
            .any(|entry| entry["name"] == busy.as_str() && entry["in_use"] == true),
        "{listed}"
    );
    // One that is older than any of ours, with a note like theirs.
    let old = "gatekeeper-box-old";
    world
        .podman(&[
            "run",
            "--detach",
            "--name",
            old,
            "--network",
            "none",
            "--ulimit",
            "nofile=1000:1000",
            "--ulimit",
            "nproc=1000:1000",
            "--label",
            "gatekeeper.box=main",
            "--label",
            "gatekeeper.owner=0",
            "--label",
            "gatekeeper.created=1000",
            "tiny:1",
            "sleep",
            "600",
        ])
        .exits(0);
    std::fs::copy(state.join(format!("{fresh}.json")), state.join(format!("{old}.json"))).expect("a note");
    std::fs::write(state.join(format!("{old}.use")), "").expect("its lock");
    let done = world.gatekeeper(&["prune"]);
    let text = done.exits(0).stdout();
    assert!(text.contains(&format!("removed {idle}: idle for longer than prune.idleHours\n")), "{done}");
    assert!(text.contains(&format!("removed {old}: older than prune.maxAgeDays\n")), "{done}");
    assert!(
        text.contains(&format!("kept {busy}: idle for longer than prune.idleHours, but commands run in it\n")),
        "{done}"
    );
    let mut left = world.containers();
    left.sort();
    let mut expected = vec![fresh.clone(), busy.clone()];
    expected.sort();
    assert_eq!(left, expected);
    world.gatekeeper(&["rm", &busy]).exits(2);
    world.gatekeeper(&["rm", "--force", &busy]).exits(0);
    let ended = child.wait_with_output().expect("ended");
    let told = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.code() == Some(137) && !told.contains("without a message"), "{told}");
    world.podman(&["kill", &fresh]).exits(0);
    assert!(world.gatekeeper(&["prune"]).stdout().contains("it does not run"));
}
