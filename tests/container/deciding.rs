//! Which table decides when several say something: policies that extend each other, and lists of tools.

use super::World;
use super::configuration::explained;
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;

/// Files in a directory; the first is the configuration.
fn policies(files: &[(&str, &str)]) -> World {
    let world = World::without_engine(&json!({}));
    for (name, text) in files {
        fs::create_dir_all(world.dir.join(name).parent().expect("below")).expect("own directory");
        fs::write(world.dir.join(name), text).expect("own directory");
    }
    let config = world.dir.join(files[0].0);
    World { config, dir: world.dir.clone() }
}

#[test]
fn a_box_is_read_from_every_file_that_a_policy_extends() {
    let base = "[box]\nmode = 'all'\nworkspaceRoot = 'boxes'\n[box.docker]\nimage = 'tiny:1'\nmemory = '64m'\n\
                capDrop = ['NET_RAW']\ntmpfs = ['/tmp:mode=1777', '/scratch']\nenv = { A = '1', B = '1' }\n\
                [box.tools]\ndeny = ['exec']\n[[box.agents.list]]\nid = 'a1'\nsandbox = { docker = { cpus = 2 } }\n\
                tools = { deny = ['read'] }\n";
    let child = "extends = 'far/base.toml'\n[box.docker]\npidsLimit = 99\ncapDrop = ['CHOWN']\ntmpfs = ['/tmp:exec']\n\
                 env = { B = '2', C = '2' }\n[box.tools]\ndeny = ['process']\n\
                 [[box.agents.list]]\nid = 'a1'\nsandbox = { docker = { pidsLimit = 50 } }\n";
    let world = policies(&[("child.toml", child), ("far/base.toml", base)]);
    let told = explained(&world, &["--agent", "a1"]);
    let of_base = |key: &str| format!("{}: {key}", world.dir.join("far/base.toml").display());
    let settings = &told["settings"];
    for (name, value, key) in [
        ("docker.memory", json!(64u64 << 20), of_base("box.docker.memory")),
        ("docker.image", json!("tiny:1"), of_base("box.docker.image")),
        // A relative path is meant from its own file.
        ("workspaceRoot", json!(world.dir.join("far/boxes")), of_base("box.workspaceRoot")),
        ("docker.capDrop", json!(["NET_RAW", "CHOWN"]), "box.docker.capDrop".to_owned()),
        ("docker.tmpfs", json!(["/scratch", "/tmp:exec"]), "box.docker.tmpfs".to_owned()),
        ("docker.env", json!(["A", "B", "C"]), "box.docker.env".to_owned()),
        // What is said for the agent alone wins, whichever file says it.
        ("docker.cpus", json!(2.0), of_base("box.agents.list[0].sandbox.docker.cpus")),
        ("docker.pidsLimit", json!(50), "box.agents.list[0].sandbox.docker.pidsLimit".to_owned()),
    ] {
        assert_eq!(settings[name], json!({"value": value, "key": key}), "{name}");
    }
    for (tool, key) in [
        ("exec", of_base("box.tools.deny")),
        ("process", "box.tools.deny".to_owned()),
        ("read", of_base("box.agents.list[0].tools.deny")),
    ] {
        assert_eq!(told["tools"][tool], json!({"allowed": false, "key": key}), "{tool}");
    }
    assert_eq!(explained(&world, &[])["settings"]["docker.pidsLimit"]["value"], json!(99), "the control");
}

#[test]
fn a_policy_without_a_box_has_that_of_its_base_or_none() {
    let base = "[box]\nworkspaceRoot = 'boxes'\n[box.tools]\ndeny = ['exec']\n";
    let files = [("child.toml", "extends = 'base.toml'\nprofile = 'read'\n"), ("base.toml", base)];
    let told = explained(&policies(&files), &[]);
    assert!(
        told["tools"]["exec"]["key"].as_str().is_some_and(|key| key.ends_with("base.toml: box.tools.deny")),
        "{told}"
    );
    let world = policies(&[("child.toml", "extends = 'base.toml'\n"), ("base.toml", "profile = 'read'\n")]);
    let done = world.gatekeeper(&["explain"]);
    assert!(done.code() == Some(2) && done.stderr().contains("needs 'agents (a sandbox"), "{done}");
    // A mistake in the base is one, too.
    let world = policies(&[("child.toml", "extends = 'base.toml'\n[box]\n"), ("base.toml", "[box]\nmdoe = 'all'\n")]);
    let done = world.gatekeeper(&["explain"]);
    assert!(done.code() == Some(2) && done.stderr().contains("base.toml:2: unknown key 'box.mdoe'"), "{done}");
}

