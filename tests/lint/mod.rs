//! `gatekeeper lint`: each code has a policy that triggers it and a similar one that does not.

use crate::support::{Done, fresh, gatekeeper, run};
use gatekeeper::lint::CODES;
use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A home, a working directory and a directory for policies, none inside another.
struct Scene {
    top: PathBuf,
}

impl Scene {
    fn new() -> Scene {
        let top = fresh("lint").canonicalize().expect("own directory");
        let scene = Scene { top };
        // Other users must not be able to replace the policy.
        std::fs::set_permissions(&scene.top, PermissionsExt::from_mode(0o755)).expect("own directory");
        for name in ["home", "work", "policies", "bin", "run"] {
            std::fs::create_dir(scene.path(name)).expect("own directory");
        }
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        self.top.join(name)
    }

    /// Lints a policy in which `HERE` stands for the scene's directory.
    fn lint(&self, policy: &str, flags: &[&str]) -> Done {
        let file = self.path("policies/policy.toml");
        if !file.exists() {
            std::fs::write(&file, policy.replace("HERE", &self.top.to_string_lossy())).expect("own directory");
            std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).expect("own file");
        }
        self.lint_file(&file, flags)
    }

    fn lint_file(&self, file: &Path, flags: &[&str]) -> Done {
        let mut command = Command::new(gatekeeper());
        command.arg("lint").args(flags).arg(file).current_dir(self.path("work"));
        command.env("HOME", self.path("home")).env("PATH", self.path("bin"));
        run(command.env("XDG_RUNTIME_DIR", self.path("run")).env_remove("SSH_AUTH_SOCK"))
    }
}

fn codes(done: &Done) -> BTreeSet<String> {
    let document: serde_json::Value = serde_json::from_slice(&done.output.stdout).unwrap_or_else(|_| panic!("{done}"));
    let findings = document["findings"].as_array().expect("a list");
    findings.iter().map(|finding| finding["code"].as_str().expect("a code").to_owned()).collect()
}

/// An exact list without findings. The policies below add one thing to it.
const CLEAN: &str = "profile = 'custom'\n[syscalls]\ndefault = 'deny'\nallow = '@basic'\n";
const DENY_LIST: &str = "profile = 'unrestricted'\n[syscalls]\n
deny = '@io-uring:@debug:@privileged:@namespaces:@keys:clone3:openat2:clone:fork:vfork:ioctl:connect:sendto:sendmsg:sendmmsg";

