//! A server uses a plan again only while nothing that it depends on has changed: the next run sees every change.

use super::{Server, values};
use crate::plumbing::{Place, gatekeeper, users};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

/// Enough runs for the plan to be kept: the first ones are made a moment after the files.
const WARM: usize = 8;

fn new(place: &Place, path: &Path, text: &str) {
    fs::write(path, text).expect("own");
    std::os::unix::fs::chown(path, place.user, place.user).expect("own, or root's to give");
}

fn directory(place: &Place, path: &Path) {
    fs::create_dir(path).expect("own");
    std::os::unix::fs::chown(path, place.user, place.user).expect("own, or root's to give");
}

impl Server {
    fn cat(&mut self, path: &Path) -> Value {
        self.run(json!({"id": 1, "argv": ["cat", path], "flags": ["-p", "read"]}))
    }

    #[track_caller]
    fn reads(&mut self, path: &Path, text: &str) {
        let report = self.cat(path);
        assert_eq!((&report["exit_code"], &report["stdout"]), (&json!(0), &json!(text)), "{report}");
    }

    #[track_caller]
    fn is_denied(&mut self, path: &Path) {
        let report = self.cat(path);
        let stderr = report["stderr"].as_str().unwrap_or_default();
        assert!(report["exit_code"] == 1 && stderr.contains("Permission denied"), "{report}");
        assert_eq!(report["denials"][0]["path"], json!(path), "{report}");
    }
}

#[test]
fn what_appears_between_two_runs_is_closed_to_the_second() {
    for user in users() {
        let place = Place::new(user);
        let plain = place.at("work/plain");
        new(&place, &plain, "text");
        directory(&place, &place.at("work/a"));
        directory(&place, &place.at("work/a/b"));
        let mut server = Server::start(&place);
        for name in ["home/.npmrc", "work/.env", "work/a/b/.env"] {
            (0..WARM).for_each(|_| server.reads(&plain, "text"));
            let secret = place.at(name);
            new(&place, &secret, "secret");
            server.is_denied(&secret);
            server.reads(&plain, "text");
            // A file by that name that is gone and comes back.
            fs::remove_file(&secret).expect("own");
            (0..WARM).for_each(|_| server.reads(&plain, "text"));
            new(&place, &secret, "again");
            server.is_denied(&secret);
            fs::remove_file(&secret).expect("own");
        }
        // A credential's directory arrives as a whole.
        (0..WARM).for_each(|_| server.reads(&plain, "text"));
        directory(&place, &place.at("elsewhere"));
        new(&place, &place.at("elsewhere/credentials"), "secret");
        server.reads(&place.at("elsewhere/credentials"), "secret");
        fs::rename(place.at("elsewhere"), place.at("home/.aws")).expect("own");
        server.is_denied(&place.at("home/.aws/credentials"));
    }
}

#[test]
fn a_directory_that_becomes_a_link_is_not_followed_by_the_next_run() {
    for user in users() {
        let place = Place::new(user);
        directory(&place, &place.at("work/out"));
        let mut server = Server::start(&place);
        let order = json!({"id": 1, "argv": ["touch", "out/new"], "flags": ["--write", "out"]});
        for _ in 0..WARM {
            assert_eq!(server.run(order.clone())["exit_code"], 0);
        }
        fs::rename(place.at("work/out"), place.at("work/old")).expect("own");
        symlink(place.at("home"), place.at("work/out")).expect("new");
        let report = server.run(order.clone());
        assert_eq!(report["outcome"], "setup_failed", "{report}");
        assert!(!place.at("home/new").exists());
        fs::remove_file(place.at("work/out")).expect("own");
        fs::rename(place.at("work/old"), place.at("work/out")).expect("own");
        assert_eq!(server.run(order)["exit_code"], 0);
    }
}

