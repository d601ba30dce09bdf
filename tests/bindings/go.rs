//! The Go module: vetted, and tested with the race detector.

use super::copy_of;
use crate::support::{gatekeeper, has, run};
use std::path::Path;
use std::process::Command;

#[test]
fn the_go_module_is_vetted_and_tested_for_races() {
    if !has("go") || !has("gcc") {
        return;
    }
    let dir = copy_of("bindings/go");
    let go = |words: &[&str]| {
        let mut go = Command::new("go");
        go.args(words).current_dir(&dir).env("GOPROXY", "off").env("GOFLAGS", "").env("GATEKEEPER", gatekeeper());
        // Kept, because the race detector needs a standard library of its own.
        run(go.env("GOCACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-cache")).env("CGO_ENABLED", "1"))
    };
    run(Command::new("gofmt").args(["-l", "."]).current_dir(&dir)).exits(0).prints("");
    go(&["vet", "./..."]).exits(0);
    go(&["test", "-race", "./..."]).exits(0);
}
