//! Has the linker pack the relocations of the static program: it has 11,000, and applies them at each start. A program that
//! glibc is linked into needs glibc 2.36 to unpack them; an older one would crash at its start.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // scripts/musl passes it to the linker, and cargo does not know that the program depends on it.
    println!("cargo:rerun-if-changed=order.ld");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found.split(',').any(|found| found == value));
    let native = env::var("HOST") == env::var("TARGET");
    let is_static = is("CARGO_CFG_TARGET_ENV", "gnu") && is("CARGO_CFG_TARGET_FEATURE", "crt-static");
    if native && is_static && glibc().is_some_and(|version| version >= (2, 36)) {
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// The version of this machine's glibc, of which the linker takes the static library.
fn glibc() -> Option<(u32, u32)> {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let (major, minor) = text.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
}