#[test]
fn hooks_that_are_configured_between_two_runs_are_closed_to_the_second() {
    for user in users() {
        let place = Place::new(user);
        for name in ["work/.git", "work/.h"] {
            directory(&place, &place.at(name));
        }
        new(&place, &place.at("work/.git/HEAD"), "ref: refs/heads/main\n");
        let mut server = Server::start(&place);
        let order = json!({"id": 1, "argv": ["touch", ".h/pre-commit"], "flags": ["-p", "write"]});
        for (name, text) in [
            ("home/.gitconfig", "[core]\nhooksPath = .h\n"),
            ("work/.git/config", "[include]\npath = ../../shared\n"),
            ("shared", "[core]\nhooksPath = .h\n"),
        ] {
            for _ in 0..WARM {
                assert_eq!(server.run(order.clone())["exit_code"], 0);
            }
            new(&place, &place.at(name), text);
            let report = server.run(order.clone());
            let is_closed = report["stderr"].as_str().is_some_and(|text| text.contains("Read-only file system"));
            assert_eq!(is_closed, text.contains("hooksPath"), "{name}: {report}");
            if name.starts_with("home") {
                fs::remove_file(place.at(name)).expect("own");
            }
        }
    }
}

#[test]
fn another_program_and_another_policy_are_used_at_once() {
    for user in users() {
        let place = Place::new(user);
        let (tool, policy) = (place.at("work/tool"), place.at("policy.toml"));
        let write = |text: &str| {
            new(&place, &tool, &format!("#!/bin/sh\necho {text}\n"));
            fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).expect("own");
        };
        write("one");
        new(&place, &policy, "profile = \"read\"\n[env]\nset = { A = \"1\" }\n");
        let mut server = Server::start(&place);
        let order = json!({"id": 1, "argv": ["./tool"], "flags": ["--config", policy]});
        let print = json!({"id": 1, "argv": ["sh", "-c", "echo $A"], "flags": ["--config", policy]});
        for _ in 0..WARM {
            assert_eq!(server.run(order.clone())["stdout"], "one\n");
            assert_eq!(server.run(print.clone())["stdout"], "1\n");
        }
        write("two");
        assert_eq!(server.run(order.clone())["stdout"], "two\n");
        fs::write(&policy, "profile = \"read\"\n[env]\nset = { A = \"2\" }\n").expect("own");
        assert_eq!(server.run(print)["stdout"], "2\n");
        fs::write(&policy, "profile = \"read\"\n[commands]\nblock = [\"tool\"]\n").expect("own");
        assert_eq!(server.run(order.clone())["exit_code"], 126);
        fs::remove_file(&policy).expect("own");
        assert_eq!(server.run(order)["exit_code"], 125);
    }
}

#[test]
fn each_run_has_its_own_directory_for_temporary_files() {
    for user in users() {
        let place = Place::new(user);
        let mut server = Server::start(&place);
        let line = "echo $TMPDIR; ls -A $TMPDIR; echo x > $TMPDIR/left; ls $TMPDIR/..";
        let mut seen = Vec::new();
        for _ in 0..WARM {
            let report = server.run(json!({"id": 1, "line": line, "flags": ["-p", "write"]}));
            let text = report["stdout"].as_str().expect("text").to_owned();
            let (tmp, rest) = text.split_once('\n').expect("lines");
            assert_eq!(rest, "summary\ntmp\n", "{report}");
            assert!(!seen.contains(&tmp.to_owned()) && !Path::new(tmp).exists(), "{report}");
            seen.push(tmp.to_owned());
        }
    }
}

/// A second mount of a directory is another way to what is in it.
#[test]
fn a_mount_between_two_runs_is_seen_by_the_second() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: only root can mount");
    }
    let place = Place::new(None);
    let (plain, alias) = (place.at("work/plain"), place.at("work/alias"));
    new(&place, &plain, "text");
    directory(&place, &alias);
    directory(&place, &place.at("home/.ssh"));
    new(&place, &place.at("home/.ssh/id_rsa"), "secret");
    let mut command = place.any(Path::new("/usr/bin/unshare"), &["--mount", "--propagation", "private", "--"]);
    let command = command.arg(gatekeeper()).arg("serve").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("unshare is there");
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take().expect("it is piped"));
    let mut server = Server { child, stdin, lines: values(stdout), early: Vec::new(), reading: None };
    (0..WARM).for_each(|_| server.reads(&plain, "text"));
    let inside = |words: &[&str]| {
        let pid = server.child.id().to_string();
        let status = Command::new("nsenter").args(["--mount", "-t", &pid, "mount"]).args(words).status();
        assert!(status.expect("nsenter is there").success(), "{words:?}");
    };
    inside(&["--bind", place.at("home/.ssh").to_str().expect("text"), alias.to_str().expect("text")]);
    server.is_denied(&alias.join("id_rsa"));
    server.reads(&plain, "text");
}
