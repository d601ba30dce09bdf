//! The schemas match what gatekeeper writes and reads, the shells accept their completions, and man the manual pages.

use super::root;
use crate::support::{Done, fresh, gatekeeper, has, on_path, probe, run, skip};
use std::path::{Path, PathBuf};
use std::process::Command;

const PYTHON: &str = "/usr/bin/python3";

fn can_validate() -> bool {
    let imports = run(Command::new(PYTHON).args(["-c", "import jsonschema, tomllib; jsonschema.Draft202012Validator"]));
    if imports.code() != Some(0) {
        skip("python3-jsonschema, or a Python with tomllib, is not installed");
    }
    imports.code() == Some(0)
}

/// The verdict of the validator on some files. `of` is policy or report.
fn validated(of: &str, exact: bool, files: &[PathBuf]) -> Done {
    let printed = run(Command::new(gatekeeper()).args(["schema", of]));
    printed.exits(0).complains("");
    let schema = fresh("schema").join("schema.json");
    std::fs::write(&schema, &printed.output.stdout).expect("own directory");
    let mut command = Command::new(PYTHON);
    command.arg(root().join("tests/documents/validate.py")).args(exact.then_some("--exact")).arg(&schema).args(files);
    let done = run(&mut command);
    done.exits(0);
    done
}

/// Runs whose reports together contain everything that a report can contain.
fn runs(dir: &Path) -> Vec<(&'static str, Vec<String>, i32)> {
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let line = |flags: &str, line: &str| [words(flags), vec!["-c".to_owned(), line.to_owned()]].concat();
    let python = |flags: &str, code: &str| [words(flags), words("-- python3 -c"), vec![code.to_owned()]].concat();
    let in_dir = |name: &str| dir.join(name).display().to_string();
    std::fs::write(dir.join("script"), "#!/bin/sh\nexit 3\n").expect("own directory");
    std::fs::write(dir.join("text"), "text\n").expect("own directory");
    use std::os::unix::fs::PermissionsExt;
    for name in ["script", "text"] {
        std::fs::set_permissions(dir.join(name), std::fs::Permissions::from_mode(0o755)).expect("own");
    }
    let fixed = probe("hello", &["-static"]).display().to_string();
    vec![
        ("plain", words("-- true"), 0),
        ("own code", line("", "exit 7"), 7),
        ("script", vec!["--".to_owned(), in_dir("script")], 3),
        ("static", vec!["--".to_owned(), fixed.clone()], 0),
        ("static blocked", [words("--static block --"), vec![fixed]].concat(), 126),
        ("signal", line("", "kill -USR1 $$"), 138),
        ("killed for a call", python("--on-violation kill", "import socket; socket.socket()"), 159),
        ("logged", python("--on-violation log", "import socket; socket.socket()"), 0),
        ("time", words("--timeout 1s -- sleep 60"), 124),
        ("memory", python("--memory 60M", "import time; x = bytearray(400 << 20); time.sleep(60)"), 137),
        ("limits", words("--memory 1G --processes 9 --files 99 --cpu 60s --disk 1G -p write -- true"), 0),
        ("no such command", words("-- no-such-command"), 127),
        ("no such directory", words("--cwd /nowhere -- true"), 125),
        ("not a program", vec!["--".to_owned(), in_dir("text")], 126),
        ("write denied", words("-- touch /usr/new"), 1),
        ("read denied", words("--explain --deny-path /etc/hostname -- cat /etc/hostname"), 1),
        ("host denied", words("--net hosts=a.test -- curl -sf http://b.test/"), 22),
        ("loopback", python("--net loopback", "import socket; socket.socket().connect_ex(('127.0.0.1', 1))"), 0),
        ("isolated", words("--isolate preferred -p write -- true"), 0),
        ("isolated hosts", words("--isolate preferred --net hosts=a.test -- true"), 0),
        ("unrestricted", words("-p unrestricted -- true"), 0),
        ("exact list", words("--deny getuid -p write -- true"), 0),
    ]
}

