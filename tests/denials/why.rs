//! `why` and `explain`: plain text for people, JSON for agents, and no trust in the report file.

use super::{place, violate};
use crate::support::{Done, fresh, gatekeeper, run};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn why<W: AsRef<OsStr>>(words: &[W]) -> Done {
    run(Command::new(gatekeeper()).arg("why").args(words))
}

/// A report with two denials.
fn report() -> (PathBuf, PathBuf) {
    let (dir, report) = (place("why"), fresh("report").join("report.json"));
    let line = format!("{0} open {1}/a; {0} socket 2 1", violate().display(), dir.display());
    let mut command = Command::new(gatekeeper());
    command.args(["run", "--quiet", "--allow", "@process", "--report"]).arg(&report).args(["--", "sh", "-c", &line]);
    run(&mut command).exits(libc::EAFNOSUPPORT);
    (report, dir)
}

#[test]
fn every_denial_is_told_with_rule_flag_policy_and_retry() {
    let (report, dir) = report();
    let told = why(&[&report]);
    told.exits(0);
    let text = told.stdout();
    let comm = "violate_pthread";
    let dir = dir.display();
    assert!(
        text.starts_with(&format!(
            "1. {comm} tried to create or write {dir}/a; the path rules denied it with EACCES\n"
        )),
        "{told}"
    );
    for line in [
        "   rule:   profile minimal writes nothing",
        &format!("   allow:  --write {dir}"),
        &format!("   policy: paths.write = [\"{dir}\"]"),
        "   retry:  will fail the same way until it is granted",
        &format!(
            "2. {comm} tried to open a socket: socket(AF_INET, SOCK_STREAM, 0); the syscall rules denied it with EAFNOSUPPORT"
        ),
        "   allow:  --profile network",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}{told}");
    }
    let second = why(&[report.as_os_str(), OsStr::new("2")]);
    assert!(second.exits(0).stdout().starts_with("2. ") && !second.stdout().contains("1. "), "{second}");
    why(&[report.as_os_str(), OsStr::new("3")]).exits(2);
    why(&[report.as_os_str(), OsStr::new("0")]).exits(2);
    why(&[report.as_os_str(), OsStr::new("x")]).exits(2);
    let alias = run(Command::new(gatekeeper()).arg("explain").arg(&report));
    alias.exits(0).prints(&text);
}

#[test]
fn agents_get_one_json_document() {
    let (report, dir) = report();
    for words in [vec![OsStr::new("--json"), report.as_os_str()], vec![report.as_os_str(), OsStr::new("--json")]] {
        let told: Value = serde_json::from_str(&why(&words).stdout()).expect("JSON");
        assert_eq!(told["sandbox"], "was");
        assert_eq!(told["denials"][0]["allow_with"], format!("--write {}", dir.display()));
        assert_eq!(told["denials"][0]["retry_can_help"], false);
        assert_eq!(told["denials"][1]["number"], 2);
    }
}

#[test]
fn a_command_is_run_and_its_reads_explained() {
    let home = place("home");
    fs::write(home.join(".netrc"), "").expect("own directory");
    let told = run(Command::new(gatekeeper())
        .args(["why", "--profile", "network", "--", "cat"])
        .arg(home.join(".netrc"))
        .env("HOME", &home));
    told.exits(0);
    let line = format!("1. cat tried to read {}; the path rules denied it with EACCES", home.join(".netrc").display());
    assert_eq!(told.stdout().lines().next(), Some(line.as_str()), "{told}");
    let told = run(Command::new(gatekeeper()).args(["why", "--json", "--", "true"]));
    let told: Value = serde_json::from_str(&told.stdout()).expect("JSON");
    assert_eq!(told["sandbox"], "was_not");
    // A shell line, as with run. Without a command or line, the error says how to give one.
    let line = why(&["--profile", "read", "-c", "true; cat /dev/null/x > /usr/bin/env/y || exit 4"]);
    line.exits(0).prints("not the sandbox: nothing was denied; the command itself exited with 4\n");
    let told = why(&["--profile", "read", "true"]);
    assert!(told.exits(2).stderr().contains("put it after --"), "{told}");
}