#[test]
fn commands_cannot_write_a_base_of_their_configuration() {
    let base = "[box]\nworkspaceAccess = 'rw'\nworkspaceRoot = '/nonexistent'\n";
    let world = policies(&[("child.toml", "extends = 'open/base.toml'\n"), ("open/base.toml", base)]);
    let open: PathBuf = world.dir.join("open");
    let done = world.gatekeeper(&["exec", "--workspace", open.to_str().expect("UTF-8"), "--", "true"]);
    assert!(done.code() == Some(125) && done.stderr().contains("could change their own limits"), "{done}");
}

fn ruling(world: &World, agent: &str, tool: &str) -> Value {
    explained(world, &["--agent", agent])["tools"][tool].clone()
}

#[test]
fn an_agents_tools_for_the_box_replace_the_defaults_and_never_bring_back_what_is_denied_in_general() {
    let world = World::without_engine(&json!({}));
    let boxed = |allow: Value, deny: Value| json!({"sandbox": {"tools": {"allow": allow, "deny": deny}}});
    let mut tools = boxed(json!(["read"]), json!(["exec"]));
    tools["deny"] = json!(["process"]);
    world.write(&json!({"agents": {"list": [
        {"id": "a1", "tools": boxed(json!(["exec", "process"]), json!([]))},
        {"id": "a2", "tools": {"sandbox": {"tools": {"allow": ["exec", "write"]}}}},
        {"id": "a3", "tools": {"allow": ["read", "exec"], "sandbox": {"tools": {"allow": ["*"]}}}},
    ]}, "tools": tools}));
    let own = "agents.list[0].tools.sandbox.tools.allow";
    assert_eq!(ruling(&world, "a1", "exec"), json!({"allowed": true, "key": own}));
    assert_eq!(ruling(&world, "a1", "read"), json!({"allowed": false, "key": own}));
    assert_eq!(ruling(&world, "a1", "process"), json!({"allowed": false, "key": "tools.deny"}));
    // A list that the agent does not write stays that of the defaults.
    assert_eq!(ruling(&world, "a2", "exec"), json!({"allowed": false, "key": "tools.sandbox.tools.deny"}));
    assert_eq!(ruling(&world, "a2", "write")["allowed"], true);
    assert_eq!(ruling(&world, "a3", "write"), json!({"allowed": false, "key": "agents.list[2].tools.allow"}));
    assert_eq!(ruling(&world, "other", "read")["allowed"], true, "the control");
}

#[test]
fn a_pattern_or_another_case_denies_and_a_name_that_could_match_nothing_is_an_error() {
    let world = World::without_engine(&json!({}));
    let deny = |entry: &str| world.write(&json!({"agents": {}, "tools": {"deny": [entry]}}));
    for entry in ["Exec", "EXEC", "*exec*", "Group:runtime", "e*"] {
        deny(entry);
        assert_eq!(ruling(&world, "a1", "exec"), json!({"allowed": false, "key": "tools.deny"}), "{entry}");
        assert_eq!(ruling(&world, "a1", "read")["allowed"], true, "{entry}");
    }
    deny("sessions_*");
    assert_eq!(ruling(&world, "a1", "sessions_list")["allowed"], false);
    assert_eq!(ruling(&world, "a1", "session_status")["allowed"], true);
    deny("exce");
    let done = world.gatekeeper(&["explain"]);
    let told = "tools.deny: unknown tool 'exce'; did you mean 'exec'?";
    assert!(done.code() == Some(2) && done.stderr().contains(told), "{done}");
    deny("whatsapp_login");
    world.gatekeeper(&["explain"]).exits(0);
}