/// Code, a policy with it, a policy without it.
fn cases() -> Vec<(&'static str, String, String)> {
    let clean = CLEAN.to_owned();
    let with = |add: &str| format!("{CLEAN}{add}\n");
    let allow = |name: &str| CLEAN.replace("@basic", &format!("@basic:{name}"));
    let rule = |call: &str, action: &str, args: &str| {
        format!("[[syscalls.rule]]\nsyscall = '{call}'\naction = '{action}'\nargs = [{args}]\n")
    };
    let masked = "{ index = 1, op = 'eq', value = 0x5412, mask = 0xffffffff }";
    let whole = "{ index = 1, op = 'eq', value = 0x5412 }";
    let ioctl = |args: &str| allow("ioctl") + &rule("ioctl", "deny", args);
    let no_input = ioctl(masked) + &rule("ioctl", "deny", &masked.replace("0x5412", "0x541c"));
    let low = |index: u32, op: &str, value: &str| {
        format!("{{ index = {index}, op = '{op}', value = {value}, mask = 0xffffffff }}")
    };
    let clone = "{ index = 0, op = 'masked_eq', value = 0, mask = 0x7e020000 }";
    let prot = |call: &str| rule(call, "deny", "{ index = 2, op = 'masked_eq', value = 6, mask = 6 }");
    let unix = |args: &str| allow("connect") + &rule("socket", "allow", args);
    vec![
        ("unknown_syscall", "[syscalls]\ndeny = ['opne']\n".into(), "[syscalls]\ndeny = ['getuid']\n".into()),
        ("pseudo_syscall", "[syscalls]\ndeny = ['send']\n".into(), "[syscalls]\ndeny = ['getuid']\n".into()),
        ("unrestricted", "profile = 'unrestricted'\n".into(), "profile = 'minimal'\n".into()),
        ("log_only", "on_violation = 'log'\n".into(), "on_violation = 'kill'\n".into()),
        ("static_unconfined", "static_binaries = 'warn'\n".into(), "static_binaries = 'block'\n".into()),
        ("static_unconfined", "static_binaries = 'allow'\n".into(), "static_binaries = 'enforce'\n".into()),
        ("not_required", "require_sandbox = false\n".into(), "require_sandbox = true\n".into()),
        ("equivalent_open", format!("{DENY_LIST}:openat'\n"), format!("{DENY_LIST}:open:openat:creat'\n")),
        (
            "equivalent_open",
            "profile = 'write'\n[syscalls]\ndeny = 'execve'\n".into(),
            "profile = 'write'\n[syscalls]\ndeny = 'execve:execveat'\n".into(),
        ),
        // minimal allows clone for threads only.
        (
            "equivalent_open",
            "profile = 'write'\n[syscalls]\ndeny = 'fork:vfork'\n".into(),
            "[syscalls]\ndeny = 'fork:vfork'\n".into(),
        ),
        (
            "equivalent_open",
            allow("mmap:mprotect") + &prot("mprotect"),
            allow("mmap:mprotect") + &prot("mprotect") + &prot("mmap"),
        ),
        (
            "equivalent_open",
            format!("{DENY_LIST}:execveat'\n"),
            with(&rule("clone3", "errno:ENOSYS", "")).replace("@basic", "@basic:fork:vfork"),
        ),
        ("io_uring_open", allow("io_uring_setup"), clean.clone()),
        ("debug_open", "[syscalls]\nallow = 'ptrace'\n".into(), "[syscalls]\nallow = 'getuid'\n".into()),
        ("debug_open", allow("process_vm_readv"), clean.clone()),
        ("debug_open", allow("pidfd_getfd"), clean.clone()),
        ("privileged_open", allow("kexec_load"), clean.clone()),
        ("namespaces_open", allow("unshare"), clean.clone()),
        ("namespaces_open", allow("clone"), with(&rule("clone", "allow", clone))),
        (
            "equivalent_open",
            "[syscalls]\ndeny = 'fork:vfork'\n".to_owned() + &rule("clone", "allow", &low(0, "eq", "0x4111")),
            "[syscalls]\ndeny = 'fork:vfork'\n".to_owned() + &rule("clone", "allow", &low(0, "eq", "0x3d0f00")),
        ),
        ("keys_open", allow("keyctl"), clean.clone()),
        ("clone3_open", allow("clone3"), with(&rule("clone3", "errno:ENOSYS", ""))),
        ("openat2_open", allow("openat2"), clean.clone()),
        ("tiocsti_open", allow("ioctl"), no_input.clone()),
        // Each request counts, whatever the other arguments are.
        ("tiocsti_open", ioctl(masked), no_input.clone()),
        ("tiocsti_open", ioctl(&masked.replace("0x5412", "0x541c")), no_input.clone()),
        ("tiocsti_open", with(&rule("ioctl", "allow", &low(1, "ne", "0x5412"))), with(&rule("ioctl", "allow", &low(1, "eq", "0x5401")))),
        ("tiocsti_open", with(&rule("ioctl", "allow", &low(0, "eq", "1"))), no_input + &rule("ioctl", "allow", &low(0, "eq", "1"))),
        ("tiocsti_open", rule("ioctl", "allow", &low(0, "eq", "1")), rule("ioctl", "deny", &low(0, "eq", "1"))),
        // The kernel looks at the lower half of a request only.
        ("tiocsti_open", with(&rule("ioctl", "allow", "{ index = 1, op = 'gt', value = 0xffffffff }")), with(&rule("ioctl", "allow", &low(1, "gt", "0x541c")))),
        ("int_compared_as_64", ioctl(whole), ioctl(masked)),
        (
            "int_compared_as_64",
            with(&rule("socket", "allow", "{ index = 0, op = 'ne', value = 16 }")),
            with(&rule("socket", "allow", "{ index = 0, op = 'eq', value = 2 }")),
        ),
        ("write_exec_memory", allow("mprotect"), allow("mprotect") + &prot("mprotect")),
        (
            "write_exec_memory",
            with(&rule("pkey_mprotect", "allow", "{ index = 2, op = 'eq', value = 15 }")),
            with(&rule("pkey_mprotect", "allow", "{ index = 2, op = 'eq', value = 13 }")),
        ),
        // One side denies only what is writable and executable; the other does so by a list of what it allows.
        (
            "equivalent_open",
            allow("mprotect") + &prot("mprotect") + &rule("mmap", "allow", "{ index = 2, op = 'ge', value = 5 }"),
            allow("mprotect") + &prot("mprotect") + &rule("mmap", "allow", "{ index = 2, op = 'le', value = 5 }"),
        ),
        (
            "too_complex",
            tied(24),
            tied(4),
        ),
        (
            "allow_denied",
            "[syscalls]\nallow = 'getuid'\ndeny = 'getuid'\n".into(),
            "[syscalls]\nallow = 'getuid'\n".into(),
        ),
        (
            "rule_never_matches",
            "[syscalls]\ndeny = 'kill'\n".to_owned() + &rule("kill", "allow", ""),
            rule("kill", "allow", ""),
        ),
        (
            "rule_never_matches",
            rule("kill", "deny", "{ index = 1, op = 'le', value = 9 }")
                + &rule("kill", "allow", "{ index = 1, op = 'lt', value = 5 }"),
            rule("kill", "deny", "{ index = 1, op = 'le', value = 9 }")
                + &rule("kill", "allow", "{ index = 1, op = 'lt', value = 11 }"),
        ),
        (
            "rule_never_matches",
            rule("kill", "deny", "{ index = 1, op = 'gt', value = 15, mask = 15 }"),
            rule("kill", "deny", "{ index = 1, op = 'gt', value = 14, mask = 15 }"),
        ),
        (
            "rule_never_matches",
            rule("kill", "deny", "{ index = 1, op = 'gt', value = 9 }, { index = 1, op = 'lt', value = 9 }"),
            rule("kill", "deny", "{ index = 1, op = 'gt', value = 9 }, { index = 1, op = 'lt', value = 11 }"),
        ),
        (
            "network_contradiction",
            "[network]\nmode = 'none'\nports = [80]\n".into(),
            "[network]\nmode = 'full'\nports = [80]\n".into(),
        ),
        (
            "network_contradiction",
            "profile = 'network'\n[network]\nmode = 'none'\n".into(),
            "[network]\nmode = 'none'\n".into(),
        ),
        (
            "network_contradiction",
            "profile = 'network'\n[syscalls]\ndeny = 'socket'\n".into(),
            "profile = 'minimal'\n[syscalls]\ndeny = 'socket'\n".into(),
        ),
        (
            "http_shadowed",
            "[[network.http]]\nhost = 'a.org'\n[[network.http]]\nhost = 'a.org'\nmethods = ['GET']\npaths = ['/x']\n".into(),
            "[[network.http]]\nhost = 'a.org'\nmethods = ['PUT']\n[[network.http]]\nhost = 'a.org'\nmethods = ['GET']\n".into(),
        ),
        (
            "credential_plain",
            "[[network.credential]]\nenv = 'T'\nhost = 'a.org:80'\n".into(),
            "[[network.credential]]\nenv = 'T'\nhost = 'a.org'\n".into(),
        ),
        (
            "credential_wide",
            "[[network.credential]]\nenv = 'T'\nhost = 'a.org'\n[[network.http]]\nhost = 'a.org'\npaths = ['/**']\n".into(),
            "[[network.credential]]\nenv = 'T'\nhost = 'a.org'\n[[network.http]]\nhost = 'a.org'\npaths = ['/v1/**']\n".into(),
        ),
        (
            "credential_readable",
            "[paths]\nread = ['HERE/bin']\n[[network.credential]]\nenv = 'T'\nfrom = 'file:HERE/bin'\nhost = 'a.org'\n".into(),
            "[paths]\nread = ['HERE/run']\n[[network.credential]]\nenv = 'T'\nfrom = 'file:HERE/bin'\nhost = 'a.org'\n".into(),
        ),
        (
            "empty_hosts",
            "[network]\nmode = 'hosts'\nhosts = []\n".into(),
            "[network]\nmode = 'hosts'\nhosts = ['a.org']\n".into(),
        ),
        ("escape_socket", "[network]\nunix = ['/run/docker.sock']\n".into(), "[network]\nunix = ['HERE/bin']\n".into()),
        ("escape_socket", "[network]\nunix = ['HERE/run/bus']\n".into(), "[network]\nunix = ['HERE/bin']\n".into()),
        (
            "escape_socket",
            unix("{ index = 0, op = 'eq', value = 1, mask = 0xffffffff }"),
            unix("{ index = 0, op = 'eq', value = 2, mask = 0xffffffff }"),
        ),
        (
            "escape_socket",
            allow("connect") + &rule("socket", "allow", &(low(0, "eq", "1") + ", " + &low(1, "eq", "0x80001"))),
            allow("connect") + &rule("socket", "allow", &(low(0, "eq", "1") + ", " + &low(1, "eq", "0x80003"))),
        ),
        (
            "network_opened",
            rule("socket", "allow", &(low(0, "eq", "2") + ", " + &low(1, "eq", "0x80002"))),
            rule("socket", "allow", &(low(0, "eq", "1") + ", " + &low(1, "eq", "0x80002"))),
        ),
        (
            "network_opened",
            "[syscalls]\nallow = ['socket']\n".into(),
            "profile = 'network'\n[syscalls]\nallow = ['socket']\n".into(),
        ),
        ("path_missing", "[paths]\nwrite = ['HERE/absent']\n".into(), "[paths]\nread = ['HERE/work']\n".into()),
        ("path_missing", "[paths]\ndeny = ['HERE/absent']\n".into(), "[paths]\ndeny = ['HERE/work']\n".into()),
        ("write_broad", "[paths]\nwrite = ['/etc']\n".into(), "[paths]\nwrite = ['HERE/work']\n".into()),
        ("write_broad", "[paths]\nwrite = ['~']\n".into(), "[paths]\nread = ['~']\n".into()),
        (
            "write_exec_path",
            "[paths]\nwrite = ['HERE/work']\nexecute = ['HERE/work', '/usr']\n".into(),
            "[paths]\nwrite = ['HERE/work']\nexecute = ['/usr']\n".into(),
        ),
        ("writable_on_path", "[paths]\nwrite = ['HERE/bin']\n".into(), "[paths]\nwrite = ['HERE/work']\n".into()),
        (
            "writable_on_path",
            "[paths]\nwrite = ['HERE/work']\n[env]\nset = { PATH = 'bin:/usr/bin' }\n".into(),
            "[paths]\nwrite = ['HERE/work']\n[env]\nset = { PATH = '/usr/bin' }\n".into(),
        ),
        (
            "writable_policy",
            "[paths]\nwrite = ['HERE/policies']\n".into(),
            "[paths]\nread = ['HERE/policies']\n".into(),
        ),
    ]
}

