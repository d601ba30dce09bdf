//! Calls that the supervisor makes on behalf of the program, on files that the program must not change.

use super::{Hole, Severity, supervised, unconfined, words};
use crate::run::{Gate, become_user, denials, owned_by, users};
use crate::support::{fresh, has, skip};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

pub const HOLES: &[Hole] = &[
    Hole {
        severity: Severity::Medium,
        attack: "chmod /proc/PID/fd/N of a process outside",
        reached: "mode 6777 on a file that another process had open",
        held_by: &["descriptors_of_other_processes_cannot_be_changed"],
    },
    Hole {
        severity: Severity::Medium,
        attack: "chmod and connect through /proc/PID/root, where the path of a writable tree is another mount",
        reached: "files and sockets of another mount namespace",
        held_by: &["another_mount_namespace_is_out_of_reach"],
    },
    Hole {
        severity: Severity::Medium,
        attack: "leave a set-user-ID program or file capabilities in a writable tree, by chmod, open, mknod or setxattr",
        reached: "if root ran the command, every user of the machine could become root",
        held_by: &["no_file_is_left_that_lends_rights"],
    },
    Hole {
        severity: Severity::Low,
        attack: "F_SETLEASE on a file that is granted read-only",
        reached: "programs outside that write to the file had to wait",
        held_by: &["leases_are_refused"],
    },
];

#[test]
fn descriptors_of_other_processes_cannot_be_changed() {
    let program = supervised();
    for user in users() {
        // A deleted file, which therefore is in no tree.
        let held = fs::canonicalize(fresh("held")).expect("just made").join("file");
        fs::write(&held, "x").expect("own directory");
        fs::set_permissions(&held, fs::Permissions::from_mode(0o600)).expect("own file");
        owned_by(*user, &held);
        let file = fs::File::options().read(true).write(true).open(&held).expect("own file");
        fs::remove_file(&held).expect("own directory");
        let mut victim = Command::new("sleep");
        victim.arg("300").stdin(file.try_clone().expect("a descriptor")).stdout(Stdio::piped());
        become_user(&mut victim, *user);
        let mut victim = victim.spawn().expect("sleep is there");
        let mode = || file.metadata().expect("open").mode() & 0o7777;
        let (of_victim, pipe) = (format!("/proc/{}/fd/0", victim.id()), format!("/proc/{}/fd/1", victim.id()));
        let gate = Gate::profile(*user, "write");
        gate.file("own", "x");
        for path in [&of_victim, &pipe] {
            let (done, report) = gate.report(words(&program, &["chmod", "0777", path]));
            done.exits(0).prints("1\n");
            let [denial] = denials(&report, "chmod")[..] else { panic!("{report:#}") };
            assert_eq!((&denial["path"], &denial["allow_with"]), (&path.as_str().into(), &serde_json::Value::Null));
        }
        let before = mode();
        let opened = unconfined(*user, &gate.dir, &["chmod", "0777", &of_victim]);
        let after = mode();
        victim.kill().expect("own child");
        victim.wait().expect("own child");
        assert_eq!((before, opened.as_str(), after), (0o600, "0\n", 0o777));
        // The command's own descriptors may be changed, also by the paths that the C library uses.
        let act = crate::run::act();
        gate.run(words(&act, &["proc-chmod", "own"])).exits(0).prints("proc-chmod 0\n");
    }
}

