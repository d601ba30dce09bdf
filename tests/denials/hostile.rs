//! Programs that lie, race and flood: the supervisor survives, and nothing gets through.

use super::{Violation, place, violate};
use crate::support::{fresh, gatekeeper, run};
use serde_json::{Value, json};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::process::Command;

fn words(words: &[&dyn AsRef<OsStr>]) -> Vec<OsString> {
    std::iter::once(violate().into_os_string()).chain(words.iter().map(|word| word.as_ref().to_owned())).collect()
}

#[test]
fn pointers_that_lead_nowhere_are_the_programs_own_trouble() {
    for address in ["0x1", "0xffffffffffffffff", "0x7fffffffffff", "0x8000000000000000", "0xfffffffffffff000"] {
        for flags in [&[][..], &["--write", "/dev/shm"], &["--explain"]] {
            let denied = Violation::new(flags, &words(&[&"bad-pointer", &address])).exits(libc::EFAULT);
            assert_eq!(denied.denials().len(), 0, "{address}: {:#?}", denied.denials());
        }
    }
}

#[test]
fn a_thread_that_rewrites_the_path_gets_nothing_by_it() {
    let path = place("race").join("x");
    let raced = Violation::new(&["--timeout", "300s"], &words(&[&"race", &path, &"3000"])).exits(0);
    assert!(!path.exists());
    // Whatever was read, all records are of this call.
    for denial in raced.denials() {
        assert_eq!(denial["syscall"], "openat", "{denial:#}");
    }
}

#[test]
fn names_that_drive_a_terminal_are_shown_harmless() {
    let dir = place("escape");
    let odd = dir.join("\u{1b}]0;owned\u{7}\u{202e}x");
    let denied = Violation::new(&[], &words(&[&"open", &odd])).exits(13);
    denied
        .record(json!({"syscall": "openat", "path": odd, "allow_with": format!("--write {}", dir.display())}))
        .passes();
    let stderr = denied.done.stderr();
    assert!(!stderr.contains('\u{1b}') && !stderr.contains('\u{202e}'), "{stderr:?}");
    assert!(stderr.contains("\\u{1b}]0;owned"), "{stderr:?}");
}

#[test]
fn a_flood_of_denials_does_not_outlast_the_timeout() {
    let flood = |limit| Violation::new(&["--timeout", limit], &words(&[&"loop", &"100000000"])).exits(124);
    // Try longer limits if a busy machine did not produce a flood.
    let many = ["1s", "5s", "25s", "125s"].into_iter().any(|limit| {
        let flood = flood(limit);
        flood.denials().len() == 1 && flood.denials()[0]["count"].as_u64().is_some_and(|count| count > 100)
    });
    assert!(many);
}

/// The kernel allows one listener, and an outer sandbox already has it.
#[test]
fn without_a_listener_denials_are_refused_and_the_report_says_that_they_are_not_itemised() {
    let dir = fresh("nested");
    let report = dir.join("inner.json");
    let inner =
        ["run", "--report"].map(OsString::from).into_iter().chain([report.clone().into(), OsString::from("--")]);
    let inner: Vec<OsString> = inner.chain(words(&[&"socket", &"2", &"1"])).collect();
    let outer = run(Command::new(gatekeeper())
        .args(["run", "--profile", "write+network", "--"])
        .arg(gatekeeper())
        .args(&inner)
        .current_dir(&dir));
    outer.exits(libc::EAFNOSUPPORT);
    let inner: Value = serde_json::from_slice(&fs::read(&report).expect("a report")).expect("JSON");
    assert_eq!(inner["denials"], json!([]), "{inner:#}");
    let layers = inner["layers"].as_array().expect("layers");
    let seccomp = layers.iter().find(|layer| layer["layer"] == "seccomp").expect("seccomp");
    assert!(seccomp["detail"].as_str().is_some_and(|detail| detail.contains("denials not itemised")), "{seccomp}");
    let why = run(Command::new(gatekeeper()).arg("why").arg(&report));
    why.exits(0);
    assert!(why.stdout().starts_with("cannot tell: denials were not itemised"), "{why}");
}

/// For the supervisor, /proc/self/cwd is its own working directory, where the command may write.
#[test]
fn a_link_of_the_commands_own_into_proc_hides_no_denial() {
    let (work, outside) = (place("links"), place("outside"));
    let report = fresh("report").join("report.json");
    let links = "ln -s /proc/self/cwd way; ln -s /proc/thread-self/root root; d=$PWD; cd \"$1\"";
    for (what, name) in [("$d/way/new", "new"), ("$d/root$1/other", "other")] {
        let script = format!("cd \"$2\"; rm -f way root; {links}; echo x > \"{what}\"");
        let done = run(Command::new(gatekeeper())
            .args(["run", "--profile", "write", "--report"])
            .arg(&report)
            .args(["--", "sh", "-c", &script, "sh"])
            .args([&outside, &work])
            .current_dir(&work));
        assert!(done.stderr().contains("Permission denied"), "{done}");
        assert!(!outside.join(name).exists() && !work.join(name).exists(), "{done}");
        let report: Value = serde_json::from_slice(&fs::read(&report).expect("a report")).expect("JSON");
        let denials = report["denials"].as_array().expect("denials");
        let said = |denial: &Value| denial["path"].as_str().is_some_and(|path| path.ends_with(name));
        assert!(denials.iter().any(said), "{what}: {denials:#?}{done}");
    }
}
