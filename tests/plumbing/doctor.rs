//! `doctor` with one layer disabled by an outer sandbox: it names the cause, and still finds the other layers.

use super::{Place, users};
use crate::support::{has, is_root, probe, skip};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Leaves out the trial of a container engine, which takes seconds; `a_plain_machine` has it.
fn without_engine(command: &mut Command) -> &mut Command {
    command.env("GATEKEEPER_ENGINE", "none")
}

/// Runs doctor under an outer filter with these rules.
#[track_caller]
fn under(place: &Place, rules: &[String]) -> Value {
    let gatekeeper = super::gatekeeper().to_str().expect("text").to_owned();
    let mut words: Vec<&str> = rules.iter().map(String::as_str).collect();
    words.extend(["--", &gatekeeper, "doctor", "--json"]);
    let done = crate::support::run(without_engine(&mut place.any(&probe("outer", &[]), &words)));
    done.exits(1);
    serde_json::from_str(&done.stdout()).unwrap_or_else(|error| panic!("{error}: {done}"))
}

#[track_caller]
fn finding<'a>(found: &'a Value, layer: &str) -> &'a Value {
    let layers = found["layers"].as_array().expect("a list");
    layers.iter().find(|finding| finding["layer"] == layer).unwrap_or_else(|| panic!("no {layer} in {found:#}"))
}

#[track_caller]
fn is_available(found: &Value, layers: &[&str]) {
    for layer in layers {
        assert_eq!(finding(found, layer)["status"], "available", "{found:#}");
    }
}

#[track_caller]
fn is_lost(found: &Value, layer: &str, cause: &str) {
    let finding = finding(found, layer);
    assert_eq!(finding["status"], "unavailable", "{finding:#}");
    assert!(finding["cause"].as_str().expect("a cause").contains(cause), "{finding:#}");
    for field in ["lost", "fix"] {
        assert!(finding[field].as_str().is_some_and(|text| !text.is_empty()), "{field}: {finding:#}");
    }
}

const OUTER: &str = "seccomp filter";

/// What every machine that can build this project has.
#[test]
fn a_plain_machine() {
    for user in users() {
        let place = Place::new(user);
        let done = place.run(&["doctor", "--json"]);
        let found: Value = serde_json::from_str(&done.stdout()).expect("a document");
        let lacks = found["layers"].as_array().expect("a list").iter().any(|finding| finding["status"] != "available");
        done.exits(i32::from(lacks));
        is_available(&found, &["seccomp", "seccomp actions", "preload"]);
        let text = place.run(&["doctor"]);
        text.exits(i32::from(lacks));
        assert_eq!(text.stdout().lines().filter(|line| !line.starts_with(' ')).count(), 11, "{text}");
    }
}

#[test]
fn landlock_refused_or_hidden_by_an_outer_filter() {
    for user in users() {
        let place = Place::new(user);
        for errno in [libc::EPERM, libc::ENOSYS] {
            let found = under(&place, &[format!("{}={errno}", libc::SYS_landlock_create_ruleset)]);
            is_lost(&found, "landlock", OUTER);
            is_available(&found, &["seccomp", "user notification"]);
        }
        // The version query works, restricting does not.
        let found = under(&place, &[format!("{}={}", libc::SYS_landlock_restrict_self, libc::EPERM)]);
        is_lost(&found, "landlock", OUTER);
    }
}

#[test]
fn filters_refused_by_an_outer_filter() {
    for user in users() {
        let place = Place::new(user);
        let found = under(&place, &[format!("{}={}", libc::SYS_seccomp, libc::EPERM)]);
        is_lost(&found, "seccomp", OUTER);
        is_lost(&found, "seccomp actions", OUTER);
        is_lost(&found, "user notification", OUTER);
        is_lost(&found, "preload", "");
    }
}

#[test]
fn the_listener_refused_or_taken() {
    for user in users() {
        let place = Place::new(user);
        // Only calls with the flag for a listener fail.
        let flag = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
        let found = under(&place, &[format!("{},1,{flag},{flag}={}", libc::SYS_seccomp, libc::EPERM)]);
        is_lost(&found, "user notification", OUTER);
        is_available(&found, &["seccomp"]);
        let found = under(&place, &["listen".to_owned()]);
        is_lost(&found, "user notification", "already has a listener");
        is_available(&found, &["seccomp"]);
    }
}

#[test]
fn namespaces_refused_by_an_outer_filter() {
    for user in users() {
        let place = Place::new(user);
        // As in Docker, clone3 fails with ENOSYS, because a filter cannot see its flags.
        let mut rules =
            vec![format!("{}={}", libc::SYS_unshare, libc::EPERM), format!("{}={}", libc::SYS_clone3, libc::ENOSYS)];
        let found = under(&place, &rules);
        is_lost(&found, "user namespaces", OUTER);
        is_lost(&found, "mount namespaces", OUTER);
        is_available(&found, &["seccomp", "user notification", "preload"]);
        if has("bwrap") {
            // bubblewrap creates its namespaces with clone, and always a mount namespace.
            rules.push(format!("{},0,{flag},{flag}={}", libc::SYS_clone, libc::EPERM, flag = libc::CLONE_NEWNS));
            let found = under(&place, &rules);
            is_lost(&found, "bubblewrap", OUTER);
            is_available(&found, &["preload"]);
        }
    }
}

