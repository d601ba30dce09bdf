//! examples/rust, run as it stands, also by a user who owns nothing.

use crate::support::{Done, fresh, gatekeeper, run, scratch, skip};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The example, where every user may execute it.
fn example() -> Option<PathBuf> {
    let built = gatekeeper().parent()?.join("examples/exec_tool");
    let copy = scratch().join("exec_tool_rust");
    if !built.exists() {
        skip("examples/exec_tool is not built; cargo test without --test builds it");
        return None;
    }
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| assert!(std::fs::copy(&built, &copy).is_ok(), "the scratch directory is writable"));
    Some(copy)
}

fn users() -> Vec<Option<u32>> {
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
    let Some(example) = example() else { return };
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
