//! A denial names the rule that denied the call, and no remedy grants more than it says.

use super::{Violation, place, violate};
use crate::support::{fresh, gatekeeper, has, is_root, run};
use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::process::Command;

const EPERM: i32 = 1;

fn probe(words: &[&dyn AsRef<OsStr>]) -> Vec<OsString> {
    let all = [gatekeeper().as_os_str().to_owned(), OsString::from("__probe")];
    all.into_iter().chain(words.iter().map(|word| word.as_ref().to_owned())).collect()
}

#[test]
fn a_rule_of_the_policy_is_named_and_has_no_remedy() {
    let config = fresh("rule").join("policy.toml");
    fs::write(&config, "[[syscalls.rule]]\nsyscall = \"sysinfo\"\naction = \"deny\"\n").expect("own directory");
    let config = config.display().to_string();
    let denied = Violation::new(&["--config", &config], &["sort", "/dev/null"]);
    let (_, report) = denied.start(&denied.flags);
    let denials = report["denials"].as_array().cloned().unwrap_or_default();
    let found = denials.iter().find(|denial| denial["syscall"] == "sysinfo");
    let Some(found) = found else { panic!("sort asks for sysinfo: {denials:#?}") };
    assert_eq!(found["rule"], "syscalls.rule 1 of the policy: deny sysinfo", "{found:#}");
    assert_eq!((&found["allow_with"], &found["allow_with_policy"]), (&json!(null), &json!(null)), "{found:#}");
    // Without the flag, sysinfo is granted.
    let plain = Violation::new(&[], &["sort", "/dev/null"]).exits(0);
    assert!(!plain.denials().iter().any(|denial| denial["syscall"] == "sysinfo"), "{:#?}", plain.denials());
}

#[test]
fn requests_of_file_systems_are_not_called_terminals() {
    let file = place("flags").join("file");
    fs::write(&file, "").expect("own directory");
    for name in ["flags-by-descriptor", "project-by-descriptor"] {
        let denied = Violation::new(&[], &probe(&[&name, &file])).exits(0);
        denied.done.prints("EPERM\n");
        denied.record(json!({
            "syscall": "ioctl", "allow_with": null,
            "rule": "ioctls that change files regardless of the path rules are refused in every profile",
        }));
        denied.mended_by_policy();
    }
}

#[test]
fn a_remedy_is_appended_to_what_is_there() {
    let denied = Violation::new(
        &["--profile", "minimal"],
        &[violate().as_os_str(), "socket".as_ref(), "2".as_ref(), "1".as_ref()],
    );
    denied.exits(libc::EAFNOSUPPORT).record(json!({"syscall": "socket", "allow_with": "--profile network"})).passes();
    let config = fresh("profile").join("policy.toml");
    fs::write(&config, "profile = \"write\"\n").expect("own directory");
    let config = config.display().to_string();
    let denied =
        Violation::new(&["--config", &config], &[violate().as_os_str(), "socket".as_ref(), "2".as_ref(), "1".as_ref()]);
    // The flag replaces the profile of the file, so the remedy names both.
    denied
        .exits(libc::EAFNOSUPPORT)
        .record(json!({"syscall": "socket", "allow_with": "--profile write+network"}))
        .passes();
}

#[test]
fn one_remedy_for_processes_and_programs() {
    for command in [&["sh", "-c", "ls; true"][..], &["env", "true"]] {
        let denied = Violation::new(&[], command).fails();
        assert_eq!(denied.denials()[0]["allow_with"], "--profile read", "{:#?}", denied.denials());
        denied.passes();
    }
}

/// An abstract socket has no file by which it could be granted, and `--allow connect` would open all of them.
#[test]
fn an_abstract_socket_has_no_remedy() {
    let command = [violate().into_os_string(), "connect-unix".into(), "@name".into()];
    Violation::new(&[], &command).exits(EPERM).record(json!({
        "syscall": "connect", "allow_with": null, "allow_with_policy": null,
        "rule": "abstract sockets have no path that could be granted",
    }));
}

/// In the machine's network namespace the name would be there for every program of the machine.
#[test]
fn an_abstract_name_is_served_in_a_namespace_of_ones_own() {
    if !has("python3") {
        return;
    }
    let serve = "import socket; s = socket.socket(socket.AF_UNIX); s.bind('\\0rules-test'); s.listen()\n\
                 c = socket.socket(socket.AF_UNIX); c.connect('\\0rules-test')";
    let denied = Violation::new(&["--profile", "write"], &["python3", "-c", serve]).fails();
    let rule = "abstract names are visible to the whole machine; listen on a socket file in a writable tree instead";
    denied.record(json!({
        "syscall": "listen", "rule": rule, "allow_with": "--net own", "allow_with_policy": "network.mode = \"own\"",
    }));
    denied.passes();
    // Not where that would take a network away.
    let open = Violation::new(&["--profile", "write+network"], &["python3", "-c", serve]).fails();
    open.record(json!({"syscall": "listen", "rule": rule, "allow_with": null, "allow_with_policy": null}));
}

