//! `make uninstall` restores the tree from before `make install`.

use super::root;
use crate::support::{Done, built, fresh, gatekeeper, libsandbox, run};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs make with the programs of the tests, so that it builds nothing.
pub fn make(target: &str, settings: &[(&str, &Path)]) -> Done {
    let mut command = Command::new("make");
    command.arg("-s").arg("-C").arg(root()).arg(target);
    command.arg(format!("GATEKEEPER={}", gatekeeper().display()));
    command.arg(format!("LIBSANDBOX={}", libsandbox().display()));
    command.arg(format!("GATEKEEPERD={}", built("gatekeeperd").display()));
    command.args(settings.iter().map(|(name, value)| format!("{name}={}", value.display())));
    // Nothing is compressed: the size does not matter here.
    command.env("COMPRESSION", "none");
    // Do not inherit the settings of a make that runs this test.
    run(command.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").env_remove("MFLAGS"))
}

/// Everything below a directory with its mode, and for files the size.
pub fn tree(top: &Path) -> BTreeMap<PathBuf, (u32, u64)> {
    let mut found = BTreeMap::new();
    let mut stack = vec![top.to_owned()];
    while let Some(directory) = stack.pop() {
        for entry in std::fs::read_dir(&directory).expect("readable").flatten() {
            let meta = entry.path().symlink_metadata().expect("there");
            if meta.is_dir() {
                stack.push(entry.path());
            }
            let inside = entry.path().strip_prefix(top).expect("below it").to_owned();
            found.insert(inside, (meta.mode(), if meta.is_dir() { 0 } else { meta.len() }));
        }
    }
    found
}

#[test]
fn what_is_installed_goes_away_again() {
    // Staged, and into a tree where some of the directories exist and contain other files.
    let top = fresh("install");
    let prefix = Path::new("/usr/local");
    for directory in ["usr/local/bin", "usr/local/lib", "usr/local/share/man/man1"] {
        std::fs::create_dir_all(top.join(directory)).expect("own directory");
    }
    std::fs::write(top.join("usr/local/bin/other"), "other").expect("own directory");
    let before = tree(&top);
    let settings = [("DESTDIR", top.as_path()), ("PREFIX", prefix)];
    make("install-files", &settings).exits(0).prints("").complains("");
    let installed = tree(&top);
    for (file, mode) in [
        ("bin/gatekeeper", 0o755),
        ("bin/gatekeeperd", 0o755),
        ("lib/libsandbox.so", 0o755),
        ("lib/pkgconfig/libsandbox.pc", 0o644),
        ("include/sandbox.h", 0o644),
        ("share/man/man1/gatekeeper.1", 0o644),
        ("share/man/man1/gatekeeper-run.1", 0o644),
        ("share/man/man5/gatekeeper-policy.5", 0o644),
        ("share/man/man7/libsandbox.7", 0o644),
        ("share/bash-completion/completions/gatekeeper", 0o644),
        ("share/zsh/site-functions/_gatekeeper", 0o644),
        ("share/fish/vendor_completions.d/gatekeeper.fish", 0o644),
        ("share/gatekeeper/policy-schema.json", 0o644),
        ("share/gatekeeper/report-schema.json", 0o644),
        ("share/doc/gatekeeper/README.md", 0o644),
        ("share/doc/gatekeeper/docs/getting-started.md", 0o644),
        ("share/doc/gatekeeper/docs/guide/policy.md", 0o644),
        ("share/doc/gatekeeper/examples/python/agent.py", 0o644),
        ("share/doc/gatekeeper/integrations/gatekeeper-sh", 0o644),
        ("share/doc/gatekeeper/bindings/go/go.mod", 0o644),
    ] {
        let (found, size) = installed[&Path::new("usr/local").join(file)];
        assert_eq!(found & 0o7777, mode, "{file}");
        assert!(size > 0, "{file}");
    }
    let version = run(Command::new(top.join("usr/local/bin/gatekeeper")).arg("--version"));
    version.exits(0).prints(&format!("gatekeeper {}\n", env!("CARGO_PKG_VERSION")));
    // Install again over the first installation, as an upgrade does.
    make("install-files", &settings).exits(0);
    make("uninstall", &settings).exits(0).prints("").complains("");
    assert_eq!(tree(&top), before);
    make("uninstall", &settings)
        .exits(0)
        .complains(&format!("nothing is installed below {}/usr/local\n", top.display()));
}

#[test]
fn what_others_put_beside_stays() {
    let top = fresh("install-shared");
    let settings = [("DESTDIR", Path::new("")), ("PREFIX", top.as_path())];
    make("install-files", &settings).exits(0);
    std::fs::write(top.join("share/man/man1/other.1"), "x").expect("own directory");
    make("uninstall", &settings).exits(0);
    let left: Vec<PathBuf> = tree(&top).into_keys().collect();
    assert_eq!(left, ["share", "share/man", "share/man/man1", "share/man/man1/other.1"].map(PathBuf::from));
}
