//! libsandbox.so inside programs that work against it.

use super::{Hole, Severity};
use crate::run::{Gate, denials, layer, users};
use crate::support::{Done, libsandbox, probe, run};
use sandbox_contract::vars;
use std::path::{Path, PathBuf};
use std::process::Command;

pub const HOLES: &[Hole] = &[
    Hole {
        severity: Severity::Critical,
        attack: "a program that exports its own `environ`, under LD_PRELOAD with SANDBOX_REQUIRED=1",
        reached: "no filter and no error; `check` said `preload`",
        held_by: &["a_program_with_an_environ_of_its_own_is_confined"],
    },
    Hole {
        severity: Severity::Critical,
        attack: "the same program under an exact list of `gatekeeper run`",
        reached: "calls that are not on the list; the report said `enforced`",
        held_by: &["an_exact_list_holds_whatever_the_program_exports"],
    },
    Hole {
        severity: Severity::Critical,
        attack: "a program that exports its own `strlen`, `memcmp` or `memcpy`",
        reached: "no filter, because the library read its variables with these functions",
        held_by: &["no_function_of_the_program_is_called"],
    },
    Hole {
        severity: Severity::High,
        attack: "one of the program's libraries removes or changes our variables in its constructor",
        reached: "no filter, or a weaker one",
        held_by: &["variables_changed_before_main_are_an_error"],
    },
    Hole {
        severity: Severity::High,
        attack: "the same under `ld.so --argv0 NAME --preload LIB PROGRAM` without arguments",
        reached: "no filter",
        held_by: &["variables_changed_before_main_are_an_error"],
    },
    Hole {
        severity: Severity::Medium,
        attack: "under `trap`, a program that loads the library with dlopen, closes it and maps memory of its own there",
        reached: "its own code answered denied calls; write was open for any data at one address",
        held_by: &["a_closed_library_keeps_its_place"],
    },
    Hole {
        severity: Severity::Medium,
        attack: "a program that executes another one before its main, under an exact list",
        reached: "the loader's wider list stayed in force; the report said `enforced`",
        held_by: &["a_list_that_never_started_is_told"],
    },
];

const GETPPID: [(&str, &str); 3] = [(vars::DENY, "getppid"), (vars::ACTION, "errno:EPROTO"), (vars::REQUIRED, "1")];

/// Runs a program as every user, with these variables, with or without the library.
#[track_caller]
fn each(program: &PathBuf, preload: bool, variables: &[(&str, &str)], check: impl Fn(&Done)) {
    use std::os::unix::process::CommandExt;
    for user in users() {
        let mut command = Command::new(program);
        command.env_clear().env("KEPT", "1").envs(variables.iter().copied());
        if preload {
            command.env("LD_PRELOAD", libsandbox());
        }
        if *user == crate::run::User::Nobody {
            command.uid(65534).gid(65534);
        }
        check(&run(&mut command));
    }
}

fn with_environ() -> [PathBuf; 5] {
    [
        probe("surroundings", &["-DENVIRON"]),
        probe("surroundings", &["-DENVIRON", "-rdynamic"]),
        probe("surroundings", &["-DENVIRON", "-no-pie"]),
        probe("surroundings", &["-DENVIRONS", "-rdynamic"]),
        probe("surroundings", &["-DENVIRONS", "-no-pie"]),
    ]
}

#[test]
fn a_program_with_an_environ_of_its_own_is_confined() {
    for program in with_environ() {
        each(&program, false, &GETPPID, |done| {
            done.exits(0).prints("getppid=0\nours=3\ncalled=0\n");
        });
        each(&program, true, &GETPPID, |done| {
            done.exits(0).prints("getppid=71\nours=0\ncalled=0\n").complains("");
        });
        // Without variables the library does nothing, or with SANDBOX_REQUIRED fails.
        each(&program, true, &[], |done| {
            done.exits(0).prints("getppid=0\nours=0\ncalled=0\n").complains("");
        });
        each(&program, true, &[(vars::REQUIRED, "1")], |done| {
            done.exits(1).prints("");
        });
        each(&program, true, &[(vars::DENY, "getppid")], |done| {
            done.dies_by(libc::SIGSYS).prints("");
        });
    }
}

#[test]
fn an_exact_list_holds_whatever_the_program_exports() {
    let list = "write:exit_group:rt_sigreturn";
    let functions = probe("surroundings", &["-DFUNCTIONS", "-rdynamic", "-fno-builtin"]);
    for program in with_environ().into_iter().chain([functions]) {
        for user in users() {
            let (done, report) = Gate::profile(*user, "custom").flags(["--allow", list]).report([&program]);
            done.exits(0).prints("getppid=1\nours=0\ncalled=0\n");
            assert_eq!(denials(&report, "getppid").len(), 1, "{report:#}");
            assert_eq!(layer(&report, "seccomp").0, "enforced", "{report:#}");
            let gate = Gate::profile(*user, "custom").flags(["--allow", &format!("{list}:getppid")]);
            let (done, report) = gate.report([&program]);
            done.exits(0).prints("getppid=0\nours=0\ncalled=0\n");
            assert_eq!(report["denials"].as_array().map(Vec::len), Some(0), "{report:#}");
        }
    }
}

