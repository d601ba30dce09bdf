//! The library as a guest in a process: what it leaves behind, and the unusual circumstances in which it still works.

use super::{ACTION, ALLOW, DENY, SENTINEL, SIGSYS, calls, plain, preloaded};
use crate::support::{fresh, has, is_root, libsandbox, probe, run, skip};
use sandbox_contract::vars;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

#[test]
fn the_variables_are_gone_and_ld_preload_stays() {
    let words: Vec<String> =
        vars::ALL.iter().copied().chain(["LD_PRELOAD", "KEPT"]).map(|v| format!("env:{v}")).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let wanted: String = vars::ALL.iter().map(|name| format!("{name}=unset\n")).collect();
    let wanted = format!("{wanted}LD_PRELOAD={}\nKEPT=1\n", libsandbox().display());
    let set = [
        (ALLOW, "write:exit_group"),
        (DENY, "getppid"),
        (ACTION, "kill"),
        ("SANDBOX_FS_READ", "/"),
        ("SANDBOX_FS_WRITE", "/"),
        ("SANDBOX_VERBOSE", "0"),
        ("SANDBOX_REQUIRED", "1"),
        ("KEPT", "1"),
    ];
    calls(&set, &words).exits(0).prints(&wanted);
}

#[test]
fn a_variable_that_stands_twice_is_gone_twice() {
    // The kernel passes on any environment block, but only a direct execve can create one like this.
    let script = r#"
import ctypes, sys
probe, library = sys.argv[1].encode(), sys.argv[2].encode()
env = [b"LD_PRELOAD=" + library, b"SECCOMP_SYSCALL_DENY=getppid", b"SECCOMP_DEFAULT_ACTION=errno:EPROTO", b"SECCOMP_SYSCALL_DENY=getuid"]
argv = [probe, b"getppid", b"getuid", b"env:SECCOMP_SYSCALL_DENY"]
strings = lambda list: (ctypes.c_char_p * (len(list) + 1))(*list, None)
ctypes.CDLL(None).execve(probe, strings(argv), strings(env))
"#;
    if !has("python3") {
        return;
    }
    run(Command::new("python3").args(["-c", script]).arg(probe("calls", &[])).arg(libsandbox()))
        .exits(0)
        .prints("getppid=71\ngetuid=ok\nSECCOMP_SYSCALL_DENY=unset\n");
}

#[test]
fn success_sets_no_new_privs_and_says_nothing() {
    calls(&[(DENY, "getppid")], &["no_new_privs", "seccomp"])
        .exits(0)
        .prints("no_new_privs=1\nseccomp=2\n")
        .complains("");
}

#[test]
fn no_descriptor_is_left_open() {
    let without = run(plain(&probe("calls", &[])).arg("descriptors"));
    let filter = super::files::written("descriptors", &super::files::denying(&["getppid"]));
    for variables in [
        vec![(DENY, "getppid")],
        vec![(DENY, "getppid"), ("SANDBOX_FS_READ", "/:/tmp"), ("SANDBOX_FS_WRITE", "/tmp")],
        vec![("SANDBOX_FILTER", filter.to_str().expect("a plain path"))],
    ] {
        calls(&variables, &["descriptors"]).exits(0).prints(&without.stdout());
    }
}

/// The names of the syscalls that strace saw after the filter was loaded.
fn calls_after_the_filter(variables: &[(&str, &str)]) -> Vec<String> {
    let log = fresh("strace").join("log");
    let mut command = Command::new("strace");
    command.arg("-o").arg(&log).arg("-E").arg(format!("LD_PRELOAD={}", libsandbox().display()));
    for (name, value) in variables {
        command.arg("-E").arg(format!("{name}={value}"));
    }
    run(command.arg(probe("calls", &[])).arg("getppid")).exits(0);
    let log = fs::read_to_string(log).expect("strace wrote it");
    let lines: Vec<&str> = log.lines().collect();
    let at = lines.iter().rposition(|line| line.starts_with("seccomp(SECCOMP_SET_MODE_FILTER"));
    let at = at.unwrap_or_else(|| panic!("no filter was loaded:\n{log}"));
    let name = |line: &&str| line.split('(').next().unwrap_or_default().to_owned();
    lines.get(at + 1..).unwrap_or_default().iter().map(name).collect()
}

#[test]
fn no_call_of_ours_follows_the_filter() {
    if !has("strace") {
        return;
    }
    // The probe's main calls getppid, then write and exit_group.
    let filter = super::files::written("strace", &super::files::denying(&["getuid"]));
    for variables in [
        vec![(DENY, "getuid")],
        vec![(ALLOW, "getppid:write:exit_group")],
        vec![(DENY, "getuid"), (ACTION, "trap")],
        vec![(DENY, "getuid"), ("SANDBOX_FS_READ", "/"), ("SANDBOX_FS_WRITE", "/tmp"), ("SANDBOX_VERBOSE", "1")],
        vec![("SANDBOX_FILTER", filter.to_str().expect("a plain path"))],
    ] {
        let after = calls_after_the_filter(&variables);
        assert_eq!(after, ["getppid", "write", "exit_group", "+++ exited with 0 +++"], "{variables:?}");
    }
}