#[test]
fn where_nothing_was_denied_it_was_not_the_sandbox() {
    why(&["--", "sh", "-c", "exit 3"])
        .exits(0)
        .prints("not the sandbox: nothing was denied; the command itself exited with 3\n");
    why(&["--", "true"]).exits(0).prints("not the sandbox: nothing was denied, and the command exited with 0\n");
    why(&["--", "no-such-command-anywhere"]).exits(0);
    let report = fresh("report").join("report.json");
    run(Command::new(gatekeeper()).args(["run", "--report"]).arg(&report).args(["--", "false"])).exits(1);
    why(&[&report]).exits(0).prints("not the sandbox: nothing was denied; the command itself exited with 1\n");
    // No layer is in force, so nothing was denied without a record either.
    why(&["--profile", "unrestricted", "--", "false"]).exits(0).complains("");
}

/// Landlock denies signals without a record, for example.
#[test]
fn what_layers_deny_without_a_record_is_told() {
    let mut outside = Command::new("sleep").arg("60").spawn().expect("sleep");
    let kill = format!("kill -0 {}", outside.id());
    let report = fresh("report").join("report.json");
    for (line, code) in [("exit 3", 3), (kill.as_str(), 1)] {
        run(Command::new(gatekeeper()).args(["run", "--profile", "read", "--report"]).arg(&report).args(["-c", line]))
            .exits(code);
        let said = why(&[&report]);
        let never = "gatekeeper: note: some denials are never recorded: signals to processes outside of the run; looking into such \
                     processes in /proc; ioctls on devices; what root does by a capability that was dropped; calls that fail with ENOSYS so \
                     that programs use others; if the command works without gatekeeper, one of these may be why\n";
        said.exits(0)
            .prints(&format!("not the sandbox: nothing was denied; the command itself exited with {code}\n"))
            .complains(never);
        let told: Value =
            serde_json::from_str(&why(&[OsStr::new("--json"), report.as_os_str()]).stdout()).expect("JSON");
        assert_eq!(
            (&told["sandbox"], &told["never_recorded"][0]),
            (&"was_not".into(), &"signals to processes outside of the run".into())
        );
    }
    outside.kill().expect("own process");
    outside.wait().expect("own process");
}

#[test]
fn what_is_no_report_is_a_clear_error() {
    let dir = fresh("hostile");
    let whole = fs::read(report().0).expect("a report");
    let file = dir.join("report.json");
    let refused = |text: &[u8]| {
        fs::write(&file, text).expect("own directory");
        let told = why(&[&file]);
        told.exits(2).prints("");
        assert!(told.stderr().starts_with("gatekeeper: ") && told.stderr().lines().count() == 1, "{told}");
    };
    for end in [0, 1, 10, whole.len() / 2, whole.len() - 3] {
        refused(&whole[..end]);
    }
    let mut text: Value = serde_json::from_slice(&whole).expect("a report");
    text["schema"] = json!(2);
    refused(text.to_string().as_bytes());
    for bad in [
        json!({}),
        json!([]),
        json!(null),
        json!({"schema": 1}),
        json!({"schema": 1, "outcome": "exited", "exit_code": 0, "denials": 7}),
    ] {
        refused(bad.to_string().as_bytes());
    }
    for (field, value) in [("syscall", json!(7)), ("args", json!([{}])), ("count", json!(-1)), ("path", json!([1]))] {
        let mut text: Value = serde_json::from_slice(&whole).expect("a report");
        text["denials"][0][field] = value;
        refused(text.to_string().as_bytes());
    }
    refused("[".repeat(100_000).as_bytes());
    refused(&[0xff; 100]);
    why(&[dir.as_path()]).exits(2);
    why(&[Path::new("/dev/null")]).exits(2);
    why(&[dir.join("missing")]).exits(2);
    let fifo = dir.join("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .expect("own directory");
    why(&[&fifo]).exits(2);
}

#[test]
fn a_report_cannot_drive_the_terminal() {
    let file = fresh("escape").join("report.json");
    let odd = "\u{1b}[2J\u{202e}";
    // A layer that does not exist makes it no report; the error quotes the name.
    for (layer, status) in [("seccomp", 0), (odd, 2)] {
        let report = json!({"schema": 1, "outcome": "exited", "exit_code": 1, "denials": [{
            "layer": layer, "syscall": odd, "args": [odd], "path": odd, "comm": odd, "exe": odd, "rule": odd,
            "errno": odd, "allow_with": odd, "allow_with_policy": odd,
        }]});
        fs::write(&file, report.to_string()).expect("own directory");
        let done = why(&[&file]);
        done.exits(status);
        for text in [done.stdout(), done.stderr()] {
            assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
        }
    }
}
