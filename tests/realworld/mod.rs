//! Real projects do the same under gatekeeper as unconfined. `make realworld` runs all of scripts/realworld.toml; this, the
//! short ones.

use crate::support::{gatekeeper, run, skip};
use std::path::Path;
use std::process::Command;

#[test]
fn the_tests_of_real_projects_end_as_they_do_unconfined() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/realworld");
    // Fetched once, and kept beside the other results of the build.
    let work = Path::new(env!("CARGO_TARGET_TMPDIR")).join("realworld");
    let done = run(Command::new(script).arg("--short").arg("--gatekeeper").arg(gatekeeper()).arg("--work").arg(work));
    done.exits(0);
    for line in done.stdout().lines().filter_map(|line| line.strip_prefix("SKIPPED: ")) {
        skip(line);
    }
}
