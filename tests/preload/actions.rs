//! The actions for denied calls: kill, log, an errno, or a line and then death.

use super::{ACTION, ALLOW, DENY, SIGSYS, calls, plain, preloaded};
use crate::support::{fresh, has, libsandbox, probe, run};
use sandbox_contract::action::Action;
use std::process::Command;

#[test]
fn kill_is_the_default_and_ends_the_process_by_sigsys() {
    for action in [&[][..], &[(ACTION, "kill")]] {
        let mut variables = action.to_vec();
        variables.push((DENY, "getppid"));
        calls(&variables, &["getuid", "getppid", "getuid"]).dies_by(SIGSYS).prints("getuid=ok\n").complains("");
    }
}

#[test]
fn a_shell_sees_status_159() {
    let done = run(Command::new("sh")
        .args(["-c", "\"$@\"; echo $?", "sh", "/usr/bin/env"])
        .arg(format!("LD_PRELOAD={}", libsandbox().display()))
        .arg("SECCOMP_SYSCALL_DENY=getppid")
        .arg(probe("calls", &[]))
        .arg("getppid"));
    done.exits(0).prints("159\n");
}

#[test]
fn log_lets_the_call_through() {
    for list in [(DENY, "getppid"), (ALLOW, "write:exit_group:prctl")] {
        calls(&[list, (ACTION, "log")], &["getppid", "seccomp"])
            .exits(0)
            .prints("getppid=ok\nseccomp=2\n")
            .complains("");
    }
}

#[test]
fn errno_is_eperm_unless_it_is_named() {
    for (action, errno) in [
        ("errno", 1),
        ("errno:EACCES", 13),
        ("errno:ENOTEMPTY", 39),
        ("errno:ENOTSUP", 95),
        ("errno:13", 13),
        ("errno:4095", 4095),
    ] {
        calls(&[(DENY, "getppid"), (ACTION, action)], &["getppid", "getuid"])
            .exits(0)
            .prints(&format!("getppid={errno}\ngetuid=ok\n"));
    }
}

#[test]
fn every_errno_that_python_knows_is_an_action() {
    if !has("python3") {
        return;
    }
    let script = "import errno; [print(name, number) for name, number in vars(errno).items() if name[0] == 'E']";
    let names = run(Command::new("python3").args(["-c", script])).exits(0).stdout();
    assert!(names.lines().count() >= 130, "{names}");
    for line in names.lines() {
        let (name, number) = line.split_once(' ').expect("a name and a number");
        let number = number.parse().expect("a number");
        assert_eq!(Action::parse(format!("errno:{name}").as_bytes()), Some(Action::Errno(number)), "{name}");
    }
}

#[test]
fn trap_names_the_call_and_then_kills_by_sigsys() {
    let number = if cfg!(target_arch = "x86_64") { 110 } else { 173 };
    calls(&[(DENY, "getppid"), (ACTION, "trap")], &["getuid", "getppid", "getuid"])
        .dies_by(SIGSYS)
        .prints("getuid=ok\n")
        .complains(&format!("libsandbox: denied syscall getppid ({number})\n"));
}

#[test]
fn trap_under_an_allow_list_can_still_speak() {
    let stderr = calls(&[(ALLOW, ""), (ACTION, "trap")], &["getppid"]);
    // The list allows nothing, so the probe's first call is denied. The line appears although `write` is not listed.
    assert!(stderr.stderr().starts_with("libsandbox: denied syscall "), "{stderr}");
    stderr.dies_by(SIGSYS).prints("");
    calls(&[(ALLOW, "getppid:exit_group"), (ACTION, "trap")], &["getppid"])
        .dies_by(SIGSYS)
        .prints("")
        .complains(&format!("libsandbox: denied syscall write ({})\n", libc::SYS_write));
}

