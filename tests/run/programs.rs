//! Programs of every linkage are confined from their first instruction, and those that cannot be confined are refused.

use super::{Gate, denials, unprivileged, users};
use crate::support::{fresh, has, is_root, probe, run, skip};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Asserts that a program that exits with the errno of socket(AF_INET) is confined: EAFNOSUPPORT under `minimal`, 0
/// under `network`.
fn is_confined(program: &Path) {
    for user in users() {
        let (done, report) = Gate::new(*user).report([program]);
        done.exits(libc::EAFNOSUPPORT);
        assert_eq!(denials(&report, "socket").len(), 1, "{report:#}");
        Gate::profile(*user, "network").run([program]).exits(0);
        Gate::new(*user).flags(["--on-violation", "kill"]).run([program]).exits(159);
    }
    run(&mut Command::new(program)).exits(0);
}

#[test]
fn the_first_instruction_is_confined() {
    for flags in [&["-static", "-nostdlib"][..], &["-static-pie", "-nostdlib"]] {
        is_confined(&probe("first", flags));
    }
}

#[test]
fn constructors_of_dynamic_and_static_programs_are_confined() {
    for flags in [&[][..], &["-static"], &["-static-pie"], &["-no-pie"]] {
        is_confined(&probe("socket", flags));
    }
}

fn compiled(compiler: &[&str], source: &str, name: &str) -> PathBuf {
    let dir = fresh("compiled");
    let (from, to) = (dir.join(name), dir.join("program"));
    fs::write(&from, source).unwrap();
    let mut command = Command::new(compiler[0]);
    command
        .args(&compiler[1..])
        .arg("-o")
        .arg(&to)
        .arg(&from)
        .env("GOCACHE", dir.join("cache"))
        .env("CGO_ENABLED", "0");
    command.env("HOME", &dir);
    run(&mut command).exits(0);
    fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).unwrap();
    to
}

const SOCKET: &str =
    "#include <errno.h>\n#include <sys/socket.h>\nint main(void){return socket(AF_INET,SOCK_STREAM,0)<0?errno:0;}\n";

#[test]
fn musl_programs_are_confined() {
    if !has("musl-gcc") {
        return;
    }
    is_confined(&compiled(&["musl-gcc", "-static"], SOCKET, "x.c"));
    is_confined(&compiled(&["musl-gcc"], SOCKET, "x.c"));
}

#[test]
fn go_programs_are_confined() {
    if !has("go") {
        return;
    }
    let source = "package main\nimport (\"os\"; \"syscall\")\nfunc main() { _, err := syscall.Socket(2, 1, 0); if err != nil { os.Exit(int(err.(syscall.Errno))) } }\n";
    is_confined(&compiled(&["go", "build"], source, "main.go"));
}

#[test]
fn setuid_gives_nothing_and_is_confined() {
    let dir = fresh("setuid");
    let program = dir.join("program");
    let source = "#define _GNU_SOURCE\n#include <stdio.h>\n#include <errno.h>\n#include <sys/socket.h>\n#include <unistd.h>\nint main(void){int e=socket(2,1,0)<0?errno:0;printf(\"%d %d\\n\",(int)(geteuid()==getuid()),e);return 0;}\n";
    let built = compiled(&["cc"], source, "x.c");
    fs::copy(&built, &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    let (done, report) = Gate::new(unprivileged()).report([&program]);
    done.exits(0).prints("1 97\n");
    if !is_root() {
        return skip("only root can make a program setuid to another user");
    }
    assert_eq!(report["verdict"]["reasons"][0]["code"], "setuid", "{report:#}");
    assert_eq!(report["verdict"]["verdict"], "enforce");
}

#[test]
fn a_program_that_may_not_be_read_is_run_by_its_descriptor() {
    let dir = fresh("unreadable");
    let program = dir.join("program");
    fs::copy(probe("socket", &[]), &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o711)).unwrap();
    for user in users() {
        Gate::new(*user).run([&program]).exits(libc::EAFNOSUPPORT);
        Gate::profile(*user, "network").run([&program]).exits(0);
    }
}

#[test]
fn foreign_and_broken_programs_are_refused() {
    let elf = fs::read(probe("first", &["-static", "-nostdlib"])).unwrap();
    let changed = |at: usize, bytes: &[u8]| {
        let mut elf = elf.clone();
        elf[at..at + bytes.len()].copy_from_slice(bytes);
        elf
    };
    for (name, bytes, code) in [
        ("arm", changed(18, &[0xb7, 0]), "wrong_machine"),
        ("i386", changed(18, &[3, 0]), "wrong_class"),
        ("short", elf[..40].to_vec(), "corrupt"),
        ("empty", Vec::new(), "corrupt"),
        ("junk", b"\x00\x01\x02\x03 junk".to_vec(), "corrupt"),
    ] {
        let gate = Gate::new(unprivileged());
        let program = gate.file(name, bytes);
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let (done, report) = gate.report([&program]);
        done.exits(126).prints("");
        assert_eq!(report["outcome"], "refused", "{name}");
        let codes: Vec<_> =
            report["verdict"]["reasons"].as_array().unwrap().iter().map(|r| r["code"].clone()).collect();
        assert!(codes.iter().any(|found| found == code), "{name}: {codes:?}");
    }
    // The kernel ignores the ELF class, so such a file runs, and is confined like any other.
    let gate = Gate::new(unprivileged());
    let program = gate.file("class32", changed(4, &[1]));
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    gate.run([&program]).exits(libc::EAFNOSUPPORT);
}

