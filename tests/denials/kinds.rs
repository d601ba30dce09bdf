//! Denials by the filter: every kind of argument is shown by name, with the smallest grant that allows it.

use super::{Violation, place, violate};
use crate::support::{gatekeeper, is_root, run, skip};
use serde_json::{Value, json};
use std::ffi::{OsStr, OsString};
use std::net::{TcpListener, UdpSocket};
use std::os::unix::net::UnixListener;
use std::process::Command;

const EPERM: i32 = 1;

fn words(words: &[&dyn AsRef<OsStr>]) -> Vec<OsString> {
    std::iter::once(violate().into_os_string()).chain(words.iter().map(|word| word.as_ref().to_owned())).collect()
}

fn denied(flags: &[&str], command: &[&dyn AsRef<OsStr>], expected: Value) -> super::Denied {
    // An internet socket fails as on a machine without internet sockets.
    let internet = expected["args"][0].as_str().is_some_and(|family| family.starts_with("AF_INET"));
    let (errno, name) = if internet { (libc::EAFNOSUPPORT, "EAFNOSUPPORT") } else { (EPERM, "EPERM") };
    let denied = Violation::new(flags, &words(command)).exits(errno);
    let mut expected = expected;
    expected["layer"] = json!("seccomp");
    expected["errno"] = json!(name);
    denied.record(expected);
    denied
}

#[test]
fn sockets_by_family_and_type() {
    let none = "network mode none";
    denied(
        &[],
        &[&"socket", &"2", &"1"],
        json!({"syscall": "socket", "args": ["AF_INET", "SOCK_STREAM", "0"], "rule": none,
        "allow_with": "--profile network", "allow_with_policy": "profile = \"network\"", "path": null, "host": null}),
    )
    .passes();
    denied(
        &["--profile", "write"],
        &[&"socket", &"10", &"526338"],
        json!({"syscall": "socket",
        "args": ["AF_INET6", "SOCK_DGRAM|SOCK_NONBLOCK|SOCK_CLOEXEC", "0"], "allow_with": "--profile network"}),
    )
    .passes();
    denied(
        &["--net", "none"],
        &[&"socket", &"2", &"2"],
        json!({"syscall": "socket", "args": ["AF_INET", "SOCK_DGRAM", "0"], "rule": none, "allow_with": "--net full",
        "allow_with_policy": "network.mode = \"full\""}),
    )
    .passes();
    denied(
        &[],
        &[&"socket", &"16", &"3", &"16"],
        json!({"syscall": "socket", "args": ["AF_NETLINK", "SOCK_RAW", "16"], "rule": "not in profile minimal",
        "allow_with": null}),
    )
    .mended_by_policy();
    denied(&[], &[&"socket", &"1", &"2"], json!({"syscall": "socket", "args": ["AF_UNIX", "SOCK_DGRAM", "0"],
        "rule": "datagrams can go to any UNIX socket: only stream sockets are allowed", "allow_with": null,
        "allow_with_policy": "syscalls.rule = [{ syscall = \"socket\", action = \"allow\", args = [{ index = 0, op = \"masked_eq\", value = 0x1, mask = 0xffffffff }, { index = 1, op = \"masked_eq\", value = 0x2, mask = 0xf }] }]"}))
    .mended_by_policy();
}

/// Node's os.networkInterfaces() throws without it, and the development servers that call it end.
#[test]
fn interfaces_can_be_listed_in_every_mode() {
    let route: [&dyn AsRef<OsStr>; 4] = [&"socket", &"16", &"3", &"0"];
    for mode in ["none", "own", "loopback", "hosts=a.test", "full"] {
        let listed = Violation::new(&["--net", mode, "--on-violation", "kill"], &words(&route)).exits(0);
        assert_eq!(listed.denials().len(), 0, "{mode}: {:#?}", listed.denials());
    }
}

/// By its number as by 0. Other processes stay out of reach, the parent of the command too.
#[test]
fn a_process_may_limit_itself_by_its_number() {
    let script = "
import os, resource, sys
limits = resource.getrlimit(resource.RLIMIT_NOFILE)
calls = [
    lambda pid: os.setpriority(os.PRIO_PROCESS, pid, 7),
    lambda pid: resource.prlimit(pid, resource.RLIMIT_NOFILE, limits),
    lambda pid: os.sched_setaffinity(pid, os.sched_getaffinity(0)),
    lambda pid: os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0)),
    lambda pid: os.sched_setparam(pid, os.sched_param(0)),
]
for call in calls:
    try: print('done' if call(int(sys.argv[1]) or os.getpid()) in (None, limits) else 'odd')
    except OSError as error: print(error.errno)
