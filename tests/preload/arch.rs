//! The back doors of x86_64: the numbers of x32, and the i386 entry. They are killed whatever the lists say.

#![cfg(target_arch = "x86_64")]

use super::{ACTION, ALLOW, DENY, SENTINEL, SIGSYS, calls, plain};
use crate::support::{probe, run, skip};

#[test]
fn x32_numbers_are_killed() {
    // The control: a kernel without x32 answers ENOSYS, one with it the call's own answer; none kills.
    run(plain(&probe("calls", &[])).args(["getuid", "x32"])).exits(0);
    for variables in [[(DENY, "getppid"), SENTINEL], [(DENY, ""), (ACTION, "log")], [(ALLOW, "write:getuid"), SENTINEL]]
    {
        calls(&variables, &["getuid", "x32", "getuid"]).dies_by(SIGSYS).prints("getuid=ok\n");
    }
}

#[test]
fn i386_calls_are_killed() {
    if run(plain(&probe("calls", &[])).arg("i386")).stdout() != "i386=ok\n" {
        return skip("this kernel has no i386 calls");
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