const HIDE: &str =
    "for file in $(command -v -p bwrap) $(command -v bwrap); do mount --bind /dev/null $file; done; exec \"$@\"";

#[test]
fn bubblewrap_not_installed() {
    for user in users() {
        let place = Place::new(user);
        // In a new mount namespace, /dev/null is mounted over bwrap.
        let mut command = place.any(Path::new("unshare"), &["-m", "sh", "-ec", HIDE, "sh"]);
        if user.is_some() || !is_root() {
            command = place.any(Path::new("unshare"), &["-rm", "sh", "-ec", HIDE, "sh"]);
        }
        command.arg(super::gatekeeper()).args(["doctor", "--json"]);
        let done = crate::support::run(without_engine(&mut command));
        done.exits(1);
        let found: Value = serde_json::from_str(&done.stdout()).expect("a document");
        is_lost(&found, "bubblewrap", "bwrap is not in a system directory");
        assert!(finding(&found, "bubblewrap")["fix"].as_str().expect("a fix").contains("bubblewrap"));
    }
}

/// In a user namespace whose limit of nested ones is 0, doctor names that setting.
#[test]
fn a_setting_that_allows_no_user_namespace() {
    if !is_root() {
        return skip("only root can change the setting of a namespace");
    }
    if !has("unshare") {
        return;
    }
    let place = Place::new(None);
    let line =
        format!("echo 0 > /proc/sys/user/max_user_namespaces && exec {} doctor --json", super::gatekeeper().display());
    let mut command = place.any("unshare".as_ref(), &["--user", "--map-root-user", "sh", "-c", &line]);
    let done = crate::support::run(without_engine(&mut command));
    if done.stderr().contains("Operation not permitted") || done.stderr().contains("Permission denied") {
        return skip("user.max_user_namespaces cannot be changed in a namespace here");
    }
    done.exits(1);
    let found: Value = serde_json::from_str(&done.stdout()).unwrap_or_else(|error| panic!("{error}: {done}"));
    is_lost(&found, "user namespaces", "user.max_user_namespaces is 0");
    assert!(
        finding(&found, "user namespaces")["fix"].as_str().expect("a fix").contains("user.max_user_namespaces=15000")
    );
}

/// With busybox, /bin/true is static. That says nothing about the programs that a loader starts.
#[test]
fn the_preload_is_tried_with_a_program_that_has_a_loader() {
    let stub = probe("outer", &["-static"]);
    for user in users() {
        let place = Place::new(user);
        for (covered, status, words) in [
            ("/bin/true", "available", "confines /usr/bin/env"),
            ("/bin/true /usr/bin/env /bin/sh", "unavailable", "not tried"),
        ] {
            let cover =
                "stub=$1 covered=$2; shift 2; for file in $covered; do mount --bind $stub $file; done; exec \"$@\"";
            let own = if user.is_some() || !is_root() { "-rm" } else { "-m" };
            let mut command = place.any(Path::new("unshare"), &[own, "sh", "-ec", cover, "sh"]);
            command.arg(&stub).arg(covered).arg(super::gatekeeper()).args(["doctor", "--json"]);
            let done = crate::support::run(&mut command);
            let found: Value = serde_json::from_str(&done.stdout()).unwrap_or_else(|error| panic!("{error}: {done}"));
            let preload = finding(&found, "preload");
            assert_eq!(preload["status"], status, "{preload:#}");
            assert!(preload["detail"].as_str().expect("text").contains(words), "{preload:#}");
        }
    }
}

/// Without a place for its files, the engine is not tried: that is no reason to install another.
#[test]
fn no_temporary_directory_is_no_missing_engine() {
    if !is_root() {
        return skip("only root can mount over /tmp");
    }
    let top = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("doctor-{}", std::process::id()));
    std::fs::create_dir(&top).expect("new");
    let place = Place::below(top, None);
    let line = "mount -t tmpfs -o ro none /tmp && mount -t tmpfs -o ro none /var/tmp && exec \"$@\"";
    let program = place.at("gatekeeper");
    std::fs::copy(super::gatekeeper(), &program).expect("own directory");
    let mut command = place.any("unshare".as_ref(), &["-m", "sh", "-c", line, "sh"]);
    command.arg(&program).args(["doctor", "--json"]).env_remove("TMPDIR");
    let done = crate::support::run(&mut command);
    std::fs::remove_dir_all(place.at("")).expect("own directory");
    done.exits(1);
    let found: Value = serde_json::from_str(&done.stdout()).unwrap_or_else(|error| panic!("{error}: {done}"));
    for layer in ["stage", "container engine"] {
        let finding = finding(&found, layer);
        assert_eq!(finding["fix"], "set TMPDIR to a directory that you may enter and write", "{finding:#}");
        assert!(finding["cause"].as_str().is_some_and(|cause| cause.starts_with("/tmp")), "{finding:#}");
    }
}