#[test]
fn reports_are_what_their_schema_says() {
    if !can_validate() || !has("curl") {
        return;
    }
    let (dir, reports) = (fresh("reported"), fresh("reports"));
    let mut files = Vec::new();
    for (count, (name, words, code)) in runs(&dir).into_iter().enumerate() {
        for way in ["report", "json"] {
            let file = reports.join(format!("{count}-{way}.json"));
            let mut command = Command::new(gatekeeper());
            command.args(["run", "--quiet"]).current_dir(&dir).env("HOME", fresh("home")).env("PATH", "/usr/bin:/bin");
            match way {
                "report" => command.arg("--report").arg(&file),
                _ => command.arg("--json"),
            };
            let done = run(command.args(&words));
            assert_eq!(done.code(), Some(code), "{name}: {done}");
            if way == "json" {
                std::fs::write(&file, &done.output.stdout).expect("own directory");
            }
            files.push(file);
        }
    }
    // Captured and truncated output, a spill, and a kept temporary directory.
    let mut command = Command::new(gatekeeper());
    command.args(["run", "--quiet", "--json", "-p", "write", "--keep-tmp", "--output", "4K", "--spill"]).arg(&dir);
    let done = run(command.args(["-c", "seq 9999; seq 9999 >&2"]).current_dir(&dir));
    let cut: serde_json::Value = serde_json::from_slice(&done.exits(0).output.stdout).expect("JSON");
    assert!(cut["stdout_truncated"].as_u64() > Some(0) && cut["stderr_file"].is_string(), "{cut:#}");
    std::fs::remove_dir_all(cut["kept"].as_str().expect("kept")).expect("own");
    files.push(reports.join("cut.json"));
    std::fs::write(reports.join("cut.json"), &done.output.stdout).expect("own directory");

    let told = validated("report", true, &files);
    assert_eq!(told.stdout().lines().filter(|line| line.ends_with(" ok")).count(), files.len(), "{told}");
    // The reports contain every outcome and layer.
    let all: String = files.iter().map(|file| std::fs::read_to_string(file).expect("written above")).collect();
    for outcome in ["exited", "signaled", "timeout", "limit", "refused", "setup_failed", "not_found"] {
        assert!(all.contains(&format!("\"outcome\":\"{outcome}\"")), "{outcome}");
    }
    for layer in ["seccomp", "landlock", "limits", "namespaces", "proxy"] {
        assert!(all.contains(&format!("{{\"layer\":\"{layer}\"")), "{layer}");
    }
}

#[test]
fn a_report_that_is_not_one_is_noticed() {
    if !can_validate() {
        return;
    }
    let dir = fresh("forged");
    let done = run(Command::new(gatekeeper()).args(["run", "--json", "-q", "--", "touch", "/usr/new"]));
    let whole: serde_json::Value = serde_json::from_slice(&done.output.stdout).expect("JSON");
    let forge = |name: &str, pointer: &str, value: serde_json::Value| {
        let mut forged = whole.clone();
        *forged.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer} in {whole:#}")) = value;
        let file = dir.join(name);
        std::fs::write(&file, forged.to_string()).expect("own directory");
        file
    };
    let files = [
        forge("a.json", "/outcome", "vanished".into()),
        forge("b.json", "/exit_code", "1".into()),
        forge("c.json", "/layers/0/status", "perhaps".into()),
        forge("d.json", "/denials/0/count", 0.into()),
        forge("e.json", "/outcome", "timeout".into()),
        forge("f.json", "/schema", 2.into()),
    ];
    let told = validated("report", false, &files);
    assert!(told.stdout().lines().all(|line| !line.ends_with(" ok")), "{told}");
}

