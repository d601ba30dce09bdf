//! The back doors of x86_64: x32 syscall numbers and the i386 entry. They kill the process, whatever the lists say.

#![cfg(target_arch = "x86_64")]

use super::{ACTION, ALLOW, DENY, SENTINEL, SIGSYS, calls, plain};
use crate::support::{probe, run, skip};

#[test]
fn x32_numbers_are_killed() {
    // The control: a kernel without x32 answers ENOSYS, one with x32 makes the call. Neither kills.
    run(plain(&probe("calls", &[])).args(["getuid", "x32"])).exits(0);
    for variables in [[(DENY, "getppid"), SENTINEL], [(DENY, ""), (ACTION, "log")], [(ALLOW, "write:getuid"), SENTINEL]]
    {
        calls(&variables, &["getuid", "x32", "getuid"]).dies_by(SIGSYS).prints("getuid=ok\n");
    }
}

#[test]
fn i386_calls_are_killed() {
    if run(plain(&probe("calls", &[])).arg("i386")).stdout() != "i386=ok\n" {
        return skip("this kernel does not support i386 syscalls");
    }
    for variables in [[(DENY, "getppid"), SENTINEL], [(DENY, ""), (ACTION, "log")], [(ALLOW, "write:getuid"), SENTINEL]]
    {
        calls(&variables, &["getuid", "i386", "getuid"]).dies_by(SIGSYS).prints("getuid=ok\n");
    }
}

#[test]
fn the_call_that_a_tracer_skipped_is_an_unlisted_number() {
    calls(&[(DENY, "getppid"), SENTINEL], &["minus-one"]).exits(0).prints("minus-one=38\n");
    calls(&[(ALLOW, "write:exit_group"), SENTINEL], &["minus-one"]).exits(0).prints("minus-one=71\n");
}
