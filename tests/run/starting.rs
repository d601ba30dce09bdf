//! How the program itself starts, whichever C library it is built with: its arguments, and too little memory.

use super::{Gate, gatekeeper, unprivileged};
use crate::support::Done;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

#[test]
fn every_argument_reaches_the_command_as_it_is() {
    let gate = Gate::new(unprivileged());
    let long = "x".repeat(100_000);
    let words = ["printf", "<%s>", "", "two words", "--version", "-", &long].map(OsStr::new);
    let words = words.into_iter().chain([OsStr::from_bytes(b"\xff\xfe\n"), OsStr::new("last")]);
    let done = gate.run(words);
    done.exits(0);
    let expected = [b"<><two words><--version><-><", long.as_bytes(), b"><\xff\xfe\n><last>"].concat();
    assert!(done.output.stdout == expected, "{done}");
}

#[test]
fn the_name_it_is_started_by_does_not_matter() {
    for name in ["", "gatekeeper-by-another-name", "run"] {
        let mut command = Command::new(gatekeeper());
        command.arg0(name).args(["run", "--quiet", "--", "echo", "started"]).current_dir("/");
        let output = command.output().expect("gatekeeper starts");
        Done { shown: format!("{command:?}"), output }.exits(0).prints("started\n");
    }
}

/// Finds the address space with which the program just starts, and takes some of it away again.
#[test]
fn too_little_memory_is_125_with_a_message() {
    const STEP: u64 = 16 << 10;
    let start = |steps: u64| {
        let mut command = Command::new(gatekeeper());
        command.args(["run", "--help"]).env_clear();
        let limit = libc::rlimit { rlim_cur: steps * STEP, rlim_max: steps * STEP };
        // SAFETY: both calls are async-signal-safe, and setrlimit reads a value that the closure owns.
        unsafe {
            command.pre_exec(move || {
                // With the stack at a random place, what a start needs differs by a page: near the limit, some starts succeed.
                libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong);
                match libc::setrlimit(libc::RLIMIT_AS, &limit) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                }
            })
        };
        Done {
            shown: format!("{command:?} with {} KB", (steps * STEP) >> 10),
            output: command.output().expect("it can be executed"),
        }
    };
    let (mut too_little, mut enough) = (0, (1 << 30) / STEP);
    start(enough).exits(0);
    while enough - too_little > 1 {
        let middle = too_little.midpoint(enough);
        // With very little, the kernel kills the program before its first instruction.
        match start(middle).output.status.success() {
            true => enough = middle,
            false => too_little = middle,
        }
    }
    let mut told = false;
    for steps in enough.saturating_sub(48)..enough {
        let done = start(steps);
        assert_ne!(done.signal(), Some(libc::SIGABRT), "{done}");
        match done.code() {
            Some(125) => told = done.complains("gatekeeper: out of memory\n").code().is_some(),
            // The kernel ends the program during exec; glibc, before its main, exits with 127.
            None | Some(127) => {}
            Some(_) => panic!("{done}"),
        }
    }
    assert!(told, "never told, below {} KB", (enough * STEP) >> 10);
}