assert os.getpriority(os.PRIO_PROCESS, 0) == 7 or sys.argv[1] != '0'
";
    let run = |pid: u32| {
        Violation::new(&["--profile", "write"], &["/usr/bin/python3", "-c", script, &pid.to_string()]).exits(0)
    };
    let own = run(0);
    own.done.prints(&"done\n".repeat(5));
    assert_eq!(own.denials().len(), 0, "{:#?}", own.denials());
    let other = run(std::process::id());
    other.done.prints(&"1\n".repeat(5));
    assert_eq!(other.denials().len(), 5, "{:#?}", other.denials());
}

/// Neither asked for, nor raised where the caller of gatekeeper has one.
#[test]
fn no_process_gets_a_real_time_priority() {
    let script = "
import os
def call(done, *words):
    try: done(0, *words); print('done')
    except OSError as error: print(error.errno)
param = os.sched_param(2)
for policy in (os.SCHED_FIFO, os.SCHED_RR, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK): call(os.sched_setscheduler, policy, param)
call(os.sched_setparam, param)
";
    let ran = Violation::new(&["--profile", "write"], &["/usr/bin/python3", "-c", script]).exits(0);
    // With an ordinary policy, 0 is the only priority (sched(7)).
    ran.done.prints("1\n1\n1\n22\n");
    ran.record(json!({"layer": "seccomp", "syscall": "sched_setscheduler", "rule": "not in profile write",
        "allow_with": "--allow sched_setscheduler"}));
    if !is_root() {
        return skip("only root can start a command with a real-time policy");
    }
    let chrt = |inner: &[&str]| {
        run(Command::new("chrt").args(["--fifo", "1"]).args(inner).args(["/usr/bin/python3", "-c", script]))
    };
    chrt(&[]).exits(0).prints("done\ndone\ndone\ndone\n");
    let gate = gatekeeper();
    let gate = gate.to_str().expect("a path in UTF-8");
    chrt(&[gate, "run", "--quiet", "--profile", "write", "--"]).exits(0).prints("1\n1\n1\n1\n");
}

#[test]
fn ones_own_id_can_be_taken_and_no_other() {
    let own = Violation::new(&[], &words(&[&"setuid"])).exits(0);
    assert_eq!(own.denials().len(), 0, "{:#?}", own.denials());
    let next = (rustix::process::getuid().as_raw() + 1).to_string();
    let other = denied(
        &[],
        &[&"setuid-other"],
        json!({"syscall": "setuid", "args": [next], "rule": "not in profile minimal", "allow_with": "--allow setuid"}),
    );
    if !is_root() {
        return skip("only root can take another id, or run as another user");
    }
    other.passes();
    Violation::new(&[], &words(&[&"setuid"])).uid(65534).exits(0);
    Violation::new(&[], &words(&[&"setuid-other"]))
        .uid(65534)
        .exits(EPERM)
        .record(json!({"layer": "seccomp", "syscall": "setuid", "args": ["65535"]}));
}

#[test]
fn a_socket_of_a_thread_names_the_thread() {
    let denied = denied(
        &[],
        &[&"socket-thread"],
        json!({"syscall": "socket", "args": ["AF_INET", "SOCK_STREAM|SOCK_CLOEXEC", "0"]}),
    );
    let record = &denied.denials()[0];
    assert_ne!(record["pid"], record["tid"], "{record:#}");
    denied.passes();
}

#[test]
fn addresses_by_host_and_port() {
    let tcp = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let port = tcp.local_addr().expect("bound").port().to_string();
    let host = format!("127.0.0.1:{port}");
    let by_name = |call: &str| json!({"syscall": call, "host": host, "path": null, "rule": format!("denied by name: {call}"), "allow_with": null});
    for call in ["connect", "sendto", "sendmsg"] {
        denied(&["--profile", "network", "--deny", call], &[&call, &port], by_name(call));
        // The positive control: without the denial it succeeds.
        let command = words(&[&call, &port]);
        Violation::new(&["--profile", "network"], &command).exits(0);
    }
    denied(
        &["--profile", "network", "--deny", "bind"],
        &[&"bind", &"0"],
        json!({"syscall": "bind", "host": "127.0.0.1:0", "args": ["3", "127.0.0.1:0", "16"]}),
    );
    drop(UdpSocket::bind("127.0.0.1:0"));
}

