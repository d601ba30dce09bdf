//! The exact messages with which the library refuses to start a program. Those about compiled filters are in `files`,
//! those about paths in `landlock`, those about privileges and threads in `guest` and `threads`.

use super::{ACTION, ALLOW, DENY, calls, refused};

#[test]
fn an_unknown_name_is_answered_with_the_nearest() {
    refused(&[(ALLOW, "read:opne")], "SECCOMP_SYSCALL_ALLOW: unknown syscall 'opne'; did you mean 'open'?");
    refused(&[(DENY, "exceve")], "SECCOMP_SYSCALL_DENY: unknown syscall 'exceve'; did you mean 'execve'?");
    refused(
        &[(DENY, "umount")],
        "SECCOMP_SYSCALL_DENY: 'umount' has no number on this architecture; did you mean 'umount2'?",
    );
    refused(&[(DENY, "fadvise")], "SECCOMP_SYSCALL_DENY: unknown syscall 'fadvise'; did you mean 'fadvise64'?");
}

#[test]
fn a_name_near_to_nothing_is_only_unknown() {
    refused(&[(ALLOW, "zzzzzzzzzzzzzz")], "SECCOMP_SYSCALL_ALLOW: unknown syscall 'zzzzzzzzzzzzzz'");
}

#[test]
fn blanks_and_capitals_are_not_forgiven() {
    refused(&[(ALLOW, "read: write")], "SECCOMP_SYSCALL_ALLOW: unknown syscall ' write'; did you mean 'write'?");
    refused(&[(DENY, "Read")], "SECCOMP_SYSCALL_DENY: unknown syscall 'Read'; did you mean 'read'?");
    refused(&[(DENY, "OPENAT")], "SECCOMP_SYSCALL_DENY: unknown syscall 'OPENAT'; did you mean 'openat'?");
}

#[test]
fn a_pseudo_syscall_is_refused() {
    refused(
        &[(DENY, "send")],
        "SECCOMP_SYSCALL_DENY: 'send' has no number on this architecture; did you mean 'sendto'?",
    );
    refused(
        &[(DENY, "mmap2")],
        "SECCOMP_SYSCALL_DENY: 'mmap2' has no number on this architecture; did you mean 'mmap'?",
    );
}

#[test]
fn an_unknown_group_is_answered_with_the_nearest() {
    refused(&[(DENY, "@netwrok")], "SECCOMP_SYSCALL_DENY: unknown group '@netwrok'; did you mean '@network'?");
    refused(&[(ALLOW, "@")], "SECCOMP_SYSCALL_ALLOW: unknown group '@'");
    // There are few groups, so one is offered even for a name that is like none.
    refused(
        &[(ALLOW, "@filesystem")],
        "SECCOMP_SYSCALL_ALLOW: unknown group '@filesystem'; did you mean '@file-write'?",
    );
}

#[test]
fn an_item_over_127_bytes_is_refused_and_shown_in_part() {
    let fits = "x".repeat(127);
    refused(&[(ALLOW, &fits)], &format!("SECCOMP_SYSCALL_ALLOW: unknown syscall '{fits}'"));
    let long = "x".repeat(128);
    refused(
        &[(ALLOW, &long)],
        &format!("SECCOMP_SYSCALL_ALLOW: an item of 128 bytes is not a syscall: '{}...'", "x".repeat(127)),
    );
    let group = format!("@{}", "y".repeat(127));
    refused(
        &[(DENY, &group)],
        &format!("SECCOMP_SYSCALL_DENY: an item of 128 bytes is not a syscall: '@{}...'", "y".repeat(126)),
    );
}

#[test]
fn an_unknown_action_is_answered_with_the_nearest() {
    let all = "(kill, log, errno, errno:NAME or trap)";
    refused(
        &[(DENY, "getppid"), (ACTION, "kil")],
        &format!("SECCOMP_DEFAULT_ACTION: unknown action 'kil'; did you mean 'kill'? {all}"),
    );
    refused(
        &[(DENY, "getppid"), (ACTION, "errno:EWHAT")],
        &format!("SECCOMP_DEFAULT_ACTION: unknown action 'errno:EWHAT' {all}"),
    );
    refused(
        &[(DENY, "getppid"), (ACTION, "errno:EACCESS")],
        &format!("SECCOMP_DEFAULT_ACTION: unknown action 'errno:EACCESS'; did you mean 'errno:EACCES'? {all}"),
    );
    refused(&[(DENY, "getppid"), (ACTION, "")], &format!("SECCOMP_DEFAULT_ACTION: unknown action '' {all}"));
}

#[test]
fn a_wrong_action_is_refused_even_where_it_would_not_be_used() {
    refused(
        &[(ACTION, "allow")],
        "SECCOMP_DEFAULT_ACTION: unknown action 'allow' (kill, log, errno, errno:NAME or trap)",
    );
}

#[test]
fn required_and_nothing_asked_is_refused() {
    let line = "SANDBOX_REQUIRED is set but there is nothing to enforce; set SECCOMP_SYSCALL_ALLOW, SECCOMP_SYSCALL_DENY, SANDBOX_FILTER, SANDBOX_FS_READ or SANDBOX_FS_WRITE";
    refused(&[("SANDBOX_REQUIRED", "1")], line);
    refused(&[("SANDBOX_REQUIRED", "yes"), (ACTION, "log")], line);
    for off in ["", "0"] {
        calls(&[("SANDBOX_REQUIRED", off)], &["getppid"]).exits(0).prints("getppid=ok\n").complains("");
    }
    calls(&[("SANDBOX_REQUIRED", "1"), (DENY, "getuid")], &["getppid"]).exits(0).prints("getppid=ok\n");
}

#[test]
fn a_compiled_filter_beside_a_list_is_refused() {
    for list in [ALLOW, DENY] {
        refused(
            &[("SANDBOX_FILTER", "/nowhere"), (list, "read")],
            "SANDBOX_FILTER is already a whole list; unset SECCOMP_SYSCALL_ALLOW and SECCOMP_SYSCALL_DENY",
        );
    }
}

#[test]
fn what_could_steer_a_terminal_is_not_repeated() {
    refused(&[(ALLOW, "\u{1b}[31mred")], "SECCOMP_SYSCALL_ALLOW: unknown syscall '?[31mred'");
    refused(&[(ALLOW, "re\nad")], "SECCOMP_SYSCALL_ALLOW: unknown syscall 're?ad'; did you mean 'read'?");
}
