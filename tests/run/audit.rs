//! `--audit FILE` and `gatekeeper audit`.

use crate::network::server::Server;
use crate::network::{confined, users};
use crate::support::{Done, fresh, gatekeeper, has, run};
use serde_json::Value;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

fn audit(words: &[&str], file: &Path) -> Done {
    run(Command::new(gatekeeper()).arg("audit").args(words).arg(file))
}

fn lines(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).expect("written");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn every_decision_is_a_line() {
    if !has("curl") {
        return;
    }
    for user in users() {
        for isolate in [&[][..], &["--isolate", "required"]] {
            let (dir, outside) = (fresh("audited"), fresh("trail"));
            let file = outside.join("audit.jsonl");
            std::fs::write(dir.join("index.html"), "hello").expect("own directory");
            let server = Server::of(&dir);
            let net = format!("hosts={}", server.host());
            let line = format!(
                "cat index.html; cat /etc/shadow; true > new; curl -sS -d the-body {}?q=the-query; curl -sS http://denied.test/",
                server.url("index.html")
            );
            let name = file.to_str().expect("text");
            let flags = [&["--profile", "read", "--net", &net, "--audit", name][..], isolate].concat();
            confined(&dir, user, &flags).env("TOKEN", "the-secret").args(&["-c", &line]).go();
            let lines = lines(&file);
            let has = |kind: &str, decision: &str, key: &str, value: &str| {
                let is = |line: &&Value| line["kind"] == kind && line["decision"] == decision && line[key] == value;
                assert!(lines.iter().any(|line| is(&line)), "{kind} {decision} {value}: {lines:#?}");
            };
            let own = dir.canonicalize().expect("own").join("index.html");
            has("exec", "allowed", "path", "/usr/bin/cat");
            has("open", "allowed", "path", own.to_str().expect("text"));
            has("open", "denied", "path", own.with_file_name("new").to_str().expect("text"));
            has("host", "allowed", "host", &server.host());
            has("host", "denied", "host", "denied.test:80");
            assert_eq!((&lines[0]["kind"], &lines[lines.len() - 1]["kind"]), (&"start".into(), &"end".into()));
            let runs: std::collections::BTreeSet<&str> = lines.iter().filter_map(|line| line["run"].as_str()).collect();
            assert_eq!(runs.len(), 1);
            assert!(lines.iter().all(|line| line["time"].as_str().is_some_and(|time| time.ends_with('Z'))));
            let text = std::fs::read_to_string(&file).expect("written");
            for secret in ["the-secret", "the-body", "the-query"] {
                assert!(!text.contains(secret), "{secret}");
            }
            assert_eq!(std::fs::metadata(&file).expect("written").permissions().mode() & 0o777, 0o600);
            audit(&["verify"], &file).exits(0);
        }
    }
}

#[test]
fn a_changed_or_removed_line_is_found() {
    let (dir, outside) = (fresh("changed"), fresh("trail"));
    let file = outside.join("audit.jsonl");
    for _ in 0..2 {
        confined(&dir, None, &["--audit", file.to_str().expect("text")]).args(&["--", "cat", "/etc/hostname"]).go();
    }
    let text = std::fs::read_to_string(&file).expect("written");
    let done = audit(&["verify"], &file);
    assert!(done.exits(0).stdout().contains(": intact, "), "{done}");
    let lines: Vec<&str> = text.lines().collect();
    let last = lines.len() - 1;
    for (how, wrong) in [
        ("first removed", lines[1..].join("\n")),
        ("middle removed", [&lines[..3], &lines[4..]].concat().join("\n")),
        ("last removed", lines[..last].join("\n")),
        ("last run removed", lines[..lines.len() / 2].join("\n")),
        ("changed", text.trim_end().replacen("allowed", "denied", 1)),
        ("everything removed", String::new()),
    ] {
        std::fs::write(&file, wrong + "\n").expect("own file");
        let done = audit(&["verify"], &file);
        assert!(done.exits(1).stdout().contains(": CHANGED, "), "{how}: {done}");
        let json: Value = serde_json::from_str(&audit(&["verify", "--json"], &file).stdout()).expect("JSON");
        assert_eq!(json["intact"], false, "{how}");
    }
    std::fs::write(&file, &text).expect("own file");
    audit(&["verify"], &file).exits(0);
    audit(&["verify"], Path::new("/nowhere")).exits(2);
}