fn script(gate: &Gate, name: &str, text: &str) -> PathBuf {
    let path = gate.file(name, text);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn scripts_run_as_the_kernel_would_run_them() {
    for user in users() {
        let gate = Gate::new(*user);
        let plain = script(&gate, "plain", "#!/bin/sh\necho \"$0\" \"$@\"\n");
        gate.run([plain.to_str().unwrap(), "a b", "c"]).exits(0).prints(&format!("{} a b c\n", plain.display()));
        gate.run(["./plain", "x"]).exits(0).prints("./plain x\n");
        let env = script(&gate, "env", "#!/usr/bin/env sh\necho \"$0\" \"$1\"\n");
        gate.run([env.to_str().unwrap(), "y"]).exits(0).prints(&format!("{} y\n", env.display()));
        let split = script(&gate, "split", "#!/usr/bin/env -S sh -e\nfalse\necho never\n");
        gate.run([&split]).exits(1).prints("");
        let argument = script(&gate, "argument", "#!/bin/sh -e\nfalse\necho never\n");
        gate.run([&argument]).exits(1).prints("");
        // A script whose interpreter is a script, and one whose interpreter is missing.
        let outer = script(&gate, "outer", &format!("#!{}\nignored\n", plain.display()));
        gate.run([&outer]).exits(0).prints(&format!("{} {}\n", plain.display(), outer.display()));
        let missing = script(&gate, "missing", "#!/no/such/interpreter\n");
        gate.run([&missing]).exits(127);
        if has("python3") {
            let python = script(
                &gate,
                "python",
                "#!/usr/bin/env python3\nimport socket\ntry:\n  socket.socket()\n  print('open')\nexcept OSError as e:\n  print(e.errno)\n",
            );
            gate.run([&python]).exits(0).prints("97\n");
        }
    }
}

/// Names are looked up in the caller's PATH, and never in other directories.
#[test]
fn names_are_looked_up_in_the_callers_path() {
    let gate = Gate::new(unprivileged());
    script(&gate, "bin/tool", "#!/bin/sh\necho tool\n");
    script(&gate, "here", "#!/bin/sh\necho here\n");
    let gate = gate.env("PATH", "bin:/usr/bin:/bin");
    gate.run(["tool"]).exits(0).prints("tool\n");
    gate.run(["here"]).exits(127);
    gate.run(["./here"]).exits(0).prints("here\n");
}

/// The checked file is executed, even if another file has replaced it in the meantime.
#[test]
fn the_checked_file_is_the_executed_file() {
    let gate = Gate::new(unprivileged());
    let good = script(&gate, "program", "");
    let swap = gate.dir.join("other");
    fs::copy(probe("act", &[]), &swap).unwrap();
    fs::remove_file(&good).unwrap();
    fs::copy(probe("socket", &[]), &good).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let _ = rustix::fs::renameat_with(
                    rustix::fs::CWD,
                    &good,
                    rustix::fs::CWD,
                    &swap,
                    rustix::fs::RenameFlags::EXCHANGE,
                );
            }
        });
        for _ in 0..40 {
            let (done, report) = gate.report([good.to_str().unwrap(), "exit", "3"]);
            let code = done.code().unwrap();
            assert!([libc::EAFNOSUPPORT, 3].contains(&code), "{done}");
            assert_eq!(report["exit_code"], code);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

/// LeakSanitizer traces its own process. Where ptrace is denied it is off: a program without leaks would fail.
#[test]
fn a_program_with_address_sanitizer_ends_as_it_does_unconfined() {
    let gate = Gate::profile(unprivileged(), "write");
    gate.file("clean.c", "int main(void) { return 0; }");
    gate.file("leak.c", "#include <stdlib.h>\nvoid *volatile p; int main(void) { p = malloc(9); p = 0; return 0; }");
    for name in ["clean", "leak"] {
        gate.run(["gcc", "-fsanitize=address", "-o", name, &format!("{name}.c")]).exits(0);
    }
    gate.run(["./clean"]).exits(0);
    gate.run(["./leak"]).exits(0);
    gate.run(["sh", "-c", "grep ^leaks: $GATEKEEPER_SUMMARY"]).exits(0);
    // With ptrace it works.
    let gate = gate.flags(["--allow", "ptrace"]);
    gate.run(["./clean"]).exits(0);
    let leaks = gate.run(["./leak"]);
    assert!(leaks.stderr().contains("9 byte(s) leaked"), "{leaks}");
    gate.run(["sh", "-c", "grep ^leaks: $GATEKEEPER_SUMMARY"]).exits(1);
}
