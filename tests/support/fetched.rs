//! Packages of PyPI and npm that tests use: installed once for each list of them, below the target directory.

use super::{run, skip};
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The directory for PYTHONPATH with these requirements, or `None`, said aloud, where they cannot be had.
pub fn python(requirements: &str) -> Option<PathBuf> {
    let words = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--target"];
    installed("python", requirements, |into| {
        let mut pip = Command::new("/usr/bin/python3");
        pip.args(words).arg(into).args(requirements.split_whitespace()).env("PIP_ROOT_USER_ACTION", "ignore");
        pip
    })
}

/// The directory that holds node_modules with these packages, likewise.
pub fn node(packages: &str) -> Option<PathBuf> {
    installed("node", packages, |into| {
        let mut npm = Command::new("npm");
        npm.args(["install", "--silent", "--no-fund", "--no-audit", "--ignore-scripts", "--prefix"]).arg(into);
        npm.args(packages.split_whitespace());
        npm
    })
}

/// By one process at a time; what was left half done by another is done again.
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
            skip(&format!("packages cannot be had: {done}"));
            return None;
        }
        fs::write(&complete, "").expect("own directory");
    }
    Some(directory)
}
