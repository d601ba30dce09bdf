//! Policy files and flags, end to end: they are enforced as written, and nothing runs under an invalid one.

use super::{Gate, User, act, become_user, denials, layer, marker, unprivileged, users};
use crate::support::{fresh, gatekeeper, gatekeeper_for_all, has, is_root, probe, run, skip};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

#[test]
fn flags_stand_over_the_file() {
    for user in users() {
        let gate = Gate::new(*user);
        let policy = gate.file("policy.toml", "profile = \"network\"\non_violation = \"kill\"\n");
        let act = act();
        let act = act.to_str().unwrap();
        let gate = gate.flags(["--config".as_ref(), policy.as_os_str()]);
        gate.run([act, "tcp"]).exits(0).prints("tcp 0\n");
        gate.run([act, "ptrace"]).exits(159);
        let over = gate.flags(["--profile", "minimal", "--on-violation", "errno"]);
        over.run([act, "tcp", ",", "ptrace"]).exits(0).prints("tcp 97\nptrace 1\n");
        over.flags(["--deny", "uname"]).run(["uname"]).exits(1);
    }
}

#[test]
fn profiles_of_a_repeated_flag_add_up() {
    let act = act();
    let act = act.to_str().unwrap();
    for user in users() {
        let gate = Gate::profile(*user, "minimal").flags(["-p", "network"]);
        gate.run(["printenv", "GATEKEEPER_SANDBOX"]).exits(0).prints("minimal+network\n");
        gate.run([act, "tcp"]).exits(0).prints("tcp 0\n");
        gate.flags(["--profile", "write+network"])
            .run(["printenv", "GATEKEEPER_SANDBOX"])
            .prints("minimal+network+write\n");
        // The control: neither profile alone grants both.
        let done = Gate::profile(*user, "minimal").run([act, "tcp"]);
        assert_ne!(done.stdout(), "tcp 0\n", "{done}");
    }
    let done = Gate::profile(unprivileged(), "write").flags(["-p", "unrestricted"]).run(["true"]);
    done.exits(125);
    assert!(done.stderr().contains("'unrestricted' confines nothing"), "{done}");
    let done = Gate::profile(unprivileged(), "write,network").run(["true"]);
    done.exits(125);
    assert!(done.stderr().contains("join profiles with '+', as in write+network, or repeat the flag"), "{done}");
}

#[test]
fn deny_wins_over_every_allow() {
    let act = act();
    let gate = Gate::profile(unprivileged(), "network").flags(["--allow", "socket", "--deny", "socket"]);
    gate.run([act.to_str().unwrap(), "tcp"]).exits(0).prints("tcp 1\n");
    // A call whose arguments are checked stays checked even if it is allowed by name.
    let gate = Gate::new(unprivileged()).flags(["--allow", "socket:clone:@process"]);
    gate.run([act.to_str().unwrap(), "fork", ",", "unshare"]).exits(0).prints("fork 0\nunshare 1\n");
}

#[test]
fn an_allow_list_that_opens_the_network_is_named_in_a_warning() {
    let stderr = |flags: &[&str]| Gate::new(unprivileged()).flags(flags).run(["true"]).exits(0).stderr();
    for (flags, named) in [
        (&["--net", "none", "--allow", "@network"][..], "--allow @network"),
        (&["--net", "none", "--allow", "getpid:socket:connect"], "--allow socket connect"),
        (&["--allow", "socket"], "--allow socket"),
    ] {
        let told = stderr(flags);
        let warning = format!("warning: {named}: grants internet sockets, so the command can reach the network");
        assert!(told.contains(&warning) && told.contains("limit it with --net loopback"), "{flags:?}: {told}");
    }
    for flags in [
        &["--net", "none"][..],
        &["--net", "none", "--allow", "@network", "--deny", "socket"],
        &["--net", "none", "--allow", "getpid"],
        &["--net", "loopback", "--allow", "@network"],
        &["--net", "full", "--allow", "@network"],
    ] {
        assert_eq!(stderr(flags), "", "{flags:?}");
    }
}