#[test]
fn sockets_of_the_file_system_by_path() {
    let path = place("unix").join("socket");
    let _listener = UnixListener::bind(&path).expect("own directory");
    denied(&[], &[&"connect-unix", &path], json!({"syscall": "connect", "path": path, "host": null, "args": ["3", path, "110"],
        "rule": "the socket is neither in a writable tree nor listed", "allow_with": format!("--unix {}", path.display()),
        "allow_with_policy": format!("network.unix = [\"{}\"]", path.display())}))
    .passes();
    denied(&[], &[&"connect-unix", &"@name"], json!({"syscall": "connect", "path": null, "args": ["3", "@name", "7"]}));
}

#[test]
fn processes_and_programs() {
    denied(&[], &[&"fork"], json!({"syscall": "fork", "args": [], "allow_with": "--profile read"})).passes();
    let long = denied(
        &[],
        &[&"exec-long", &"/bin/true"],
        json!({"syscall": "execve", "args": ["/bin/true", "ptr", "ptr"],
        "path": std::fs::canonicalize("/bin/true").expect("there is one"), "allow_with": "--profile read",
        "allow_with_policy": "profile = \"read\""}),
    );
    long.passes();
    let path = place("grandchild").join("x");
    let family = Violation::new(&["--allow", "@process"], &words(&[&"grandchild", &path])).exits(13);
    family.record(json!({"layer": "landlock", "syscall": "openat", "path": path})).passes();
}

#[test]
fn calls_of_no_profile_by_name() {
    denied(
        &[],
        &[&"ptrace"],
        json!({"syscall": "ptrace", "args": ["PTRACE_TRACEME", "0", "NULL", "NULL"], "allow_with": "--allow ptrace"}),
    )
    .passes();
    denied(
        &[],
        &[&"personality"],
        json!({"syscall": "personality", "args": ["ADDR_NO_RANDOMIZE"], "allow_with": null}),
    )
    .mended_by_policy();
    denied(
        &[],
        &[&"prlimit"],
        json!({"syscall": "prlimit64", "rule": "acts on other processes of the user", "allow_with": "--allow prlimit64"}),
    )
    .passes();
    denied(
        &[],
        &[&"keyctl"],
        json!({"syscall": "keyctl", "args": ["0", "-3", "0", "0", "0"], "allow_with": "--allow keyctl"}),
    )
    .passes();
}

/// A remedy that would not help is none.
#[test]
fn what_no_flag_allows_has_no_remedy() {
    let file = place("lent").join("file");
    std::fs::write(&file, "").expect("own directory");
    for flags in [&[][..], &["--write", file.to_str().expect("text")]] {
        for syscall in [["chmod", "u+s"], ["chmod", "g+s"]] {
            let [program, mode] = syscall.map(std::ffi::OsStr::new);
            let denied = Violation::new(flags, &[program, mode, file.as_os_str()]).fails();
            denied.record(json!({
                "syscall": "fchmodat", "path": file, "allow_with": null, "allow_with_policy": null,
                "rule": "set-user-ID and set-group-ID bits and file capabilities are refused on every file",
            }));
        }
    }
    let queue = "import ctypes, os, sys\nlibrt = ctypes.CDLL(None, use_errno=True)\n\
                 sys.exit(librt.mq_open(b'/gatekeeper-test', os.O_RDONLY) < 0 and ctypes.get_errno())";
    for flags in [&[][..], &["--allow", "@ipc"]] {
        let denied = Violation::new(flags, &["/usr/bin/python3", "-c", queue]).fails();
        for denial in denied.denials() {
            assert_eq!(denial["allow_with"], serde_json::Value::Null, "{denial:#}");
        }
        if flags.is_empty() {
            denied.record(json!({"syscall": "mq_open", "rule": "not in profile minimal; no grant opens POSIX queues"}));
        }
    }
}

#[test]
fn memory_of_ones_own_is_granted_by_its_own_name() {
    // The kernel may have it disabled, which it tells by another errno.
    let line = "import ctypes, sys\nlibc = ctypes.CDLL(None, use_errno=True)\n\
                sys.exit(libc.syscall(447, 0) < 0 and ctypes.get_errno() == 1)";
    let denied = Violation::new(&[], &["/usr/bin/python3", "-c", line]).fails();
    denied.record(json!({"syscall": "memfd_secret", "allow_with": "--allow memfd_secret"})).passes();
}

