//! `SANDBOX_VERBOSE`: the messages of cloudflare/sandbox, and warnings about lists that leave a back door.

use super::{ACTION, ALLOW, DENY, calls};

const VERBOSE: (&str, &str) = ("SANDBOX_VERBOSE", "1");

#[test]
fn silence_is_the_default() {
    for off in [&[][..], &[("SANDBOX_VERBOSE", "")], &[("SANDBOX_VERBOSE", "0")]] {
        let mut variables = off.to_vec();
        variables.push((DENY, "openat"));
        calls(&variables, &["getppid"]).exits(0).prints("getppid=ok\n").complains("");
    }
}

#[test]
fn every_item_is_told_in_the_ancestors_words() {
    calls(&[VERBOSE, (ALLOW, "write:exit_group:@timers:getppid")], &["getppid"])
        .exits(0)
        .prints("getppid=ok\n")
        .complains(
            "libsandbox: adding write to the process seccomp filter\n\
         libsandbox: adding exit_group to the process seccomp filter\n\
         libsandbox: adding @timers to the process seccomp filter\n\
         libsandbox: adding getppid to the process seccomp filter\n\
         libsandbox: a call that is not listed: kill\n",
        );
}

#[test]
fn a_list_that_is_not_used_is_told() {
    calls(&[VERBOSE, (ALLOW, "write:exit_group"), (DENY, "read"), (ACTION, "errno:EACCES")], &[]).exits(0).complains(
        "libsandbox: SECCOMP_SYSCALL_DENY is not used, because SECCOMP_SYSCALL_ALLOW is set\n\
         libsandbox: adding write to the process seccomp filter\n\
         libsandbox: adding exit_group to the process seccomp filter\n\
         libsandbox: a call that is not listed: errno EACCES\n",
    );
}

#[test]
fn paths_are_told() {
    calls(&[VERBOSE, ("SANDBOX_FS_READ", "/")], &["getppid"])
        .exits(0)
        .complains("libsandbox: Landlock rules are in force\n");
}

#[test]
fn a_compiled_filter_is_told() {
    let program = super::files::denying(&["getuid"]);
    let path = super::files::written("told", &program);
    let path = path.to_str().expect("a plain path");
    calls(&[VERBOSE, ("SANDBOX_FILTER", path)], &["getppid"])
        .exits(0)
        .complains(&format!("libsandbox: loading the compiled filter '{path}', {} instructions\n", program.len()));
}

#[test]
fn a_deny_list_with_a_back_door_gets_one_warning() {
    calls(&[VERBOSE, (DENY, "execve"), (ACTION, "trap")], &["getppid"]).exits(0).complains(
        "libsandbox: adding execve to the process seccomp filter\n\
         libsandbox: warning: SECCOMP_SYSCALL_DENY stops execve but not execveat, which can still execute programs\n\
         libsandbox: a call that is listed: trap\n",
    );
    let two = calls(&[VERBOSE, (DENY, "clone:openat"), (ACTION, "log")], &["getppid"]);
    let warnings: Vec<String> =
        two.stderr().lines().filter(|line| line.contains("warning")).map(str::to_owned).collect();
    assert_eq!(warnings.len(), 1, "{two}");
    if !cfg!(target_arch = "x86_64") {
        return crate::support::skip("open and fork are syscalls of x86_64 only");
    }
    assert_eq!(
        warnings,
        [
            "libsandbox: warning: SECCOMP_SYSCALL_DENY stops openat but not open, which can still open files; clone but not fork, which can still start processes"
        ],
    );
}

#[test]
fn a_deny_list_without_a_back_door_gets_none() {
    let done = calls(&[VERBOSE, (DENY, "execve:execveat:getppid")], &["getuid"]);
    assert!(!done.stderr().contains("warning"), "{done}");
}

#[test]
fn io_uring_left_open_is_a_back_door_to_sockets() {
    let stderr = calls(&[VERBOSE, (DENY, "socket")], &["getppid"]).stderr();
    let warning = "warning: SECCOMP_SYSCALL_DENY stops socket but not io_uring_setup, which can still open sockets\n";
    assert!(stderr.contains(warning), "{stderr}");
}

#[test]
fn a_warning_too_long_for_one_line_shows_that_it_was_cut() {
    let deny = "openat:clone:execve:unlink:rmdir:rename:mkdir:link:symlink:mknod:socket:connect:accept:chmod:chown:utime:setxattr:truncate:readv:tkill:ptrace:mount:setuid";
    if !cfg!(target_arch = "x86_64") {
        return crate::support::skip("half of these calls are syscalls of x86_64 only");
    }
    let done = calls(&[VERBOSE, (DENY, deny)], &["getppid"]);
    let warning = done.stderr().lines().find(|line| line.contains("warning")).map(str::to_owned).unwrap_or_default();
    assert_eq!(warning.len(), 1023, "{done}");
    assert!(warning.ends_with("..."), "{done}");
}
