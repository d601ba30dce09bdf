//! The programs of examples/c: built by pkg-config against what is installed, they confine themselves.

use super::{copy_of, top};
use crate::support::{fresh, gatekeeper, libsandbox, run};
use std::process::Command;

#[test]
fn the_c_examples_confine_themselves() {
    let prefix = fresh("prefix");
    let mut make = Command::new("make");
    make.args(["-s", "-C"]).arg(top()).arg("install-files").arg(format!("PREFIX={}", prefix.display()));
    make.arg(format!("GATEKEEPER={}", gatekeeper().display())).arg(format!("LIBSANDBOX={}", libsandbox().display()));
    run(make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").env_remove("MFLAGS")).exits(0);
    let dir = copy_of("examples/c");
    let build = |line: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).current_dir(&dir).env("PKG_CONFIG_LIBDIR", prefix.join("lib/pkgconfig"));
        run(shell.env("PREFIX", &prefix)).exits(0).complains("");
    };
    build(
        "cc -Wall -Wextra -Werror linked.c $(pkg-config --cflags --libs libsandbox) -Wl,-rpath,\"$PREFIX/lib\" -o linked",
    );
    build("cc -Wall -Wextra -Werror loaded.c $(pkg-config --cflags libsandbox) -ldl -o loaded");
    let plain = |program: &str| {
        let mut command = Command::new(dir.join(program));
        command.current_dir(&dir).env("LC_ALL", "C");
        command
    };
    let denied = "socket: Permission denied\nexecve: Permission denied\n";
    run(&mut plain("linked")).exits(0).prints(denied);
    // What it links is the interface, not the file.
    let needs = run(Command::new("objdump").arg("-p").arg(dir.join("linked"))).stdout();
    assert!(needs.contains("LIBSANDBOX_1"), "{needs}");

    std::fs::write(dir.join("a"), "").expect("own directory");
    run(plain("loaded").arg(prefix.join("lib/libsandbox.so"))).exits(0).prints("rename: Read-only file system\n");
    assert!(dir.join("a").exists() && !dir.join("b").exists());
    run(plain("loaded").arg("/nonexistent/libsandbox.so")).exits(125).prints("");
    // Another library under that name does not pass for it.
    run(plain("loaded").arg("libc.so.6")).exits(125).prints("");
}