#[test]
fn an_agent_is_listed_once() {
    let world = World::without_engine(&json!({}));
    world.write(&json!({"agents": {"list": [{"id": "a1", "tools": {"deny": ["exec"]}}, {"id": "a1"}]}}));
    let done = world.gatekeeper(&["explain", "--agent", "a1"]);
    let told = "agents.list[1].id: another entry of the list has the same id";
    assert!(done.code() == Some(2) && done.stderr().contains(told), "{done}");
}

#[test]
fn each_mount_is_explained_with_its_key_and_a_workspace_that_is_missing_is_told() {
    let world = World::without_engine(&json!({}));
    let (boxes, work, data) = (world.dir.join("boxes"), world.workspace(), world.dir.join("data"));
    fs::create_dir(&data).expect("own directory");
    let bind = format!("{}:/data:ro", data.display());
    let defaults = json!({"workspaceAccess": "ro", "workspaceRoot": boxes, "docker": {"binds": [bind]}});
    let more = format!("{}:/more", data.display());
    let own = json!({"id": "a1", "workspace": work, "sandbox": {"docker": {"binds": [more]}}});
    world.write(&json!({"agents": {"defaults": {"sandbox": defaults}, "list": [own]}}));
    let told = explained(&world, &["--agent", "a1"]);
    let mount = |inside: &str| {
        let all = told["mounts"].as_array().expect("a list");
        all.iter().find(|mount| mount["inside"] == inside).unwrap_or_else(|| panic!("no {inside}: {told}")).clone()
    };
    for (inside, host, mode, key) in [
        ("/workspace", boxes.join("a1"), "rw", "agents.defaults.sandbox.workspaceRoot"),
        ("/agent", work.clone(), "ro", "agents.list[0].workspace"),
        ("/data", data.clone(), "ro", "agents.defaults.sandbox.docker.binds"),
        ("/more", data.clone(), "rw", "agents.list[0].sandbox.docker.binds"),
    ] {
        assert_eq!(mount(inside), json!({"host": host, "inside": inside, "mode": mode, "key": key}));
    }
    assert_eq!(told["settings"]["workspace"], json!({"value": work, "key": "agents.list[0].workspace"}));
    let binds = json!([bind, format!("{more}:rw")]);
    assert_eq!(told["settings"]["docker.binds"], json!({"value": binds, "key": "agents.list[0].sandbox.docker.binds"}));
    assert_eq!(told["warnings"], json!([]));
    let text = world.gatekeeper(&["explain", "--agent", "a1"]).stdout();
    let line = text.lines().find(|line| line.starts_with("/more ")).unwrap_or_else(|| panic!("no line: {text}"));
    assert!(line.ends_with("(rw) agents.list[0].sandbox.docker.binds"), "{line}");
    let flag = explained(&world, &["--workspace", work.to_str().expect("UTF-8")]);
    assert_eq!(flag["settings"]["workspace"], json!({"value": work, "key": "--workspace"}));
    let without = explained(&world, &["--agent", "other"]);
    let warning = without["warnings"][0].as_str().unwrap_or_default();
    assert!(warning.starts_with("workspaceAccess is ro (agents.defaults.sandbox.workspaceAccess)"), "{without}");
    assert!(world.gatekeeper(&["explain"]).stdout().contains("\nwarning: workspaceAccess is ro"), "as text");
}

#[test]
fn in_a_shared_container_one_agents_access_to_its_workspace_does_not_count() {
    let world = World::without_engine(&json!({}));
    let defaults = json!({"scope": "shared", "workspaceRoot": world.dir.join("boxes")});
    let own = json!({"id": "a1", "workspace": world.workspace(), "sandbox": {"workspaceAccess": "rw"}});
    world.write(&json!({"agents": {"defaults": {"sandbox": defaults}, "list": [own]}}));
    let (one, other) = (explained(&world, &["--agent", "a1"]), explained(&world, &["--agent", "a2"]));
    assert_eq!((&one["container"], &one["mounts"]), (&other["container"], &other["mounts"]));
}
