//! Builds libsandbox with a nested cargo and passes the library's bytes to `src/lib.rs`.
//!
//! The nested cargo uses a separate target directory, because sharing the outer one would deadlock on cargo's lock.
//! `LIBSANDBOX_SO=path` embeds that file instead, for packagers and cross builds.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=LIBSANDBOX_SO");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=Cargo.lock");
    println!("cargo:rerun-if-changed=Cargo.toml");
    println!("cargo:rerun-if-changed=libsandbox");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let library = match env::var_os("LIBSANDBOX_SO") {
        Some(path) => Some(PathBuf::from(path)),
        None => build(&out),
    };
    let source = match library {
        Some(path) => {
            let built = out.join("libsandbox.so");
            fs::copy(&path, &built).unwrap_or_else(|error| panic!("cannot copy {}: {error}", path.display()));
            format!("Some(include_bytes!({built:?}))")
        }
        None => "None".to_owned(),
    };
    fs::write(out.join("embedded.rs"), source).expect("OUT_DIR is writable");
}

fn build(out: &Path) -> Option<PathBuf> {
    let manifest = Path::new("libsandbox/Cargo.toml");
    if !manifest.exists() {
        return None;
    }
    // The preload always targets glibc, even if the program that embeds it is built for musl.
    let target = env::var("TARGET").expect("cargo sets TARGET").replace("-musl", "-gnu");
    let dir = out.join("nested");
    let status = Command::new(env::var_os("CARGO").expect("cargo sets CARGO"))
        .args(["build", "--release", "--locked", "--manifest-path"])
        .arg(manifest)
        .args(["--target", &target, "--target-dir"])
        .arg(&dir)
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("CARGO_BUILD_TARGET_DIR")
        .status()
        .expect("cargo can be started again");
    assert!(
        status.success(),
        "building libsandbox for {target} failed: {status}; set LIBSANDBOX_SO to embed an existing library"
    );
    Some(dir.join(target).join("release/libsandbox.so"))
}
