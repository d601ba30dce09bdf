//! Tells libseccomp-sys's link line where the static libseccomp of this system is.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=LIBSECCOMP_LIB_PATH");
    let target = env::var("TARGET").unwrap_or_default();
    match library_dir(&target) {
        // libseccomp-sys asks for `-lseccomp` (dylib by default); the archive is named here in full, so that
        // nothing of it is needed at run time.
        Some(dir) => {
            println!("cargo:rustc-link-search=native={}", dir.display());
            println!("cargo:rustc-link-lib=static=seccomp");
        }
        None => panic!(
            "libseccomp.a not found: install libseccomp-dev (Debian, Ubuntu), libseccomp-static (Fedora) or set LIBSECCOMP_LIB_PATH"
        ),
    }
}

fn library_dir(target: &str) -> Option<PathBuf> {
    let arch = target.split('-').next().unwrap_or_default();
    let asked = env::var_os("LIBSECCOMP_LIB_PATH").map(PathBuf::from);
    let pkg_config = || {
        let output = Command::new("pkg-config").args(["--variable=libdir", "libseccomp"]).output().ok()?;
        output.status.success().then(|| PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
    };
    let usual = [format!("/usr/lib/{arch}-linux-gnu"), "/usr/lib64".to_owned(), "/usr/lib".to_owned()];
    asked
        .into_iter()
        .chain(pkg_config())
        .chain(usual.into_iter().map(PathBuf::from))
        .find(|dir| dir.join("libseccomp.a").exists())
}