#[test]
fn another_mount_namespace_is_out_of_reach() {
    if !has("unshare") {
        return;
    }
    let program = supervised();
    for user in users() {
        let gate = Gate::profile(*user, "write");
        gate.file("data", "outside of it");
        let script = "mount -t tmpfs none . && cd \"$PWD\" && echo x >data && chmod 600 data && exec \"$0\" serve sock";
        let mut other = Command::new("unshare");
        other.args(["-rm", "sh", "-c", script]).arg(&program).current_dir(&gate.dir);
        other.stdout(Stdio::piped()).stderr(Stdio::piped());
        become_user(&mut other, *user);
        let mut other = other.spawn().expect("unshare starts");
        let mut line = String::new();
        BufReader::new(other.stdout.take().expect("piped")).read_line(&mut line).expect("readable");
        if line != "ready\n" {
            let _ = other.kill();
            let _ = other.wait();
            skip("no user and mount namespace can be made here");
            continue;
        }
        let there = format!("/proc/{}/root{}", other.id(), gate.dir.display());
        let (data, sock) = (format!("{there}/data"), format!("{there}/sock"));
        let mode = || fs::metadata(&data).expect("root, or the same user, may look").mode() & 0o7777;
        let mut seen = Vec::new();
        for (attack, words_of) in [("chmod", vec!["chmod", "0777", &data]), ("connect", vec!["connect", &sock])] {
            let (done, report) = gate.report(words(&program, &words_of));
            seen.push((
                attack,
                done.stdout(),
                denials(&report, attack).len(),
                report["denials"][0]["allow_with"].clone(),
            ));
        }
        let before = mode();
        let open = [
            unconfined(*user, &gate.dir, &["chmod", "0777", &data]),
            unconfined(*user, &gate.dir, &["connect", &sock]),
        ];
        let after = mode();
        other.kill().expect("own child");
        other.wait().expect("own child");
        for (attack, result, records, remedy) in seen {
            assert_eq!((result.as_str(), records, remedy), ("1\n", 1, serde_json::Value::Null), "{attack} {user:?}");
        }
        assert_eq!((before, after, open), (0o600, 0o777, ["0\n".to_owned(), "0\n".to_owned()]), "{user:?}");
        gate.run(words(&program, &["chmod", "0777", "data"])).exits(0).prints("0\n");
    }
}

#[test]
fn no_file_is_left_that_lends_rights() {
    let program = supervised();
    for user in users() {
        let gate = Gate::profile(*user, "write");
        let file = gate.file("file", "x");
        let directory = gate.dir.join("directory");
        fs::create_dir(&directory).expect("own directory");
        owned_by(*user, &directory);
        let mode = |path: &Path| fs::metadata(path).expect("just made").mode() & 0o7777;
        let tries = |words_of: &[&str], call: &str| {
            let (done, report) = gate.report(words(&program, words_of));
            done.exits(0).prints("1\n");
            let [denial] = denials(&report, call)[..] else { panic!("{report:#}") };
            assert_eq!(denial["allow_with"], serde_json::Value::Null, "{denial:#}");
            let rule = denial["rule"].as_str().expect("text");
            assert!(rule.starts_with("set-user-ID and set-group-ID bits"), "{rule}");
        };
        for set in ["4755", "2755", "6777"] {
            tries(&["chmod", set, "file"], "chmod");
            tries(&["create", set, "new"], "openat");
            assert_eq!((mode(&file) & 0o6000, gate.dir.join("new").exists()), (0, false), "{set}");
        }
        tries(&["capability", "file"], "setxattr");
        // Set-group-ID on a directory only passes the group on to new files.
        gate.run(words(&program, &["chmod", "2775", "directory"])).exits(0).prints("0\n");
        gate.run(words(&program, &["chmod", "1755", "file"])).exits(0).prints("0\n");
        gate.run(words(&program, &["create", "1755", "plain"])).exits(0).prints("0\n");
        assert_eq!((mode(&directory), mode(&file), mode(&gate.dir.join("plain"))), (0o2775, 0o1755, 0o1755));
        assert_eq!(unconfined(*user, &gate.dir, &["chmod", "6777", "file"]), "0\n");
        assert_eq!(unconfined(*user, &gate.dir, &["create", "6755", "new"]), "0\n");
    }
}

#[test]
fn leases_are_refused() {
    let program = supervised();
    for user in users() {
        for profile in ["minimal", "network", "write"] {
            let gate = Gate::profile(*user, profile);
            gate.file("file", "x");
            let (done, report) = gate.report(words(&program, &["lease", "file"]));
            done.exits(0).prints("1\n");
            let [denial] = denials(&report, "fcntl")[..] else { panic!("{report:#}") };
            assert!(denial["allow_with"].is_null(), "{denial:#}");
            assert_eq!(unconfined(*user, &gate.dir, &["lease", "file"]), "0\n");
        }
        let gate = Gate::profile(*user, "unrestricted");
        gate.file("file", "x");
        gate.run(words(&program, &["lease", "file"])).exits(0).prints("0\n");
    }
}
