//! The packages for Rust's registry: each holds every file that it is built from.

use super::top;
use crate::support::{fresh, libsandbox, run, skip};
use std::path::{Path, PathBuf};
use std::process::Command;

fn cargo(words: &[&str], at: &Path) -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(words).current_dir(at);
    for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_TARGET_DIR", "CARGO_BUILD_TARGET_DIR"] {
        cargo.env_remove(name);
    }
    cargo
}

fn files(package: &str) -> Vec<String> {
    let done = run(&mut cargo(&["package", "--list", "--offline", "--allow-dirty", "-p", package], &top()));
    done.exits(0);
    done.stdout().lines().map(str::to_owned).collect()
}

/// The files of a directory and below that cargo compiles.
fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("readable").flatten() {
        match entry.path() {
            path if path.is_dir() => sources(&path, found),
            path => found.push(path),
        }
    }
}

#[test]
fn every_crate_holds_its_sources_and_nothing_else() {
    for (package, directory) in [
        ("sandbox-contract", "libsandbox/contract"),
        ("libsandbox-embed", "."),
        ("gatekeeper-sandbox", "gatekeeper"),
        ("gatekeeperd", "gatekeeperd"),
    ] {
        let held = files(package);
        let at = top().join(directory);
        let mut needed = Vec::new();
        sources(&at.join("src"), &mut needed);
        for file in needed {
            let name = file.strip_prefix(&at).expect("below it").display().to_string();
            assert!(held.contains(&name), "{package} lacks {name}");
        }
        for other in ["bindings/", "examples/", ".ci/", "scripts/"] {
            assert!(!held.iter().any(|file| file.starts_with(other)), "{package} holds {other}");
        }
    }
    let held = files("gatekeeper-sandbox");
    assert!(held.iter().any(|file| file == "schemas/policy-schema.json"), "{held:?}");
}

/// libsandbox-embed is the package that builds others: from the packaged files alone, it gives the library that gatekeeper carries.
#[test]
fn the_packaged_crate_builds_the_same_library() {
    if std::env::var_os("LIBSANDBOX_SO").is_some() {
        return skip("gatekeeper embeds a library that was built elsewhere (LIBSANDBOX_SO)");
    }
    let work = fresh("crate");
    let target = work.join("target");
    let packed =
        ["package", "--no-verify", "--offline", "--allow-dirty", "--quiet", "-p", "libsandbox-embed", "--target-dir"];
    run(cargo(&packed, &top()).arg(&target)).exits(0);
    let name = format!("libsandbox-embed-{}", env!("CARGO_PKG_VERSION"));
    let mut tar = Command::new("tar");
    run(tar.arg("-xzf").arg(target.join(format!("package/{name}.crate"))).arg("-C").arg(&work)).exits(0);
    let unpacked = work.join(name);
    run(cargo(&["build", "--quiet", "--offline", "--target-dir"], &unpacked).arg(&target)).exits(0);
    let outputs = std::fs::read_dir(target.join("debug/build")).expect("it was built").flatten();
    let built: Vec<PathBuf> =
        outputs.map(|entry| entry.path().join("out")).filter(|out| out.join("source").exists()).collect();
    let [out] = &built[..] else { panic!("one build: {built:?}") };
    let bytes = |path: PathBuf| std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(
        bytes(out.join("libsandbox.so")) == bytes(libsandbox().to_owned()),
        "the packaged sources give another library"
    );
    assert!(bytes(out.join("gatekeeper-guardian")).starts_with(b"\x7fELF"));
}
