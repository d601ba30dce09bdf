//! The configuration: every key is read, and what is misspelt is an error.

use super::World;
use crate::support::run;
use serde_json::{Value, json};
use std::process::Command;

/// The example of the agent system, with a comment.
const EXAMPLE: &str = r#"{
  // the default configuration
  "agents": {"defaults": {"sandbox": {
    "mode": "all", "scope": "agent", "workspaceAccess": "rw", "workspaceRoot": "~/.openclaw/sandboxes",
    "docker": {
      "image": "openclaw-sandbox-common:bookworm-slim", "network": "bridge", "readOnlyRoot": true,
      "tmpfs": ["/tmp:exec,mode=1777", "/var/tmp", "/run"], "user": "501:501", "capDrop": ["ALL"],
      "memory": "1g", "cpus": 1, "pidsLimit": 256,
      "env": {"LANG": "C.UTF-8", "OPENAI_API_KEY": "sk-xxx", "GOOGLE_API_KEY": "AIzaSyxxx"}
    },
    "browser": {"enabled": true, "image": "openclaw-sandbox-browser:bookworm-slim", "autoStart": true,
      "autoStartTimeoutMs": 30000, "allowHostControl": true, "env": {"LANG": "C.UTF-8"}},
    "prune": {"idleHours": 24, "maxAgeDays": 7}
  }}},
  "tools": {"sandbox": {"tools": {
    "allow": ["group:runtime", "group:fs", "group:sessions", "group:ui"],
    "deny": ["canvas", "nodes", "cron", "gateway", "telegram", "whatsapp", "discord", "googlechat", "slack", "signal", "imessage"]
  }}},
  "browser": {"enabled": true}
}"#;

pub fn explained(world: &World, words: &[&str]) -> Value {
    let done = world.gatekeeper(&[&["explain", "--json"], words].concat());
    serde_json::from_str(&done.exits(0).stdout()).unwrap_or_else(|_| panic!("no JSON: {done}"))
}

#[test]
fn every_key_of_the_example_is_read_and_explained_with_its_name() {
    let world = World::without_engine(&json!({}));
    std::fs::write(&world.config, EXAMPLE).expect("own directory");
    let told = explained(&world, &["--agent", "a1", "--session", "s7"]);
    let settings = told["settings"].as_object().expect("a table");
    for (name, value) in [
        ("mode", json!("all")),
        ("scope", json!("agent")),
        ("workspaceAccess", json!("rw")),
        ("docker.image", json!("openclaw-sandbox-common:bookworm-slim")),
        ("docker.network", json!("bridge")),
        ("docker.readOnlyRoot", json!(true)),
        ("docker.tmpfs", json!(["/tmp:exec,mode=1777", "/var/tmp", "/run"])),
        ("docker.user", json!("501:501")),
        ("docker.capDrop", json!(["ALL"])),
        ("docker.memory", json!(1u64 << 30)),
        ("docker.cpus", json!(1.0)),
        ("docker.pidsLimit", json!(256)),
        ("docker.env", json!(["GOOGLE_API_KEY", "LANG", "OPENAI_API_KEY"])),
        ("browser.enabled", json!(true)),
        ("browser.image", json!("openclaw-sandbox-browser:bookworm-slim")),
        ("browser.autoStart", json!(true)),
        ("browser.autoStartTimeoutMs", json!(30000)),
        ("browser.allowHostControl", json!(true)),
        ("browser.env", json!(["LANG"])),
        ("prune.idleHours", json!(24)),
        ("prune.maxAgeDays", json!(7)),
    ] {
        assert_eq!(settings[name]["value"], value, "{name}");
        assert_eq!(settings[name]["key"], format!("agents.defaults.sandbox.{name}"), "{name}");
    }
    assert_eq!(told["tools"]["exec"], json!({"allowed": true, "key": "tools.sandbox.tools.allow"}));
    assert_eq!((&told["boxed"], &told["agent"], &told["session"]), (&json!(true), &json!("a1"), &json!("s7")));
}

#[test]
fn an_agents_own_settings_win_except_in_a_shared_container() {
    let world = World::without_engine(&json!({}));
    let sandbox = |scope: &str| {
        json!({"agents": {
            "defaults": {"sandbox": {"scope": scope, "workspaceRoot": world.dir.join("boxes"), "docker": {"memory": "1g", "env": {"A": "1"}}}},
            "list": [
                {"id": "other"},
                {"id": "a1", "sandbox": {"mode": "non-main", "docker": {"memory": "2g", "env": {"B": "2"}}}, "tools": {"sandbox": {"tools": {"deny": ["exec"]}}}},
            ],
        }, "tools": {"deny": ["process"]}})
    };
    world.write(&sandbox("agent"));
    let told = explained(&world, &["--agent", "a1", "--session", "x"]);
    assert_eq!(
        told["settings"]["docker.memory"],
        json!({"value": 2u64 << 30, "key": "agents.list[1].sandbox.docker.memory"})
    );
    assert_eq!(told["settings"]["docker.env"]["value"], json!(["A", "B"]));
    assert_eq!(told["tools"]["exec"], json!({"allowed": false, "key": "agents.list[1].tools.sandbox.tools.deny"}));
    assert_eq!(
        told["tools"]["process"],
        json!({"allowed": false, "key": "tools.deny"}),
        "what is denied in general stays so"
    );
    assert_eq!(explained(&world, &["--agent", "a1"])["boxed"], false, "the main session");
    assert_eq!(explained(&world, &["--agent", "other"])["settings"]["docker.memory"]["value"], json!(1u64 << 30));
    world.write(&sandbox("shared"));
    let told = explained(&world, &["--agent", "a1", "--session", "x"]);
    assert_eq!(told["settings"]["docker.memory"]["value"], json!(1u64 << 30));
}

