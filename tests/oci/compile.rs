//! `gatekeeper compile`: each output format works in its tool, and none allows more than the policy.

use super::file;
use super::support::{Done, fresh, gatekeeper, libsandbox, probe, run};
use sandbox_contract::bpf::{AUDIT_ARCH, Insn, MAX_LEN, ret, simulate};
use std::path::Path;
use std::process::Command;

fn compile(words: &[&str], policy: Option<&Path>) -> Done {
    let mut command = Command::new(gatekeeper());
    command.arg("compile").args(words);
    if let Some(policy) = policy {
        command.arg("--config").arg(policy);
    }
    run(&mut command)
}

/// Runs the probe under the preload with one variable.
fn preloaded(variable: &str, value: impl AsRef<std::ffi::OsStr>, calls: &[&str]) -> Done {
    let mut command = Command::new(probe("calls", &[]));
    for name in sandbox_contract::vars::ALL {
        command.env_remove(name);
    }
    run(command.env("LD_PRELOAD", libsandbox()).env(variable, value).env("SECCOMP_DEFAULT_ACTION", "errno").args(calls))
}

const EXACT: &str = "profile = 'custom'\n[syscalls]\ndefault = 'errno:EACCES'\nallow = '@basic:prctl'\ndeny = 'getuid'\n
[[syscalls.rule]]\nsyscall = 'clone3'\naction = 'errno:ENOSYS'\n
[[syscalls.rule]]\nsyscall = 'socket'\naction = 'allow'\nargs = [{ index = 0, op = 'eq', value = 0xffffffff, mask = 0xffffffff }]\n";

#[test]
fn a_filter_file_confines_what_preloads_it() {
    let dir = fresh("filter");
    let filter = dir.join("exact.filter");
    compile(&["--to", "filter", "-o", &filter.to_string_lossy()], Some(&file(EXACT))).exits(0).prints("").complains("");
    let calls = ["getppid", "getuid", "ptrace", "clone3", "socket", "no_new_privs"];
    // EACCES by default, EPERM for denied calls, ENOSYS by a rule, and a socket that the kernel itself refuses.
    preloaded("SANDBOX_FILTER", &filter, &calls)
        .exits(0)
        .prints("getppid=ok\ngetuid=1\nptrace=13\nclone3=38\nsocket=22\nno_new_privs=1\n");
    preloaded("SANDBOX_VERBOSE", "0", &["getuid", "no_new_privs"]).exits(0).prints("getuid=ok\nno_new_privs=0\n");
}

#[test]
fn a_filter_file_of_a_profile_runs_real_programs() {
    let dir = fresh("filter");
    let filter = dir.join("minimal.filter");
    compile(&["--to", "filter", "-o", &filter.to_string_lossy()], None).exits(0);
    let under = |program: &str, words: &[&str]| {
        let mut command = Command::new(program);
        run(command.args(words).env("LD_PRELOAD", libsandbox()).env("SANDBOX_FILTER", &filter))
    };
    under("cat", &["/etc/hostname"]).exits(0);
    under("ls", &["/"]).exits(0);
    let touched = under("touch", &[&dir.join("made").to_string_lossy()]);
    // Landlock decides about paths. The filter alone stops the call that changes times.
    assert!(touched.code() != Some(0) && touched.stderr().contains("Operation not permitted"), "{touched}");
    let shell = under("sh", &["-c", "/bin/true || exit 9"]);
    assert!(shell.stderr().contains("Operation not permitted") || shell.stderr().contains("Cannot fork"), "{shell}");
}

#[test]
fn the_filter_file_is_the_policys_own_program() {
    let done = compile(&["--to", "filter", "--deny", "getuid", "--on-violation", "kill"], None);
    done.exits(0);
    let mut program = [Insn::default(); MAX_LEN];
    let len = sandbox_contract::file::decode(&done.output.stdout, &mut program).expect("a filter file");
    let answer = |nr: i64| simulate(&program[..len], AUDIT_ARCH, nr as u32, &[0; 6]);
    assert_eq!(answer(libc::SYS_getuid), Some(ret::KILL_PROCESS));
    assert_eq!(answer(libc::SYS_read), Some(ret::ALLOW));
    // The file contains no secret address that would allow exec.
    assert_eq!(answer(libc::SYS_execveat), Some(ret::KILL_PROCESS));
}

#[test]
fn a_list_is_what_the_preload_takes() {
    let policy = file("profile = 'custom'\n[syscalls]\nallow = '@basic:prctl'\ndeny = 'getuid'\n");
    let done = compile(&["--to", "list"], Some(&policy));
    done.exits(0);
    let list = done.stdout();
    assert!(list.ends_with('\n') && !list.contains('@') && !list.contains(":getuid:"), "{list}");
    preloaded("SECCOMP_SYSCALL_ALLOW", list.trim_end(), &["getppid", "getuid", "ptrace"])
        .exits(0)
        .prints("getppid=ok\ngetuid=1\nptrace=1\n");
}