/// gatekeeper and the schema accept the same policies.
#[test]
fn policies_are_what_their_schema_says() {
    if !can_validate() {
        return;
    }
    let dir = fresh("policies");
    let good = [
        "",
        "profile = 'write'\non_violation = 'kill'\nstatic_binaries = 'block'\nrequire_sandbox = false\ntimeout = '30s'\n",
        "profile = ['write', 'network']\ntimeout = 90\n",
        "[syscalls]\nallow = ['@ipc', 'ptrace']\ndeny = 'mount:umount2'\n",
        "profile = 'custom'\n[syscalls]\ndefault = 'deny'\nallow = 'read:write'\n[[syscalls.rule]]\nsyscall = 'kill'\naction = 'errno:EACCES'\nargs = [{ index = 1, op = 'eq', value = 9 }]\n",
        "[paths]\nread = ['/usr', '/etc']\nwrite = ['out']\nexecute = ['/usr/bin']\ndeny = ['/etc/hosts']\n",
        "[network]\nmode = 'hosts'\nhosts = ['a.org', '*.b.org:443']\nports = [443]\nunix = ['/run/x.sock']\n",
        "[limits]\nmemory = '512M'\nprocesses = 64\nfiles = 256\ncpu = '60s'\noutput = '1M'\n",
        "[env]\npass = ['LANG']\nset = { A = 'b' }\n[commands]\nallow = ['git']\nblock = ['rm']\n",
        "[bubblewrap]\nmode = 'preferred'\nread = ['/opt']\nwrite = ['/srv']\n",
    ];
    let bad = [
        "profil = 'write'\n",
        "profile = 'everything'\n",
        "on_violation = 'ignore'\n",
        "timeout = 'soon'\n",
        "[syscalls]\nallow = 1\n",
        "[paths]\nwrites = ['x']\n",
        "[network]\nmode = 'some'\n",
        "[limits]\nmemory = 'much'\n",
        "[bubblewrap]\nmode = 'always'\n",
        "require_sandbox = 'yes'\n",
    ];
    let write = |(count, text): (usize, &&str)| {
        let file = dir.join(format!("{count}.toml"));
        std::fs::write(&file, text).expect("own directory");
        file
    };
    let (good, bad): (Vec<PathBuf>, Vec<PathBuf>) = (
        good.iter().enumerate().map(write).collect(),
        bad.iter().enumerate().map(|(count, text)| write((count + 100, text))).collect(),
    );
    let linted = |file: &PathBuf| run(Command::new(gatekeeper()).arg("lint").arg(file)).code();
    for file in &good {
        assert_ne!(linted(file), Some(2), "{}", file.display());
    }
    for file in &bad {
        assert_eq!(linted(file), Some(2), "{}", file.display());
    }
    // The schema accepts the policies that gatekeeper writes.
    let (learned, imported) = (dir.join("learned.toml"), dir.join("imported.toml"));
    run(Command::new(gatekeeper()).args(["learn", "-q", "-o"]).arg(&learned).args(["--", "cat", "/etc/hostname"]))
        .exits(0);
    let docker = root().join("tests/oci/docker-default.json");
    run(Command::new(gatekeeper()).arg("import").arg(docker).arg("-o").arg(&imported)).exits(0);
    let all: Vec<PathBuf> = good.into_iter().chain([learned, imported]).collect();
    let told = validated("policy", false, &all);
    assert!(told.stdout().lines().all(|line| line.ends_with(" ok")), "{told}");
    let told = validated("policy", false, &bad);
    assert!(told.stdout().lines().all(|line| !line.ends_with(" ok")), "{told}");
}

#[test]
fn every_shell_takes_its_completions() {
    let dir = fresh("shells");
    for (shell, check) in [("zsh", &["-n"][..]), ("fish", &["--no-execute"]), ("bash", &["-n"])] {
        if !has(shell) {
            continue;
        }
        let script = dir.join(shell);
        let done = run(Command::new(gatekeeper()).args(["completions", shell]));
        std::fs::write(&script, &done.exits(0).output.stdout).expect("own directory");
        run(Command::new(shell).args(check).arg(&script)).exits(0).prints("").complains("");
    }
    if on_path("fish") {
        let asked = format!("source {}; complete -C 'gatekeeper comp'", dir.join("fish").display());
        let done = run(Command::new("fish").args(["--no-config", "-c", &asked]).env("HOME", &dir));
        let names: Vec<String> =
            done.stdout().lines().filter_map(|line| line.split('\t').next()).map(str::to_owned).collect();
        assert_eq!(names, ["compile", "completions"], "{done}");
    }
}

#[test]
fn man_takes_every_page() {
    if !has("man") {
        return;
    }
    let dir = fresh("pages");
    run(Command::new(gatekeeper()).arg("man").arg(&dir)).exits(0);
    let written = std::fs::read_dir(&dir).expect("own directory").flatten().map(|entry| entry.path());
    let by_hand = ["gatekeeper-policy.5", "libsandbox.7"].map(|page| root().join("docs/man").join(page));
    for page in written.chain(by_hand) {
        let mut command = Command::new("man");
        command.args(["--warnings", "-l"]).arg(&page).env("LC_ALL", "C.UTF-8").env("MANWIDTH", "100");
        command.env("MANROFFSEQ", "").env("MANPAGER", "cat");
        let done = run(&mut command);
        done.exits(0).complains("");
        assert!(done.stdout().contains("NAME") || done.stdout().contains("Name"), "{done}");
    }
    let page = std::fs::read_to_string(dir.join("gatekeeper-run.1")).expect("a page").replace("\\-", "-");
    for flag in ["--profile", "--net", "--isolate", "--report", "--on-violation"] {
        assert!(page.contains(flag), "{flag}");
    }
}