#[test]
fn each_code_has_a_policy_with_it_and_one_without() {
    let mut seen = BTreeSet::new();
    for (code, with, without) in cases() {
        let done = Scene::new().lint(&with, &["--json"]);
        assert!(codes(&done).contains(code), "{code} is not found in\n{with}\n{done}");
        let broken = matches!(code, "unknown_syscall" | "pseudo_syscall");
        done.exits(if broken { 2 } else { 1 });
        let done = Scene::new().lint(&without, &["--json"]);
        assert!(!codes(&done).contains(code), "{code} is found in\n{without}\n{done}");
        assert!(matches!(done.code(), Some(0 | 1)), "{done}");
        seen.insert(code);
    }
    // Codes that need special files have their own tests below.
    seen.extend(["path_symlink_out", "path_credential"]);
    let all: BTreeSet<&str> = CODES.iter().map(|code| code.code).collect();
    assert_eq!(seen, all);
}

/// Rules that tie bits of two arguments to each other, which takes a step for each set of these bits.
fn tied(bits: u32) -> String {
    let bit =
        |index: u32, bit: u32| format!("{{ index = {index}, op = 'masked_eq', value = {0}, mask = {0} }}", 1u32 << bit);
    let rule = |at: u32| {
        format!("[[syscalls.rule]]\nsyscall = 'mmap'\naction = 'allow'\nargs = [{}, {}]\n", bit(3, at), bit(4, at))
    };
    CLEAN.to_owned() + &(0..bits).map(rule).collect::<String>()
}