#[test]
fn the_command_cannot_touch_the_trail() {
    for user in users() {
        for isolate in [&[][..], &["--isolate", "required"]] {
            let dir = fresh("touched");
            let line = "cat audit.jsonl; echo x >> audit.jsonl; echo x > audit.jsonl.head; rm -f audit.jsonl; mv audit.jsonl y; \
                        ln audit.jsonl z; chmod 777 audit.jsonl; ls";
            let flags = [&["--profile", "write", "--audit", "audit.jsonl"][..], isolate].concat();
            let ran = confined(&dir, user, &flags).args(&["-c", line]).go();
            let file = dir.join("audit.jsonl");
            audit(&["verify"], &file).exits(0);
            assert!(!ran.done.stdout().contains("\"seq\""), "{}", ran.done);
            assert_eq!(lines(&file).last().expect("lines")["kind"], "end");
        }
    }
}

/// The path of a trail is no pattern.
#[test]
fn a_trail_with_wildcards_in_its_path_is_closed_as_well() {
    for user in users() {
        for name in ["x[.log", r"x\*.log", "[slug/audit.jsonl", "a?b.jsonl"] {
            let dir = fresh("odd-trail");
            if let Some((directory, _)) = name.split_once('/') {
                std::fs::create_dir(dir.join(directory)).expect("own directory");
                std::fs::set_permissions(dir.join(directory), std::fs::Permissions::from_mode(0o777)).expect("own");
            }
            let line = format!("cat '{name}' '{name}.head'; echo forged >> '{name}'; echo ran");
            let ran = confined(&dir, user, &["--profile", "write", "--audit", name]).args(&["-c", &line]).go();
            assert!(ran.done.exits(0).stdout() == "ran\n", "{}", ran.done);
            audit(&["verify"], &dir.join(name)).exits(0);
            assert_eq!(lines(&dir.join(name)).last().expect("lines")["kind"], "end");
        }
    }
}

#[test]
fn nothing_runs_without_the_trail() {
    let dir = fresh("no-trail");
    std::fs::write(dir.join("precious"), "mine").expect("own directory");
    symlink(dir.join("precious"), dir.join("link")).expect("own directory");
    std::fs::hard_link(dir.join("precious"), dir.join("hard")).expect("own directory");
    for wrong in ["link", "hard", "/dev/null", ".", "/proc/x", "nowhere/x"] {
        let mut command = Command::new(gatekeeper());
        let done = run(command.args(["run", "--audit", wrong, "--", "touch", "/dev/null"]).current_dir(&dir));
        assert!(done.exits(125).stderr().contains("--audit"), "{wrong}: {done}");
    }
    assert_eq!(std::fs::read_to_string(dir.join("precious")).expect("there"), "mine");
}

#[test]
fn a_variable_names_the_file_for_a_whole_session() {
    let (dir, outside) = (fresh("session"), fresh("trail"));
    let file = outside.join("audit.jsonl");
    for _ in 0..3 {
        let ran = confined(&dir, None, &[]).env("GATEKEEPER_AUDIT", &file).args(&["--", "env"]).go();
        assert!(!ran.done.exits(0).stdout().contains("GATEKEEPER_AUDIT"));
    }
    confined(&dir, None, &[]).env("GATEKEEPER_AUDIT", &file).args(&["--", "/etc/passwd"]).go().done.exits(126);
    let kinds = lines(&file);
    assert_eq!(kinds.iter().filter(|line| line["kind"] == "start").count(), 4);
    assert!(kinds.iter().any(|line| line["kind"] == "exec" && line["decision"] == "denied"));
    let shown = audit(&["show", "--decision", "denied", "--since", "1h"], &file);
    assert_eq!(shown.exits(0).stdout().lines().count(), 1, "{shown}");
    assert!(audit(&["show", "--since", "2999-01-01"], &file).exits(0).stdout().is_empty());
    audit(&["verify"], &file).exits(0);
}

