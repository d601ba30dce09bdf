//! Denied reads are recorded without a flag. If gatekeeper cannot see all of them, the report says so.

use super::{Violation, place, violate};
use crate::run::{User, become_user, users};
use crate::support::{Done, fresh, gatekeeper, has, run, skip};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

const EACCES: i32 = 13;

/// Runs a command as this user in a directory with a closed `.env`.
fn confined(user: User, dir: &Path, words: &[&str]) -> (Done, Value, PathBuf) {
    confined_with(user, dir, &[], words)
}

fn confined_with(user: User, dir: &Path, flags: &[&str], words: &[&str]) -> (Done, Value, PathBuf) {
    let report = fresh("report").join("report.json");
    let mut command = Command::new(gatekeeper());
    command.args(["run", "--profile", "write", "--report"]).arg(&report).args(flags).arg("--").args(words);
    command.current_dir(dir).env("HOME", dir.join("home")).env("LC_ALL", "C");
    become_user(&mut command, user);
    let done = run(&mut command);
    let text = fs::read(&report).unwrap_or_default();
    (done, serde_json::from_slice(&text).unwrap_or_default(), report)
}

fn with_env_file(user: User) -> PathBuf {
    let dir = place("env");
    fs::write(dir.join(".env"), "KEY=1\n").expect("own directory");
    if user == User::Nobody {
        for path in [dir.as_path(), &dir.join(".env")] {
            std::os::unix::fs::chown(path, Some(65534), Some(65534)).expect("as root");
        }
    }
    dir
}

fn why(report: &Path) -> String {
    run(Command::new(gatekeeper()).arg("why").arg(report)).exits(0).stdout()
}

#[test]
fn a_closed_file_in_the_working_directory_is_recorded() {
    for user in users() {
        let dir = with_env_file(*user);
        let (done, report, file) = confined(*user, &dir, &["cat", ".env"]);
        if report["layers"].as_array().is_some_and(|layers| layers.iter().any(|layer| layer["status"] == "unavailable"))
        {
            return skip("no mount namespace can be made here");
        }
        let denial = &report["denials"][0];
        let path = dir.join(".env");
        assert_eq!(denial["path"], json!(path), "{done}");
        assert_eq!(denial["allow_with"], json!(format!("--read {}", path.display())), "{done}");
        assert_eq!(report["reads_recorded"], true, "{done}");
        assert!(why(&file).starts_with("1. cat tried to read "), "{}", why(&file));
        // Root as well: the supervisor denies what the mode of the cover does not.
        done.exits(1).prints("");
        assert!(done.stderr().contains("Permission denied"), "{done}");
        assert_eq!(denial["errno"], "EACCES", "{done}");
    }
}

#[test]
fn links_and_directories_do_not_hide_what_is_closed() {
    let home = place("home");
    fs::create_dir_all(home.join(".aws")).expect("own directory");
    fs::write(home.join(".aws/config"), "").expect("own directory");
    symlink(home.join(".aws/config"), home.join("link")).expect("own directory");
    symlink(home.join(".aws"), home.join("dir")).expect("own directory");
    let real = home.join(".aws/config");
    let command = |path: &Path| [violate().as_os_str().to_owned(), "open-read".into(), path.as_os_str().to_owned()];
    for path in [home.join("link"), home.join("dir/config"), home.join(".aws/../.aws/./config"), real.clone()] {
        Violation::new(&[], &command(&path)).home(&home).exits(EACCES).record(
            json!({"layer": "landlock", "syscall": "openat", "path": real, "allow_with": format!("--read {}", real.display())}),
        );
    }
    // By a relative name, from inside the closed directory.
    let line = format!("cd {} && exec {} open-read config", home.join(".aws").display(), violate().display());
    Violation::new(&["--allow", "@process"], &["sh", "-c", &line])
        .home(&home)
        .exits(EACCES)
        .record(json!({"layer": "landlock", "syscall": "openat", "path": real}));
    // The positive control: the file beside it is readable, and nothing is recorded.
    fs::write(home.join("open"), "").expect("own directory");
    let open = Violation::new(&[], &command(&home.join("open"))).home(&home).exits(0);
    assert_eq!(open.denials().len(), 0, "{:#?}", open.denials());
    assert_eq!(open.report["reads_recorded"], true);
}

