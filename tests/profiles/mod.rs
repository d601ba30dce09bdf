//! Profiles: runs the corpus as the current user and as a second one, and proves that the harness can fail.

use crate::support::{Done, NOBODY, fresh, gatekeeper, is_root, note, on_path, run, skip};
use serde_json::Value;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

fn profiles(words: &[&str]) -> Command {
    let mut command = Command::new(gatekeeper());
    command.arg("profiles").args(words);
    command
}

#[track_caller]
fn document(done: &Done) -> Value {
    serde_json::from_str(&done.stdout()).unwrap_or_else(|error| panic!("{error}{done}"))
}

/// Asserts that every case passed. Calls `skipped` for each skipped case with its name and reason.
#[track_caller]
fn all_passed(done: &Done, skipped: &dyn Fn(&str, &str)) {
    let document = document(done);
    let tried = document["tried"].as_array().expect("a list of cases");
    let text = |case: &Value, name: &str| case[name].as_str().unwrap_or_default().to_owned();
    let of = |wanted: &str| tried.iter().filter(|case| case["outcome"] == wanted).collect::<Vec<_>>();
    let failed: Vec<String> = of("failed")
        .iter()
        .map(|case| {
            let [name, profile, mode, detail] =
                ["name", "profile", "on_violation", "detail"].map(|name| text(case, name));
            format!("{name} under {profile}, {mode}: {detail}")
        })
        .collect();
    assert!(failed.is_empty(), "{} of {} failed:\n{}", failed.len(), tried.len(), failed.join("\n"));
    for case in of("skipped") {
        skipped(&text(case, "name"), &text(case, "detail"));
    }
    assert!(of("passed").len() > 300, "{} cases", of("passed").len());
    done.exits(0);
}

#[test]
fn every_command_works_and_every_action_is_stopped() {
    let done = run(&mut profiles(&["test", "--json"]));
    all_passed(&done, &|name, why| skip(&format!("{name}: {why}")));
}

#[test]
fn the_same_holds_for_a_user_without_privileges() {
    if !is_root() {
        return skip("only root can run the corpus as a second user");
    }
    // A short name, because the path of a socket below it may have 108 bytes.
    let tmp = std::env::temp_dir().join(format!("n{}", std::process::id()));
    fs::create_dir(&tmp).expect("a new directory");
    std::os::unix::fs::chown(&tmp, Some(NOBODY), Some(NOBODY)).expect("root may");
    let mut command = profiles(&["test", "--json", "write+network"]);
    command.uid(NOBODY).gid(NOBODY).env("TMPDIR", &tmp).current_dir("/");
    let done = run(&mut command);
    all_passed(&done, &|name, why| {
        // A tool that is installed only in a home directory is not available to this user.
        let theirs =
            |tool: &str| ["/usr/local/bin", "/usr/bin", "/bin"].iter().all(|dir| !Path::new(dir).join(tool).exists());
        let tools = why.strip_prefix("not installed: ").unwrap_or_default();
        if tools.split(' ').all(|tool| on_path(tool) && theirs(tool)) {
            return note(&format!("not tried as nobody: {name}: {why}"));
        }
        skip(&format!("{name}: {why}"));
    });
    let left: Vec<_> = fs::read_dir(&tmp).expect("own directory").collect();
    fs::remove_dir_all(&tmp).expect("own directory");
    assert!(left.is_empty(), "left behind: {left:?}");
}

#[test]
fn a_command_that_the_profile_breaks_is_a_failure() {
    let dir = fresh("profiles-red");
    let corpus = dir.join("corpus.toml");
    fs::write(
        &corpus,
        "[[workload]]\nname = 'deletes'\nrun = ['rm', 'file']\nfiles = { file = 'x' }\n\
         [[workload]]\nname = 'reads'\nrun = ['cat', 'file']\nfiles = { file = 'x' }\n\
         [[stop]]\nname = 'open'\nprofiles = ['minimal']\nprobe = ['open-read', '/etc/passwd']\nerrno = 'EACCES'\ncontrol = 'done'\n",
    )
    .expect("own directory");
    let done = run(profiles(&["test", "minimal", "--json", "--corpus"]).arg(&corpus));
    done.exits(1);
    let document = document(&done);
    let outcome = |name: &str, mode: &str| {
        let tried = document["tried"].as_array().expect("a list");
        let case = tried.iter().find(|case| case["name"] == name && case["on_violation"] == mode);
        let case = case.unwrap_or_else(|| panic!("{name} {mode}{done}"));
        (
            case["outcome"].as_str().unwrap_or_default().to_owned(),
            case["detail"].as_str().unwrap_or_default().to_owned(),
        )
    };
    let (result, why) = outcome("deletes", "errno");
    assert_eq!(result, "failed");
    assert!(why.contains("exit status 1 instead of 0") && why.contains("unlinkat("), "{why}");
    let (result, why) = outcome("deletes", "kill");
    assert!(result == "failed" && why.contains("exit status 159 instead of 0"), "{why}");
    assert_eq!(outcome("reads", "kill").0, "passed");
    let (result, why) = outcome("open", "errno");
    assert_eq!(result, "failed");
    assert!(why.contains("returns ok instead of EACCES"), "{why}");
}