#[test]
fn a_misspelt_key_or_value_is_an_error_that_names_the_nearest_and_no_secret() {
    let world = World::without_engine(&json!({}));
    for (text, told) in [
        (
            "{agents: {defaults: {sandbox: {mdoe: 'all'}}}}",
            "unknown key 'agents.defaults.sandbox.mdoe'; did you mean 'agents.defaults.sandbox.mode'?",
        ),
        (
            "{agents: {defaults: {sandbox: {mode: 'al'}}}}",
            "agents.defaults.sandbox.mode: unknown mode 'al'; did you mean 'all'?",
        ),
        (
            "{agents: {defaults: {sandbox: {workspaceAccess: 'RW'}}}}",
            "unknown workspace access 'RW'; did you mean 'rw'?",
        ),
        (
            "{agents: {defaults: {sandbox: {docker: {imgae: 'x'}}}}}",
            "did you mean 'agents.defaults.sandbox.docker.image'?",
        ),
        (
            "{agents: {defaults: {sandbox: {browser: {enable: true}}}}}",
            "did you mean 'agents.defaults.sandbox.browser.enabled'?",
        ),
        (
            "{agents: {defaults: {sandbox: {prune: {idleHour: 1}}}}}",
            "did you mean 'agents.defaults.sandbox.prune.idleHours'?",
        ),
        ("{agents: {defalts: {}}}", "unknown key 'agents.defalts'; did you mean 'agents.defaults'?"),
        ("{agnets: {}}", "unknown key 'agnets'; did you mean 'agents'?"),
        ("{agents: {list: [{id: 'x', sandbox: {scop: 'agent'}}]}}", "did you mean 'agents.list[0].sandbox.scope'?"),
        ("{agents: {list: [{sandbox: {}}]}}", "agents.list[0] needs 'id'"),
        ("{tools: {sandbox: {tools: {alow: []}}}}", "did you mean 'tools.sandbox.tools.allow'?"),
        ("{tools: {sandbox: {tools: {allow: ['group:runtme']}}}}", "did you mean 'group:runtime'?"),
        (
            "{agents: {defaults: {sandbox: {docker: {env: {A: ['sk-xxx']}}}}}}",
            "agents.defaults.sandbox.docker.env.A must be a string, not a list",
        ),
        ("{agents: {defaults: {sandbox: {docker: {env: {LD_PRELOAD: 'sk-xxx'}}}}}}", "variable 'LD_PRELOAD'"),
        ("{agents: {defaults: {sandbox: {docker: {memory: '1'}}}}}", "did you mean 1M?"),
        ("{agents: {defaults: {sandbox: {docker: {cpus: 0}}}}}", "not between 0.01 and 1024"),
        ("{model: 'x'}", "needs 'agents"),
    ] {
        std::fs::write(&world.config, text).expect("own directory");
        let done = world.gatekeeper(&["explain"]);
        done.exits(2);
        assert!(done.stderr().contains(told) && !done.stderr().contains("sk-xxx"), "{text}: {done}");
    }
    // Keys of the rest of the system are its own.
    std::fs::write(&world.config, "{agents: {defaults: {model: 'm'}}, gateway: {port: 1}, env: {X: 'y'}}")
        .expect("own directory");
    world.gatekeeper(&["explain"]).exits(0);
}

#[test]
fn the_same_keys_in_a_policy_are_a_box_and_run_refuses_to_go_without() {
    let world = World::without_engine(&json!({}));
    let config = world.dir.join("policy.toml");
    let text = format!(
        "profile = 'read'\n[box]\nmode = 'all'\nworkspaceRoot = '{}'\n[box.docker]\nimage = 'tiny:1'\nmemory = '2g'\n[box.tools]\ndeny = ['exec']\n",
        world.dir.join("boxes").display()
    );
    std::fs::write(&config, text).expect("own directory");
    let policy = World { dir: world.dir.clone(), config };
    let told = explained(&policy, &[]);
    assert_eq!(told["settings"]["docker.memory"], json!({"value": 2u64 << 30, "key": "box.docker.memory"}));
    assert_eq!(told["tools"]["exec"], json!({"allowed": false, "key": "box.tools.deny"}));
    let done = run(Command::new(crate::support::gatekeeper())
        .args(["run", "--config"])
        .arg(&policy.config)
        .args(["--", "true"]));
    done.exits(125);
    assert!(done.stderr().contains("policy.toml:2: box: this policy asks for a container"), "{done}");
    // The message names what serves such a file.
    for (file, told) in [(&policy.config, "`gatekeeper mcp --agent`"), (&world.config, "with --agent")] {
        let done = run(Command::new(crate::support::gatekeeper()).args(["mcp", "--config"]).arg(file));
        assert!(done.code() == Some(125) && done.stderr().contains(told), "{done}");
    }
}
