//! The npm package: installed into an empty project from its tarball, without a network.

use super::{copy_of, packed, top};
use crate::support::{fetched, fresh, has, run};
use std::path::Path;
use std::process::Command;

/// A project with the package and nothing else.
fn project() -> Option<std::path::PathBuf> {
    if !has("node") || !has("npm") {
        return None;
    }
    let tarball = packed("npm", None)?;
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(tarball.file_name(), Some(format!("gatekeeper-sandbox-{version}.tgz").as_ref()));
    let dir = fresh("project");
    std::fs::write(dir.join("package.json"), r#"{"private": true, "type": "module"}"#).expect("own directory");
    let mut npm = Command::new("npm");
    npm.args(["install", "--offline", "--silent", "--no-fund", "--no-audit"]).arg(&tarball).current_dir(&dir);
    run(&mut npm).exits(0);
    Some(dir)
}

#[test]
fn the_npm_package_is_installed_and_tested() {
    let Some(dir) = project() else { return };
    let mut tour = Command::new(dir.join("node_modules/.bin/gatekeeper"));
    run(tour.args(["run", "--", "echo", "hello"])).exits(0).prints("hello\n");
    std::fs::copy(top().join("bindings/node/test/gatekeeper.test.mjs"), dir.join("gatekeeper.test.mjs"))
        .expect("readable");
    let mut tests = Command::new("node");
    run(tests.args(["--test", "gatekeeper.test.mjs"]).current_dir(&dir).env_remove("GATEKEEPER")).exits(0);
}

#[test]
fn the_types_of_the_npm_package_are_those_of_its_sources() {
    let Some(packages) = fetched::node("typescript@7.0.2 @types/node@18.19.130") else { return };
    let modules = packages.join("node_modules");
    let tsc = |dir: &Path, words: &[&str]| {
        let mut tsc = Command::new(modules.join(".bin/tsc"));
        tsc.args(words).arg("--typeRoots").arg(modules.join("@types")).current_dir(dir);
        run(&mut tsc).exits(0).prints("");
    };
    let work = copy_of("bindings/node");
    let made = fresh("types");
    tsc(&work, &["-p", ".", "--outDir", made.to_str().expect("UTF-8")]);
    run(Command::new("diff").arg("-ru").arg(work.join("types")).arg(&made)).exits(0).prints("");
    // The test and the example use them as a stranger would.
    let stranger = fresh("stranger");
    let package = stranger.join("node_modules/gatekeeper-sandbox");
    std::fs::create_dir_all(package.parent().expect("a parent")).expect("own directory");
    run(Command::new("cp").arg("-r").arg(&work).arg(&package)).exits(0);
    std::fs::copy(top().join("examples/node/exec_tool.mjs"), stranger.join("exec_tool.mjs")).expect("readable");
    let strict = [
        "--noEmit",
        "--allowJs",
        "--checkJs",
        "--strict",
        "--target",
        "es2022",
        "--module",
        "nodenext",
        "--types",
        "node",
    ];
    tsc(&stranger, &[&strict[..], &["exec_tool.mjs"]].concat());
}
