//! The Go module: vetted, and tested with the race detector.

use super::copy_of;
use crate::support::{Done, fresh, gatekeeper, has, run};
use std::path::Path;
use std::process::Command;

fn go(at: &Path, words: &[&str]) -> Done {
    let mut go = Command::new("go");
    go.args(words).current_dir(at).env("GOPROXY", "off").env("GOFLAGS", "").env("GATEKEEPER", gatekeeper());
    // Kept, because the race detector needs a standard library of its own.
    run(go.env("GOCACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-cache")).env("CGO_ENABLED", "1"))
}

#[test]
fn the_go_module_is_vetted_and_tested_for_races() {
    if !has("go") || !has("gcc") {
        return;
    }
    let dir = copy_of("bindings/go");
    run(Command::new("gofmt").args(["-l", "."]).current_dir(&dir)).exits(0).prints("");
    go(&dir, &["vet", "./..."]).exits(0);
    go(&dir, &["test", "-race", "./..."]).exits(0);
}

/// Another module uses it by the line of the README, from an unpacked source archive.
#[test]
fn a_module_uses_the_package_by_the_line_of_the_readme() {
    if !has("go") || !has("gcc") {
        return;
    }
    let top = fresh("go");
    let bindings = top.join("libsandbox/bindings");
    std::fs::create_dir_all(&bindings).expect("own directory");
    std::fs::rename(copy_of("bindings/go"), bindings.join("go")).expect("the same file system");
    let module = top.join("module");
    std::fs::create_dir(&module).expect("own directory");
    std::fs::write(module.join("main.go"), USER).expect("own directory");
    go(&module, &["mod", "init", "module.example/user"]).exits(0);
    let readme = std::fs::read_to_string(bindings.join("go/README.md")).expect("the package has one");
    let line = readme.lines().find_map(|line| line.strip_prefix("    go ")).expect("a line for go.mod");
    go(&module, &line.split(' ').collect::<Vec<_>>()).exits(0);
    go(&module, &["run", "."]).exits(0).prints("hello\n");
}

const USER: &str = r#"package main

import (
	"context"
	"fmt"

	"gatekeeper.example/sandbox"
)

func main() {
	report, err := sandbox.Runner{Profiles: []string{"read"}}.Run(context.Background(), "echo", "hello")
	if err != nil {
		panic(err)
	}
	fmt.Print(string(report.Stdout))
}
"#;
