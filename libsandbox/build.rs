//! Linker flags for libsandbox.so: its soname, versioned exports, and no undefined symbols.

use std::error::Error;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=exports.map");
    let linker = versioning_linker()?;
    for arg in [
        "-fuse-ld=bfd",
        &format!("-B{}", linker.display()),
        "-Wl,-s",
        "-Wl,-soname,libsandbox.so",
        // The kernel keeps the address of the SIGSYS handler, and the filter those of memory that may be written from. After a
        // dlclose, both would belong to whatever the program maps there.
        "-Wl,-z,nodelete",
        // Pack code and data into fewer pages: every process that preloads the library maps and touches each of them.
        "-Wl,-z,noseparate-code",
        // Fail the build on undefined symbols, such as the one that any reachable panic refers to (`panic` in lib.rs).
        "-Wl,-z,defs",
    ] {
        println!("cargo:rustc-cdylib-link-arg={arg}");
    }
    Ok(())
}

/// Writes a linker that uses `exports.map`, and returns its directory for `-B`.
///
/// rustc always passes a version script of its own, which names no version, and GNU ld takes no second one beside it. So the
/// linker that cc starts is a script, which replaces that argument and starts GNU ld.
fn versioning_linker() -> Result<PathBuf, Box<dyn Error>> {
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let map = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("exports.map");
    let compiler = env::var("RUSTC_LINKER").unwrap_or_else(|_| "cc".to_owned());
    let asked = Command::new(&compiler).arg("-print-prog-name=ld.bfd").output();
    let asked = asked.map_err(|error| format!("{compiler}: {error}"))?;
    if !asked.status.success() {
        return Err(format!("{compiler} does not name its linker").into());
    }
    let real = String::from_utf8(asked.stdout)?;
    let script = format!(
        "#!/bin/sh\n\
         for word; do\n\
         shift\n\
         case $word in\n\
         --version-script=*) set -- \"$@\" {} ;;\n\
         *) set -- \"$@\" \"$word\" ;;\n\
         esac\n\
         done\n\
         exec {} \"$@\"\n",
        quoted(&format!("--version-script={}", map.display())),
        quoted(real.trim_end()),
    );
    let file = out.join("ld.bfd");
    fs::write(&file, script)?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
    Ok(out)
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}
