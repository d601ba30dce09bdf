//! examples/rust, run as it stands, also by a user who owns nothing.

use crate::support::{Done, fresh, gatekeeper, run, skip};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An example, where every user may execute it.
pub fn example(name: &str) -> Option<PathBuf> {
    let built = gatekeeper().parent()?.join("examples").join(name);
    let copy = fresh("example").join(name);
    if !built.exists() {
        skip("the examples are not built; cargo test without --test builds them");
        return None;
    }
    // By another process: a fork of another test that holds it open for writing would keep it from being executed.
    run(Command::new("cp").arg(&built).arg(&copy)).exits(0);
    Some(copy)
}

pub fn users() -> Vec<Option<u32>> {
    // SAFETY: geteuid passes no memory.
    if unsafe { libc::geteuid() } == 0 { vec![None, Some(65534)] } else { vec![None] }
}

fn tool(example: &Path, user: Option<u32>, cwd: &Path, words: &[&str]) -> Done {
    let mut command = Command::new(example);
    command.args(words).current_dir(cwd).env("LC_ALL", "C");
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    run(&mut command)
}

#[test]
fn the_rust_example_streams_asks_and_times_out() {
    let Some(example) = example("exec_tool") else { return };
    for user in users() {
        let cwd = fresh("rust").canonicalize().expect("a fresh directory");
        tool(&example, user, &cwd, &["echo hello"]).exits(0).prints("| hello\nExited 0\n");
        let asked = format!("denied; to be granted: --write {}\n", cwd.display());
        let refused = tool(&example, user, &cwd, &["touch new"]);
        refused.exits(1).prints(&asked);
        assert!(!cwd.join("new").exists());
        tool(&example, user, &cwd, &["--yes", "touch new"]).exits(0).prints(&format!("{asked}Exited 0\n"));
        assert!(cwd.join("new").exists());
        tool(&example, user, &cwd, &["--timeout", "0.2", "sleep 60"]).exits(124).prints("Timeout 124\n");
    }
}