#[test]
fn a_faulty_corpus_is_an_error_and_nothing_runs() {
    let dir = fresh("profiles-faulty");
    let corpus = dir.join("corpus.toml");
    fs::write(&corpus, "[[workload]]\nname = 'x'\nran = ['true']\n").expect("own directory");
    let done = run(profiles(&["test", "--corpus"]).arg(&corpus));
    done.exits(2);
    assert!(done.stderr().contains("corpus.toml") && done.stderr().contains("`ran`"), "{done}");
    let done = run(&mut profiles(&["test", "minimal", "--only", "no such name"]));
    done.exits(1)
        .complains("gatekeeper: profiles test: nothing was tested: no name matched, or everything was skipped\n");
}

#[test]
fn a_missing_program_is_said_to_be_missing() {
    let dir = fresh("profiles-missing");
    let corpus = dir.join("corpus.toml");
    let text = "[[workload]]\nname = 'x'\nrun = ['no-such-program']\n[[workload]]\nname = 'y'\nrun = ['true']\n";
    fs::write(&corpus, text).expect("own directory");
    let done = run(profiles(&["test", "--corpus"]).arg(&corpus));
    done.exits(0);
    assert!(done.stdout().contains("SKIPPED") && done.stdout().contains("not installed: no-such-program"), "{done}");
    assert!(done.stdout().ends_with("3 passed, 0 failed, 3 skipped\n"), "{done}");
}

#[test]
fn profiles_are_listed_with_what_they_grant() {
    let done = run(&mut profiles(&["--json"]));
    done.exits(0);
    let list = document(&done);
    let names: Vec<&str> = list.as_array().into_iter().flatten().filter_map(|row| row["profile"].as_str()).collect();
    assert_eq!(names, ["minimal", "read", "network", "write", "write+network", "unrestricted", "browser"]);
    let count = |at: usize, name: &str| list[at][name].as_u64().unwrap_or_else(|| panic!("{name}{done}"));
    assert!(count(0, "allowed") < count(3, "allowed"), "{done}");
    assert_eq!(count(5, "denied"), 0, "{done}");
    let shown = run(&mut profiles(&[]));
    assert!(shown.stdout().starts_with("minimal\n    read files and compute"), "{shown}");
}

#[test]
fn show_tells_every_call_once() {
    let done = run(&mut profiles(&["show", "write+network", "--json"]));
    done.exits(0);
    let granted = document(&done);
    let names = |key: &str| -> Vec<String> {
        let list = granted[key].as_array().unwrap_or_else(|| panic!("{key}{done}"));
        let name = |item: &Value| item["syscall"].as_str().or(item.as_str()).unwrap_or_default().to_owned();
        list.iter().map(name).collect()
    };
    let has = |key: &str, call: &str| assert!(names(key).iter().any(|name| name == call), "{key} {call}{done}");
    has("allowed", "read");
    has("by_arguments", "openat");
    has("by_arguments", "clone");
    has("by_arguments", "socket");
    has("supervised", "fchmodat");
    has("supervised", "connect");
    has("denied", "ptrace");
    assert_eq!(names("enosys"), ["io_uring_setup", "io_uring_enter", "io_uring_register", "clone3", "openat2"]);
    let mut all: Vec<String> =
        ["allowed", "by_arguments", "supervised", "enosys", "denied"].iter().flat_map(|key| names(key)).collect();
    let total = all.len();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), total, "some call is in two places{done}");
    // Another architecture has it: it is listed, and not an error.
    has("not_here", "mmap2");
    let wrong = run(&mut profiles(&["show", "minimall"]));
    wrong.exits(2);
    assert!(wrong.stderr().contains("minimal"), "{wrong}");
}