/// tests/container has the trails of containers that start.
#[test]
fn a_container_that_does_not_start_has_a_trail_that_says_so() {
    let (dir, outside) = (fresh("untrailed"), fresh("trail"));
    let (file, config) = (outside.join("audit.jsonl"), dir.join("box.json"));
    let sandbox = serde_json::json!({"mode": "all", "workspaceRoot": dir.join("boxes")});
    let text = serde_json::json!({"agents": {"defaults": {"sandbox": sandbox}}}).to_string();
    std::fs::write(&config, text).expect("own directory");
    let mut command = Command::new(gatekeeper());
    command.args(["box", "exec", "--session", "s", "--config"]).arg(&config).args(["--", "true"]);
    command.env("GATEKEEPER_AUDIT", &file).env("GATEKEEPER_ENGINE", "/nonexistent/podman");
    run(command.env("XDG_STATE_HOME", dir.join("state"))).exits(125);
    let lines = lines(&file);
    assert_eq!((&lines[0]["kind"], &lines[0]["command"]), (&"start".into(), &"true".into()), "{lines:#?}");
    assert_eq!((lines.len(), &lines[1]["kind"], &lines[1]["outcome"]), (2, &"end".into(), &"setup_failed".into()));
    audit(&["verify"], &file).exits(0);
}

#[test]
fn serve_writes_the_trail_of_each_run() {
    let (dir, outside) = (fresh("served"), fresh("trail"));
    let (one, other) = (outside.join("one.jsonl"), outside.join("other.jsonl"));
    let line = |id: u32, flags: &[&str]| {
        let order = serde_json::json!({"id": id, "argv": ["cat", "/etc/hostname", "/etc/shadow"], "flags": flags});
        order.to_string() + "\n"
    };
    let orders = line(1, &[]) + &line(2, &["--audit", other.to_str().expect("text")]) + &line(3, &["--audit", ""]);
    let mut command = Command::new("sh");
    command.args(["-c", "printf '%s' \"$2\" | \"$1\" serve", "sh"]).arg(gatekeeper()).arg(orders).current_dir(&dir);
    let done = run(command.env("GATEKEEPER_AUDIT", &one));
    assert_eq!(done.exits(0).stdout().lines().count(), 3, "{done}");
    for file in [&one, &other] {
        let lines = lines(file);
        assert_eq!(lines.iter().filter(|line| line["kind"] == "start").count(), 1, "{file:?}");
        let ran = |line: &Value| line["path"].as_str().is_some_and(|path| path.ends_with("/cat"));
        assert!(lines.iter().any(|line| line["kind"] == "exec" && ran(line)), "{lines:#?}");
        audit(&["verify"], file).exits(0);
    }
    // Nothing runs without it.
    let mut command = Command::new("sh");
    command.args(["-c", "printf '%s' \"$2\" | \"$1\" serve", "sh"]).arg(gatekeeper()).arg(line(1, &[]));
    let done = run(command.current_dir(&dir).env("GATEKEEPER_AUDIT", "/nowhere/x"));
    let answer: Value = serde_json::from_str(&done.exits(0).stdout()).expect("a line");
    assert_eq!(answer["report"]["outcome"], "setup_failed", "{answer:#}");
    assert!(answer["report"]["error"].as_str().is_some_and(|error| error.contains("--audit /nowhere/x")), "{answer:#}");
}

#[test]
fn learn_writes_that_it_confined_nothing() {
    let (dir, outside) = (fresh("learned"), fresh("trail"));
    let file = outside.join("audit.jsonl");
    let mut command = Command::new(gatekeeper());
    command.args(["learn", "-o", "p.toml", "--", "true"]).current_dir(&dir).env("GATEKEEPER_AUDIT", &file);
    run(&mut command).exits(0);
    let lines = lines(&file);
    assert_eq!(
        lines.iter().map(|line| line["kind"].as_str().unwrap_or("")).collect::<Vec<_>>(),
        ["start", "exec", "end"]
    );
    assert_eq!(lines[1]["rule"], "learn: it runs unconfined, and its calls are not noted");
    let mut command = Command::new(gatekeeper());
    command.args(["learn", "-o", "q.toml", "--audit", "/nowhere/x", "--", "touch", "made"]).current_dir(&dir);
    run(&mut command).exits(125);
    assert!(!dir.join("made").exists());
}