#[test]
fn what_cannot_be_decided_counts_as_open() {
    let found = |bits: u32| codes(&Scene::new().lint(&tied(bits), &["--json"]));
    assert_eq!(found(24), BTreeSet::from(["too_complex", "write_exec_memory"].map(str::to_owned)));
    // Any protection is really allowed here, too.
    assert_eq!(found(4), BTreeSet::from(["write_exec_memory".to_owned()]));
}

/// A base that allows four calls, with one rule more: the part that the rule leaves open is found, and a well-written rule is clean.
#[test]
fn a_hole_is_found_whatever_bits_it_needs() {
    let base = "profile = 'custom'\n[syscalls]\ndefault = 'deny'\nallow = 'read:write:exit_group:execve'\n";
    let rule = |call: &str, test: &str| {
        format!("{base}[[syscalls.rule]]\nsyscall = '{call}'\naction = 'allow'\nargs = [{test}]\n")
    };
    let lint = |call: &str, test: &str| Scene::new().lint(&rule(call, test), &[]);
    let found = |call: &str, test: &str, expected: &str| {
        let done = lint(call, test);
        assert!(done.exits(1).stdout().contains(expected), "{expected} is missing in {call} {test}\n{done}");
    };
    let memory =
        |calls: &str| format!("write_exec_memory: syscalls: {calls} is allowed with PROT_WRITE and PROT_EXEC together");
    for call in ["mmap", "mprotect", "pkey_mprotect"] {
        found(call, "{ index = 2, op = 'ne', value = 6 }", &memory(call));
        found(call, "{ index = 2, op = 'eq', value = 7 }", &memory(call));
        lint(call, "{ index = 2, op = 'lt', value = 6 }").exits(0).prints("");
        lint(call, "{ index = 2, op = 'masked_eq', value = 2, mask = 6 }").exits(0).prints("");
    }
    let terminal = |requests: &str| format!("tiocsti_open: ioctl: {requests} allowed");
    found("ioctl", "{ index = 1, op = 'ne', value = 0x5412, mask = 0xffffffff }", &terminal("ioctl(TIOCLINUX) is"));
    found("ioctl", "{ index = 1, op = 'ne', value = 0x541c, mask = 0xffffffff }", &terminal("ioctl(TIOCSTI) is"));
    let both = terminal("ioctl(TIOCSTI), ioctl(TIOCLINUX) are");
    found("ioctl", "{ index = 0, op = 'eq', value = 1, mask = 0xffffffff }", &both);
    lint("ioctl", "{ index = 1, op = 'eq', value = 0x5413, mask = 0xffffffff }").exits(0).prints("");
    for (mask, flag) in [
        (0x0002_0000u32, "CLONE_NEWNS"),
        (0x0200_0000, "CLONE_NEWCGROUP"),
        (0x0400_0000, "CLONE_NEWUTS"),
        (0x0800_0000, "CLONE_NEWIPC"),
        (0x1000_0000, "CLONE_NEWUSER"),
        (0x2000_0000, "CLONE_NEWPID"),
        (0x4000_0000, "CLONE_NEWNET"),
    ] {
        let others = 0x7e02_0000 & !mask;
        let only = format!("{{ index = 0, op = 'masked_eq', value = 0, mask = {others} }}");
        found("clone", &only, &format!("calls that create namespaces and mounts are allowed: clone({flag})\n"));
    }
    let without = "{ index = 0, op = 'masked_eq', value = 0, mask = 0x10000000 }";
    let rest = "CLONE_NEWNS or CLONE_NEWCGROUP or CLONE_NEWUTS or CLONE_NEWIPC or CLONE_NEWPID or CLONE_NEWNET";
    found("clone", without, &format!("clone({rest})\n"));
    found("clone", "{ index = 1, op = 'ne', value = 1 }", "clone(CLONE_NEW*)\n");
    lint("clone", "{ index = 0, op = 'masked_eq', value = 0, mask = 0x7e020000 }").exits(0).prints("");
}

