//! What `make install` installs: pkg-config finds it, a C program links it, and `make uninstall` removes it.

use crate::support::{Done, fresh, gatekeeper, libsandbox, probe, run};
use std::path::{Path, PathBuf};
use std::process::Command;

fn make(target: &str, prefix: &str, root: &Path) -> Done {
    let mut command = Command::new("make");
    command.arg("-s").arg("-C").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).arg(target);
    command.arg(format!("PREFIX={prefix}")).arg(format!("DESTDIR={}", root.display()));
    command.arg(format!("GATEKEEPER={}", gatekeeper().display()));
    command.arg(format!("LIBSANDBOX={}", libsandbox().display()));
    // Do not inherit the settings of a make that runs this test.
    run(command.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").env_remove("MFLAGS"))
}

fn files(below: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut stack = vec![below.to_owned()];
    while let Some(directory) = stack.pop() {
        for entry in std::fs::read_dir(&directory).expect("own directory").flatten() {
            if entry.path().is_dir() { stack.push(entry.path()) } else { found.push(entry.path()) }
        }
    }
    found
}

#[test]
fn a_c_program_finds_and_links_what_was_installed() {
    // Staged for a package, and installed in place.
    for (prefix, root) in [("/opt/sandbox".to_owned(), fresh("staged")), {
        let place = fresh("installed");
        (place.display().to_string(), PathBuf::new())
    }] {
        let real = PathBuf::from(format!("{}{prefix}", root.display()));
        make("install-files", &prefix, &root).exits(0);
        let config = |flags: &[&str]| {
            let mut command = Command::new("pkg-config");
            command.env("PKG_CONFIG_LIBDIR", real.join("lib/pkgconfig")).env_remove("PKG_CONFIG_PATH");
            if !root.as_os_str().is_empty() {
                command.env("PKG_CONFIG_SYSROOT_DIR", &root);
            }
            let done = run(command.args(flags).arg("libsandbox"));
            done.exits(0).complains("");
            done.stdout().trim().to_owned()
        };
        assert_eq!(config(&["--modversion"]), env!("CARGO_PKG_VERSION"));
        let flags = config(&["--cflags", "--libs"]);
        let rpath = format!("-Wl,-rpath,{}", real.join("lib").display());
        let flags: Vec<&str> = flags.split_whitespace().chain([rpath.as_str(), "-pthread"]).collect();
        assert!(flags.contains(&"-lsandbox"), "{flags:?}");
        let program = probe("abi", &flags);
        let filtered = "0 (the filter is in force) errno 0\ngetppid=71\n";
        run(Command::new(program).args(["-", "getppid", "errno:EPROTO", "once"])).exits(0).prints(filtered);
        assert!(run(Command::new(real.join("bin/gatekeeper")).arg("--version")).code() == Some(0));

        make("uninstall", &prefix, &root).exits(0);
        let left = if real.exists() { files(&real) } else { Vec::new() };
        assert_eq!(left, Vec::<PathBuf>::new());
    }
}
