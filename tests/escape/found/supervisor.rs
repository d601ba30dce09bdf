//! Calls that the supervisor makes for the program.

use super::{Hole, Severity};
use crate::run::{Gate, User, become_user, denials, finish, owned_by, reports, users};
use crate::support::{fresh, gatekeeper, on_path, probe, run, skip};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub const HOLES: &[Hole] = &[
    Hole {
        severity: Severity::High,
        attack: "flip O_NONBLOCK on a socket while the supervisor connects it",
        reached: "the supervisor stood still: time limit, memory limit and SIGTERM were lost",
        held_by: &["flipped_flags_do_not_stop_the_clock", "flipped_flags_do_not_keep_sigterm_out"],
    },
    Hole {
        severity: Severity::Medium,
        attack: "an absolute link to a socket in a covered place, with a writable tree around it",
        reached: "the agent that signs with the user's keys",
        held_by: &["a_socket_in_a_closed_place_is_out_of_reach"],
    },
    Hole {
        severity: Severity::Medium,
        attack: "chmod of /proc/PID/fd/N of a process outside",
        reached: "mode 6777 on a file of somebody else's process",
        held_by: &["descriptors_of_other_processes_cannot_be_changed"],
    },
    Hole {
        severity: Severity::Medium,
        attack: "chmod and connect by /proc/PID/root, where the name of a writable tree is another mount's",
        reached: "files and sockets of another mount namespace",
        held_by: &["another_mount_namespace_is_out_of_reach"],
    },
    Hole {
        severity: Severity::Medium,
        attack: "leave a set-user-ID program or file capabilities in a writable tree, by chmod, open, mknod or setxattr",
        reached: "for root's command, root for every user of the machine",
        held_by: &["no_file_is_left_that_lends_rights"],
    },
    Hole {
        severity: Severity::Low,
        attack: "F_SETLEASE on a file that may only be read",
        reached: "programs outside that write the file wait",
        held_by: &["leases_are_refused"],
    },
    Hole {
        severity: Severity::Low,
        attack: "listen on an abstract name that programs outside talk to",
        reached: "cookies and requests of those programs",
        held_by: &["abstract_names_serve_nobody_outside"],
    },
    Hole {
        severity: Severity::Low,
        attack: "stop oneself in a shared terminal and let a child go on",
        reached: "no time limit and no memory limit while the shell waits",
        held_by: &["a_command_that_stops_itself_stops_no_clock"],
    },
    Hole {
        severity: Severity::Medium,
        attack: "ask the proxy for a public address that is this machine's own, under deny_private",
        reached: "services of this machine that listen on every address",
        held_by: &["an_own_public_address_is_private"],
    },
];

fn attacker() -> PathBuf {
    probe("supervised", &["-lpthread"])
}

