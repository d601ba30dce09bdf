//! If the kernel refuses a step, so does the library. An outer filter or strace injects the kernel's errors.

use super::{ACTION, DENY, SENTINEL, plain, preloaded};
use crate::support::{Done, fresh, has, libsandbox, probe, run};
use std::path::Path;
use std::process::Command;

/// Runs the probe with these variables, inside a filter that answers EXDEV to one call.
#[track_caller]
fn without(call: &str, variables: &[(&str, &str)]) -> Done {
    let mut outer = preloaded(Path::new("/usr/bin/env"));
    outer.envs([(DENY, call), (ACTION, "errno:EXDEV")]);
    outer.args(variables.iter().map(|(name, value)| format!("{name}={value}")));
    run(outer.arg(probe("calls", &[])).arg("getppid"))
}

#[test]
fn each_step_that_the_kernel_refuses_is_named() {
    let filter = super::files::written("examine", &super::files::denying(&["getuid"]));
    let filter = filter.to_str().expect("a plain path");
    let list = (DENY, "getuid");
    type Row<'a> = (&'a str, Vec<(&'a str, &'a str)>, String);
    let rows: [Row<'_>; 6] = [
        ("prctl", vec![list], "the kernel refused no_new_privs: EXDEV".into()),
        ("seccomp", vec![list], "the kernel refused the seccomp filter: EXDEV".into()),
        ("rt_sigaction", vec![list, (ACTION, "trap")], "the kernel refused a handler for SIGSYS: EXDEV".into()),
        (
            "landlock_restrict_self",
            vec![("SANDBOX_FS_READ", "/")],
            "the kernel refused the Landlock rules: EXDEV".into(),
        ),
        (
            "landlock_add_rule",
            vec![("SANDBOX_FS_READ", "/")],
            "SANDBOX_FS_READ: cannot make a Landlock rule for '/': EXDEV".into(),
        ),
        ("fstat", vec![("SANDBOX_FILTER", filter)], format!("SANDBOX_FILTER: cannot examine '{filter}': EXDEV")),
    ];
    for (call, variables, line) in rows {
        // The control: if another call fails, the same variables work.
        without("swapon", &variables).exits(0).prints("getppid=ok\n").complains("");
        without(call, &variables).exits(1).prints("").complains(&format!("libsandbox: {line}\n"));
    }
}

#[test]
fn a_filter_that_cannot_be_read_is_named() {
    if !has("strace") {
        return;
    }
    let filter = super::files::written("read-error", &super::files::denying(&["getuid"]));
    let log = fresh("strace").join("log");
    let mut command = Command::new("strace");
    command.arg("-q").arg("-o").arg(log).arg("-P").arg(&filter).args(["-e", "inject=read:error=EIO"]);
    command.arg("-E").arg(format!("LD_PRELOAD={}", libsandbox().display()));
    command.arg("-E").arg(format!("SANDBOX_FILTER={}", filter.display()));
    run(command.arg(probe("calls", &[])).arg("getppid"))
        .exits(1)
        .prints("")
        .complains(&format!("libsandbox: SANDBOX_FILTER: cannot read '{}': EIO\n", filter.display()));
}

#[test]
fn a_thread_with_a_filter_of_its_own_is_a_refusal() {
    let library = probe("early", &["-shared", "-fPIC", "-pthread", "-DOWN_FILTER"]);
    let program = probe("late", &[library.to_str().expect("a plain path"), "-pthread"]);
    run(&mut plain(&program)).exits(0).prints("thread=0\n");
    let done = run(preloaded(&program).envs([(DENY, "getppid"), SENTINEL]));
    done.exits(1).prints("");
    let line = done.stderr();
    let number = line.strip_prefix("libsandbox: thread ");
    let number =
        number.and_then(|rest| rest.strip_suffix(" has its own seccomp filter, so ours cannot be applied to it\n"));
    assert!(number.is_some_and(|number| number.parse::<u32>().is_ok()), "{done}");
}
