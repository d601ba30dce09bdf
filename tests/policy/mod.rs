//! Policy files: gatekeeper enforces what they say, and runs nothing under an invalid one.

mod seeds;

use crate::support::{Done, fresh, gatekeeper, run};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The configuration from the exec tool's specification, unchanged.
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
    done.exits(126).prints("").complains("gatekeeper: refused: disabled.json:4: exec is disabled by this policy. Nothing was run; retrying will fail the same way\n");
}

/// Settings that are valid, have no effect and were probably a mistake cause a note with the next step.
#[test]
fn nothing_is_accepted_in_silence() {
    let place = Place::with(&[
        ("blank.json", r#"{"tools": {"exec": {"blockedCommands": ["curl -X POST"]}}}"#),
        ("library.json", r#"{"tools": {"exec": {"sandbox": {"libsandboxPath": "/no-such.so"}}}}"#),
        ("blank.toml", "[commands]\nblock = ['curl -X POST']"),
        ("vain.toml", "[paths]\ndeny = ['/no-such']"),
        ("pattern.toml", "[paths]\ndeny = ['*.no-such']"),
        ("ports.json", r#"{"network": {"ports": [80]}}"#),
    ]);
    let flags = |flags: &[&str]| {
        run(Command::new(gatekeeper()).current_dir(&place.0).arg("run").args(flags).args(["--", "touch", "marker"]))
    };
    let entry = "command 'curl -X POST': it matches nothing";
    for (words, told) in [
        (&["--config", "blank.json"][..], entry),
        (&["--config", "blank.toml"], entry),
        (
            &["--config", "library.json"],
            "libsandbox: /no-such.so: no such file; remove libsandbox (libsandboxPath) to use",
        ),
        (&["--env", "A B"], "variable 'A B': a name has no blanks"),
        (&["--env", "A B=1"], "variable 'A B': a name has no blanks"),
        (&["--memory", "10"], "10 bytes is too small for any program; the least is 65536; did you mean 10M?"),
        (&["--memory", "65535"], "65535 bytes is too small for any program; the least is 65536;"),
        (&["--memory", "0"], "0 bytes is too small for any program; the least is 65536; for no limit, leave it out"),
        (
            &["--disk", "10"],
            "limits.disk: 10 bytes is too small for a written file; the least is 1024, or 0 for none; did you mean 10M?",
        ),
        (
            &["--output", "10"],
            "limits.output: 10 bytes is too small for a captured stream; the least is 100, or 0 for none; did you mean 10M?",
        ),
        (&["--net", "hosts"], "network mode 'hosts': name at least one host, as in hosts=example.org"),
        (&["--net", "hosts="], "network mode 'hosts=': name at least one host, as in hosts=example.org"),
        (&["--files", "1"], "limits.files: 1 is too small; the least is 16"),
        (&["--processes", "0"], "limits.processes: 0 is too small; the least is 1"),
        (&["--net", "example.org"], "to reach that host alone, write hosts=example.org"),
        (&["--net", "host=example.org:443"], "write hosts=example.org:443"),
        (&["-p", "write,network"], "join profiles with '+', as in write+network, or repeat the flag"),
    ] {
        let done = flags(&[&["-p", "write"], words].concat());
        done.exits(125).prints("");
        assert!(done.stderr().contains(told), "{words:?}: {done}");
        assert!(!place.has("marker"), "{words:?}: {done}");
    }
    for (words, told) in [
        (["--deny-path", "/no-such"], "warning: --deny-path /no-such: does not exist, so nothing is denied"),
        (["--deny-path", "**/*.no-such"], "warning: --deny-path **/*.no-such: matches nothing, so nothing is denied"),
        (["--deny-path", "./no-such/*"], "warning: --deny-path ./no-such/*: matches nothing, so nothing is denied"),
        (["--config", "vain.toml"], "warning: paths.deny /no-such: does not exist, so nothing is denied"),
        (["--config", "pattern.toml"], "warning: paths.deny *.no-such: matches nothing, so nothing is denied"),
        (["--config", "ports.json"], "warning: network.ports 80: there is no network, so no port can be reached"),
        (
            ["--write", "no-such"],
            "warning: --write no-such: does not exist, so nothing is granted; create it before the run",
        ),
        (["--read", "/no-such"], "warning: --read /no-such: does not exist, so nothing is granted"),
        (["--unix", "/no-such"], "warning: --unix /no-such: no such socket, so nothing is granted"),
        (["--port", "80"], "warning: --port 80: there is no network, so no port can be reached; add --net loopback"),
    ] {
        let done = flags(&[&["-p", "write"], &words[..]].concat());
        done.exits(0);
        let lines: Vec<String> = done.stderr().lines().map(str::to_owned).collect();
        assert_eq!(lines.len(), 1, "{done}");
        assert!(lines[0].starts_with(&format!("gatekeeper: {told}")), "{done}");
    }
    // The positive controls: settings that have an effect cause no note.
    let fine =
        ["-p", "write", "--deny-path", "/etc", "--write", ".", "--read", "/etc", "--env", "A=b c", "--files", "16"];
    flags(&fine).exits(0).complains("");
    flags(&["-p", "write", "--net", "loopback", "--port", "80", "--memory", "64M"]).exits(0).complains("");
    flags(&["-p", "write", "--deny-path", "blank.*", "--disk", "1K", "--output", "100"]).exits(0).complains("");
    flags(&["-p", "write", "--disk", "0", "--output", "0"]).exits(0).complains("");
}

/// The `[sandbox]` table from an agent's bubblewrap specification, unchanged.
#[test]
fn the_sandbox_table_of_an_agent_works_as_it_stands() {
    const TABLE: &str = "[sandbox]\nenabled = true\nisolate_network = true\nextra_rw_paths = [\"/home/user/.cargo\"]\n\
                         extra_ro_paths = [\"/opt/tools\"]\n";
    let place = Place::with(&[
        ("agent.toml", TABLE),
        ("auto.toml", "theme = 'dark'\n[sandbox]\n"),
        ("off.toml", "[sandbox]\nenabled = false\n"),
    ]);
    let plan = |config: &str| {
        run(Command::new(gatekeeper()).current_dir(&place.0).args(["plan", "--config", config, "--", "true"]))
    };
    for config in ["agent.toml", "auto.toml"] {
        let done = plan(config);
        assert!(done.stdout().contains("profile write") && done.stdout().contains("no network"), "{config}: {done}");
    }
    assert!(plan("off.toml").stdout().contains("landlock           off"), "{}", plan("off.toml"));
    if !crate::isolate::works() {
        return;
    }
    let done = place.run("agent.toml", &["sh", "-c", "echo kept > marker; ls /sys/class 2>/dev/null; true"]);
    done.exits(0);
    assert!(place.has("marker"), "the working directory is writable{done}");
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
