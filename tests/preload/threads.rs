//! Programs that already have threads, or get them while the library works.

use super::{ACTION, DENY, SENTINEL, SIGSYS, plain, preloaded};
use crate::support::{probe, run};
use std::path::PathBuf;

/// A program with a library whose constructor starts a thread before the preload's constructor runs.
pub fn born_early() -> PathBuf {
    let library = probe("early", &["-shared", "-fPIC", "-pthread"]);
    probe("late", &[library.to_str().expect("a plain path"), "-pthread"])
}

#[test]
fn a_thread_born_in_an_earlier_constructor_is_filtered_too() {
    run(&mut plain(&born_early())).exits(0).prints("thread=0\n");
    run(preloaded(&born_early()).envs([(DENY, "getppid"), SENTINEL])).exits(0).prints("thread=71\n");
}

#[test]
fn kill_ends_all_threads_and_not_one() {
    run(preloaded(&born_early()).env(DENY, "getppid")).dies_by(SIGSYS).prints("");
}

#[test]
fn many_threads_denied_at_once_name_the_call_before_they_die() {
    for _ in 0..20 {
        let done =
            run(preloaded(&probe("trapped", &["-pthread"])).arg("threads").envs([(DENY, "getppid"), (ACTION, "trap")]));
        done.dies_by(SIGSYS);
        let line = format!("libsandbox: denied syscall getppid ({})", libc::SYS_getppid);
        // Every line is complete. A second thread may print its own before the first has ended the process.
        assert!(!done.stderr().is_empty() && done.stderr().lines().all(|each| each == line), "{done}");
    }
}

#[test]
fn paths_are_refused_to_a_program_that_has_threads_already() {
    run(preloaded(&born_early()).env("SANDBOX_FS_READ", "/"))
        .exits(1)
        .prints("")
        .complains("libsandbox: the program already has threads, and Landlock would confine only one of them\n");
}
