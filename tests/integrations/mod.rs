//! The files in integrations/ are well-formed, and the commands in them work.

mod containers;

use crate::bindings::{packed, python, top};
use crate::support::{Done, copy_program, fetched, fresh, gatekeeper, has, run};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

fn read(name: &str) -> String {
    std::fs::read_to_string(top().join("integrations").join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn json(name: &str) -> Value {
    serde_json::from_str(&read(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn strings(value: &Value) -> Vec<String> {
    let items = value.as_array().unwrap_or_else(|| panic!("a list: {value}"));
    items.iter().map(|item| item.as_str().expect("a string").to_owned()).collect()
}

/// A directory with gatekeeper and gatekeeper-sh, and a PATH that begins with it.
fn programs() -> (PathBuf, String) {
    let dir = fresh("programs");
    copy_program(gatekeeper(), &dir.join("gatekeeper"));
    copy_program(&top().join("integrations/gatekeeper-sh"), &dir.join("gatekeeper-sh"));
    let path = format!("{}:{}", dir.display(), std::env::var("PATH").unwrap_or_default());
    (dir, path)
}

/// YAML as JSON, by a parser of Python.
fn yaml(name: &str) -> Option<Value> {
    let parser = fetched::python("PyYAML==6.0.2")?;
    let mut python = Command::new("/usr/bin/python3");
    python.args(["-c", "import json, sys, yaml; print(json.dumps(yaml.safe_load(open(sys.argv[1]))))"]);
    let done = run(python.arg(top().join("integrations").join(name)).env("PYTHONPATH", parser));
    done.exits(0);
    Some(serde_json::from_str(&done.stdout()).expect("JSON"))
}

fn shell(dir: &Path, path: &str, words: &[&str]) -> Done {
    let mut command = Command::new(words[0]);
    run(command.args(&words[1..]).current_dir(dir).env("PATH", path).env("LC_ALL", "C"))
}

/// Sends a line to a server, and closes its input when an answer has come, or after a minute.
const SESSION: &str = r#"first=$1; shift
    { printf '%s\n' "$first"; left=600; until [ -s answer ] || [ $left = 0 ]; do sleep 0.1; left=$((left - 1)); done; } | "$@" > answer
    cat answer"#;

#[test]
fn the_mcp_settings_of_agents_start_a_server() {
    let claude = &json("claude-code/mcp.json")["mcpServers"]["shell"];
    let codex: toml::Table = read("codex/config.toml").parse().expect("TOML");
    let codex = serde_json::to_value(&codex["mcp_servers"]["shell"]).expect("JSON");
    for server in [claude, &codex] {
        assert_eq!(server["command"], "gatekeeper");
        let first = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}"#;
        let mut mcp = Command::new("sh");
        mcp.args(["-c", SESSION, "sh", first]).arg(gatekeeper());
        let done = run(mcp.args(strings(&server["args"])).current_dir(fresh("work")));
        let answer: Value =
            serde_json::from_str(done.stdout().lines().next().unwrap_or_default()).unwrap_or_else(|_| panic!("{done}"));
        assert_eq!(answer["result"]["serverInfo"]["name"], "gatekeeper", "{done}");
    }
}

#[test]
fn the_wrapper_runs_each_line_confined_and_nothing_without_gatekeeper() {
    let (programs, path) = programs();
    let dir = fresh("work");
    shell(&dir, &path, &["gatekeeper-sh", "-c", "echo \"$0 $1\" > kept; cat kept", "zero", "one two"])
        .exits(0)
        .prints("zero one two\n");
    // One argument, as CLAUDE_CODE_SHELL_PREFIX gives it.
    shell(&dir, &path, &["gatekeeper-sh", "echo 'a  b' && exit 3"]).exits(3).prints("a  b\n");
    shell(&dir, &path, &["gatekeeper-sh", "-c", "echo lost > /usr/there"]).exits(2);
    let words = "--profile unrestricted; echo ran";
    assert!(!shell(&dir, &path, &["gatekeeper-sh", words]).stdout().contains("unrestricted"));
    // As a login shell, which some agents ask for.
    for words in [&["-lc"][..], &["-l", "-c"]] {
        let line = ["echo $GATEKEEPER_SANDBOX $0 $1; touch /usr/new", "zero", "one two"];
        let done = shell(&dir, &path, &[&["gatekeeper-sh"], words, &line].concat());
        assert_eq!((done.stdout().as_str(), done.code()), ("write zero one two\n", Some(1)), "{done}");
    }
    let wrong: [&[&str]; 6] = [&[], &["-c"], &["-lc"], &["-l", "echo ran"], &["-i"], &["echo", "ran"]];
    for wrong in wrong {
        shell(&dir, &path, &[&["gatekeeper-sh"], wrong].concat()).exits(125).prints("");
    }
    let settings = json("claude-code/settings.json");
    assert_eq!(settings["env"]["CLAUDE_CODE_SHELL_PREFIX"], "/usr/local/bin/gatekeeper-sh");
    let mut flagged = Command::new(programs.join("gatekeeper-sh"));
    flagged.arg("echo $GATEKEEPER_SANDBOX").current_dir(&dir).env("PATH", &path);
    flagged.env("GATEKEEPER_SH_FLAGS", settings["env"]["GATEKEEPER_SH_FLAGS"].as_str().expect("text"));
    run(&mut flagged).exits(0).prints("write\n");
    std::fs::remove_file(programs.join("gatekeeper")).expect("own file");
    let missing = shell(&dir, &format!("{}:/usr/bin:/bin", programs.display()), &["gatekeeper-sh", "echo ran"]);
    missing.exits(127).prints("");
}

/// A program in the place of Codex shows what it gets.
#[test]
fn codex_as_a_whole_is_confined_and_has_its_own_directory() {
    let (programs, path) = programs();
    copy_program(&top().join("integrations/codex/confined-codex"), &programs.join("confined-codex"));
    let codex = "#!/bin/sh\necho \"$*\"; cat ~/.codex/auth.json; echo new >> ~/.codex/auth.json; : > ~/.codex/log; : > here\n\
                 cat ~/.ssh/id_ed25519 2>&1; touch /usr/new 2>&1; echo ${HTTPS_PROXY%:*}\n";
    std::fs::write(programs.join("codex"), codex).expect("own directory");
    run(Command::new("chmod").arg("755").arg(programs.join("codex"))).exits(0);
    let home = fresh("home");
    for (name, text) in [(".codex/auth.json", "login\n"), (".ssh/id_ed25519", "key\n"), ("work/notes", "")] {
        let file = home.join(name);
        std::fs::create_dir_all(file.parent().expect("a parent")).expect("own directory");
        std::fs::write(file, text).expect("own directory");
    }
    let mut wrapper = Command::new(programs.join("confined-codex"));
    wrapper.args(["exec", "two words"]).current_dir(home.join("work")).env("PATH", &path).env("HOME", &home);
    wrapper.env_remove("CODEX_HOME").env("LC_ALL", "C").env("CODEX_FLAGS", "--timeout 60s");
    let done = run(&mut wrapper);
    let key = home.join(".ssh/id_ed25519");
    done.exits(0).prints(&format!(
        "--sandbox danger-full-access exec two words\nlogin\ncat: {}: Permission denied\n\
         touch: cannot touch '/usr/new': Permission denied\nhttp://127.0.0.1\n",
        key.display()
    ));
    let text = |name: &str| std::fs::read_to_string(home.join(name)).expect("there");
    assert_eq!(
        (text(".codex/auth.json"), text(".codex/log"), text("work/here")),
        ("login\nnew\n".into(), "".into(), "".into())
    );
    std::fs::remove_file(programs.join("gatekeeper")).expect("own file");
    wrapper.env("PATH", format!("{}:/usr/bin:/bin", programs.display()));
    run(&mut wrapper).exits(127).prints("");
}

#[test]
fn npm_runs_scripts_by_the_wrapper_and_cargo_programs_by_the_runner() {
    let (programs, path) = programs();
    if has("npm") {
        let dir = fresh("npm");
        let settings = read("npm/.npmrc").replace("/usr/local/bin", &programs.display().to_string());
        assert!(settings.contains("script-shell="), "{settings}");
        std::fs::write(dir.join(".npmrc"), settings).expect("own directory");
        let manifest =
            r#"{"name": "a", "version": "1.0.0", "scripts": {"show": "echo $GATEKEEPER_SANDBOX; touch /usr/new"}}"#;
        std::fs::write(dir.join("package.json"), manifest).expect("own directory");
        let done = shell(&dir, &path, &["npm", "run", "--silent", "show"]);
        assert_eq!(done.stdout(), "write\n", "{done}");
        assert_ne!(done.code(), Some(0), "{done}");
    }
    let dir = fresh("cargo");
    std::fs::create_dir_all(dir.join("src")).expect("own directory");
    run(Command::new("mkdir").arg(dir.join(".cargo"))).exits(0);
    std::fs::write(dir.join(".cargo/config.toml"), read("cargo/config.toml")).expect("own directory");
    std::fs::write(dir.join("Cargo.toml"), "[package]\nname = 'small'\nversion = '1.0.0'\n[workspace]\n")
        .expect("own directory");
    let program = r#"fn main() { println!("{:?} {}", std::env::var("GATEKEEPER_SANDBOX"), std::fs::write("/usr/new", "").is_err()) }"#;
    std::fs::write(dir.join("src/main.rs"), program).expect("own directory");
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["run", "--quiet", "--offline"])
        .current_dir(&dir)
        .env("PATH", &path)
        .env("CARGO_TARGET_DIR", dir.join("target"));
    run(cargo.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS")).exits(0).prints("Ok(\"write\") true\n");
    assert!(!Path::new("/usr/new").exists());
}

#[test]
fn the_action_runs_its_line_and_shows_what_was_denied() {
    let Some(action) = yaml("github-action/action.yml") else { return };
    assert_eq!(action["runs"]["using"], "composite");
    let step = action["runs"]["steps"].as_array().and_then(|steps| steps.last()).expect("a step");
    // No expression is pasted into a script.
    for step in action["runs"]["steps"].as_array().expect("steps") {
        assert!(!step["run"].as_str().expect("a script").contains("${{"), "{step}");
    }
    let dir = fresh("runner");
    // With the wheel as its input, the first step installs it and appends its directory to the runner's PATH.
    let Some(wheel) = fetched::python(python::HATCHLING).and_then(|hatchling| packed("wheel", Some(&hatchling))) else {
        return;
    };
    let mut install = Command::new("bash");
    install.args(["-e", "-c", action["runs"]["steps"][0]["run"].as_str().expect("a script")]);
    install.env("RUNNER_TEMP", &dir).env("GITHUB_PATH", dir.join("path")).env("PACKAGE", &wheel);
    run(install.env("PIP_NO_INDEX", "1").env("PIP_DISABLE_PIP_VERSION_CHECK", "1")).exits(0);
    let added = std::fs::read_to_string(dir.join("path")).expect("the step wrote it");
    let path = format!("{}:{}", added.trim(), std::env::var("PATH").unwrap_or_default());
    let act = |line: &str| {
        let mut bash = Command::new("bash");
        bash.args(["-e", "-c", step["run"].as_str().expect("a script")]).current_dir(fresh("work")).env("PATH", &path);
        bash.env("RUNNER_TEMP", &dir)
            .env("LINE", line)
            .env("FLAGS", action["inputs"]["flags"]["default"].as_str().expect("text"));
        run(&mut bash)
    };
    act("echo kept > file; cat file").exits(0).prints("kept\n");
    act("exit 7").exits(7);
    let denied = act("touch /usr/new");
    denied.exits(1);
    assert!((denied.stdout() + &denied.stderr()).contains("/usr/new"), "{denied}");
}

/// pre-commit itself, which starts each hook with the names of the files that it is for.
#[test]
fn hooks_of_pre_commit_pass_and_fail_as_without_gatekeeper() {
    const PRE_COMMIT: &str = "pre-commit==4.3.0 cfgv==3.4.0 identify==2.6.15 nodeenv==1.9.1 PyYAML==6.0.2 virtualenv==20.35.3 \
                              distlib==0.4.0 filelock==3.19.1 platformdirs==4.4.0";
    let Some(packages) = fetched::python(PRE_COMMIT) else { return };
    if !has("git") {
        return;
    }
    let (_, path) = programs();
    let (dir, home) = (fresh("work"), fresh("home"));
    let settings = read("pre-commit/.pre-commit-config.yaml");
    // One more that tries to change something.
    let more = "      - id: writes\n        name: writes\n        entry: gatekeeper run --quiet --profile read -- touch new\n        language: system\n";
    std::fs::write(dir.join(".pre-commit-config.yaml"), settings + more).expect("own directory");
    let passes = |hook: &str, file: &str, text: &str| {
        std::fs::write(dir.join(file), text).expect("own directory");
        let line = "git init -q . 2>/dev/null; git add -A; exec /usr/bin/python3 -m pre_commit run --all-files --color never \"$1\"";
        let mut hooks = Command::new("sh");
        hooks.args(["-c", line, "sh", hook]).current_dir(&dir).env("PATH", &path).env("HOME", &home);
        let done = run(hooks.env("PYTHONPATH", &packages).env("LC_ALL", "C.UTF-8").env_remove("GIT_DIR"));
        assert_eq!(done.stdout().contains("Passed"), done.code() == Some(0), "{done}");
        assert_eq!(done.stdout().contains("Failed"), done.code() == Some(1), "{done}");
        std::fs::remove_file(dir.join(file)).expect("own file");
        done.code() == Some(0)
    };
    assert!(passes("shell-syntax", "a.sh", "echo good\n") && !passes("shell-syntax", "a.sh", "if then\n"));
    assert!(passes("no-trailing-blanks", "a.txt", "good\n") && !passes("no-trailing-blanks", "a.txt", "bad \n"));
    assert!(!passes("writes", "a.txt", "good\n") && !dir.join("new").exists());
}

#[test]
fn the_commands_of_containers_and_services_are_accepted() {
    let plan = |words: &[String]| {
        let mut plan = Command::new(gatekeeper());
        run(plan.arg("plan").args(words).current_dir(fresh("work"))).exits(0);
    };
    let container = json("devcontainer/devcontainer.json");
    let profile = &container["customizations"]["vscode"]["settings"]["terminal.integrated.profiles.linux"]["confined"];
    assert_eq!(profile["path"], "gatekeeper");
    plan(&strings(&profile["args"])[1..]);
    let exec = container["containerEnv"]["AGENT_EXEC"]
        .as_str()
        .expect("text")
        .strip_prefix("gatekeeper run --json ")
        .expect("a run");
    plan(&exec.split(' ').map(str::to_owned).chain(["true".to_owned()]).collect::<Vec<_>>());
    let dockerfile = container["build"]["dockerfile"].as_str().expect("a path");
    // From .devcontainer/ of a project that has a copy of the folder; here, from the folder's own place.
    assert!(dockerfile.ends_with("docker/Dockerfile"), "{dockerfile}");
    let dockerfile = read("docker/Dockerfile");
    let list = |word: &str| -> Vec<String> {
        let line = dockerfile.lines().find_map(|line| line.strip_prefix(word)).unwrap_or_else(|| panic!("{word}"));
        strings(&serde_json::from_str(line).expect("a list"))
    };
    plan(&[&list("ENTRYPOINT ")[2..], &list("CMD ")].concat());
    let unit = read("systemd/confined@.service");
    let line =
        unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/gatekeeper run ")).expect("a command");
    let dir = fresh("service");
    if has("systemd-analyze") {
        // systemd looks for the programs, so they are ones that this machine has.
        let known = unit.replace("/usr/bin/gatekeeper", "/bin/true");
        std::fs::write(dir.join("confined@.service"), known).expect("own directory");
        let mut verify = Command::new("systemd-analyze");
        run(verify.arg("verify").arg(dir.join("confined@.service"))).exits(0).complains("");
    }
    let line = line.replace("${LOGS_DIRECTORY}", &dir.display().to_string()).replace("/opt/%i/main", "/bin/true");
    let mut service = Command::new(gatekeeper());
    run(service.arg("run").args(line.split(' ')).current_dir(fresh("work"))).exits(0);
    assert!(dir.join("audit.jsonl").exists(), "the service has its audit trail");
}