#[test]
fn a_policy_that_is_wrong_runs_nothing() {
    for (text, told) in [
        ("profil = \"minimal\"\n", "policy.toml:1"),
        ("profile = \"minimol\"\n", "minimal"),
        ("profile = 3\n", "policy.toml:1"),
        ("[syscalls]\nallow = [\"opennat\"]\n", "openat"),
        ("[paths]\nreed = [\"/\"]\n", "read"),
        ("[limits]\nmemory = \"lots\"\n", "lots"),
        ("timeout = -1\n", "policy.toml:1"),
        ("extends = \"missing.toml\"\n", "missing.toml"),
        ("profile = \"minimal\"\nprofile = \"write\"\n", "policy.toml:2"),
        ("\u{0}", "policy.toml"),
        ("{", "policy.toml"),
    ] {
        let gate = Gate::profile(unprivileged(), "write");
        let policy = gate.file("policy.toml", text);
        let gate = gate.flags(["--config".as_ref(), policy.as_os_str()]);
        let (done, report) = gate.report(["touch", "marker"]);
        done.exits(125).prints("");
        assert!(done.stderr().contains(told), "{text:?}: {done}");
        assert_eq!(report["outcome"], "setup_failed");
        assert!(report["error"].as_str().unwrap().starts_with("policy: "), "{report:#}");
        assert!(!marker(&gate).exists());
    }
}

/// A complete exec tool configuration, with everything else that an agent stores in that file.
#[test]
fn the_exec_tools_own_json_is_read_as_it_stands() {
    for user in users() {
        let gate = Gate::new(*user);
        let text = r#"{"model": {"name": "x"}, "tools": {"web": {}, "exec": {"enabled": true, "sandbox": {"enabled": true,
            "profile": "minimal", "customAllow": "", "customDeny": "", "logViolations": false, "libsandboxPath": "",
            "staticBinaryAction": "block"}, "allowedCommands": [], "blockedCommands": ["rm", "dd", "mkfs"], "timeout": 300}}}"#;
        let policy = gate.file("agent.json", text);
        let gate = gate.flags(["--config".as_ref(), policy.as_os_str()]);
        gate.file("data", "x\n");
        gate.run(["cat", "data"]).exits(0).prints("x\n");
        gate.run(["rm", "data"]).exits(126);
        assert!(gate.dir.join("data").exists());
        // A denied call kills, as that configuration promises.
        gate.run([act().to_str().unwrap(), "tcp"]).exits(159).prints("");
        // The preload cannot confine a static program, so it is blocked, and the report says why.
        let (done, report) = gate.report([probe("first", &["-static", "-nostdlib"])]);
        done.exits(126);
        assert_eq!(report["verdict"]["reasons"][0]["code"], "static", "{report:#}");
    }
}