#[test]
fn a_memory_file_is_recorded_where_programs_are_listed() {
    let policy = place("policy").join("policy.toml");
    let create = |flags: u32, code: i32| {
        let line = format!(
            "import os, sys\ntry: os.memfd_create('x', {flags})\nexcept OSError as error: sys.exit(error.errno)"
        );
        let config = policy.display().to_string();
        Violation::new(&["--config", &config], &["/usr/bin/python3", "-ISc", &line]).exits(code)
    };
    let real = std::fs::canonicalize("/usr/bin/python3").expect("it exists");
    std::fs::write(&policy, format!("[commands]\nallow = ['{}', '/usr/bin/python3']\n", real.display())).expect("own");
    let rule = "without MFD_NOEXEC_SEAL the file could be executed, and only some programs may be";
    create(0, libc::ENOSYS).record(json!({
        "layer": "seccomp", "syscall": "memfd_create", "errno": "ENOSYS", "rule": rule,
        "allow_with": null, "allow_with_policy": null,
    }));
    // MFD_NOEXEC_SEAL.
    assert_eq!(create(8, 0).denials().len(), 0);
    std::fs::write(&policy, "").expect("own directory");
    assert_eq!(create(0, 0).denials().len(), 0);
}

#[test]
fn a_terminal_is_granted_by_the_profile_that_has_terminals() {
    for profile in ["minimal", "read"] {
        for line in ["import os; os.openpty()", "import os; os.open('/dev/ptmx', os.O_RDONLY); os.openpty()"] {
            let denied = Violation::new(&["--profile", profile], &["/usr/bin/python3", "-c", line]).fails();
            denied.record(json!({"syscall": "openat", "allow_with": "--profile write"})).passes();
        }
    }
}

#[test]
fn namespaces_and_terminals_by_their_flags() {
    let user = denied(
        &[],
        &[&"clone-user"],
        json!({"syscall": "clone", "rule": "new namespaces are refused in every profile",
        "allow_with": null,
        "allow_with_policy": "syscalls.rule = [{ syscall = \"clone\", action = \"allow\", args = [{ index = 0, op = \"masked_eq\", value = 0x10000000, mask = 0x7e020000 }] }]"}),
    );
    assert_eq!(user.denials()[0]["args"][0], "CLONE_NEWUSER|SIGCHLD", "{:#?}", user.denials());
    let unshare = denied(
        &[],
        &[&"unshare"],
        json!({"syscall": "unshare", "args": ["CLONE_NEWUSER"], "allow_with": "--allow unshare"}),
    );
    let outside = crate::support::run(std::process::Command::new(violate()).arg("unshare"));
    match outside.code() {
        Some(0) => {
            user.mended_by_policy();
            unshare.passes();
        }
        _ => skip("no user namespace can be made here"),
    }
    denied(
        &[],
        &[&"tiocsti"],
        json!({"syscall": "ioctl", "args": ["0", "TIOCSTI", "ptr"],
        "rule": "injecting input into a terminal is refused in every profile", "allow_with": null}),
    )
    .mended_by_policy();
}

#[test]
fn metadata_by_the_file_itself() {
    for (what, syscall) in [("chmod", "chmod"), ("fchmod", "fchmod")] {
        let path = place(what).join("file");
        std::fs::write(&path, "").expect("own directory");
        denied(
            &[],
            &[&what, &path],
            json!({"syscall": syscall, "path": path, "rule": "not in profile minimal",
            "allow_with": format!("--write {}", path.display())}),
        )
        .passes();
        let granted = place("granted").display().to_string();
        denied(
            &["--write", &granted],
            &[&what, &path],
            json!({"syscall": syscall, "path": path,
            "rule": format!("may write only below {granted}"), "allow_with": format!("--write {}", path.display())}),
        )
        .passes();
    }
}

#[test]
fn a_call_that_nobody_knows_is_not_there() {
    Violation::new(&[], &words(&[&"future"])).exits(libc::ENOSYS).record(json!({
        "layer": "seccomp", "syscall": "syscall 1000", "errno": "ENOSYS", "allow_with": null,
    }));
}

#[test]
fn equal_denials_are_one_record_with_a_count() {
    let denied = Violation::new(&[], &words(&[&"loop", &"50"])).exits(libc::EAFNOSUPPORT);
    denied.record(json!({"syscall": "socket", "count": 50}));
    assert_eq!(denied.denials().len(), 1);
}

