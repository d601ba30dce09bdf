//! Other circumstances: an unprivileged user, another preload, other ways to be loaded.

use super::{ALLOW, DENY, SENTINEL, calls, plain, preloaded};
use crate::support::{Done, is_root, libsandbox, probe, run};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

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

/// glibc's loader, which can be run as a program.
fn loader() -> &'static Path {
    let known = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"].map(Path::new);
    known.into_iter().find(|loader| loader.exists()).expect("glibc's loader")
}

#[test]
fn a_program_that_the_loader_was_asked_to_run_is_confined() {
    // The shell reads its script from standard input, so that it can be run without an argument of its own.
    let script = "cat /proc/$$/environ; mkdir /nowhere/directory 2>&1";
    let ask = |options: &[&str], words: &[&str], deny: &str| {
        let input = "echo \"$0\" | exec \"$@\"";
        let mut command = Command::new("sh");
        command.env_clear().args(["-c", input, script]).arg(loader()).args(options).arg("--preload").arg(libsandbox());
        command.arg("/bin/sh").args(words).envs([("A", "1"), ("B", "2"), (DENY, deny), SENTINEL]);
        run(&mut command)
    };
    for options in [&[][..], &["--argv0", "name"], &["--argv0", "name", "--inhibit-cache"]] {
        for words in [&[][..], &["-s"], &["-s", "more", ""]] {
            let done = ask(options, words, "mkdir:mkdirat");
            done.exits(1).complains("");
            let told = done.stdout();
            assert!(told.contains("A=1\0") && told.contains("B=2\0"), "{done}");
            assert!(!told.contains("SECCOMP") && !told.contains("EPROTO"), "{done}");
            assert!(told.ends_with("Protocol error\n"), "{done}");
            let done = ask(options, words, "mount");
            assert!(done.stdout().ends_with("No such file or directory\n"), "{done}");
        }
    }
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
