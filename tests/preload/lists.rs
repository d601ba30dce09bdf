//! What the two lists allow: neither, ALLOW, DENY, both, and one filter on top of another.

use super::{ACTION, ALLOW, DENY, SENTINEL, SIGSYS, calls, plain, preloaded};
use crate::support::{probe, run};

/// The results of the calls without a filter: EBADF, EFAULT and similar.
const OPEN: &str =
    "getppid=ok\nread=9\nopenat=9\nunlinkat=9\nsocket=22\nconnect=9\nexecve=14\nclone3=22\nmseal=22\nbeyond=38\n";
const WORDS: [&str; 10] =
    ["getppid", "read", "openat", "unlinkat", "socket", "connect", "execve", "clone3", "mseal", "beyond"];

#[test]
fn without_the_library_every_call_gives_its_own_answer() {
    run(plain(&probe("calls", &[])).args(WORDS)).exits(0).prints(OPEN);
}

#[test]
fn without_variables_nothing_changes() {
    let words: Vec<&str> = WORDS.iter().copied().chain(["no_new_privs", "seccomp"]).collect();
    let without = run(plain(&probe("calls", &[])).args(&words));
    calls(&[], &words).exits(0).prints(&without.stdout()).complains("");
}

#[test]
fn an_action_alone_confines_nothing() {
    let without = run(plain(&probe("calls", &[])).args(["getppid", "no_new_privs", "seccomp"]));
    calls(&[(ACTION, "kill")], &["getppid", "no_new_privs", "seccomp"]).exits(0).prints(&without.stdout());
}

#[test]
fn allow_lets_the_listed_through_and_nothing_else() {
    let allowed = (ALLOW, "write:exit_group:getppid:read:socket");
    calls(&[allowed, SENTINEL], &WORDS)
        .exits(0)
        .complains("")
        .prints("getppid=ok\nread=9\nopenat=71\nunlinkat=71\nsocket=22\nconnect=71\nexecve=71\nclone3=71\nmseal=71\nbeyond=71\n");
}

#[test]
fn deny_stops_the_listed_and_nothing_else() {
    calls(&[(DENY, "getppid:socket:mseal"), SENTINEL], &WORDS).exits(0).complains("").prints(
        "getppid=71\nread=9\nopenat=9\nunlinkat=9\nsocket=71\nconnect=9\nexecve=14\nclone3=22\nmseal=71\nbeyond=38\n",
    );
}

#[test]
fn allow_wins_over_deny() {
    calls(&[(ALLOW, "write:exit_group:getppid"), (DENY, "getppid:write"), SENTINEL], &["getppid", "getuid"])
        .exits(0)
        .prints("getppid=ok\ngetuid=71\n");
}

#[test]
fn an_empty_allow_list_allows_nothing() {
    calls(&[(ALLOW, "")], &[]).dies_by(SIGSYS).prints("").complains("");
}

#[test]
fn an_empty_deny_list_is_a_filter_that_allows_every_call() {
    calls(&[(DENY, "")], &WORDS).exits(0).prints(OPEN).complains("");
    calls(&[(DENY, "")], &["seccomp", "no_new_privs"]).exits(0).prints("seccomp=2\nno_new_privs=1\n");
    calls(&[(DENY, "")], &["x32"]).dies_by(SIGSYS);
}

#[test]
fn empty_items_mean_nothing() {
    calls(&[(ALLOW, ":write::exit_group:"), SENTINEL], &["getppid"]).exits(0).prints("getppid=71\n");
}

#[test]
fn groups_stand_in_both_lists() {
    calls(&[(ALLOW, "@basic:@network"), SENTINEL], &["socket", "connect", "openat"])
        .exits(0)
        .prints("socket=22\nconnect=9\nopenat=71\n");
    calls(&[(DENY, "@network:getppid"), SENTINEL], &["socket", "connect", "openat", "getppid"])
        .exits(0)
        .prints("socket=71\nconnect=71\nopenat=9\ngetppid=71\n");
}

#[test]
fn every_group_that_the_documents_promise_is_there() {
    let promised = "@file-read:@file-write:@network:@process:@threads:@signals:@timers:@memory:@ipc:@loader:@io-event:@privileged:@debug";
    calls(&[(ALLOW, promised), SENTINEL], &["mount", "socket"]).exits(0).prints("mount=71\nsocket=22\n");
}

#[test]
fn a_second_layer_only_takes_away() {
    // The first filter applies to `env`, which sets the variables of the second and executes the probe.
    let stacked = |second: &str| {
        run(preloaded(std::path::Path::new("/usr/bin/env"))
            .env(DENY, "getppid")
            .env(ACTION, "errno:EXDEV")
            .arg(second)
            .arg("SECCOMP_DEFAULT_ACTION=errno:EPROTO")
            .arg(probe("calls", &[]))
            .args(["getppid", "getuid", "socket"]))
    };
    stacked("SECCOMP_SYSCALL_DENY=getuid").exits(0).prints("getppid=18\ngetuid=71\nsocket=22\n");
    stacked("SECCOMP_SYSCALL_ALLOW=write:exit_group:getppid").exits(0).prints("getppid=18\ngetuid=71\nsocket=71\n");
}

#[test]
fn a_filter_follows_into_a_static_program() {
    let inner = probe("calls", &["-static"]);
    let inner = inner.to_str().expect("a plain path");
    // The control: a preload alone does not affect a static program.
    run(preloaded(inner.as_ref()).envs([(DENY, "getppid"), SENTINEL]).arg("getppid")).exits(0).prints("getppid=ok\n");
    calls(&[(DENY, "getppid"), SENTINEL], &["exec", inner, "getppid", "getuid"])
        .exits(0)
        .prints("getppid=71\ngetuid=ok\n");
}

#[test]
fn names_newer_than_the_oldest_libseccomp_are_known() {
    calls(&[(ALLOW, "write:exit_group:mseal:file_setattr"), SENTINEL], &["mseal", "getppid"])
        .exits(0)
        .prints("mseal=22\ngetppid=71\n");
}