#[test]
fn trap_names_a_number_that_has_no_name() {
    calls(&[(ALLOW, "write"), (ACTION, "trap")], &["beyond"])
        .dies_by(SIGSYS)
        .complains("libsandbox: denied syscall unknown (1500)\n");
    // 1 is write, which the list allows.
    calls(&[(ALLOW, "write"), (ACTION, "trap")], &["minus-one"])
        .dies_by(SIGSYS)
        .complains("libsandbox: denied syscall unknown (-1)\n");
}

#[test]
fn trap_outlives_a_handler_of_the_programs_own() {
    // The control: with another action, the program's own handler is called for a signal that it raises.
    calls(&[(DENY, "getppid"), (ACTION, "errno")], &["own-handler", "raise"])
        .exits(0)
        .prints("own-handler=ok\nown handler=called\nraise=ok\n");
    calls(&[(DENY, "getppid"), (ACTION, "trap")], &["own-handler", "getppid"])
        .dies_by(SIGSYS)
        .prints("own-handler=ok\n")
        .complains(&format!("libsandbox: denied syscall getppid ({})\n", libc::SYS_getppid));
}

#[test]
fn a_sigsys_that_somebody_sends_kills_without_a_line() {
    calls(&[(DENY, "getppid"), (ACTION, "trap")], &["raise", "getuid"]).dies_by(SIGSYS).prints("").complains("");
}

#[test]
fn trap_speaks_even_if_sigsys_was_blocked_by_the_parent() {
    // Python can block a signal for its children, bash cannot.
    let script = "import os, signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGSYS}); os.execv(sys.argv[1], sys.argv[1:])";
    if !has("python3") {
        return;
    }
    let done = run(Command::new("python3")
        .args(["-c", script, "/usr/bin/env"])
        .arg(format!("LD_PRELOAD={}", libsandbox().display()))
        .args(["SECCOMP_SYSCALL_DENY=getppid", "SECCOMP_DEFAULT_ACTION=trap"])
        .arg(probe("calls", &[]))
        .arg("getppid"));
    done.dies_by(SIGSYS).complains(&format!("libsandbox: denied syscall getppid ({})\n", libc::SYS_getppid));
}

#[test]
fn trap_in_a_child_of_vfork_does_not_silence_its_parent() {
    let done = run(preloaded(&probe("trapped", &["-pthread"]))
        .arg("vfork")
        .envs([(DENY, "getppid:getuid"), (ACTION, "trap")]));
    done.dies_by(SIGSYS).complains(&format!(
        "libsandbox: denied syscall getppid ({})\nlibsandbox: denied syscall getuid ({})\n",
        libc::SYS_getppid,
        libc::SYS_getuid
    ));
}

#[test]
fn trap_holds_after_the_program_has_closed_the_library() {
    let closer = |deny: &str| {
        let mut command = plain(&probe("closer", &["-ldl"]));
        command.arg(libsandbox()).envs([(DENY, deny), (ACTION, "trap")]);
        run(&mut command)
    };
    closer("getuid").exits(0).prints("getppid=ok\n").complains("");
    closer("getppid")
        .dies_by(SIGSYS)
        .prints("")
        .complains(&format!("libsandbox: denied syscall getppid ({})\n", libc::SYS_getppid));
}

/// The limit of `trap` that libsandbox(7) states: the program may live on, but its call is never made.
#[test]
fn trap_denies_the_call_even_if_the_program_survives() {
    let survivor = |variables: &[(&str, &str)]| {
        let mut command = preloaded(&probe("trapped", &["-pthread"]));
        run(command.arg("survive").current_dir(fresh("survivor")).envs(variables.iter().copied()))
    };
    survivor(&[]).exits(0);
    survivor(&[(DENY, "mkdirat"), (ACTION, "trap")]).exits(5).complains("");
    survivor(&[(DENY, "mkdirat"), (ACTION, "kill")]).dies_by(SIGSYS);
}

#[test]
fn trap_uses_an_alternate_stack_where_there_is_one() {
    run(preloaded(&probe("trapped", &["-pthread"])).arg("small-stack").envs([(DENY, "getppid"), (ACTION, "trap")]))
        .exits(0);
}
