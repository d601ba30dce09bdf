//! `gatekeeper box`, on a real podman with its storage in a directory of the test, and an image made from busybox.

mod audited;
mod browser;
mod configuration;
mod deciding;
mod forged;
mod hostile;
mod lifetime;
mod others;
mod removal;
mod running;
mod scale;
mod tools;

use crate::support::{Done, fresh, gatekeeper_for_all, has, is_root, run, skip};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// An engine with empty storage and the image `tiny`, a state directory, and a configuration.
pub struct World {
    pub dir: PathBuf,
    pub config: PathBuf,
}

impl World {
    /// `None`, and the test counts as skipped, without root and podman.
    #[track_caller]
    pub fn new(sandbox: &Value) -> Option<World> {
        if !has("podman") || !has("busybox") {
            return None;
        }
        if !is_root() {
            skip("podman's containers with limits need root here");
            return None;
        }
        let world = World::without_engine(sandbox);
        run(Command::new("podman")
            .args(world.engine_args().split(' '))
            .args(["import", "-q"])
            .arg(image())
            .arg("tiny:1"))
        .exits(0);
        Some(world)
    }

    /// For commands that start nothing.
    pub fn without_engine(sandbox: &Value) -> World {
        let dir = fresh("box");
        let world = World { config: dir.join("openclaw.json"), dir };
        world.configure(sandbox);
        world
    }

    /// Writes the configuration: `sandbox` over the defaults of these tests.
    pub fn configure(&self, sandbox: &Value) {
        let mut whole = json!({
            "mode": "all", "scope": "agent", "workspaceAccess": "none", "workspaceRoot": self.dir.join("boxes"),
            "docker": {"image": "tiny:1", "network": "none", "user": "501:501"},
        });
        merge(&mut whole, sandbox);
        self.write(&json!({"agents": {"defaults": {"sandbox": whole}}}));
    }

    pub fn write(&self, config: &Value) {
        fs::write(&self.config, config.to_string()).expect("own directory");
    }

    pub fn engine_args(&self) -> String {
        format!("--root {0}/root --runroot {0}/runroot --runtime runc --cgroup-manager cgroupfs", self.dir.display())
    }

    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(gatekeeper_for_all());
        let (word, rest) = words.split_first().expect("a command");
        command.arg("box").arg(word);
        if !["list", "rm"].contains(word) {
            command.arg("--config").arg(&self.config);
        }
        command.args(rest);
        self.surround(&mut command);
        command
    }

    pub fn surround(&self, command: &mut Command) {
        command.env("XDG_STATE_HOME", self.dir.join("state")).env("GATEKEEPER_ENGINE", "podman");
        command.env("GATEKEEPER_ENGINE_ARGS", self.engine_args()).current_dir("/");
    }

    pub fn gatekeeper(&self, words: &[&str]) -> Done {
        run(&mut self.command(words))
    }

    pub fn exec(&self, words: &[&str]) -> Done {
        self.gatekeeper(&[&["exec"], words].concat())
    }

    /// The report of `exec --json`.
    #[track_caller]
    pub fn report(&self, words: &[&str]) -> Value {
        let done = self.exec(&[&["--json"], words].concat());
        serde_json::from_str(&done.stdout()).unwrap_or_else(|_| panic!("no report: {done}"))
    }

    pub fn podman(&self, words: &[&str]) -> Done {
        run(Command::new("podman").args(self.engine_args().split(' ')).args(words))
    }

    /// The names of all containers.
    pub fn containers(&self) -> Vec<String> {
        self.podman(&["ps", "--all", "--format", "{{.Names}}"]).stdout().lines().map(str::to_owned).collect()
    }

    pub fn workspace(&self) -> PathBuf {
        let dir = self.dir.join("work");
        fs::create_dir_all(&dir).expect("own directory");
        dir
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if self.dir.join("root").exists() {
            self.podman(&["rm", "--force", "--all", "--time", "0"]);
            run(Command::new("umount").arg("-l").arg(self.dir.join("root/overlay")));
        }
    }
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// The layer `container` of a report.
#[track_caller]
pub fn container(report: &Value) -> &Value {
    let layers = report["layers"].as_array().unwrap_or_else(|| panic!("no layers: {report}"));
    layers.iter().find(|layer| layer["layer"] == "container").unwrap_or_else(|| panic!("no container: {report}"))
}

/// A file system with busybox and its libraries, as a tar file.
fn image() -> &'static Path {
    static IMAGE: OnceLock<PathBuf> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let dir = fresh("image");
        let root = dir.join("root");
        for path in ["bin", "tmp", "etc", "usr"] {
            fs::create_dir_all(root.join(path)).expect("own directory");
        }
        fs::set_permissions(root.join("tmp"), fs::Permissions::from_mode(0o1777)).expect("own directory");
        let which = run(Command::new("sh").args(["-c", "command -v busybox"])).stdout();
        let busybox = which.trim();
        let copy = |from: &str, to: &Path| {
            fs::create_dir_all(to.parent().expect("below the root")).expect("own directory");
            run(Command::new("cp").arg("-L").arg(from).arg(to)).exits(0);
        };
        copy(busybox, &root.join("bin/busybox"));
        // A static busybox has none, and ldd fails.
        for library in
            run(Command::new("ldd").arg(busybox)).stdout().split_whitespace().filter(|word| word.starts_with('/'))
        {
            copy(library, &root.join(library.trim_start_matches('/')));
        }
        for name in
            ["sh", "id", "cat", "touch", "sleep", "env", "ls", "echo", "true", "ps", "grep", "kill", "head", "wc"]
        {
            std::os::unix::fs::symlink("busybox", root.join("bin").join(name)).expect("own directory");
        }
        let tar = dir.join("image.tar");
        run(Command::new("tar").arg("-C").arg(&root).arg("-cf").arg(&tar).arg(".")).exits(0);
        tar
    })
}
