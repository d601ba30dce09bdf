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

#[test]
fn what_writes_no_trail_does_not_start_when_one_is_asked_for() {
    let dir = fresh("untrailed");
    let file = dir.join("audit.jsonl");
    for words in [&["serve"][..], &["mcp"], &["box", "exec", "--config", "none.toml", "--", "true"]] {
        let mut command = Command::new(gatekeeper());
        let done = run(command.args(words).env("GATEKEEPER_AUDIT", &file).stdin(std::process::Stdio::null()));
        assert!(done.exits(125).stderr().contains("GATEKEEPER_AUDIT"), "{words:?}: {done}");
        assert!(!file.exists());
    }
}