#[test]
fn a_thousand_distinct_denials_are_kept_and_the_rest_counted() {
    let dir = place("many");
    let denied = Violation::new(&[], &words(&[&"distinct", &dir, &"1200"])).exits(0);
    assert_eq!(denied.denials().len(), 1000);
    assert_eq!(denied.report["denials_dropped"], 200);
}

#[test]
fn kill_ends_it_and_names_the_call() {
    let killed = Violation::new(&["--on-violation", "kill"], &words(&[&"socket", &"2", &"1"])).exits(159);
    killed.record(json!({"syscall": "socket", "args": ["AF_INET", "SOCK_STREAM", "0"], "errno": "SIGSYS"}));
    assert_eq!(killed.report["error"], "killed for a denied call: socket");
    let told = run(Command::new(gatekeeper())
        .args(["why", "--on-violation", "kill", "--"])
        .args(words(&[&"socket", &"2", &"1"])));
    assert!(told.exits(0).stdout().contains("; the syscall rules killed it with SIGSYS\n"), "{told}");
}

#[test]
fn log_lets_it_through_and_records_it() {
    let logged = Violation::new(&["--on-violation", "log"], &words(&[&"socket", &"2", &"1"])).exits(0);
    logged.record(json!({"syscall": "socket", "args": ["AF_INET", "SOCK_STREAM", "0"], "errno": "0",
        "rule": "let through by on_violation = log: network mode none", "allow_with": "--profile network"}));
    // `log` applies to the filter only: paths and addresses are still refused, and reported as refused.
    let dir = place("log");
    Violation::new(&["--on-violation", "log"], &words(&[&"open", &dir.join("x")]))
        .exits(13)
        .record(json!({"layer": "landlock", "syscall": "openat", "path": dir.join("x"), "errno": "EACCES"}));
    let refused =
        Violation::new(&["--on-violation", "log"], &words(&[&"connect", &"127.0.0.1"])).exits(libc::ENETUNREACH);
    refused.record(json!({"syscall": "connect", "errno": "ENETUNREACH", "rule": "network mode none"}));
    refused.record(json!({"syscall": "socket", "errno": "0"}));
    // One call may be both allowed by the filter and refused because of its path.
    let both = Violation::new(&["--on-violation", "log"], &["mkdir".as_ref(), dir.join("d").as_os_str()]).exits(1);
    let told: Vec<_> = both.denials().iter().map(|denial| (&denial["layer"], &denial["errno"])).collect();
    assert_eq!(told, [(&json!("seccomp"), &json!("0")), (&json!("landlock"), &json!("EACCES"))], "{}", both.done);
    let text = run(Command::new(gatekeeper()).args(["why", "--on-violation", "log", "--", "mkdir"]).arg(dir.join("d")));
    let text = text.exits(0).stdout();
    assert!(text.contains("the syscall rules deny it, but on_violation = log let it through\n"), "{text}");
    assert!(text.contains("the path rules denied it with EACCES\n") && !text.contains("not the sandbox"), "{text}");
}

#[test]
fn an_unreadable_program_is_recorded_as_far_as_it_may_be_known() {
    use std::os::unix::fs::PermissionsExt;
    if !is_root() {
        return skip("only root can run as another user");
    }
    let program = place("unreadable").join("closed");
    std::fs::copy(violate(), &program).expect("own directory");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o711)).expect("own file");
    let command = [program.as_os_str(), OsStr::new("socket"), OsStr::new("2"), OsStr::new("1")];
    Violation::new(&[], &command)
        .uid(65534)
        .exits(libc::EAFNOSUPPORT)
        .record(json!({"syscall": "socket", "args": ["AF_INET", "SOCK_STREAM", "0"], "comm": "closed", "exe": null,
            "allow_with": "--profile network"}))
        .passes();
}

#[test]
fn another_user_gets_the_same_records() {
    if !is_root() {
        return skip("only root can run as another user");
    }
    let dir = place("nobody");
    Violation::new(&[], &words(&[&"open", &dir.join("x")]))
        .uid(65534)
        .exits(13)
        .record(json!({"layer": "landlock", "syscall": "openat", "path": dir.join("x"), "exe": violate()}))
        .passes();
    // A refusal by the file's own mode is not a denial of the sandbox.
    let own = Violation::new(&[], &words(&[&"open", &"/etc/x"])).uid(65534).exits(13);
    assert_eq!(own.denials().len(), 0, "{:#?}", own.denials());
}