#[test]
fn works_with_every_standard_descriptor_closed() {
    let run_closed = |list: &str, closed: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("exec \"$@\" {closed}"), "sh", "/usr/bin/env"]);
        command.arg(format!("LD_PRELOAD={}", libsandbox().display()));
        run(command.arg(format!("{DENY}={list}")).arg(probe("calls", &[])).args(["getuid", "getppid"]))
    };
    for closed in ["2>&-", "0>&- 2>&-", "0>&- 1>&- 2>&-"] {
        run_closed("getppid", closed).dies_by(SIGSYS);
        run_closed("opne", closed).exits(1);
        run_closed("socket", closed).exits(0);
    }
}

#[test]
fn a_refusal_is_exit_1_even_if_nobody_reads_stderr() {
    // A pipe whose read end is closed before the library writes.
    let (reader, writer) = std::io::pipe().expect("pipes can be made");
    drop(reader);
    let status = preloaded(&probe("calls", &[]))
        .env(DENY, "opne")
        .stdout(Stdio::null())
        .stderr(writer)
        .status()
        .expect("the probe starts");
    assert_eq!(status.code(), Some(1));
}

#[test]
fn works_with_four_mebibytes_of_environment() {
    // 42 strings of 100,000 bytes. execve(2): one string may have 128 KiB, and all together a quarter of the stack
    // limit.
    let mut command = with_large_stack(preloaded(&probe("calls", &[])));
    command.envs((0..42).map(|i| (format!("BIG_{i}"), "x".repeat(100_000))));
    command.envs([(DENY, "getppid:@debug"), SENTINEL]);
    run(command.args(["getppid", "getuid", "env:SECCOMP_SYSCALL_DENY"]))
        .exits(0)
        .prints("getppid=71\ngetuid=ok\nSECCOMP_SYSCALL_DENY=unset\n");
}

fn with_large_stack(mut command: Command) -> Command {
    // SAFETY: setrlimit is async-signal-safe, and reads only the given struct.
    unsafe {
        command.pre_exec(|| {
            let limit = libc::rlimit { rlim_cur: 64 << 20, rlim_max: libc::RLIM_INFINITY };
            libc::setrlimit(libc::RLIMIT_STACK, &limit);
            Ok(())
        })
    };
    command
}

#[test]
fn a_list_of_a_hundred_kilobytes_is_read_to_its_end() {
    let list = format!("{}getppid", "read:write:@network:".repeat(5_000));
    calls(&[(DENY, &list.replace("read:write:", "socket:")), SENTINEL], &["getppid", "getuid"])
        .exits(0)
        .prints("getppid=71\ngetuid=ok\n");
}

/// A program that lists the library in its dynamic section, so that it is loaded even if LD_PRELOAD is ignored.
pub fn patched(name: &str) -> Option<PathBuf> {
    if !has("patchelf") {
        return None;
    }
    let copy = fresh(name).join("calls");
    fs::copy(probe("calls", &[]), &copy).expect("the probe can be copied");
    run(Command::new("patchelf").arg("--add-needed").arg(libsandbox()).arg(&copy)).exits(0);
    Some(copy)
}

#[test]
fn a_setuid_program_takes_no_orders_from_its_callers_environment() {
    if !is_root() {
        return skip("only root can make a program setuid to another user");
    }
    let Some(program) = patched("setuid") else { return };
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).expect("own file");
    let as_nobody = |variable: Option<(&str, &str)>| {
        let mut command = plain(&program);
        command.uid(65534).gid(65534).envs(variable).arg("getppid");
        run(&mut command)
    };
    as_nobody(None).exits(0).prints("getppid=ok\n");
    as_nobody(Some((DENY, "getppid")))
        .exits(1)
        .prints("")
        .complains("libsandbox: refusing to obey the environment in a setuid or otherwise privileged program\n");
}

#[test]
fn a_program_with_functions_of_its_own_is_held_all_the_same() {
    // With -rdynamic, the program's symbols take precedence over the C library's.
    let interposer = probe("interposer", &["-rdynamic"]);
    run(&mut plain(&interposer)).exits(0).prints("socket=ok\n");
    let mut confined = preloaded(&interposer);
    confined.env(DENY, "socket").env(ACTION, "errno:EPROTO");
    run(&mut confined).exits(0).prints("socket=EPROTO\n");
    // A refusal ends the program although it defines its own _exit.
    run(preloaded(&interposer).env(DENY, "opne")).exits(1).prints("");
}
