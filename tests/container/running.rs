//! Commands in a box: their confinement, their report, and what the engine enforces.

use super::{World, container};
use serde_json::json;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;

#[test]
fn a_command_in_a_box_is_confined_and_reported_as_outside() {
    let Some(world) = World::new(&json!({"docker": {"memory": "512m", "cpus": 0.5, "pidsLimit": 99}})) else { return };
    let report = world.report(&["--agent", "a1", "--", "id"]);
    assert_eq!((&report["outcome"], &report["exit_code"]), (&json!("exited"), &json!(0)), "{report}");
    assert!(report["stdout"].as_str().is_some_and(|text| text.starts_with("uid=501(501) gid=501")), "{report}");
    let layer = container(&report);
    assert_eq!(layer["status"], "enforced", "{report}");
    let detail = layer["detail"].as_str().expect("text");
    for held in [
        "podman ",
        "image tiny:1",
        "user 501:501",
        "read-only root",
        "no capabilities",
        "network none",
        "memory 536870912",
        "cpus 0.5",
        "processes 99",
    ] {
        assert!(detail.contains(held), "{held}: {detail}");
    }
    // The denial is exact, and its remedy works.
    let denied = world.report(&["--agent", "a1", "--", "touch", "/workspace/x"]);
    assert_ne!(denied["exit_code"], 0, "{denied}");
    let remedy =
        denied["denials"][0]["allow_with"].as_str().unwrap_or_else(|| panic!("no remedy: {denied}")).to_owned();
    let flags: Vec<&str> = remedy.split(' ').chain(["--agent", "a1", "--", "touch", "/workspace/x"]).collect();
    world.exec(&flags).exits(0);
    let made = world.dir.join("boxes/a1");
    let (directory, file) = (made.metadata().expect("the workspace"), made.join("x").metadata().expect("the file"));
    assert_eq!((directory.mode() & 0o777, directory.uid(), file.uid()), (0o700, 501, 501));
    // Exit codes are those of run.
    world.exec(&["-p", "read", "-c", "exit 7"]).exits(7);
    world.exec(&["--", "no-such-program"]).exits(127);
    world.exec(&["--timeout", "300ms", "--", "sleep", "60"]).exits(124);
    world.exec(&["-p", "read", "-c", "kill -TERM $$"]).exits(143);
    // Standard input and both outputs pass.
    let mut command = world.command(&["exec", "-p", "read", "-c", "cat; echo err >&2"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    let text = "0123456789".repeat(30_000);
    let (mut stdin, sent) = (child.stdin.take().expect("piped"), text.clone());
    std::thread::spawn(move || stdin.write_all(sent.as_bytes()).expect("it reads"));
    let output = child.wait_with_output().expect("ends");
    assert_eq!((output.stdout.len(), output.stderr.as_slice()), (text.len(), b"err\n".as_slice()));
}

#[test]
fn variables_come_from_the_configuration_alone_and_are_shown_nowhere() {
    let docker = json!({"env": {"OPENAI_API_KEY": "sk-hidden-value", "LANG": "C.UTF-8"}});
    let Some(world) = World::new(&json!({"docker": docker})) else { return };
    let mut command = world.command(&["exec", "--json", "-p", "read", "-c", "env; sleep 1"]);
    let child = command.env("INHERITED", "yes").env("http_proxy", "http://127.0.0.1:9").stdout(Stdio::piped()).spawn();
    let child = child.expect("starts");
    let mut lines = String::new();
    for process in std::fs::read_dir("/proc").expect("proc").flatten() {
        lines.push_str(&String::from_utf8_lossy(&std::fs::read(process.path().join("cmdline")).unwrap_or_default()));
    }
    let output = child.wait_with_output().expect("ends");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a report");
    let inside = report["stdout"].as_str().expect("captured");
    assert!(inside.contains("OPENAI_API_KEY=sk-hidden-value\n") && inside.contains("LANG=C.UTF-8\n"), "{inside}");
    assert!(!inside.contains("INHERITED") && !inside.contains("http_proxy"), "{inside}");
    let names = world.containers();
    let shown = [
        lines,
        world.podman(&["inspect", &names[0]]).stdout(),
        world.gatekeeper(&["explain"]).stdout(),
        world.gatekeeper(&["explain", "--json"]).stdout(),
        world.gatekeeper(&["list", "--json"]).stdout(),
    ];
    for text in shown {
        assert!(!text.contains("sk-hidden-value"), "{text}");
    }
    assert!(world.gatekeeper(&["explain"]).stdout().contains("OPENAI_API_KEY"), "the name is shown");
}

#[test]
fn the_settings_of_docker_reach_the_engine() {
    let work = json!({
        "workspaceAccess": "ro",
        "docker": {
            "network": "bridge", "readOnlyRoot": false, "tmpfs": ["/scratch:exec,mode=1777"], "capDrop": ["NET_RAW"],
            "user": "502:503", "setupCommand": "echo made > /workspace/setup",
        },
    });
    let Some(world) = World::new(&work) else { return };
    std::fs::write(world.workspace().join("own"), "own").expect("own directory");
    let data = world.dir.join("data");
    std::fs::create_dir(&data).expect("own directory");
    std::fs::write(data.join("file"), "bound").expect("own directory");
    let mut more = work.clone();
    more["docker"]["binds"] = json!([format!("{}:/data:ro", data.display())]);
    world.configure(&more);
    let line = "id -u; id -g; cat /workspace/setup /agent/own /data/file; echo; grep -c : /proc/net/dev; echo x > /scratch/x && echo scratch; echo x > /agent/x; echo x > /data/x";
    let report =
        world.report(&["--workspace", world.workspace().to_str().expect("UTF-8"), "-p", "unrestricted", "-c", line]);
    assert_eq!(report["stdout"], "502\n503\nmade\nownbound\n2\nscratch\n", "{report}");
    assert_eq!(
        report["stderr"].as_str().map(|text| text.matches("Read-only file system").count()),
        Some(2),
        "{report}"
    );
    assert!(container(&report)["detail"].as_str().is_some_and(|text| text.contains("writable root")), "{report}");
    // rw: the agent's own workspace, whose files the container's user may change.
    world.configure(&json!({"workspaceAccess": "rw"}));
    let workspace = world.workspace();
    let report = world.report(&[
        "--workspace",
        workspace.to_str().expect("UTF-8"),
        "-p",
        "write",
        "-c",
        "cat own; echo new > own; echo more > more",
    ]);
    assert_eq!((&report["stdout"], &report["exit_code"]), (&json!("own"), &json!(0)), "{report}");
    assert_eq!(std::fs::read_to_string(workspace.join("own")).expect("there"), "new\n");
    assert!(workspace.join("more").exists());
}

#[test]
fn a_missing_image_or_engine_is_a_failed_setup_that_says_what_to_do() {
    let Some(world) = World::new(&json!({"docker": {"image": "nowhere:1"}})) else { return };
    let done = world.exec(&["--", "id"]);
    done.exits(125);
    assert!(done.stderr().contains("image nowhere:1 is not in podman's store"), "{done}");
    let done = world.exec(&["--engine", "/usr/bin/podmann", "--", "id"]);
    assert!(done.code() == Some(125) && done.stderr().contains("podmann"), "{done}");
    let done = world.exec(&["--engine", "lxc", "--", "id"]);
    assert!(done.code() == Some(125) && done.stderr().contains("use podman or docker"), "{done}");
}

#[test]
fn a_session_that_the_mode_leaves_on_the_host_is_confined_there_and_says_so() {
    let world = World::without_engine(&json!({"mode": "non-main"}));
    let report = world.report(&["--session", "main", "--", "true"]);
    let layer = container(&report);
    assert_eq!((&layer["status"], &report["exit_code"]), (&json!("off"), &json!(0)), "{report}");
    assert!(
        report["layers"].as_array().is_some_and(|layers| layers
            .iter()
            .any(|layer| layer["layer"] == "seccomp" && layer["status"] == "enforced")),
        "{report}"
    );
    let done = world.exec(&["--", "true"]);
    let warning = "gatekeeper: warning: not in a container: session main is the main one (agents.defaults.sandbox.mode); commands run on this host under `gatekeeper run`\n";
    done.exits(0).complains(warning);
    world.configure(&json!({"mode": "off"}));
    let done = world.exec(&["--session", "other", "--", "true"]);
    assert!(done.code() == Some(0) && done.stderr().contains("mode is off"), "{done}");
    // The same session is boxed under another mode.
    world.configure(&json!({"mode": "non-main"}));
    assert!(world.gatekeeper(&["explain", "--session", "other"]).stdout().contains("session other: in container"));
}

#[test]
fn each_session_has_its_own_workspace_and_the_root_of_them_is_taken_as_it_is_written() {
    let Some(world) = World::new(&json!({"scope": "session"})) else { return };
    let root = world.dir.join("bo#x=1");
    world.configure(&json!({"scope": "session", "workspaceRoot": root}));
    for session in ["x:1", "x_1"] {
        let line = format!("ls; echo > '{session}'");
        let done = world.exec(&["--agent", "a1", "--session", session, "-p", "write", "-c", &line]);
        done.exits(0).prints("");
    }
    assert!(root.join("a1/x_1/x_1").exists() && root.join("a1/x%3A1/x:1").exists());
    // The agent's, not the one for all.
    world.configure(&json!({"workspaceRoot": root}));
    world.exec(&["--agent", "shared", "-p", "write", "-c", "echo > own"]).exits(0);
    world.configure(&json!({"scope": "shared", "workspaceRoot": root}));
    world.exec(&["--agent", "shared", "-p", "read", "-c", "ls"]).exits(0).prints("");
    for name in ["a,b", "a:b", "a\"b"] {
        world.configure(&json!({"workspaceRoot": world.dir.join(name)}));
        let done = world.exec(&["--", "true"]);
        assert!(done.code() == Some(125) && done.stderr().contains("the engines take no path with a comma"), "{done}");
        assert!(!world.dir.join(name).exists());
    }
}