#[test]
fn the_built_in_profiles_and_an_exact_list_are_clean() {
    for policy in ["", "profile = 'network'\n", "profile = 'write'\n", "profile = 'write+network'\n", CLEAN] {
        Scene::new().lint(policy, &[]).exits(0).prints("").complains("");
    }
}

#[test]
fn links_out_of_their_tree_are_found() {
    let scene = Scene::new();
    symlink(scene.path("bin"), scene.path("work/out")).expect("own directory");
    std::fs::create_dir(scene.path("work/inner")).expect("own directory");
    symlink("inner", scene.path("work/within")).expect("own directory");
    std::fs::write(scene.path("bin/tool"), "").expect("own directory");
    let found = |list: &str| codes(&fresh_policy(&scene, &format!("[paths]\nread = [{list}]\n")));
    assert_eq!(found("'HERE/work/out'"), BTreeSet::from(["path_symlink_out".to_owned()]));
    assert_eq!(found("'HERE/work/out/tool'"), BTreeSet::from(["path_symlink_out".to_owned()]));
    assert_eq!(found("'HERE/work/within', 'HERE/work/inner'"), BTreeSet::new());
}

#[test]
fn a_link_is_said_to_be_refused_exactly_if_a_run_refuses_it() {
    let scene = Scene::new();
    for (link, reason, code) in [("work/out", "refuses to run", 125), ("home/out", "leads to", 0)] {
        let link = scene.path(link);
        symlink(scene.path("bin"), &link).expect("own directory");
        let done = fresh_policy(&scene, &format!("[paths]\nread = ['{}']\n", link.display()));
        let document: serde_json::Value = serde_json::from_slice(&done.output.stdout).expect("a document");
        let finding = &document["findings"][0];
        assert_eq!(finding["code"], "path_symlink_out", "{done}");
        assert!(finding["reason"].as_str().expect("a reason").contains(reason), "{done}");
        let mut command = Command::new(gatekeeper());
        command.args(["run", "--read"]).arg(&link).args(["--", "/bin/true"]);
        run(command.current_dir(scene.path("work")).env("HOME", scene.path("home"))).exits(code);
    }
}