/// A scan opens files relative to directory descriptors, which gatekeeper does not follow, so the report claims
/// nothing.
#[test]
fn where_a_scan_may_have_met_it_nothing_is_claimed() {
    if !has("grep") {
        return;
    }
    let home = place("scanned");
    fs::create_dir(home.join(".ssh")).expect("own directory");
    fs::write(home.join(".netrc"), "").expect("own directory");
    let grep: [&OsStr; 4] = ["grep".as_ref(), "-rs".as_ref(), "nowhere".as_ref(), home.as_os_str()];
    let scanned = Violation::new(&[], &grep).home(&home).fails();
    assert_eq!(scanned.report["reads_recorded"], false, "{}", scanned.done);
    let explained = Violation::new(&["--explain"], &grep).home(&home).fails();
    assert_eq!(explained.report["reads_recorded"], true, "{}", explained.done);
    explained.record(json!({"layer": "landlock", "syscall": "openat", "path": home.join(".netrc")}));
    // Both see the refusal of the directory .ssh itself. Without it there is no denial to report.
    fs::remove_dir(home.join(".ssh")).expect("own directory");
    let report = fresh("report").join("report.json");
    let mut command = Command::new(gatekeeper());
    command.args(["run", "--report"]).arg(&report).arg("--").args(grep).env("HOME", &home);
    assert_ne!(run(&mut command).code(), Some(0));
    let told = why(&report);
    assert!(told.starts_with("cannot tell: ") && told.contains("--explain"), "{told}");
    // So does a scan that begins in a closed directory, whose names may be listed.
    fs::create_dir(home.join(".ssh")).expect("own directory");
    fs::write(home.join(".ssh/id"), "").expect("own directory");
    let within: [&OsStr; 4] = ["grep".as_ref(), "-r".as_ref(), "nowhere".as_ref(), &home.join(".ssh").into_os_string()];
    let scanned = Violation::new(&[], &within).home(&home).fails();
    assert!(scanned.done.stderr().contains("Permission denied"), "{}", scanned.done);
    let claims = scanned.report["reads_recorded"] == true && scanned.denials().is_empty();
    assert!(!claims, "{:#}", scanned.report);
    // In a tree without closed files, the report does claim that nothing was denied.
    let elsewhere = place("elsewhere");
    let grep: [&OsStr; 4] = ["grep".as_ref(), "-rs".as_ref(), "nowhere".as_ref(), elsewhere.as_os_str()];
    let scanned = Violation::new(&[], &grep).home(&home).fails();
    assert_eq!(scanned.report["reads_recorded"], true, "{}", scanned.done);
}

#[test]
fn git_in_a_tree_with_a_closed_file_says_which() {
    if !has("git") {
        return;
    }
    let dir = with_env_file(User::Own);
    let git = |words: &[&str]| {
        let output = Command::new("git").args(words).current_dir(&dir).output().expect("git starts");
        assert!(output.status.success(), "{output:?}");
    };
    git(&["init", "-q"]);
    let (done, report, _) = confined(User::Own, &dir, &["git", "add", "-A"]);
    let denials = report["denials"].as_array().cloned().unwrap_or_default();
    let path = json!(dir.join(".env"));
    assert!(denials.iter().any(|denial| denial["path"] == path), "{denials:#?}{done}");
}

