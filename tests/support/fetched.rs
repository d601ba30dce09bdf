//! Packages from PyPI and npm for tests: each list of packages is installed once, below the target directory.

use super::{run, skip};
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory for PYTHONPATH with these requirements. `None`, with a printed skip, if they cannot be installed.
pub fn python(requirements: &str) -> Option<PathBuf> {
    let words = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--target"];
    installed("python", requirements, |into| {
        let mut pip = Command::new("/usr/bin/python3");
        pip.args(words).arg(into).args(requirements.split_whitespace()).env("PIP_ROOT_USER_ACTION", "ignore");
        pip
    })
}

/// A directory whose node_modules contains these packages. `None`, with a printed skip, if they cannot be installed.
pub fn node(packages: &str) -> Option<PathBuf> {
    installed("node", packages, |into| {
        let mut npm = Command::new("npm");
        npm.args(["install", "--silent", "--no-fund", "--no-audit", "--ignore-scripts", "--prefix"]).arg(into);
        npm.args(packages.split_whitespace());
        npm
    })
}

/// Installs under a lock, one process at a time, and repeats an installation that was interrupted.
fn installed(kind: &str, list: &str, install: impl Fn(&Path) -> Command) -> Option<PathBuf> {
    let mut hash = DefaultHasher::new();
    list.hash(&mut hash);
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{kind}-{:016x}", hash.finish()));
    let lock = File::create(directory.with_extension("lock")).expect("the target directory is writable");
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).expect("a file of our own");
    let complete = directory.join(".complete");
    if !complete.exists() {
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir(&directory).expect("the target directory is writable");
        let done = run(&mut install(&directory));
        if done.code() != Some(0) {
            skip(&format!("packages cannot be installed: {done}"));
            return None;
        }
        fs::write(&complete, "").expect("own directory");
    }
    Some(directory)
}