#[test]
fn credentials_are_found() {
    let scene = Scene::new();
    std::fs::create_dir(scene.path("home/.ssh")).expect("own directory");
    std::fs::write(scene.path("home/.ssh/id_ed25519"), "").expect("own directory");
    std::fs::create_dir(scene.path("home/src")).expect("own directory");
    let found = |paths: &str| codes(&fresh_policy(&scene, &format!("[paths]\n{paths}\n"))).contains("path_credential");
    assert!(found("read = ['~/.ssh']"));
    assert!(found("read = ['~/.ssh/id_ed25519']"));
    assert!(found("write = ['HERE/home']"));
    // Also those that a run finds by their names in the project, and through links of the others.
    std::fs::write(scene.path("work/.env"), "").expect("own directory");
    std::fs::write(scene.path("home/src/key"), "").expect("own directory");
    std::fs::write(scene.path("home/src/plain"), "").expect("own directory");
    symlink(scene.path("home/src/key"), scene.path("home/.ssh/link")).expect("own directory");
    for name in ["./.env", "~/src/key"] {
        for key in ["read", "also_read", "write"] {
            assert!(found(&format!("{key} = ['{name}']")), "{key} {name}");
            assert!(!found(&format!("{key} = ['~/src/plain']")), "{key}");
        }
    }
    assert!(!found("write = ['.']"), "a run closes what is in it");
    let missing = |key: &str| codes(&fresh_policy(&scene, &format!("[paths]\n{key} = ['/no/such']\n")));
    for key in ["read", "also_read"] {
        assert!(missing(key).contains("path_missing"), "{key}");
    }
    assert!(!found("read = ['~']"), "reading around credentials is what the planner does");
    assert!(!found("write = ['~/src']"));
    assert!(!found("write = ['HERE/home']\ndeny = ['~/.ssh']"));
}