#[test]
fn a_list_never_widens_a_policy_by_itself() {
    let refused = compile(&["--to", "list"], None);
    refused.exits(2).prints("");
    let words = "gatekeeper: compile: a list cannot test arguments, and would allow these calls with any: ";
    assert!(refused.stderr().starts_with(words) && refused.stderr().contains("ioctl"), "{refused}");
    let lossy = compile(&["--to", "list", "--lossy"], None);
    lossy.exits(0);
    assert!(lossy.stderr().contains("note: allowed with any arguments, but by the policy only with some: "), "{lossy}");
    assert!(lossy.stdout().contains(":ioctl:") && !lossy.stdout().contains("clone3"), "{lossy}");
    compile(&["--to", "list", "--profile", "unrestricted"], None)
        .exits(2)
        .complains("gatekeeper: compile: the policy denies nothing, and no list can express that\n");
}

#[test]
fn a_list_of_a_deny_policy_denies_no_less() {
    let done = compile(&["--to", "list", "--profile", "unrestricted", "--deny", "getuid"], None);
    done.exits(0);
    assert!(done.stderr().contains("the list denies calls that have no name here"), "{done}");
    preloaded("SECCOMP_SYSCALL_ALLOW", done.stdout().trim_end(), &["getppid", "getuid", "beyond"])
        .exits(0)
        .prints("getppid=ok\ngetuid=1\nbeyond=1\n");
}

#[test]
fn hosts_and_ports_are_not_opened_unasked() {
    for (network, what) in [
        ("mode = 'hosts'\nhosts = ['example.org']", "hosts"),
        ("mode = 'loopback'", "loopback and other addresses"),
        ("mode = 'own'", "the run's own network and the machine's"),
        ("mode = 'full'\nports = [443]", "ports"),
    ] {
        let policy = file(&format!("profile = 'network'\n[network]\n{network}\n"));
        for form in ["filter", "oci", "list"] {
            let error = format!(
                "gatekeeper: compile: a filter cannot distinguish {what} and would allow the whole network; --lossy accepts that\n"
            );
            compile(&["--to", form], Some(&policy)).exits(2).prints("").complains(&error);
            let lossy = compile(&["--to", form, "--lossy"], Some(&policy));
            lossy.exits(0);
            assert!(lossy.stderr().contains("note: the whole network is allowed"), "{lossy}");
        }
    }
}

#[test]
fn a_profile_without_a_filter_for_the_network_does_not_open_it_unasked() {
    for (mode, network) in [
        ("none", "mode = 'none'"),
        ("own", "mode = 'own'"),
        ("loopback", "mode = 'loopback'"),
        ("hosts", "mode = 'hosts'\nhosts = ['example.org']"),
        ("full with a list of ports", "mode = 'full'\nports = [443]"),
    ] {
        for (profile, lists) in [("unrestricted", "deny = ['getuid']"), ("custom", "allow = ['@basic', 'socket']")] {
            let policy = |network: &str| file(&format!("profile = '{profile}'\n[syscalls]\n{lists}\n{network}"));
            for form in ["filter", "oci", "list"] {
                let error = format!(
                    "gatekeeper: compile: profile {profile} has no filter that enforces network mode {mode}, and the \
                     whole network would be allowed; --lossy accepts that\n"
                );
                let closed = policy(&format!("[network]\n{network}\n"));
                compile(&["--to", form], Some(&closed)).exits(2).prints("").complains(&error);
                let lossy = compile(&["--to", form, "--lossy"], Some(&closed));
                let note = format!(
                    "note: the whole network is allowed: profile {profile} does not enforce network mode {mode}\n"
                );
                lossy.exits(0);
                assert!(lossy.stderr().contains(&note), "{lossy}");
                let open = compile(&["--to", form], Some(&policy("[network]\nmode = 'full'\n")));
                open.exits(0);
                assert!(!open.stderr().contains("network"), "{open}");
                compile(&["--to", form], Some(&policy(""))).exits(0);
            }
        }
    }
}

#[test]
fn what_no_filter_holds_is_told() {
    let policy = file("timeout = '5s'\n[paths]\nread = ['/usr']\n[env]\npass = ['X']\n[commands]\nblock = ['rm']\n");
    let done = compile(&["--to", "filter"], Some(&policy));
    done.exits(0).complains(
        "gatekeeper: note: only syscalls are compiled; only gatekeeper run enforces paths, limits, the environment, commands\n",
    );
}

#[test]
fn a_container_profile_without_execve_is_told() {
    let done = compile(&["--to", "oci"], None);
    done.exits(0);
    assert!(done.stderr().contains("does not allow execve: nothing would start"), "{done}");
    let profile: serde_json::Value = serde_json::from_slice(&done.output.stdout).expect("JSON");
    assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
    assert_eq!(profile["defaultErrnoRet"], 1);
    compile(&["--to", "oci", "--profile", "write"], None).exits(0).complains("");
}

#[test]
fn policies_that_are_wrong_are_not_compiled() {
    for policy in ["profile = 'custom'\n", "[syscalls]\ndefault = 'allow'\n", "[syscalls]\ndeny = ['opne']\n"] {
        compile(&["--to", "filter"], Some(&file(policy))).exits(2).prints("");
    }
    compile(&["--to", "elf"], None).exits(2);
    compile(&["--to", "filter", "-o", "/nowhere/at/all"], None).exits(2);
}