#[test]
fn a_pair_of_datagram_sockets_is_granted_by_name() {
    if !has("python3") {
        return;
    }
    let pair = "import socket; a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); a.send(b'x'); b.recv(1)";
    let denied = Violation::new(&["--profile", "write"], &["python3", "-c", pair]).fails();
    denied.record(json!({"syscall": "socketpair", "allow_with": "--allow socketpair"})).passes();
}

#[test]
fn what_permissions_refuse_is_not_promised() {
    if !is_root() {
        return crate::support::skip("only root can run as another user");
    }
    // The directory belongs to root, so a grant would not help the user.
    let refused = Violation::new(&[], &["mkdir", "/usr/gatekeeper-test"]).uid(65534).fails();
    refused.record(json!({"layer": "seccomp", "syscall": "mkdir", "path": "/usr/gatekeeper-test", "allow_with": null}));
    let refused = Violation::new(&[], &["chmod", "600", "/etc/passwd"]).uid(65534).fails();
    refused.record(json!({"layer": "seccomp", "syscall": "fchmodat", "path": "/etc/passwd", "allow_with": null}));
    // The positive control: the user's own directory has a remedy.
    let dir = place("own");
    std::os::unix::fs::chown(&dir, Some(65534), Some(65534)).expect("as root");
    let path = dir.join("new").display().to_string();
    let own = Violation::new(&[], &["mkdir", &path]).uid(65534).fails();
    own.record(json!({"syscall": "mkdir", "allow_with": format!("--write {}", dir.display())})).passes();
}

#[test]
fn a_process_is_not_granted_by_its_number() {
    let number = std::process::id();
    let path = format!("/proc/{number}/oom_score_adj");
    let denied =
        Violation::new(&["--write", "/dev/shm"], &[violate().as_os_str(), "open-existing".as_ref(), path.as_ref()]);
    let (_, report) = denied.start(&denied.flags);
    for denial in report["denials"].as_array().into_iter().flatten() {
        assert!(!denial["allow_with"].to_string().contains("/proc/"), "{denial:#}");
    }
}

#[test]
fn the_network_is_not_called_closed_where_a_list_opens_it() {
    let plan =
        |flags: &[&str]| run(Command::new(gatekeeper()).arg("plan").args(flags).args(["--", "true"])).exits(0).stdout();
    assert!(plan(&[]).contains("no network;"), "{}", plan(&[]));
    let opened = plan(&["--allow", "socket"]);
    assert!(!opened.contains("no network;") && opened.contains("open by syscalls.allow"), "{opened}");
    let summary = |flags: &[&str]| {
        let mut command = Command::new(gatekeeper());
        command.args(["run", "--profile", "write"]).args(flags).args(["-c", "cat $GATEKEEPER_SUMMARY"]);
        run(&mut command).exits(0).stdout()
    };
    assert!(summary(&[]).contains("network: none"), "{}", summary(&[]));
    assert!(summary(&["--allow", "socket"]).contains("can be reached"), "{}", summary(&["--allow", "socket"]));
    let policy = fresh("opened").join("policy.toml");
    let lint = |text: &str| {
        fs::write(&policy, text).expect("own directory");
        run(Command::new(gatekeeper()).arg("lint").arg(&policy)).stdout()
    };
    assert!(lint("[syscalls]\nallow = [\"socket\"]\n").contains("network_opened"));
    assert!(!lint("profile = \"write\"\n").contains("network_opened"));
}

#[test]
fn the_network_is_not_called_closed_where_a_rule_opens_a_part_of_it() {
    let policy = fresh("ruled").join("policy.toml");
    let low = |index: u32, value: u32| format!("{{ index = {index}, op = 'eq', value = {value}, mask = 0xffffffff }}");
    // The tests of a rule, and a socket that passes them: as programs ask for it, with SOCK_CLOEXEC or a protocol.
    for (args, socket, opens) in [
        (low(0, 2) + ", " + &low(1, 0x80002), ["2", "524290", "0"], true),
        (low(0, 10) + ", " + &low(1, 0x80801), ["10", "526337", "0"], true),
        (low(0, 2) + ", " + &low(2, 17), ["2", "2", "17"], true),
        (low(0, 1), ["1", "2", "0"], false),
    ] {
        let rule = format!("[[syscalls.rule]]\nsyscall = 'socket'\naction = 'allow'\nargs = [{args}]\n");
        fs::write(&policy, &rule).expect("own directory");
        let answer = |command: &str, rest: &[&OsStr]| {
            let mut started = Command::new(gatekeeper());
            run(started.args([command, "--config"]).arg(&policy).arg("--").args(rest))
        };
        let violate = violate();
        let [family, kind, protocol] = socket.map(OsStr::new);
        let done = answer("run", &[violate.as_os_str(), OsStr::new("socket"), family, kind, protocol]);
        // The socket is really there.
        done.exits(0);
        let warned = done.stderr().contains("syscalls.rule: grants internet sockets");
        let plan = answer("plan", &[OsStr::new("true")]).exits(0).stdout();
        let lint = run(Command::new(gatekeeper()).arg("lint").arg(&policy));
        let said = [warned, plan.contains("open by syscalls.allow"), lint.stdout().contains("network_opened")];
        assert_eq!(said, [opens; 3], "{rule}{done}{plan}{lint}");
        assert_eq!(plan.contains("no network;"), !opens, "{plan}");
    }
}

