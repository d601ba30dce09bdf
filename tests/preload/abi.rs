//! The C interface: programs that link the library, and programs that dlopen it.

use super::{DENY, SIGSYS, plain};
use crate::support::{Done, libsandbox, probe, run};
use std::path::Path;
use std::process::Command;

fn include() -> String {
    format!("-I{}", Path::new(env!("CARGO_MANIFEST_DIR")).join("../libsandbox/include").display())
}

fn linked() -> Command {
    let library = libsandbox().to_str().expect("a plain path");
    let dir = libsandbox().parent().expect("it is in a directory").display();
    plain(&probe("abi", &[&include(), library, &format!("-Wl,-rpath,{dir}"), "-pthread"]))
}

fn opened() -> Command {
    let mut command = plain(&probe("abi", &[&include(), "-DDLOPEN", "-ldl", "-pthread"]));
    command.arg(libsandbox());
    command
}

#[track_caller]
fn install(mut command: Command, allow: &str, deny: &str, action: &str, how: &str) -> Done {
    run(command.args([allow, deny, action, how]))
}

#[test]
fn a_program_can_link_it_or_open_it() {
    for command in [linked, opened] {
        install(command(), "-", "getppid", "errno:EPROTO", "once")
            .exits(0)
            .prints("0 (the filter is in force) errno 0\ngetppid=71\n")
            .complains("");
        install(command(), "-", "getuid", "errno:EPROTO", "once")
            .exits(0)
            .prints("0 (the filter is in force) errno 0\ngetppid=0\n");
    }
}

#[test]
fn loading_it_does_nothing_unless_the_variables_say_so() {
    for command in [linked, opened] {
        install(command(), "-", "-", "-", "once")
            .exits(0)
            .prints("-6 (neither an allow list nor a deny list was given) errno 0\ngetppid=0\n");
        let mut confined = command();
        confined.env(DENY, "getppid").env("SECCOMP_DEFAULT_ACTION", "errno:EPROTO");
        install(confined, "-", "-", "-", "once")
            .exits(0)
            .prints("-6 (neither an allow list nor a deny list was given) errno 0\ngetppid=71\n");
    }
}

#[test]
fn null_for_the_action_is_kill() {
    install(linked(), "-", "getppid", "-", "once").dies_by(SIGSYS).prints("0 (the filter is in force) errno 0\n");
}

#[test]
fn allow_wins_over_deny() {
    let allow = "@basic:@threads:ioctl:newfstatat:brk";
    install(linked(), allow, "getppid", "errno:EPROTO", "once")
        .exits(0)
        .prints("0 (the filter is in force) errno 0\ngetppid=0\n");
}

#[test]
fn every_mistake_has_a_code_and_a_text() {
    let long = "x".repeat(128);
    for (deny, action, code, text) in [
        ("opne", "kill", -1, "unknown syscall"),
        ("@netwrok", "kill", -2, "unknown syscall group"),
        ("send", "kill", -3, "a syscall that has no number on this architecture"),
        (long.as_str(), "kill", -4, "an item longer than 127 bytes"),
        ("getppid", "allow", -5, "unknown action (kill, log, errno, errno:NAME or trap)"),
    ] {
        install(linked(), "-", deny, action, "once")
            .exits(0)
            .prints(&format!("{code} ({text}) errno 0\ngetppid=0\n"))
            .complains("");
    }
}

#[test]
fn a_refusal_of_the_kernel_leaves_errno() {
    // An outer filter makes seccomp itself fail with EXDEV.
    let mut outer = super::preloaded(Path::new("/usr/bin/env"));
    outer.envs([(DENY, "seccomp"), ("SECCOMP_DEFAULT_ACTION", "errno:EXDEV")]);
    outer.arg(linked().get_program());
    install(outer, "-", "getppid", "trap", "once")
        .exits(0)
        .prints("-8 (the kernel refused; errno says why) errno 18\ngetppid=0\n");
}

#[test]
fn a_thread_with_the_smallest_stack_can_install() {
    install(linked(), "-", "getppid:@network:@debug", "errno:EPROTO", "small-stack")
        .exits(0)
        .prints("0 (the filter is in force) errno 0\ngetppid=71\n");
}

#[test]
fn threads_can_install_at_once() {
    let once = "0 (the filter is in force) errno 0\n";
    install(linked(), "-", "getppid", "errno:EPROTO", "at-once")
        .exits(0)
        .prints(&format!("{}getppid=71\n", once.repeat(8)));
}