#[test]
fn every_key_of_the_exec_tool_works() {
    let exec = |sandbox: &str, rest: &str| format!(r#"{{"tools":{{"exec":{{"sandbox":{{{sandbox}}}{rest}}}}}}}"#);
    let act = act();
    let act = act.to_str().unwrap();
    let with = |sandbox: &str, rest: &str| {
        let gate = Gate::new(unprivileged());
        let policy = gate.file("agent.json", exec(sandbox, rest));
        gate.flags(["--config".as_ref(), policy.as_os_str()])
    };
    with(r#""profile":"network""#, "").run([act, "tcp"]).exits(0).prints("tcp 0\n");
    with(r#""profile":"write""#, "").run([act, "create", "x"]).exits(0).prints("create 0\n");
    with(r#""profile":"minimal""#, "").run([act, "create", "x"]).exits(0).prints("create 13\n");
    with(r#""profile":"minimal","customDeny":"uname""#, "").run(["uname"]).exits(159);
    let left_behind = with(r#""profile":"minimal","customAllow":"@network""#, "").run([act, "tcp"]);
    assert!(left_behind.exits(159).stderr().contains("customAllow has no effect"), "{left_behind}");
    with(r#""profile":"custom","customAllow":"@network:@loader:@basic:write""#, "").run([act, "tcp"]).exits(0);
    with(r#""profile":"minimal","logViolations":true"#, "").run([act, "tcp"]).exits(0).prints("tcp 0\n");
    with(r#""profile":"custom","customDeny":"socket""#, "").run([act, "tcp"]).exits(159);
    with(r#""profile":"custom","customDeny":"socket","logViolations":true"#, "").run([act, "tcp"]).exits(0);
    let first = probe("first", &["-static", "-nostdlib"]);
    let first = first.to_str().unwrap();
    with(r#""staticBinaryAction":"block""#, "").run([first]).exits(126);
    let warned = with(r#""staticBinaryAction":"warn""#, "").run([first]);
    assert!(warned.exits(0).stderr().contains("without a syscall filter"), "{warned}");
    let (done, report) = with(r#""staticBinaryAction":"allow""#, "").report([first]);
    done.exits(0).complains("");
    assert_eq!(layer(&report, "seccomp").0, "off", "never silent: {report:#}");
    with("", r#","allowedCommands":["cat"]"#).run(["ls"]).exits(126);
    with("", r#","allowedCommands":["cat"]"#).run(["cat", "/dev/null"]).exits(0);
    with("", r#","blockedCommands":["cat"]"#).run(["cat", "/dev/null"]).exits(126);
    with("", r#","timeout":1"#).run(["sleep", "60"]).exits(124);
    with("", r#","enabled":false"#).run(["true"]).exits(126);
    with(r#""enabled":false"#, "").run([act, "tcp"]).exits(0).prints("tcp 0\n");
    with(r#""profil":"minimal""#, "").run(["true"]).exits(125);
    with(r#""libsandboxPath":"/no/such/lib.so","profile":"custom","customDeny":"socket""#, "").run(["true"]).exits(125);
}

/// The preload installs an exact list at main. The loader's calls need not be on it, and are denied afterwards.
#[test]
fn an_exact_list_holds_from_main_on() {
    for user in users() {
        let act = act();
        let act = act.to_str().unwrap();
        let list = "write:exit_group:fstat:newfstatat:ioctl:brk:mmap:munmap:rt_sigreturn";
        let gate = Gate::profile(*user, "custom").flags(["--allow", list]);
        // The loader used openat before main. Afterwards it is denied and recorded.
        let (done, report) = gate.report([act, "read", "/etc/passwd"]);
        done.exits(0).prints("read 1\n");
        let [denial] = denials(&report, "openat")[..] else { panic!("{report:#}") };
        assert_eq!((&denial["errno"], &denial["path"]), (&"EPERM".into(), &"/etc/passwd".into()));
        assert_eq!((&denial["allow_with"], &denial["count"]), (&"--allow openat".into(), &1.into()));
        assert_eq!(layer(&report, "seccomp").0, "enforced");
        gate.run([act, "tcp"]).exits(0).prints("tcp 1\n");
        let gate = Gate::profile(*user, "custom").flags(["--allow", &format!("{list}:openat:close")]);
        gate.run([act, "read", "/etc/passwd"]).exits(0).prints("read 0\n");
        let gate = Gate::profile(*user, "custom").flags(["--allow", list, "--on-violation", "kill"]);
        let (done, report) = gate.report([act, "read", "/etc/passwd"]);
        done.exits(159).prints("");
        assert_eq!(report["error"], "killed for a denied call: openat");
        let gate = Gate::profile(*user, "custom").flags(["--allow", list, "--on-violation", "log"]);
        let (done, report) = gate.report([act, "read", "/etc/passwd"]);
        done.exits(0).prints("read 0\n");
        assert_eq!(denials(&report, "openat")[0]["errno"], "0", "{report:#}");
        // A deny list with a call that the loader makes.
        let gate = Gate::profile(*user, "custom").flags(["--deny", "openat"]);
        let (done, report) = gate.report([act, "read", "/etc/passwd"]);
        done.exits(0).prints("read 1\n");
        assert_eq!(denials(&report, "openat").len(), 1, "{report:#}");
    }
}

/// The base set is denied under every profile except `unrestricted`, even if a policy denies only some calls by name.
#[test]
fn the_base_set_is_never_granted() {
    let act = act();
    let act = act.to_str().unwrap();
    for profile in ["minimal", "network", "write", "write+network"] {
        let gate = Gate::profile(unprivileged(), profile);
        gate.run([act, "ptrace", ",", "unshare", ",", "mount"]).exits(0).prints("ptrace 1\nunshare 1\nmount 1\n");
    }
    let gate = Gate::profile(unprivileged(), "custom").flags(["--deny", "uname"]);
    gate.run([act, "ptrace", ",", "mount"]).exits(0).prints("ptrace 1\nmount 1\n");
    // The control: ptrace(TRACEME) works.
    Gate::profile(unprivileged(), "unrestricted").run([act, "ptrace"]).exits(0).prints("ptrace 0\n");
}

#[test]
fn an_exact_deny_list_holds_a_static_program_too() {
    let place = crate::support::fresh("exact");
    std::fs::write(place.join("deny.toml"), "profile = 'custom'\n[syscalls]\ndeny = ['openat', 'open']\n")
        .expect("own");
    let program = crate::support::probe("calls", &["-static"]);
    // Unconfined, it fails with the kernel's own EBADF.
    crate::support::run(std::process::Command::new(&program).arg("openat")).prints("openat=9\n");
    let mut command = std::process::Command::new(crate::support::gatekeeper());
    command.args(["run", "--config", "deny.toml", "--"]).arg(&program).arg("openat").current_dir(&place);
    crate::support::run(&mut command).exits(0).prints("openat=1\n");
}

/// How many syscalls `gatekeeper plan` or `run` makes for a policy that lists this many writable files, counted by strace: the
/// least of three, because the count of one run varies with the load.
fn syscalls_of(verb: &str, listed: usize) -> usize {
    let dir = fresh("listed");
    let paths: Vec<String> = (0..listed).map(|at| format!("{:?}", dir.join(at.to_string()))).collect();
    for at in 0..listed {
        fs::write(dir.join(at.to_string()), "").unwrap();
    }
    let policy = dir.join("policy.toml");
    fs::write(&policy, format!("profile = \"minimal\"\n[paths]\nwrite = [{}]\n", paths.join(", "))).unwrap();
    let count =
        || counted(|strace| strace.arg(gatekeeper()).args([verb, "--config"]).arg(&policy).args(["--", "/bin/true"]));
    (0..3).map(|_| count()).min().unwrap()
}

/// How many syscalls a command makes, in a directory of its own.
fn counted(command: impl FnOnce(&mut Command) -> &mut Command) -> usize {
    let count = fresh("count").join("count");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-c", "-o"]).arg(&count).current_dir(fresh("elsewhere"));
    run(command(&mut strace)).exits(0);
    let table = fs::read_to_string(&count).unwrap();
    let total = table.lines().last().unwrap().split_whitespace().nth(3).unwrap();
    total.parse().unwrap_or_else(|_| panic!("{table}"))
}

#[test]
fn each_listed_path_costs_the_same_however_many_there_are() {
    if !has("strace") {
        return skip("needs strace");
    }
    // Both look at each file, and a second time where a run directory is needed, which no tree may hold. A run then opens
    // it, adds its rule, with fewer rights if the first ones are refused because it is a file, and closes it.
    for (verb, most) in [("plan", 2), ("run", 6)] {
        let (few, many) = (syscalls_of(verb, 50), syscalls_of(verb, 500));
        // Messages of more paths are longer.
        let each = (many - few) as f64 / 450.0;
        assert!(each < f64::from(most) + 0.1, "{verb}: {few} syscalls for 50 paths, {many} for 500: {each} each");
    }
}

#[test]
fn a_home_that_cannot_be_entered_costs_no_more_than_one_that_is_absent() {
    if !has("strace") || !is_root() {
        return skip("needs strace, and root, whose home another user cannot enter");
    }
    let home = fresh("home");
    let syscalls = || {
        counted(|strace| {
            become_user(strace, User::Nobody);
            strace.arg(gatekeeper_for_all()).args(["run", "--", "/bin/true"]).env_clear().env("HOME", home.join("own"))
        })
    };
    let absent = syscalls();
    fs::create_dir_all(home.join("own/.ssh")).unwrap();
    fs::set_permissions(home.join("own"), fs::Permissions::from_mode(0o700)).unwrap();
    // It was 5 for each of more than 400 names that a home may have.
    let barred = syscalls();
    assert!(barred < absent + 30, "{absent} syscalls without a home, {barred} with one that cannot be entered");
}

/// Links in closed directories are followed, and browsers keep hundreds of directories there.
#[test]
fn what_is_in_closed_directories_costs_a_start_little() {
    if !has("strace") || !is_root() {
        return skip("needs strace, and root, to count as another user");
    }
    let home = fs::canonicalize(fresh("home")).unwrap();
    let syscalls = || {
        let count = || {
            counted(|strace| {
                become_user(strace, User::Nobody);
                let strace = strace.arg(gatekeeper_for_all()).args(["plan", "--profile", "minimal", "--", "/bin/true"]);
                strace.env_clear().env("HOME", &home)
            })
        };
        (0..3).map(|_| count()).min().unwrap()
    };
    // What is around a credential is listed anyway.
    fs::write(home.join(".netrc"), "").unwrap();
    let ordinary = syscalls();
    for at in 0..300 {
        fs::create_dir_all(home.join(format!(".mozilla/firefox/{at}/storage"))).unwrap();
    }
    let store = syscalls();
    // It is listed once.
    assert!(store < ordinary + 20, "{ordinary} syscalls without a browser, {store} with one");
    for name in [".ssh/a", ".gnupg/b/c", ".aws/d"] {
        fs::create_dir_all(home.join(name)).unwrap();
    }
    let keys = syscalls();
    assert!(keys < store + 100, "{store} syscalls without keys, {keys} with them");
}

#[test]
fn the_value_of_require_sandbox_is_no_command() {
    for value in ["true", "false"] {
        let done = Gate::new(unprivileged()).flags(["--require-sandbox", value]).run(["touch", "ran"]);
        done.exits(125);
        assert!(done.stderr().contains(&format!("--require-sandbox={value}")), "{done}");
    }
}
