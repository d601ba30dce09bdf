//! docs/scale.md: its manifests, and gatekeeper where such a pod runs it.

use super::World;
use crate::support::{fresh, run};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

const PYTHON: &str = "/usr/bin/python3";

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

#[test]
fn the_manifests_of_the_document_are_accepted_by_a_schema_and_misspelt_ones_are_not() {
    let text = std::fs::read_to_string(root().join("docs/scale.md")).expect("the document");
    let dir = fresh("manifests");
    let mut names = Vec::new();
    for (kind, block) in text.split("\n```").skip(1).step_by(2).filter_map(|block| block.split_once('\n')) {
        if !["yaml", "json"].contains(&kind) {
            continue;
        }
        for (sort, text) in
            [("good", block.to_owned()), ("bad", block.replacen("ame:", "ane:", 1).replacen("Driver", "Drvier", 1))]
        {
            let file = dir.join(format!("{sort}{}.{kind}", names.len() / 2));
            std::fs::write(&file, text).expect("own directory");
            names.push(file);
        }
    }
    assert_eq!(names.len(), 8, "four manifests");
    let script = "import sys,json,yaml,jsonschema\nschema=json.load(open(sys.argv[1]))\njsonschema.Draft202012Validator.check_schema(schema)\nfor name in sys.argv[2:]:\n    errors=list(jsonschema.Draft202012Validator(schema).iter_errors(yaml.safe_load(open(name))))\n    print(name.rsplit('/',1)[-1][:3], 'ok' if not errors else 'wrong')";
    let mut command = Command::new(PYTHON);
    let done = run(command.args(["-c", script]).arg(root().join("tests/container/manifests.json")).args(&names));
    assert_eq!(done.exits(0).stdout(), "goo ok\nbad wrong\n".repeat(4), "{done}");
}

/// The filter of podman with the rules of Docker's for processes without capabilities: no namespaces, no mounts, EPERM.
fn like_docker(dir: &Path) -> std::path::PathBuf {
    let text = std::fs::read("/usr/share/containers/seccomp.json").expect("podman's filter");
    let mut filter: Value = serde_json::from_slice(&text).expect("JSON");
    filter["defaultErrnoRet"] = json!(1);
    filter.as_object_mut().expect("a table").remove("defaultErrno");
    let closed = [
        "clone",
        "clone3",
        "unshare",
        "setns",
        "mount",
        "umount",
        "umount2",
        "pivot_root",
        "chroot",
        "mount_setattr",
        "move_mount",
        "fsopen",
        "fsmount",
        "open_tree",
    ];
    for rule in filter["syscalls"].as_array_mut().expect("a list") {
        if let Some(names) = rule["names"].as_array_mut() {
            names.retain(|name| !name.as_str().is_some_and(|name| closed.contains(&name)));
        }
    }
    let rules = filter["syscalls"].as_array_mut().expect("a list");
    rules.retain(|rule| rule["names"].as_array().is_some_and(|names| !names.is_empty()));
    let namespaces = json!({"index": 0, "value": 2114060288u64, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"});
    rules.push(json!({"names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": [namespaces]}));
    rules.push(json!({"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38}));
    let file = dir.join("filter.json");
    std::fs::write(&file, filter.to_string()).expect("own directory");
    file
}

/// As in a pod: gatekeeper is the entry point, under the engine's default filter, without capabilities.
#[test]
fn gatekeeper_confines_as_the_entry_point_of_a_container_without_user_namespaces() {
    let Some(world) = World::new(&json!({})) else { return };
    let bind =
        format!("type=bind,source={},target=/opt/gatekeeper,readonly", crate::support::gatekeeper_for_all().display());
    let filter = format!("seccomp={}", like_docker(&world.dir).display());
    let pod = |words: &[&str]| {
        let mut all = vec!["run", "--rm", "--network", "none", "--user", "501:501", "--read-only", "--cap-drop", "ALL"];
        all.extend([
            "--security-opt",
            &filter,
            "--security-opt",
            "no-new-privileges",
            "--ulimit",
            "nofile=1000:1000",
            "--ulimit",
            "nproc=1000:1000",
        ]);
        all.extend([
            "--mount",
            &bind,
            "--tmpfs",
            "/tmp:exec,mode=1777",
            "--tmpfs",
            "/work:exec,mode=1777",
            // podman makes the working directory the home of a user that the image does not know.
            "--workdir",
            "/",
            "--entrypoint",
            "/opt/gatekeeper",
            "tiny:1",
        ]);
        all.extend(words);
        world.podman(&all)
    };
    let doctor = pod(&["doctor", "--json"]);
    let found: Value = serde_json::from_str(&doctor.stdout()).unwrap_or_else(|_| panic!("no JSON: {doctor}"));
    let status = |layer: &str| {
        found["layers"]
            .as_array()
            .and_then(|all| all.iter().find(|one| one["layer"] == layer).map(|one| one["status"].clone()))
    };
    assert_eq!(status("user namespaces"), Some(json!("unavailable")), "the engine's filter closes them: {doctor}");
    let line = "id -u; cat /etc/hostname >/dev/null && echo read; echo x > /work/x && echo written";
    let done = pod(&["run", "--json", "--cwd", "/work", "-p", "write", "-c", line]);
    let report: Value = serde_json::from_str(&done.stdout()).unwrap_or_else(|_| panic!("no report: {done}"));
    assert_eq!(report["stdout"], "501\nread\nwritten\n", "{report}");
    // Without user namespaces, /dev/shm cannot be private, and the report says so.
    for (layer, status) in [("seccomp", "enforced"), ("landlock", "partial")] {
        let one = report["layers"].as_array().and_then(|all| all.iter().find(|one| one["layer"] == layer));
        assert_eq!(one.map(|one| one["status"].clone()), Some(json!(status)), "{report}");
    }
    // A denial is as exact as outside.
    let done = pod(&["run", "--json", "--cwd", "/work", "--", "touch", "/work/y"]);
    let report: Value = serde_json::from_str(&done.stdout()).unwrap_or_else(|_| panic!("no report: {done}"));
    assert!(report["exit_code"] != 0 && report["denials"][0]["path"] == "/work/y", "{report}");
}