#[test]
fn no_function_of_the_program_is_called() {
    let program = probe("surroundings", &["-DFUNCTIONS", "-rdynamic", "-fno-builtin"]);
    each(&program, false, &GETPPID, |done| {
        done.exits(0).prints("getppid=0\nours=3\ncalled=0\n");
    });
    each(&program, true, &GETPPID, |done| {
        done.exits(0).prints("getppid=71\nours=0\ncalled=0\n").complains("");
    });
    // Also with the action that installs a handler, and with a filter from a file.
    each(&program, true, &[(vars::DENY, "getppid"), (vars::ACTION, "trap")], |done| {
        done.dies_by(libc::SIGSYS).complains("libsandbox: denied syscall getppid (110)\n");
    });
    each(&program, true, &[(vars::DENY, "opne")], |done| {
        done.exits(1).prints("");
    });
}

/// A program with a library whose constructor runs before ours and changes the environment in this way.
fn meddled(how: &str) -> PathBuf {
    let library = probe("meddler", &["-shared", "-fPIC", &format!("-DHOW={how}")]);
    probe("meddled", &[library.to_str().expect("a plain path")])
}

#[test]
fn variables_changed_before_main_are_an_error() {
    // unsetenv, putenv, setenv, a null in the array, another action.
    for how in ["1", "3", "4", "6", "7"] {
        let program = meddled(how);
        each(&program, false, &[], |done| {
            done.exits(0);
        });
        each(&program, true, &GETPPID, |done| {
            done.exits(1).prints("");
            let line = done.stderr();
            assert!(line.starts_with("libsandbox: S") && line.contains(" was changed before main"), "{done}");
        });
    }
    // clearenv leaves the initial array unchanged, and changes of other variables do not matter.
    each(&meddled("2"), true, &GETPPID, |done| {
        done.exits(0).prints("getppid=71\n").complains("");
    });
    each(&meddled("5"), true, &GETPPID, |done| {
        done.exits(0).prints("getppid=71\nSOMETHING=else\n").complains("");
    });
    // `ld.so PROGRAM` changes the layout of the initial stack.
    let loader = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"].map(PathBuf::from);
    let loader = loader.iter().find(|loader| loader.exists()).expect("glibc's loader");
    for (how, code) in [("4", 1), ("5", 0)] {
        let mut command = Command::new(loader);
        command.env_clear().envs(GETPPID).arg("--preload").arg(libsandbox()).arg(meddled(how));
        run(&mut command).exits(code);
    }
    // With --argv0, the program's only argument is the name, which precedes the loader's other arguments.
    for (how, code) in [("1", 1), ("3", 1), ("4", 1), ("6", 1), ("7", 1), ("2", 0), ("5", 0)] {
        // One variable, which the program removes, and as many as there are arguments between the name and the program.
        for variables in [&GETPPID[..1], &GETPPID] {
            for others in [&[][..], &[("A", "1"), ("B", "2")]] {
                for words in [&[][..], &["more"], &["", "more"]] {
                    let mut command = Command::new(loader);
                    command.env_clear().envs(variables.iter().chain(others).copied());
                    command.args(["--argv0", "name", "--preload"]).arg(libsandbox()).arg(meddled(how)).args(words);
                    let done = run(&mut command);
                    match code {
                        1 => done.exits(1).prints(""),
                        _ if variables.len() == 1 => done.dies_by(libc::SIGSYS),
                        _ => done.exits(0).complains(""),
                    };
                    assert!(code == 0 || done.stderr().contains(" was changed before main"), "{done}");
                }
            }
        }
    }
}

#[test]
fn a_closed_library_keeps_its_place() {
    let closer = |library: &Path, variables: &[(&str, &str)]| {
        let mut command = Command::new(probe("closer", &["-ldl"]));
        run(command.env_clear().envs(variables.iter().copied()).arg(library).arg("replace"))
    };
    let other = probe("meddler", &["-shared", "-fPIC", "-DHOW=0"]);
    closer(&other, &[]).exits(0).prints("replaced\ngetppid=ok\n");
    let trap = [(vars::DENY, "getppid"), (vars::ACTION, "trap")];
    let line = format!("libsandbox: denied syscall getppid ({})\n", libc::SYS_getppid);
    closer(libsandbox(), &trap).dies_by(libc::SIGSYS).prints("not replaced\n").complains(&line);
}

#[test]
fn a_list_that_never_started_is_told() {
    let library = probe("leaver", &["-shared", "-fPIC"]);
    let program = probe("left", &[library.to_str().expect("a plain path")]);
    let next = probe("calls", &["-static"]);
    for user in users() {
        let gate = Gate::profile(*user, "custom").flags(["--allow", "write:exit_group:execve"]);
        let (done, report) = gate.report([program.as_os_str(), next.as_os_str()]);
        // The loader's list includes openat, and this program never got past the loader.
        done.exits(0).prints("openat=9\n");
        let (status, detail) = layer(&report, "seccomp");
        assert_eq!(status, "partial", "{report:#}");
        assert!(detail.contains("did not come to main"), "{detail}");
    }
    // The control: a program that reaches main is confined by the exact list.
    let (done, report) = Gate::profile(users()[0], "custom")
        .flags(["--allow", "write:exit_group:execve"])
        .report([probe("calls", &[]).as_os_str(), "openat".as_ref()]);
    done.exits(0).prints("openat=1\n");
    assert_eq!(layer(&report, "seccomp").0, "enforced");
}
