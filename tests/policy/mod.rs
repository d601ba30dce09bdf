//! Policy files through the program: what they say is what happens, and a wrong one runs nothing.

use crate::support::{Done, fresh, gatekeeper, run};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The configuration of the exec tool's specification, as it stands there.
const EXEC_TOOL: &str = include_str!("exec-tool.json");

struct Place(PathBuf);

impl Place {
    fn with(files: &[(&str, &str)]) -> Place {
        let dir = fresh("policy");
        for (name, text) in files {
            fs::write(dir.join(name), text).expect("own directory");
        }
        Place(dir)
    }

    fn run(&self, config: &str, command: &[&str]) -> Done {
        let mut gatekeeper = Command::new(gatekeeper());
        run(gatekeeper.current_dir(&self.0).args(["run", "--config", config, "--"]).args(command))
    }

    fn has(&self, name: &str) -> bool {
        Path::exists(&self.0.join(name))
    }
}

#[test]
fn a_wrong_policy_runs_nothing() {
    let place = Place::with(&[
        ("right.toml", "profile = 'write'"),
        ("key.toml", "\n\nproflie = 'write'"),
        ("call.toml", "profile = 'write'\n[syscalls]\ndeny = ['opne']"),
        ("type.json", "{\"profile\": \"write\",\n \"timeout\": []}"),
        ("base.toml", "profile = 'write'\nextends = 'missing.toml'"),
    ]);
    assert!(Command::new("mkfifo").arg(place.0.join("fifo")).status().expect("mkfifo starts").success());
    for (config, complaint) in [
        ("key.toml", "key.toml:3: unknown key 'proflie'; did you mean 'profile'?"),
        ("call.toml", "call.toml:3: syscalls.deny: unknown syscall 'opne'; did you mean 'open'?"),
        ("type.json", "type.json:2: timeout must be a duration such as \"30s\", or whole seconds, not a list"),
        ("base.toml", "base.toml:2: cannot read missing.toml: No such file or directory (os error 2)"),
        ("fifo", "fifo is a FIFO, not a policy file"),
        (".", ". is a directory, not a policy file"),
    ] {
        let done = place.run(config, &["touch", "marker"]);
        done.exits(125).complains(&format!("gatekeeper: policy: {complaint}; nothing was run\n"));
        assert!(!place.has("marker"), "{config}: {done}");
    }
    place.run("right.toml", &["touch", "marker"]).exits(0);
    assert!(place.has("marker"), "the same command under a right policy");
}

#[test]
fn the_exec_tools_configuration_works_as_it_stands() {
    let disabled = EXEC_TOOL.replacen("\"enabled\": true", "\"enabled\": false", 1);
    let place = Place::with(&[("goclaw.json", EXEC_TOOL), ("disabled.json", &disabled), ("file", "hello\n")]);
    place.run("goclaw.json", &["cat", "file"]).exits(0).prints("hello\n").complains("");
    // 128 + SIGSYS: under this configuration a denied call kills.
    let done = place.run("goclaw.json", &["touch", "marker"]);
    done.exits(159);
    assert!(!place.has("marker"), "{done}");
    let done = place.run("goclaw.json", &["rm", "file"]);
    done.exits(126);
    assert!(place.has("file"), "{done}");
    let done = place.run("disabled.json", &["cat", "file"]);
    done.exits(126).prints("").complains("gatekeeper: refused: disabled.json:4: exec is disabled by this policy. Nothing was run; a retry is refused as well\n");
}

#[test]
fn what_a_base_denies_stays_denied() {
    let place = Place::with(&[
        ("write.toml", "profile = 'write'"),
        ("base.toml", "extends = 'write.toml'\n[syscalls]\ndeny = '@file-write'"),
        ("near.toml", "extends = 'base.toml'\n[syscalls]\nallow = '@file-write'"),
    ]);
    let done = place.run("near.toml", &["mkdir", "made"]);
    done.exits(1);
    assert!(!place.has("made"), "{done}");
    let mut flags = Command::new(gatekeeper());
    flags.current_dir(&place.0).args(["run", "--config", "base.toml", "--allow", "@file-write", "--", "mkdir", "made"]);
    let done = run(&mut flags);
    done.exits(1);
    assert!(!place.has("made"), "{done}");
    place.run("write.toml", &["mkdir", "made"]).exits(0);
    assert!(place.has("made"), "without the base's denial");
}

#[test]
fn a_policy_cannot_be_changed_from_inside() {
    let place = Place::with(&[("base.toml", "profile = 'write'"), ("near.toml", "extends = 'base.toml'")]);
    let before = fs::read(place.0.join("base.toml")).expect("own file");
    let _ = place.run("near.toml", &["cp", "near.toml", "base.toml"]);
    assert_eq!(fs::read(place.0.join("base.toml")).expect("own file"), before);
    place.run("near.toml", &["cp", "near.toml", "copy"]).exits(0);
    assert!(place.has("copy"), "beside it may be written");
}
