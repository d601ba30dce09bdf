//! Every call that can be asked about, once with each answer.

use super::{always, ask};
use crate::plumbing::{Place, users};
use crate::support::has;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;

/// A home with the files that tests/ask/calls.py uses.
pub fn home(place: &Place) -> UnixListener {
    let line = "cd ../home; mkdir .ssh empty; touch .ssh/id file old gone; echo text | tee cut > short; umask 0; \
                python3 -c \"import os; os.setxattr('file', 'user.old', b'1')\"";
    crate::support::run(&mut place.any("/bin/sh".as_ref(), &["-ec", line])).exits(0);
    let listener = UnixListener::bind(place.at("home/connect")).expect("a short path");
    let everyone = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(place.at("home/connect"), everyone).expect("own file");
    listener
}

/// How each call ended, and what was asked.
pub fn outcomes(place: &Place, flags: &[&str], decision: &str) -> (BTreeMap<String, String>, Vec<String>) {
    let server = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("loopback");
    let port = server.local_addr().expect("bound").port().to_string();
    let home = place.at("home");
    let script = include_str!("calls.py");
    let words = ["--profile", "write", "--", "python3", "-c", script, home.to_str().expect("text"), &port];
    let ran = ask(place, &[flags, &words].concat(), always(decision));
    ran.done.exits(0);
    let ended = ran
        .done
        .stdout()
        .lines()
        .filter_map(|line| line.split_once(": "))
        .map(|(name, how)| (name.to_owned(), how.to_owned()))
        .collect();
    (ended, ran.asked())
}

#[test]
fn every_call_is_carried_out_after_a_yes_and_fails_after_a_no() {
    if !has("python3") {
        return;
    }
    for user in users() {
        let place = Place::new(user);
        let _listener = home(&place);
        let (ended, asked) = outcomes(&place, &[], "deny");
        let wrong = |(name, how): &(&String, &String)| {
            let expected = match name.as_str() {
                // Needs no right; what is in the directory stays closed.
                "chdir" => "ok",
                "connect to an address" => "ENETUNREACH",
                "chmod"
                | "fchmod"
                | "chown"
                | "utime"
                | "setxattr"
                | "removexattr"
                | "connect to a socket"
                | "listen" => "EPERM",
                _ => "EACCES",
            };
            how.as_str() != expected
        };
        assert!(!ended.iter().any(|call| wrong(&call)), "denied: {:?}", ended.iter().filter(wrong).collect::<Vec<_>>());
        assert_eq!((ended.len(), asked.len()), (27, 26), "each was asked once, except chdir: {asked:?}");
        let home = place.at("home");
        assert_eq!(
            names(&place),
            [".ssh", "connect", "cut", "empty", "file", "gone", "old", "short"],
            "nothing was done"
        );
        assert_eq!(fs::read_to_string(home.join("cut")).expect("there"), "text\n");

        let (ended, asked) = outcomes(&place, &[], "once");
        assert!(ended.values().all(|how| how == "ok"), "approved: {ended:?}");
        // A rename and a link have two names each.
        assert_eq!((ended.len(), asked.len()), (27, 28), "{asked:?}");
        was_all_made(&place);
    }
}

pub fn names(place: &Place) -> Vec<String> {
    let entries = fs::read_dir(place.at("home")).expect("there").flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Every call of tests/ask/calls.py has had its effect, and what is new belongs to the user.
#[track_caller]
pub fn was_all_made(place: &Place) {
    let home = place.at("home");
    let made =
        [".ssh", "bind", "connect", "cut", "fifo", "file", "hard", "made", "new", "newer", "renamed", "short", "soft"];
    assert_eq!(names(place), made);
    let file = fs::metadata(home.join("file")).expect("there");
    assert_eq!((file.mode() & 0o777, file.mtime(), file.nlink()), (0o604, 5, 2));
    assert_eq!(fs::metadata(home.join("cut")).expect("there").len(), 0);
    assert_eq!(fs::metadata(home.join("short")).expect("there").len(), 7);
    assert_eq!(fs::read_link(home.join("soft")).expect("a link").to_str(), Some("to"));
    let me = place.user.unwrap_or_else(|| rustix::process::geteuid().as_raw());
    for name in ["new", "made", "fifo", "bind", "newer"] {
        assert_eq!(fs::symlink_metadata(home.join(name)).expect("made").uid(), me, "{name}");
    }
}

#[test]
fn a_directory_outside_of_the_readable_paths_is_listed_after_a_yes() {
    for user in users() {
        let place = Place::new(user);
        let (policy, home) = (place.at("p.toml"), place.at("home"));
        crate::support::run(&mut place.any("/bin/sh".as_ref(), &["-ec", "mkdir ../home/d; touch ../home/d/entry"]))
            .exits(0);
        fs::write(&policy, "profile = \"read\"\n[paths]\nread = [\"/usr\", \"/etc\"]\n").expect("own directory");
        let (policy, directory) = (policy.to_str().expect("text"), home.join("d"));
        let words = ["--config", policy, "--", "ls", directory.to_str().expect("text")];
        let ran = ask(&place, &words, always("once"));
        ran.done.exits(0).prints("entry\n");
        assert_eq!(ran.asked(), [format!("read {}", directory.display())]);
        ask(&place, &words, always("deny")).done.exits(2).prints("");
    }
}