/// Also for root, which could otherwise write to the cover and would lose the data.
#[test]
fn what_would_change_a_closed_file_is_refused_recorded_and_granted() {
    for user in users() {
        for words in [
            &["sh", "-c", "echo x > .env"][..],
            &["sh", "-c", "echo x >> .env"],
            &["truncate", "-s", "0", ".env"],
            &["rm", "-f", ".env"],
            &["mv", ".env", "other"],
            &["sh", "-c", "echo x > new; mv -f new .env"],
        ] {
            let dir = with_env_file(*user);
            let (done, report, file) = confined(*user, &dir, words);
            if report["layers"].as_array().is_some_and(|all| all.iter().any(|layer| layer["status"] == "unavailable")) {
                return skip("no mount namespace can be made here");
            }
            assert_ne!(done.code(), Some(0), "{user:?} {words:?}{done}");
            assert_eq!(fs::read(dir.join(".env")).expect("still there"), b"KEY=1\n", "{user:?} {words:?}{done}");
            let denials = report["denials"].as_array().cloned().unwrap_or_default();
            let path = dir.join(".env");
            let denial = denials.iter().find(|denial| denial["path"] == json!(path));
            let denial = denial.unwrap_or_else(|| panic!("{user:?} {words:?}: {denials:#?}{done}"));
            assert_eq!(denial["errno"], "EACCES", "{denial:#}");
            assert_eq!(denial["allow_with"], json!(format!("--write {}", path.display())), "{denial:#}");
            assert!(why(&file).starts_with("1. "), "{}", why(&file));
            // A grant to read it does not let it be changed.
            let granted = ["--read", path.to_str().expect("a plain name")];
            let (done, report, _) = confined_with(*user, &dir, &granted, words);
            assert_ne!(done.code(), Some(0), "{user:?} {words:?}{done}");
            assert_eq!(fs::read(dir.join(".env")).expect("still there"), b"KEY=1\n", "{user:?} {words:?}{done}");
            let denial =
                report["denials"].as_array().expect("a list").iter().find(|denial| denial["path"] == json!(path));
            let remedy = denial.map(|denial| denial["allow_with"].clone());
            assert_eq!(remedy, Some(json!(format!("--write {}", path.display()))), "{report:#}{done}");
            let granted = ["--write", path.to_str().expect("a plain name")];
            let (done, report, _) = confined_with(*user, &dir, &granted, words);
            done.exits(0);
            assert_eq!(report["denials"], json!([]), "{user:?} {words:?}{done}");
        }
    }
}

#[test]
fn a_directory_with_something_protected_in_it_stays_and_that_is_recorded() {
    for user in users() {
        let dir = with_env_file(*user);
        fs::create_dir_all(dir.join(".git/hooks")).expect("own directory");
        if *user == User::Nobody {
            for name in [".git", ".git/hooks"] {
                std::os::unix::fs::chown(dir.join(name), Some(65534), Some(65534)).expect("as root");
            }
        }
        let words = ["mv", ".git", "other"];
        let (done, report, file) = confined(*user, &dir, &words);
        if report["layers"].as_array().is_some_and(|all| all.iter().any(|layer| layer["status"] == "unavailable")) {
            return skip("no mount namespace can be made here");
        }
        done.exits(1);
        let denial = &report["denials"][0];
        let hooks = dir.join(".git/hooks");
        assert_eq!(denial["path"], json!(dir.join(".git")), "{report:#}");
        assert_eq!(denial["errno"], "EBUSY", "{denial:#}");
        let rule = format!("protected: contains {}, which must stay where it is", hooks.display());
        assert_eq!(denial["rule"], json!(rule), "{denial:#}");
        let remedy = denial["allow_with"].as_str().unwrap_or_else(|| panic!("{denial:#}"));
        assert!(why(&file).contains("a protected mount point denied it with EBUSY"), "{}", why(&file));
        let (done, report, _) = confined_with(*user, &dir, &remedy.split(' ').collect::<Vec<_>>(), &words);
        done.exits(0);
        assert_eq!(report["denials"], json!([]), "{done}");
    }
}