#[test]
fn a_group_does_not_open_datagram_pairs() {
    let denied = Violation::new(&["--allow", "@ipc"], &probe(&[&"socketpair-datagram"])).exits(0);
    denied.record(json!({"syscall": "socketpair", "rule": "a socket pair that can send to other sockets"}));
    let ipc = Violation::new(&[], &probe(&[&"shmget"])).exits(0);
    ipc.done.prints("EPERM\n");
    ipc.record(json!({"syscall": "shmget", "allow_with": "--allow @ipc"})).passes();
}

/// The remedy for caches of package managers is a separate directory, not the home directory.
#[test]
fn caches_are_moved_and_not_granted() {
    let home = place("home");
    fs::create_dir_all(home.join(".cargo/bin")).expect("own directory");
    let work = place("work");
    for name in [".npm", ".cargo/registry", ".cache"] {
        let path = home.join(name).join("x");
        fs::create_dir_all(home.join(name)).expect("own directory");
        let denied =
            Violation::new(&["--profile", "write"], &[violate().as_os_str(), "open".as_ref(), path.as_os_str()])
                .cwd(&work)
                .home(&home)
                .exits(13);
        let remedy = denied.denials()[0]["allow_with"].as_str().unwrap_or_default().to_owned();
        let wanted = format!("--cache {}", home.join(".cache/gatekeeper").display());
        assert!(remedy.starts_with(&wanted), "{remedy}");
        let moved =
            [violate().as_os_str(), "open".as_ref(), home.join(".cargo/bin/x").as_os_str()].map(OsStr::to_owned);
        let other = Violation::new(&["--profile", "write"], &moved).cwd(&work).home(&home).exits(13);
        assert_eq!(other.denials()[0]["allow_with"], format!("--write {}", home.join(".cargo/bin").display()));
    }
    // It works for programs that obey the variable.
    let line = "echo x > ${XDG_CACHE_HOME:-$HOME/.cache}/x 2>&1 || mkdir -p ${XDG_CACHE_HOME:-$HOME/.cache} && echo x > ${XDG_CACHE_HOME:-$HOME/.cache}/x";
    Violation::new(&["--profile", "write"], &["sh", "-c", line]).cwd(&work).home(&home).fails().passes();
}

#[test]
fn quiet_says_why_nothing_ran() {
    let said = |words: &[&str], code: i32| {
        let done = run(Command::new(gatekeeper()).args(["run", "--quiet"]).args(words));
        done.exits(code);
        assert!(done.stderr().starts_with("gatekeeper: "), "{done}");
    };
    said(&["--", "no-such-command-anywhere"], 127);
    said(&["--config", "/nonexistent.toml", "--", "true"], 125);
    let blocked = fresh("blocked").join("policy.toml");
    fs::write(&blocked, "[commands]\nblock = [\"true\"]\n").expect("own directory");
    said(&["--config", &blocked.display().to_string(), "--", "true"], 126);
    let done = run(Command::new(gatekeeper()).args(["run", "--quiet", "--", "false"]));
    done.exits(1).complains("");
}

#[test]
fn the_plan_shows_mounts_apart_from_landlock() {
    let dir = place("planned");
    fs::create_dir_all(dir.join(".git/hooks")).expect("own directory");
    fs::write(dir.join(".env"), "").expect("own directory");
    let mut command = Command::new(gatekeeper());
    command.args(["plan", "--json", "--profile", "write", "--memory", "1G", "--", "true"]).current_dir(&dir);
    let told: serde_json::Value = serde_json::from_str(&run(&mut command).exits(0).stdout()).expect("JSON");
    let steps = told["steps"].as_array().expect("steps");
    let step = |name: &str| {
        let found = steps.iter().find(|step| step["step"] == name);
        found.and_then(|step| step["detail"].as_str()).unwrap_or_else(|| panic!("no {name}: {told:#}")).to_owned()
    };
    let mounts = step("mounts");
    assert!(mounts.contains(&format!("read-only {}", dir.join(".git/hooks").display())), "{mounts}");
    assert!(mounts.contains(&format!("unreadable {}", dir.join(".env").display())), "{mounts}");
    let landlock = step("landlock");
    let env = dir.join(".env").display().to_string();
    assert!(!landlock.contains(".git/hooks") && !landlock.contains(&env), "{landlock}");
    step("cgroup");
    assert_eq!(step("process group"), "its own, ended as a whole");
}
