//! The Dockerfile, built and run by podman. Its base is made from Debian's packages, because the tests reach no registry.

use super::{json, strings};
use crate::bindings::top;
use crate::container::World;
use crate::documents::package::debian;
use crate::support::{fresh, gatekeeper_for_all, has, is_root, run, skip};
use serde_json::json;
use std::process::Command;

#[test]
fn the_image_runs_commands_confined_and_is_a_development_container() {
    if !has("podman") {
        return;
    }
    if !is_root() {
        return skip("only root can bootstrap a Debian system");
    }
    let Some(system) = debian() else { return };
    let world = World::without_engine(&json!({}));
    let made = "tar -C \"$1\" --exclude=./usr/share/doc --exclude=./usr/share/locale --exclude=./var/cache -c . | \
                podman $2 import -q - debian:bookworm-slim";
    run(Command::new("sh").args(["-c", made, "sh"]).arg(&system).arg(world.engine_args())).exits(0);
    // As devcontainer.json has it: the folder of the Dockerfile is beside that of the container.
    let folder = fresh("project");
    run(Command::new("cp").arg("-r").arg(top().join("integrations/docker")).arg(&folder)).exits(0);
    let container = json("devcontainer/devcontainer.json");
    let dockerfile = folder.join(".devcontainer").join(container["build"]["dockerfile"].as_str().expect("a path"));
    std::fs::create_dir(folder.join(".devcontainer")).expect("own directory");
    let context = dockerfile.parent().expect("a parent").to_owned();
    run(Command::new("strip").arg("-o").arg(context.join("gatekeeper")).arg(gatekeeper_for_all())).exits(0);
    let limits = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024", "--network", "none"];
    let build =
        ["build", "--quiet", "--pull=never", "--tag", "confined", "--file", dockerfile.to_str().expect("UTF-8")];
    world.podman(&[&build[..], &limits, &[context.to_str().expect("UTF-8")]].concat()).exits(0);

    let start = |words: &[&str]| world.podman(&[&["run", "--rm"], &limits[..], words].concat());
    start(&["confined"]).exits(0).prints("agent\n/home/agent/work\n");
    let line = "echo kept > here; cat here; touch /usr/new; head -n 1 /proc/self/comm; echo $GATEKEEPER_SANDBOX";
    start(&["confined", "sh", "-c", line]).exits(0).prints("kept\nhead\nwrite\n");
    // The terminal of VS Code, and the command that agents get.
    let profile = &container["customizations"]["vscode"]["settings"]["terminal.integrated.profiles.linux"]["confined"];
    let words = strings(&profile["args"]);
    let words: Vec<&str> = words.iter().map(String::as_str).chain(["-c", "echo $GATEKEEPER_SANDBOX"]).collect();
    start(&[&["--entrypoint", "gatekeeper", "confined"], &words[..]].concat()).exits(0).prints("write\n");
    let exec = container["containerEnv"]["AGENT_EXEC"].as_str().expect("text").split(' ').skip(1);
    let words: Vec<&str> = exec.chain(["touch", "/home/agent/new"]).collect();
    let done = start(&[&["--entrypoint", "gatekeeper", "confined"], &words[..]].concat());
    let report: serde_json::Value = serde_json::from_str(&done.stdout()).unwrap_or_else(|_| panic!("{done}"));
    assert_eq!(report["denials"][0]["path"], "/home/agent/new", "{report:#}");
}
