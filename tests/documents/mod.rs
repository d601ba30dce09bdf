//! Documents, formats, manual pages, installation and packages.

mod console;
mod formats;
mod install;
pub mod package;
mod recording;

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the source tree")
}

/// The paths of all documents.
fn documents() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for directory in [root(), root().join("docs"), root().join("docs/guide")] {
        let entries = std::fs::read_dir(directory).expect("readable").flatten();
        found.extend(entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "md")));
    }
    found.sort();
    found
}
