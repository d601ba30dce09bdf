//! Real projects do the same under gatekeeper as unconfined. `make realworld` runs all of scripts/realworld.toml; this, the
//! short ones.

use crate::support::{gatekeeper, is_root, run, skip};
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn the_tests_of_real_projects_end_as_they_do_unconfined() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/realworld");
    // Fetched once, and kept beside the other results of the build.
    let mut work = Path::new(env!("CARGO_TARGET_TMPDIR")).join("realworld");
    // A run that works below /tmp has no private /tmp, which Java needs.
    let elsewhere = ["/tmp", "/var/tmp"].iter().any(|shared| work.starts_with(shared));
    if elsewhere && !is_root() {
        return skip("the build directory is below /tmp, and only root can use another one");
    }
    if elsewhere {
        work = PathBuf::from(format!("/var/cache/gatekeeper-tests-{}", std::process::id()));
    }
    let mut command = Command::new(script);
    let done = run(command.arg("--short").arg("--gatekeeper").arg(gatekeeper()).arg("--work").arg(&work));
    if elsewhere {
        std::fs::remove_dir_all(&work).expect("own directory");
    }
    done.exits(0);
    for line in done.stdout().lines().filter_map(|line| line.strip_prefix("SKIPPED: ")) {
        skip(line);
    }
}
