//! Other circumstances: an unprivileged user, another preload, other ways to be loaded.

use super::{ALLOW, DENY, SENTINEL, calls, plain, preloaded};
use crate::support::{Done, is_root, libsandbox, probe, run};
use std::os::unix::process::CommandExt;

/// Runs the probe `calls` preloaded as an unprivileged user: `nobody` if root runs the tests.
#[track_caller]
pub fn as_nobody(variables: &[(&str, &str)], words: &[&str]) -> Done {
    let mut command = preloaded(&probe("calls", &[]));
    command.envs(variables.iter().copied()).args(words);
    if is_root() {
        command.uid(65534).gid(65534);
    }
    run(&mut command)
}

#[test]
fn no_privilege_is_needed() {
    as_nobody(&[(DENY, "getppid"), SENTINEL], &["getppid", "getuid"]).exits(0).prints("getppid=71\ngetuid=ok\n");
    as_nobody(&[(ALLOW, "write:exit_group"), ("SANDBOX_FS_READ", "/"), SENTINEL], &["getppid", "openat"])
        .exits(0)
        .prints("getppid=71\nopenat=71\n");
}

#[test]
fn a_users_own_preload_works_before_and_after_ours() {
    let user = probe("user", &["-shared", "-fPIC"]);
    let (user, ours) = (user.display(), libsandbox().display());
    for order in [format!("{user}:{ours}"), format!("{ours}:{user}"), format!("{user} {ours}")] {
        run(plain(&probe("euid", &[])).env("LD_PRELOAD", &order).envs([(DENY, "getppid"), SENTINEL]))
            .exits(0)
            .prints("user's preload\ngeteuid=4242 getppid=denied\n")
            .complains("");
    }
}

#[test]
fn loaded_twice_it_works_once() {
    let copy = crate::support::fresh("copy").join("libsandbox.so");
    std::fs::copy(libsandbox(), &copy).expect("the library can be copied");
    let both = format!("{}:{}", libsandbox().display(), copy.display());
    run(preloaded(&probe("calls", &[]))
        .env("LD_PRELOAD", both)
        .envs([(DENY, "getppid"), SENTINEL, ("SANDBOX_REQUIRED", "1")])
        .args(["getppid", "getuid"]))
    .exits(0)
    .prints("getppid=71\ngetuid=ok\n")
    .complains("");
}

#[test]
fn a_program_changed_with_patchelf_is_confined_without_ld_preload() {
    let Some(program) = super::guest::patched("patchelf") else { return };
    let words = ["getppid", "getuid"];
    run(plain(&program).args(words)).exits(0).prints("getppid=ok\ngetuid=ok\n").complains("");
    run(plain(&program).envs([(DENY, "getppid"), SENTINEL]).args(words))
        .exits(0)
        .prints("getppid=71\ngetuid=ok\n")
        .complains("");
    run(plain(&program).env(DENY, "opne").args(words)).exits(1).prints("");
}

#[test]
fn a_child_is_confined_by_what_its_parent_got() {
    let inner = probe("calls", &[]);
    let inner = inner.to_str().expect("a plain path");
    // The child loads the library too, finds no variables, and adds no filter.
    calls(&[(DENY, "getppid"), SENTINEL], &["exec", inner, "getppid", "getuid", "env:LD_PRELOAD"])
        .exits(0)
        .prints(&format!("getppid=71\ngetuid=ok\nLD_PRELOAD={}\n", libsandbox().display()));
}

#[test]
fn ordinary_programs_run_under_lists_for_them() {
    let list = "@basic:@file-read:@memory:@signals:@loader:ioctl";
    run(preloaded("/bin/cat".as_ref()).env(ALLOW, list).arg("/proc/self/comm")).exits(0).prints("cat\n");
    run(preloaded("/bin/true".as_ref()).env(ALLOW, "exit_group")).exits(0);
}
