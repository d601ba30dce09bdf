//! Images, labels and directories that an enemy wrote.

use super::World;
use serde_json::{Value, json};
use std::fs;
use std::process::Command;

/// Imports an image like `tiny` with changes to its file system (by a command line in its root) and its settings.
fn import(world: &World, name: &str, line: &str, changes: &[&str]) {
    let root = world.dir.join(format!("{name}-root"));
    fs::create_dir(&root).expect("own directory");
    crate::support::run(Command::new("tar").arg("-C").arg(&root).arg("-xf").arg(super::image())).exits(0);
    crate::support::run(Command::new("sh").args(["-c", line]).current_dir(&root)).exits(0);
    let tar = world.dir.join(format!("{name}.tar"));
    crate::support::run(Command::new("tar").arg("-C").arg(&root).arg("-cf").arg(&tar).arg(".")).exits(0);
    let mut words = vec!["import", "-q"];
    changes.iter().for_each(|change| words.extend(["--change", change]));
    let tagged = format!("{name}:1");
    words.extend([tar.to_str().expect("UTF-8"), &tagged]);
    world.podman(&words).exits(0);
}

#[test]
fn an_image_cannot_put_another_program_in_the_place_of_gatekeeper_nor_choose_what_runs() {
    let Some(world) = World::new(&json!({})) else { return };
    // A link could be replaced later, by a command that may write the root: the next "gatekeeper" would be the enemy's.
    import(&world, "linked", "mkdir opt; touch opt/real; ln -s opt/real gatekeeper", &[]);
    world.configure(&json!({"docker": {"image": "linked:1", "readOnlyRoot": false}}));
    let done = world.exec(&["--", "id"]);
    assert!(done.code() == Some(125) && done.stderr().contains("the image has a link at /gatekeeper"), "{done}");
    // The engine would mount the workspace where the link leads.
    import(&world, "elsewhere", "ln -s etc workspace", &[]);
    world.configure(&json!({"docker": {"image": "elsewhere:1"}}));
    let done = world.exec(&["--", "id"]);
    assert!(done.code() == Some(125) && done.stderr().contains("the image has a link at /workspace"), "{done}");
    // Groups of the image's own files are not the command's, and libraries that it preloads are not gatekeeper's.
    let line = "printf 'evil:x:501:501::/:/bin/sh\\n' > etc/passwd; printf 'root:x:0:evil\\n' > etc/group; echo /workspace/evil.so > etc/ld.so.preload";
    import(&world, "groups", line, &[]);
    world.configure(&json!({"docker": {"image": "groups:1"}}));
    let report = world.report(&["-p", "read", "-c", "grep Groups /proc/self/status"]);
    assert_eq!(report["stdout"].as_str().map(str::trim_end), Some("Groups:"), "{report}");
    // What the image says about its start, user, variables and volumes does not count.
    let changes = [
        "ENTRYPOINT [\"/bin/false\"]",
        "CMD [\"evil\"]",
        "USER 0",
        "ENV TMPDIR=/workspace",
        "ENV LD_PRELOAD=/workspace/evil.so",
        "VOLUME /data",
        "WORKDIR /tmp",
    ];
    import(&world, "settings", "printf '#!/bin/sh\\necho evil\\n' > bin/true2; mkdir data", &changes);
    world.configure(&json!({"docker": {"image": "settings:1"}}));
    let report = world.report(&["-p", "read", "-c", "id -u; pwd; env"]);
    let text = report["stdout"].as_str().expect("captured");
    assert!(text.starts_with("501\n/workspace\n"), "{report}");
    assert!(!text.contains("LD_PRELOAD") && !text.contains("TMPDIR=/workspace"), "{text}");
}

#[test]
fn labels_of_an_image_do_not_make_somebody_elses_container_ours() {
    let Some(world) = World::new(&json!({})) else { return };
    let labels = ["LABEL gatekeeper.box=main", "LABEL gatekeeper.owner=0", "LABEL gatekeeper.created=1"];
    import(&world, "labelled", "true", &labels);
    let own = world.gatekeeper(&["up"]).exits(0).stdout();
    let own = own.trim();
    let mut words = vec!["run", "--detach", "--name", "bystander", "--network", "none"];
    words.extend(["--ulimit", "nofile=1000:1000", "--ulimit", "nproc=1000:1000", "labelled:1", "sleep", "600"]);
    world.podman(&words).exits(0);
    let listed: Value = serde_json::from_str(&world.gatekeeper(&["list", "--json"]).stdout()).expect("JSON");
    let names: Vec<&str> = listed.as_array().expect("a list").iter().filter_map(|one| one["name"].as_str()).collect();
    assert_eq!(names, [own]);
    world.gatekeeper(&["prune"]).exits(0);
    world.gatekeeper(&["rm", "--all", "--force"]).exits(0);
    assert_eq!(world.containers(), ["bystander"], "ours is gone, the other one stays");
}

#[test]
fn a_workspace_that_was_replaced_is_seen_and_mounted_anew() {
    let Some(world) = World::new(&json!({"workspaceAccess": "rw"})) else { return };
    let workspace = world.workspace();
    let path = workspace.to_str().expect("UTF-8").to_owned();
    let cat = |world: &World| world.exec(&["--workspace", &path, "-p", "read", "--", "cat", "file"]);
    fs::write(workspace.join("file"), "old").expect("own directory");
    cat(&world).exits(0).prints("old");
    cat(&world).exits(0).complains("");
    fs::rename(&workspace, world.dir.join("moved")).expect("own directory");
    fs::write(world.workspace().join("file"), "new").expect("own directory");
    let done = cat(&world);
    done.exits(0).prints("new");
    assert!(done.stderr().contains("/workspace is not") && done.stderr().contains("it was made anew"), "{done}");
}
