//! Other engines than podman under root: a real docker with a daemon of the test, and podman without root.

use super::World;
use crate::support::{NOBODY, fresh, gatekeeper_for_all, has, is_root, run, skip};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A docker daemon without network, whose files are in a directory of the test.
struct Docker {
    dir: PathBuf,
    daemon: Child,
}

impl Docker {
    fn start() -> Option<Docker> {
        if !has("dockerd") || !has("docker") || !has("busybox") {
            return None;
        }
        if !is_root() {
            skip("docker's daemon needs root here");
            return None;
        }
        let dir = fresh("docker");
        let mut command = Command::new("dockerd");
        for (flag, name) in [("--data-root", "data"), ("--exec-root", "exec"), ("--pidfile", "pid")] {
            command.arg(flag).arg(dir.join(name));
        }
        command.args(["--bridge=none", "--iptables=false", "--ip6tables=false", "-H"]).arg(socket(&dir));
        let log = fs::File::create(dir.join("log")).expect("own directory");
        let daemon = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("starts");
        let docker = Docker { dir, daemon };
        let deadline = Instant::now() + Duration::from_secs(60);
        while docker.run(&["info"]).code() != Some(0) {
            assert!(Instant::now() < deadline, "{}", fs::read_to_string(docker.dir.join("log")).unwrap_or_default());
            std::thread::sleep(Duration::from_millis(200));
        }
        Some(docker)
    }

    fn run(&self, words: &[&str]) -> crate::support::Done {
        run(Command::new("docker").arg("-H").arg(socket(&self.dir)).args(words))
    }
}

fn socket(dir: &std::path::Path) -> String {
    format!("unix://{}/sock", dir.display())
}

impl Drop for Docker {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.daemon);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.daemon.wait();
    }
}

