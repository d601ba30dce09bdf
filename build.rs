//! Builds libsandbox and the guardian program with a nested cargo and passes their bytes to `src/lib.rs`.
//!
//! The nested cargo uses a separate target directory, because sharing the outer one would deadlock on cargo's lock.
//! In a package of cargo, their sources are in `packaged/`, and the tree is restored from there.
//! `LIBSANDBOX_SO=path` and `GATEKEEPER_GUARDIAN=path` embed those files instead, for packagers and cross builds.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    for variable in ["LIBSANDBOX_SO", "GATEKEEPER_GUARDIAN"] {
        println!("cargo:rerun-if-env-changed={variable}");
    }
    let sources = [
        "build.rs",
        "Cargo.lock",
        "Cargo.toml",
        "libsandbox",
        "gatekeeper/guardian",
        "gatekeeper/src/sys",
        "gatekeeper/src/operation.rs",
        "gatekeeper/src/trust/remove.rs",
        "gatekeeper/src/trust/text.rs",
    ];
    for source in sources {
        println!("cargo:rerun-if-changed={source}");
    }
    let target = env::var("TARGET").expect("cargo sets TARGET");
    let library = match env::var_os("LIBSANDBOX_SO") {
        Some(path) => Some(PathBuf::from(path)),
        // The preload always targets glibc, even if the program that embeds it is built for musl.
        None => build("libsandbox", &target.replace("-musl", "-gnu"), "", "LIBSANDBOX_SO")
            .map(|built| built.join("libsandbox.so")),
    };
    embed(library, "libsandbox.so", "embedded.rs");
    let guardian = match env::var_os("GATEKEEPER_GUARDIAN") {
        Some(path) => Some(PathBuf::from(path)),
        None => build("gatekeeper/guardian", &target, linkage(), "GATEKEEPER_GUARDIAN")
            .map(|built| built.join("gatekeeper-guardian")),
    };
    embed(guardian, "gatekeeper-guardian", "guardian.rs");
}

/// The guardian program is static if the program that embeds it is: that one may run where there is no C library.
fn linkage() -> &'static str {
    let features = env::var("CARGO_CFG_TARGET_FEATURE").unwrap_or_default();
    let is_static = features.split(',').any(|feature| feature == "crt-static");
    if is_static { "-Ctarget-feature=+crt-static" } else { "" }
}

/// Writes the Rust expression for the bytes of a built file.
fn embed(built: Option<PathBuf>, name: &str, source: &str) {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let expression = match built {
        Some(path) => {
            let copy = out.join(name);
            fs::copy(&path, &copy).unwrap_or_else(|error| panic!("cannot copy {}: {error}", path.display()));
            format!("Some(include_bytes!({copy:?}))")
        }
        None => "None".to_owned(),
    };
    fs::write(out.join(source), expression).expect("OUT_DIR is writable");
}

/// Builds a package of this workspace and returns the directory of its results; `None` without its sources.
fn build(package: &str, target: &str, flags: &str, instead: &str) -> Option<PathBuf> {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let mut manifest = Path::new(package).join("Cargo.toml");
    let mut locked = Some("--locked");
    if !manifest.exists() {
        if !Path::new("packaged").join(package).join("manifest").exists() {
            return None;
        }
        manifest = restore(&out.join("source")).join(manifest);
        // The lock file also names what only the other packages need, so cargo shortens it. The versions stay.
        locked = None;
    }
    let dir = out.join("nested");
    let status = Command::new(env::var_os("CARGO").expect("cargo sets CARGO"))
        .args(["build", "--release"])
        .args(locked)
        .arg("--manifest-path")
        .arg(manifest)
        .args(["--target", target, "--target-dir"])
        .arg(&dir)
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("CARGO_BUILD_TARGET_DIR")
        .env("RUSTFLAGS", flags)
        .status()
        .expect("cargo can be started again");
    assert!(
        status.success(),
        "building {package} for {target} failed: {status}; set {instead} to embed an existing file"
    );
    Some(dir.join(target).join("release"))
}

/// Restores the workspace of the nested builds from a package.
fn restore(to: &Path) -> PathBuf {
    copy(Path::new("packaged"), to).unwrap_or_else(|error| panic!("cannot copy packaged/: {error}"));
    fs::rename(to.join("lock"), to.join("Cargo.lock")).expect("it was copied");
    // cargo rewrites the manifest of a package, and keeps what was written under this name.
    let original = fs::read_to_string("Cargo.toml.orig").expect("the package has its original manifest");
    let between = |from: &str, to: Option<&str>| {
        let (_, rest) = original.split_once(from).unwrap_or_else(|| panic!("no {from} in Cargo.toml.orig"));
        let end = to.and_then(|to| rest.find(to)).unwrap_or(rest.len());
        format!("{from}{}", &rest[..end])
    };
    let root = format!(
        "[workspace]\nmembers = [\"gatekeeper/guardian\", \"libsandbox\", \"libsandbox/contract\"]\nresolver = \"3\"\n\n{}\n{}",
        between("[workspace.package]", Some("\n[package]")),
        between("[profile.release]", None),
    );
    fs::write(to.join("Cargo.toml"), root).expect("OUT_DIR is writable");
    to.to_owned()
}

/// Copies a tree, giving manifests their name again.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, name) = (entry.path(), entry.file_name());
        let target = to.join(if name == "manifest" { "Cargo.toml".into() } else { name });
        if source.is_dir() {
            copy(&source, &target)?;
        } else {
            fs::copy(&source, &target)?;
        }
    }
    Ok(())
}