#[test]
fn what_a_file_s_own_permissions_refuse_was_attempted() {
    for user in users() {
        let (dir, outside) = (fresh("attempted"), fresh("trail"));
        let file = outside.join("audit.jsonl");
        if user.is_some() {
            std::fs::set_permissions(&outside, std::fs::Permissions::from_mode(0o777)).expect("own directory");
        }
        for (name, mode) in [("readable", 0o644), ("closed", 0o000)] {
            std::fs::write(dir.join(name), name).expect("own directory");
            std::fs::set_permissions(dir.join(name), std::fs::Permissions::from_mode(mode)).expect("own file");
        }
        let line = "cat readable; cat closed; cat missing; ./readable; true";
        let flags = ["--profile", "read", "--audit", file.to_str().expect("text")];
        let ran = confined(&dir, user, &flags).args(&["-c", line]).go();
        let lines = lines(&file);
        let decisions = |kind: &str, name: &str| -> Vec<String> {
            let of = lines.iter().filter(|line| {
                line["kind"] == kind && line["path"].as_str().is_some_and(|path| path.ends_with(&format!("/{name}")))
            });
            of.map(|line| {
                format!("{} {}", line["decision"].as_str().unwrap_or(""), line["errno"].as_str().unwrap_or(""))
            })
            .collect()
        };
        let printed = ran.done.stdout();
        assert!(decisions("open", "readable").contains(&"allowed ".to_owned()), "{lines:#?}");
        assert_eq!(decisions("open", "missing"), ["attempted ENOENT"], "{lines:#?}");
        // Root's command may have kept the capability that overrides permissions; the trail has to say what happened.
        let closed = if printed.contains("closed") { "allowed " } else { "attempted EACCES" };
        assert_eq!(decisions("open", "closed"), [closed], "{lines:#?}");
        assert!(decisions("exec", "readable").iter().all(|line| line == "attempted EACCES"), "{lines:#?}");
        let shown = audit(&["show", "--decision", "attempted"], &file).exits(0).stdout();
        assert!(shown.contains("missing") && shown.contains("(ENOENT)"), "{shown}");
    }
}

#[test]
fn two_hundred_runs_write_to_one_file() {
    let (dir, outside) = (fresh("crowd"), fresh("trail"));
    let file = outside.join("audit.jsonl");
    let start = || {
        let mut command = Command::new(gatekeeper());
        command.args(["run", "--audit"]).arg(&file).args(["--", "true"]).current_dir(&dir);
        command.stdout(std::process::Stdio::null()).spawn().expect("gatekeeper starts")
    };
    let children: Vec<_> = (0..200).map(|_| start()).collect();
    for mut child in children {
        assert_eq!(child.wait().expect("it ends").code(), Some(0));
    }
    let json: Value = serde_json::from_str(&audit(&["verify", "--json"], &file).exits(0).stdout()).expect("JSON");
    assert_eq!(json["files"][0]["runs"], 200);
    assert_eq!(json["files"][0]["notes"], serde_json::json!([]));
    let lines = lines(&file);
    assert!(lines.iter().zip(1u64..).all(|(line, number)| line["seq"] == number));
}

#[test]
fn lines_are_selected_by_host_path_decision_and_time_across_a_rotation() {
    if !has("curl") {
        return;
    }
    let (dir, outside) = (fresh("selected"), fresh("trail"));
    let (file, old) = (outside.join("audit.jsonl"), outside.join("audit.1"));
    let server = Server::of(&dir);
    let go = |line: &str| {
        let net = format!("hosts={}", server.host());
        let flags = ["--profile", "read", "--net", &net, "--audit", file.to_str().expect("text")];
        confined(&dir, None, &flags).args(&["-c", line]).go();
    };
    go("curl -sS http://denied.test/");
    std::fs::rename(&file, &old).expect("own file");
    go(&format!("curl -sS {}; curl -sS http://other.test/", server.url("x")));
    let mut both = Command::new(gatekeeper());
    run(both.args(["audit", "verify"]).arg(&old).arg(&file)).exits(0);
    let count =
        |words: &[&str], file: &Path| audit(&[&["show"][..], words].concat(), file).exits(0).stdout().lines().count();
    assert_eq!(count(&["--host", "denied.test"], &old), 1);
    assert_eq!((count(&["--host", "denied.test"], &file), count(&["--host", "other.test"], &file)), (0, 1));
    assert!(count(&["--kind", "host", "--decision", "allowed"], &file) >= 1);
    assert!(count(&["--path", "/usr/bin/curl", "--kind", "exec"], &file) >= 2);
    assert!(count(&["--kind", "host", "--since", "1h", "--until", "2999"], &file) >= 2);
    assert_eq!(count(&["--until", "2020-01-01"], &file), 0);
    // The last line of the old file is missing: the file that continues it shows that.
    let text = std::fs::read_to_string(&old).expect("own file");
    let lines: Vec<&str> = text.lines().collect();
    std::fs::write(&old, lines[..lines.len() - 1].join("\n") + "\n").expect("own file");
    let mut both = Command::new(gatekeeper());
    run(both.args(["audit", "verify"]).arg(&old).arg(&file)).exits(1);
}