#[test]
fn a_policy_that_others_may_write_is_found() {
    let scene = Scene::new();
    let file = scene.path("policies/policy.toml");
    std::fs::write(&file, "").expect("own directory");
    let found = |mode: u32, directory: u32| {
        std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).expect("own file");
        std::fs::set_permissions(scene.path("policies"), PermissionsExt::from_mode(directory)).expect("own directory");
        codes(&scene.lint_file(&file, &["--json"])).contains("writable_policy")
    };
    assert!(!found(0o644, 0o755));
    assert!(found(0o664, 0o755));
    assert!(found(0o646, 0o755));
    assert!(found(0o644, 0o777));
    assert!(!found(0o644, 0o1777));
}

#[test]
fn the_policy_in_a_writable_working_directory_is_found() {
    let scene = Scene::new();
    let file = scene.path("work/policy.toml");
    std::fs::write(&file, "profile = 'write'\n").expect("own directory");
    assert!(codes(&scene.lint_file(&file, &["--json"])).contains("writable_policy"));
    std::fs::write(&file, "profile = 'minimal'\n").expect("own directory");
    assert!(!codes(&scene.lint_file(&file, &["--json"])).contains("writable_policy"));
}

#[test]
fn a_socket_in_a_writable_tree_is_found() {
    let scene = Scene::new();
    let _listener = std::os::unix::net::UnixListener::bind(scene.path("run/bus")).expect("a socket");
    let done = fresh_policy(&scene, "[paths]\nwrite = ['HERE/run']\n");
    assert!(codes(&done).contains("escape_socket"), "{done}");
    let done = fresh_policy(&scene, "[paths]\nwrite = ['HERE/work']\n");
    assert!(!codes(&done).contains("escape_socket"), "{done}");
}

#[test]
fn every_wrong_name_is_listed_at_once() {
    let policy = "[syscalls]\nallow = ['opne', 'read']\ndeny = 'exceve:send:@netwrok'\n[[syscalls.rule]]\nsyscall = 'mmap2'\naction = 'deny'\n";
    let done = Scene::new().lint(policy, &["--json"]);
    done.exits(2);
    let document: serde_json::Value = serde_json::from_slice(&done.output.stdout).expect("JSON");
    let subjects: Vec<&str> = document["findings"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|finding| finding["subject"].as_str())
        .collect();
    assert_eq!(
        subjects,
        [
            "syscalls.allow: opne",
            "syscalls.deny: exceve",
            "syscalls.deny: send",
            "syscalls.deny: @netwrok",
            "syscalls.rule: mmap2"
        ]
    );
    assert!(document["error"].as_str().expect("an error").contains("unknown syscall 'opne'"), "{document:#}");
}

#[test]
fn findings_read_as_lines_with_the_fix_below() {
    let scene = Scene::new();
    let policy = scene.path("policies/policy.toml");
    scene.lint("require_sandbox = false\n[syscalls]\nallow = 'ptrace'\n", &[]).exits(1).complains("").prints(&format!(
        "{0}: high debug_open: syscalls: calls that access other processes or the kernel are allowed: ptrace\n    \
         fix: deny @debug; for a debugger, write a separate policy that allows only what it needs\n\
         {0}: medium not_required: require_sandbox: a layer that the machine lacks is skipped with a warning\n    \
         fix: remove it; gatekeeper doctor shows what a machine lacks\n",
        policy.display()
    ));
}

#[test]
fn what_cannot_be_read_is_an_error() {
    let scene = Scene::new();
    scene.lint_file(Path::new("/nowhere.toml"), &[]).exits(2).prints("");
    scene.lint("profile = ", &[]).exits(2).prints("");
    Scene::new().lint("profile = 'custom'\n", &[]).exits(2).prints("");
    run(Command::new(gatekeeper()).arg("lint")).exits(2);
}

#[test]
fn the_codes_are_documented() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/lint.md");
    let wanted = gatekeeper::lint::documentation();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&page, &wanted).expect("docs/ is writable");
    }
    let written = std::fs::read_to_string(&page).unwrap_or_default();
    assert!(written == wanted, "docs/guide/lint.md is not what lint says; run the tests with UPDATE_DOCS=1");
}

fn fresh_policy(scene: &Scene, policy: &str) -> Done {
    let _ = std::fs::remove_file(scene.path("policies/policy.toml"));
    scene.lint(policy, &["--json"])
}