fn words<'a>(program: &'a Path, rest: &[&'a str]) -> Vec<&'a str> {
    std::iter::once(program.to_str().expect("text")).chain(rest.iter().copied()).collect()
}

/// The same without confinement, by the same user: the way is open.
fn unconfined(user: User, dir: &Path, rest: &[&str]) -> String {
    let mut command = Command::new(attacker());
    command.args(rest).current_dir(dir);
    become_user(&mut command, user);
    finish(command, None).exits(0).stdout()
}

#[test]
fn flipped_flags_do_not_stop_the_clock() {
    let program = attacker();
    for user in users() {
        // One attempt meets the moment more often than not.
        for _ in 0..3 {
            let gate = Gate::profile(*user, "write").flags(["--timeout", "3s"]);
            let began = Instant::now();
            let (done, report) = gate.report(words(&program, &["flip", "."]));
            done.exits(124).prints("flipping\n");
            assert_eq!(report["outcome"], "timeout");
            assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
        }
    }
}

#[test]
fn flipped_flags_do_not_keep_sigterm_out() {
    let program = attacker();
    for user in users() {
        let gate = Gate::profile(*user, "write").flags(["--quiet"]);
        let mut command = gate.command(words(&program, &["flip", "."]));
        let mut child = command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().expect("gatekeeper starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("readable");
        assert_eq!(line, "flipping\n");
        std::thread::sleep(Duration::from_millis(700));
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("own child");
        let status = ends(&mut child, Duration::from_secs(30)).expect("SIGTERM is passed on");
        assert_eq!(status.code(), Some(128 + libc::SIGTERM), "{status}");
    }
}

fn ends(child: &mut Child, patience: Duration) -> Option<std::process::ExitStatus> {
    let began = Instant::now();
    while began.elapsed() < patience {
        if let Some(status) = child.try_wait().expect("own child") {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}

/// No hole that was found: it held before the loop and the judge were parted, and has to hold after.
#[test]
fn a_flood_of_denied_calls_does_not_delay_the_end() {
    let program = attacker();
    for user in users() {
        let gate = Gate::profile(*user, "write").flags(["--timeout", "1s"]);
        let began = Instant::now();
        let (done, report) = gate.report(words(&program, &["flood"]));
        done.exits(124).prints("flooding\n");
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        // All of one kind is one record, with a count.
        let [mount] = denials(&report, "mount")[..] else { panic!("{report:#}") };
        assert!(mount["count"].as_u64().is_some_and(|count| count > 100), "{mount:#}");
    }
}

/// No hole that was found either; without a bound each blocked connection took a thread and three descriptors.
#[test]
fn blocked_connections_are_bounded() {
    let program = attacker();
    for user in users() {
        // Waiting in the supervisor: 128 at once. The others are told so, and the run goes on.
        let gate = Gate::profile(*user, "write").flags(["--timeout", "60s"]);
        let count = (128 + 12).to_string();
        gate.run(words(&program, &["crowd", &count, "."])).exits(0).prints(&format!("12 {}\n", libc::EAGAIN));
        // With fewer descriptors than that, the program gets the error and the supervisor lives.
        let gate = Gate::profile(*user, "write").flags(["--timeout", "60s"]);
        let mut command = Command::new("sh");
        let line = "ulimit -n 80; exec \"$0\" run --profile write --timeout 60s -- \"$1\" crowd 70 .";
        command.args(["-c", line]).arg(crate::run::gatekeeper()).arg(&program);
        command.current_dir(&gate.dir).env("HOME", "/nonexistent");
        become_user(&mut command, *user);
        let done = finish(command, None);
        let (turned_away, errno) = (done.exits(0).stdout(), libc::EMFILE.to_string());
        let mut parts = turned_away.split_whitespace();
        let count: u32 = parts.next().and_then(|text| text.parse().ok()).expect("a number");
        assert!(count > 0 && count < 70 && parts.next() == Some(errno.as_str()), "{done}");
    }
}

/// A server on a socket that everybody may connect to.
fn serve(path: &Path) {
    fs::create_dir_all(path.parent().expect("in a directory")).expect("own directory");
    let listener = UnixListener::bind(path).expect("a short path");
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("own");
    std::thread::spawn(move || listener.incoming().for_each(drop));
}

#[test]
fn a_socket_in_a_closed_place_is_out_of_reach() {
    let program = attacker();
    for user in users() {
        let home = fs::canonicalize(fresh("h")).expect("just made");
        let (agent, open) = (home.join(".gnupg/S.gpg-agent"), home.join("app.sock"));
        serve(&agent);
        serve(&open);
        let work = home.join("work");
        fs::create_dir(&work).expect("own directory");
        symlink(&agent, work.join("link")).expect("own directory");
        symlink(&open, work.join("open")).expect("own directory");
        for path in [&home, &work, &home.join(".gnupg")] {
            owned_by(*user, path);
        }
        assert_eq!(unconfined(*user, &work, &["connect", "link"]), "0\n");
        let tree = home.to_str().expect("text");
        let agent = agent.to_str().expect("text");
        let gate = |flags: &[&str]| {
            let mut gate = Gate::profile(*user, "write").flags(["--write", tree]).flags(flags).env("HOME", &home);
            gate.dir = work.clone();
            gate
        };
        for name in ["link", agent, "../.gnupg/S.gpg-agent"] {
            let (done, report) = gate(&[]).report(words(&program, &["connect", name]));
            // Covered by a mount it is not there at all; without one it is refused, with a record.
            match done.exits(0).stdout().as_str() {
                "2\n" | "13\n" => assert_eq!(report["denials"], serde_json::json!([]), "{name}"),
                "1\n" => {
                    let [denial] = denials(&report, "connect")[..] else { panic!("{report:#}") };
                    assert_eq!(
                        (&denial["path"], &denial["allow_with"]),
                        (&agent.into(), &format!("--unix {agent}").into())
                    );
                }
                _ => panic!("{name}{done}"),
            }
        }
        for name in ["open", "../app.sock"] {
            gate(&[]).run(words(&program, &["connect", name])).exits(0).prints("0\n");
        }
        // Only by its own name, and not by that of a tree around it.
        gate(&["--unix", agent]).run(words(&program, &["connect", agent])).exits(0).prints("0\n");
        let around = gate(&["--unix", tree]).run(words(&program, &["connect", agent]));
        assert!(["1\n", "2\n", "13\n"].contains(&around.exits(0).stdout().as_str()), "{around}");
    }
}

#[test]
fn descriptors_of_other_processes_cannot_be_changed() {
    let program = attacker();
    for user in users() {
        // A file that has no name any more, and so is in no tree.
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
        // Its own are, also by the names that the C library uses.
        let act = crate::run::act();
        gate.run(words(&act, &["proc-chmod", "own"])).exits(0).prints("proc-chmod 0\n");
    }
}

#[test]
fn another_mount_namespace_is_out_of_reach() {
    if !on_path("unshare") {
        return skip("unshare is not installed");
    }
    let program = attacker();
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
    let program = attacker();
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
        // A group that is passed on to new files is no program.
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
    let program = attacker();
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

#[test]
fn abstract_names_serve_nobody_outside() {
    let program = attacker();
    for user in users() {
        let name = format!("@gatekeeper-test-{}-{user:?}", std::process::id());
        assert_eq!(unconfined(*user, Path::new("/"), &["listen", &name]), "0\n");
        for profile in ["minimal", "write", "write+network"] {
            let gate = Gate::profile(*user, profile);
            let (done, report) = gate.report(words(&program, &["listen", &name]));
            done.exits(0).prints("1\n");
            let [denial] = denials(&report, "listen")[..] else { panic!("{report:#}") };
            assert_eq!(denial["allow_with"], serde_json::Value::Null, "{denial:#}");
            assert!(denial["rule"].as_str().is_some_and(|rule| rule.starts_with("abstract names")), "{denial:#}");
        }
        let gate = Gate::profile(*user, "write");
        gate.run(words(&program, &["listen", "by-path"])).exits(0).prints("0\n");
    }
}

#[test]
fn a_command_that_stops_itself_stops_no_clock() {
    if !on_path("bash") {
        return skip("bash is not installed");
    }
    let program = attacker();
    for (at, user) in users().iter().enumerate() {
        let gate = Gate::new(*user);
        let report = reports().join(format!("stopped-{at}.json"));
        let _ = fs::remove_file(&report);
        let mut command = Command::new(probe("pty", &[]));
        command.args([
            "<ready$ ",
            ">\"$G\" run -q -p write --timeout 5s --report \"$R\" -- \"$A\" stop grows\\r",
            "<stopping",
            "<Stopped",
            // The child that did not stop itself was stopped with it.
            ">a=$(stat -c %s grows); sleep 1; b=$(stat -c %s grows); [ $a = $b ] && echo it-\"stands\"\\r",
            "<it-stands",
            // The shell never continues it: the time limit does.
            ">while [ ! -s \"$R\" ]; do sleep 0.1; done; echo report-\"there\"\\r",
            "<report-there",
            ">exit 0\\r",
            ">exit 0\\r",
            "--",
            "bash",
            "--norc",
            "--noprofile",
            "-i",
        ]);
        command.env_clear().envs([("PS1", "ready$ "), ("TERM", "xterm"), ("PATH", "/usr/bin:/bin"), ("LC_ALL", "C")]);
        command.env("G", crate::run::gatekeeper()).env("A", &program).env("R", &report).env("HOME", "/nonexistent");
        command.current_dir(&gate.dir);
        become_user(&mut command, *user);
        let done = run(&mut command);
        done.exits(0);
        assert!(!done.stdout().contains("continued"), "it was ended where it stood{done}");
        let text = fs::read_to_string(&report).expect("a report");
        let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(report["outcome"], "timeout", "{report:#}");
        let millis = report["duration_ms"].as_u64().expect("a number");
        assert!((5000..30_000).contains(&millis), "{report:#}");
    }
}

/// A network namespace in which this machine has a public address, and beside it another machine, a second namespace, that
/// has one too. Nothing leaves the two.
const OWN_ADDRESS: &str = r#"
set -e
ip link set lo up
unshare -n sleep 300 & other=$!
while [ "$(readlink /proc/$other/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
ip link add near type veth peer name far netns $other
ip addr add 93.184.216.1/24 dev near
ip link set near up
python3 -m http.server --bind 0.0.0.0 8000 >/dev/null 2>&1 & own=$!
serve='ip addr add 93.184.216.34/24 dev far; ip link set far up; exec python3 -m http.server --bind 0.0.0.0 8000'
nsenter -t $other -n sh -c "$serve" >/dev/null 2>&1 & far=$!
trap "kill $own $far $other" EXIT
for address in 93.184.216.1 93.184.216.34; do
  while ! curl -s -o /dev/null http://$address:8000/; do sleep 0.05; done
done
for policy in private open listed named; do
  for address in 93.184.216.1 93.184.216.34; do
    printf '%s %s ' $policy $address
    "$GATEKEEPER" run -q --report $policy-$address.json --config $policy.toml -- curl -s -o body -w '%{http_code}\n' http://$address:8000/ || true
  done
done
"#;

#[test]
fn an_own_public_address_is_private() {
    for tool in ["unshare", "nsenter", "ip", "python3", "curl"] {
        if !on_path(tool) {
            return skip(&format!("{tool} is not installed"));
        }
    }
    for user in users() {
        let dir = fresh("own-address");
        let network = [
            ("private", "mode = \"full\"\ndeny_private = true\n"),
            ("open", "mode = \"full\"\n"),
            ("listed", "mode = \"hosts\"\nhosts = [\"93.184.216.1:8000\"]\n"),
            ("named", "mode = \"full\"\ndeny_private = true\nlocal_ports = [8000]\n"),
        ];
        for (name, text) in network {
            fs::write(dir.join(format!("{name}.toml")), format!("profile = \"write\"\n[network]\n{text}"))
                .expect("own");
        }
        let mut command = Command::new("unshare");
        command.args(["-rn", "sh", "-c", OWN_ADDRESS]).current_dir(&dir).env("GATEKEEPER", gatekeeper());
        command.env("HOME", "/nonexistent").env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        become_user(&mut command, *user);
        let done = run(&mut command);
        if done.stderr().contains("unshare failed") {
            return skip("no user and network namespace can be made here");
        }
        let expected = [
            ("private", ["403", "200"]),
            ("open", ["200", "200"]),
            ("listed", ["200", "403"]),
            // Ports of the loopback, not of addresses that others reach.
            ("named", ["403", "200"]),
        ];
        let expected = expected
            .map(|(policy, [own, other])| format!("{policy} 93.184.216.1 {own}\n{policy} 93.184.216.34 {other}\n"));
        done.exits(0).prints(&expected.concat());
        let text = fs::read_to_string(dir.join("private-93.184.216.1.json")).expect("a report");
        let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let [denial] = denials(&report, "connect")[..] else { panic!("{report:#}") };
        let rule = denial["rule"].as_str().expect("text");
        assert!(rule.contains("this machine itself, under one of its addresses"), "{rule}");
        assert_eq!(denial["allow_with"], serde_json::Value::Null, "{denial:#}");
    }
}