/// A file that is no audit file has faults in each line, and they do not flood the terminal.
#[test]
fn many_faults_are_counted_and_not_all_printed() {
    let file = fresh("audit").join("other");
    std::fs::write(&file, "no JSON\n".repeat(500)).unwrap();
    let verify = |flags: &[&str]| run(Command::new(gatekeeper()).args(["audit", "verify"]).args(flags).arg(&file));
    let text = verify(&[]).exits(1).stdout();
    assert!(text.lines().count() < 30 && text.contains(" more, which --json lists\n"), "{text}");
    let all: Value = serde_json::from_str(&verify(&["--json"]).exits(1).stdout()).expect("a document");
    assert!(all["files"][0]["faults"].as_array().is_some_and(|faults| faults.len() >= 500), "{all:#}");
}

#[test]
fn a_hash_that_was_kept_proves_that_the_file_has_only_grown() {
    let (dir, outside) = (fresh("grown"), fresh("trail"));
    let file = outside.join("audit.jsonl");
    let go = || drop(confined(&dir, None, &["--audit", file.to_str().expect("text")]).args(&["--", "true"]).go());
    let verified = |hash: &str| audit(&["verify", "--head", hash], &file);
    go();
    let json: Value = serde_json::from_str(&audit(&["verify", "--json"], &file).stdout()).expect("JSON");
    let hash = json["files"][0]["head"].as_str().expect("text").to_owned();
    verified(&hash).exits(0);
    go();
    verified(&hash).exits(0);
    assert!(verified(&"ab".repeat(32)).exits(1).stdout().contains("no line has the hash"));
    // Everything is made anew, consistently.
    for path in [&file, &outside.join("audit.jsonl.head")] {
        std::fs::remove_file(path).expect("own file");
    }
    go();
    audit(&["verify"], &file).exits(0);
    verified(&hash).exits(1);
}

#[test]
fn a_report_does_not_replace_the_trail() {
    let (dir, outside) = (fresh("report-on-trail"), fresh("trail"));
    let file = outside.join("audit.jsonl");
    let text = file.to_str().expect("text");
    confined(&dir, None, &["--audit", text]).args(&["--", "true"]).go().done.exits(0);
    symlink(&file, outside.join("link")).expect("own directory");
    for report in ["audit.jsonl", "audit.jsonl.head", "link", "../trail-here/audit.jsonl"] {
        let beside = outside.with_file_name("trail-here");
        let _ = std::fs::remove_file(&beside);
        symlink(&outside, &beside).expect("own directory");
        let report = outside.join(report);
        let flags = ["run", "--audit", text, "--report", report.to_str().expect("text"), "--", "true"];
        let done = run(Command::new(gatekeeper()).args(flags).current_dir(&dir));
        assert!(done.exits(125).stderr().contains("it would replace the audit trail"), "{done}");
        audit(&["verify"], &file).exits(0);
    }
}

#[test]
fn a_full_disk_leaves_no_half_line() {
    if !crate::support::is_root() {
        return crate::support::skip("only root mounts a small file system");
    }
    // In a mount namespace of its own: fills the disk but for a few bytes, and frees it again.
    let script = r#"
mount -t tmpfs -o size=64k,mode=700 none "$1" && cd "$1" || exit 90
"$2" run --quiet --audit a.jsonl -- true || exit 91
head -c 200000 /dev/zero >fill 2>/dev/null
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do "$2" run --quiet --audit a.jsonl -- true 2>>../said; last=$?; [ $last = 0 ] || break; done
rm fill
[ $last = 125 ] || exit 92
# The kernel gives the space back a little later.
i=0
until "$2" run --quiet --audit a.jsonl -- true 2>>../said; do i=$((i+1)); [ $i -lt 100 ] || exit 93; sleep 0.1; done
"$2" audit verify a.jsonl
"#;
    let dir = fresh("full");
    let disk = dir.join("disk");
    std::fs::create_dir(&disk).expect("new");
    let mut command = Command::new("unshare");
    let done = run(command.args(["--mount", "sh", "-c", script, "sh"]).arg(&disk).arg(gatekeeper()).current_dir(&dir));
    assert!(done.exits(0).stdout().contains(": intact, "), "{done}");
}
