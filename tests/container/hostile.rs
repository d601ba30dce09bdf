//! A configuration or workspace that an enemy wrote gets nothing of the host.

use super::World;
use crate::support::{is_root, run, skip};
use serde_json::{Value, json};
use std::fs;
use std::process::Command;

#[track_caller]
fn refused(world: &World, words: &[&str], told: &str) {
    let done = world.exec(&[words, &["--", "true"]].concat());
    assert!(done.code() == Some(125) && done.stderr().contains(told), "{told}: {done}");
}

#[test]
fn names_of_agents_and_sessions_reach_no_path_option_or_label() {
    let world = World::without_engine(&json!({}));
    for name in ["../x", "-v", "a/b", "", "a b", "a\nb", "a,b=c", ".", &"x".repeat(200)] {
        let agent = format!("--agent={name}");
        refused(&world, &[&agent], "--agent: agent");
        let session = format!("--session={name}");
        refused(&world, &[&session], "--session: session");
    }
}

#[test]
fn values_that_would_be_options_or_mounts_of_the_host_are_refused() {
    let world = World::without_engine(&json!({}));
    let cases: [(&str, Value, &str); 13] = [
        ("image", json!("-v=/:/host"), "not the name of an image"),
        ("image", json!("--privileged"), "not the name of an image"),
        ("network", json!("container:other"), "use none, bridge, host"),
        ("network", json!("--privileged"), "use none, bridge, host"),
        ("user", json!("root"), "write numbers"),
        ("tmpfs", json!(["/x:exec --privileged"]), "write it as /path"),
        ("capDrop", json!(["--privileged"]), "a name such as ALL"),
        ("binds", json!(["/:/host:ro"]), "refused: it is or contains"),
        ("binds", json!(["/etc:/data:ro"]), "refused: it is or contains /etc"),
        ("binds", json!(["/var/run:/data"]), "refused: it is or contains"),
        ("binds", json!(["/usr:/proc/x"]), "the container needs this path itself"),
        ("binds", json!(["/usr:/workspace"]), "/workspace is taken"),
        ("binds", json!(["/usr,readonly:/data"]), "no comma"),
    ];
    for (key, value, told) in cases {
        world.configure(&json!({"docker": {key: value}}));
        refused(&world, &[], told);
    }
}

#[test]
fn a_socket_or_a_link_to_a_closed_place_is_no_bind() {
    let world = World::without_engine(&json!({}));
    let socket = world.dir.join("engine.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("own directory");
    world.configure(&json!({"docker": {"binds": [format!("{}:/data", socket.display())]}}));
    refused(&world, &[], "only directories and regular files");
    let link = world.dir.join("link");
    std::os::unix::fs::symlink("/etc", &link).expect("own directory");
    world.configure(&json!({"docker": {"binds": [format!("{}:/data", link.display())]}}));
    refused(&world, &[], "refused: it is or contains /etc");
}

#[test]
fn a_link_below_workspace_root_is_refused_and_so_is_a_configuration_that_commands_could_change() {
    let world = World::without_engine(&json!({}));
    let (boxes, elsewhere) = (world.dir.join("boxes"), world.dir.join("elsewhere"));
    std::fs::create_dir(&boxes).expect("own directory");
    std::fs::create_dir(&elsewhere).expect("own directory");
    std::os::unix::fs::symlink(&elsewhere, boxes.join("a1")).expect("own directory");
    refused(&world, &["--agent", "a1"], "symbolic link");
    world.configure(&json!({"workspaceAccess": "rw"}));
    let dir = world.dir.to_str().expect("UTF-8").to_owned();
    // The state directory is there too, so that comes first if HOME were used; name the file's own directory.
    let own = world.dir.join("own");
    std::fs::create_dir(&own).expect("own directory");
    let config = own.join("openclaw.json");
    std::fs::copy(&world.config, &config).expect("own directory");
    let moved = World { dir: world.dir.clone(), config };
    refused(&moved, &["--workspace", own.to_str().expect("UTF-8")], "could change their own limits");
    refused(&world, &["--workspace", &dir], "gatekeeper's own state");
    refused(&world, &["--workspace", "/"], "refused: it is or contains");
}

#[test]
fn credentials_of_a_home_are_no_bind_whatever_home_the_environment_names() {
    let world = World::without_engine(&json!({}));
    let home = world.dir.join("home");
    for path in [".config/gh", ".config/nvim", ".claude", "work"] {
        fs::create_dir_all(home.join(path)).expect("own directory");
    }
    fs::write(home.join(".claude/.credentials.json"), "{}").expect("own directory");
    let explained = |bind: &str, command: &mut Command| {
        world.configure(&json!({"docker": {"binds": [format!("{}:/data", home.join(bind).display())]}}));
        run(command)
    };
    for (bind, told) in [
        ("", "it contains the home directory"),
        (".config", ".config/gh, which holds credentials"),
        (".config/gh", ".config/gh holds credentials"),
        (".claude", ".credentials.json, which holds credentials"),
        (".claude/.credentials.json", ".credentials.json holds credentials"),
    ] {
        let done = explained(bind, world.command(&["explain"]).env("HOME", &home));
        assert!(done.code() == Some(2) && done.stderr().contains(told), "{bind}: {done}");
    }
    for bind in [".config/nvim", "work"] {
        explained(bind, world.command(&["explain"]).env("HOME", &home)).exits(0);
    }
    if !is_root() {
        return skip("another file in the place of /etc/passwd needs root");
    }
    // HOME is wrong, and the system knows better.
    let passwd = world.dir.join("passwd");
    fs::write(&passwd, format!("root:x:0:0:root:{}:/bin/sh\n", home.display())).expect("own directory");
    let inner = world.command(&["explain"]);
    for (bind, told) in [("", "it contains the home directory"), (".config", ".config/gh, which holds credentials")] {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", "mount --bind \"$1\" /etc/passwd && shift && exec \"$@\"", "sh"]);
        command.arg(&passwd).arg(inner.get_program()).args(inner.get_args());
        world.surround(&mut command);
        let done = explained(bind, command.env("HOME", "/nonexistent"));
        assert!(done.code() == Some(2) && done.stderr().contains(told), "{bind}: {done}");
    }
}