#[test]
fn docker_runs_the_same_boxes_with_the_same_report() {
    let Some(docker) = Docker::start() else { return };
    docker.run(&["import", super::image().to_str().expect("UTF-8"), "tiny:1"]).exits(0);
    let world = World::without_engine(&json!({"docker": {"memory": "512m", "cpus": 0.5, "pidsLimit": 99}}));
    let with = |words: &[&str]| {
        let mut command = world.command(words);
        command.env("GATEKEEPER_ENGINE", "docker");
        command.env("GATEKEEPER_ENGINE_ARGS", format!("-H {}", socket(&docker.dir)));
        command
    };
    let done = run(&mut with(&["exec", "--json", "-p", "write", "-c", "id; touch /workspace/x"]));
    let report: Value = serde_json::from_str(&done.exits(0).stdout()).unwrap_or_else(|_| panic!("no report: {done}"));
    let layer = super::container(&report);
    assert_eq!(layer["status"], "enforced", "{report}");
    let detail = layer["detail"].as_str().expect("text");
    let expected =
        "user 501:501, read-only root, no capabilities, network none, memory 536870912, cpus 0.5, processes 99";
    assert!(detail.starts_with("docker ") && detail.ends_with(expected), "{detail}");
    assert_eq!(world.dir.join("boxes/main/x").metadata().expect("written").uid(), 501);
    // A label of the image that looks like several of ours does not change what list says.
    let changed = "LABEL x=\"a,gatekeeper.agent=evil\"";
    docker.run(&["import", "--change", changed, super::image().to_str().expect("UTF-8"), "labelled:1"]).exits(0);
    world.configure(&json!({"docker": {"image": "labelled:1"}}));
    let done = run(&mut with(&["exec", "--", "true"]));
    assert!(done.code() == Some(0) && done.stderr().contains("the configuration changed"), "{done}");
    let done = run(&mut with(&["list", "--json"]));
    let listed: Value = serde_json::from_str(&done.exits(0).stdout()).expect("JSON");
    assert_eq!((listed[0]["agent"].as_str(), listed[0]["running"].as_bool()), (Some("main"), Some(true)), "{listed}");
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");
    // kill -9 leaves nothing behind.
    let mut child = with(&["exec", "--", "sleep", "777"]).stdin(Stdio::piped()).spawn().expect("starts");
    let name = listed[0]["name"].as_str().expect("a name");
    let sleeps = || docker.run(&["top", name]).stdout().contains("sleep 777");
    let until = |wanted: bool| {
        let deadline = Instant::now() + Duration::from_secs(30);
        while sleeps() != wanted {
            assert!(Instant::now() < deadline, "{}", docker.run(&["top", name]));
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    until(true);
    child.kill().expect("it runs");
    child.wait().expect("it ended");
    until(false);
    run(&mut with(&["rm", "--all"])).exits(0);
    assert_eq!(docker.run(&["ps", "--all", "--quiet"]).stdout(), "");
}

/// What doctor says about the engine.
fn engine_of(text: &str) -> Value {
    let all: Value = serde_json::from_str(text).unwrap_or_else(|_| panic!("no JSON: {text}"));
    let layers = all["layers"].as_array().expect("a list");
    layers.iter().find(|one| one["layer"] == "container engine").expect("a line for the engine").clone()
}

#[test]
fn doctor_says_which_engine_works_what_it_enforces_and_what_to_do() {
    let Some(world) = World::new(&json!({})) else { return };
    let doctor = |engine: &str, arguments: &str| {
        let mut command = Command::new(gatekeeper_for_all());
        command.args(["doctor", "--json"]).env("GATEKEEPER_ENGINE", engine).env("GATEKEEPER_ENGINE_ARGS", arguments);
        engine_of(&run(&mut command).stdout())
    };
    let works = doctor("podman", &world.engine_args());
    assert_eq!(works["status"], "available", "{works}");
    let detail = works["detail"].as_str().expect("text");
    assert!(
        detail.starts_with("podman ") && detail.ends_with(", as root, enforces memory, cpus and pidsLimit"),
        "{works}"
    );
    let none = doctor("docker", "-H unix:///nonexistent/sock");
    assert_eq!(none["status"], "unavailable", "{none}");
    assert!(
        none.to_string().contains("podman") && none.to_string().contains("gatekeeper box has no containers"),
        "{none}"
    );
}

/// podman as another user, in a mount namespace in which that user has a range of ids.
#[test]
fn without_root_files_belong_to_the_user_and_gatekeepers_own_limits_hold() {
    if !has("podman") || !has("busybox") || !has("newuidmap") {
        return;
    }
    if !is_root() {
        skip("giving a user a range of ids needs root");
        return;
    }
    let world = World::without_engine(&json!({"workspaceAccess": "rw", "docker": {"pidsLimit": 40}}));
    let (dir, workspace) = (world.dir.clone(), world.workspace());
    let home = dir.join("home");
    fs::create_dir_all(home.join("run")).expect("own directory");
    for path in [&home, &home.join("run"), &workspace] {
        chown(path, Some(NOBODY), Some(NOBODY)).expect("as root");
    }
    fs::write(dir.join("ids"), "nobody:100000:65536\n").expect("own directory");
    let script = r#"
        mount --bind "$1/ids" /etc/subuid && mount --bind "$1/ids" /etc/subgid && cd / || exit 99
        exec setpriv --reuid 65534 --regid 65534 --clear-groups env -i HOME="$1/home" XDG_RUNTIME_DIR="$1/home/run" \
            XDG_STATE_HOME="$1/home/state" USER=nobody PATH=/usr/bin:/bin:/usr/sbin:/sbin GATEKEEPER_ENGINE=podman \
            GATEKEEPER_ENGINE_ARGS="--root $1/home/root --runroot $1/home/run/pod --runtime runc --cgroup-manager cgroupfs" \
            sh -c 'podman $GATEKEEPER_ENGINE_ARGS import -q "$1" tiny:1 >/dev/null || exit 98
                   "$2" box exec --json --config "$3" --workspace "$4" -p write -c "id -u; echo x > made"; code=$?
                   "$2" box rm --all --force >&2; "$2" doctor --json > "$HOME/doctor"; exit $code' sh "$2" "$3" "$1/openclaw.json" "$1/work"
    "#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(&dir).arg(super::image()).arg(gatekeeper_for_all());
    let done = run(&mut command);
    let report: Value = serde_json::from_str(&done.exits(0).stdout()).unwrap_or_else(|_| panic!("no report: {done}"));
    assert_eq!(report["stdout"], "501\n", "{report}");
    let made = workspace.join("made").metadata().expect("written");
    assert_eq!((made.uid(), made.gid()), (NOBODY, NOBODY), "the container's 501 is the caller outside");
    let found = engine_of(&fs::read_to_string(home.join("doctor")).expect("written"));
    assert!(
        found["detail"].as_str().is_some_and(|text| text.ends_with(", rootless") || text.contains(", rootless, ")),
        "{found}"
    );
    let detail = super::container(&report)["detail"].as_str().expect("text");
    assert!(detail.contains(", rootless, image tiny:1: user 501:501, read-only root, no capabilities"), "{detail}");
    // On cgroups v1 the engine ignores limits, and the report says who holds them instead.
    if detail.contains("the engine does not enforce") {
        assert_eq!(super::container(&report)["status"], "partial", "{report}");
        assert_eq!(found["status"], "partial", "{found}");
        assert!(
            found.to_string().contains("it ignores memory, cpus, pidsLimit here")
                && found.to_string().contains("cgroups v2"),
            "{found}"
        );
        let limits = report["layers"].as_array().and_then(|all| all.iter().find(|one| one["layer"] == "limits"));
        assert!(
            limits.is_some_and(|one| one["detail"].as_str().is_some_and(|text| text.contains("processes 40"))),
            "{report}"
        );
    }
}
