//! The bindings in bindings/: each is packed with the program under test, installed into a fresh place without a network, and tested there
//! by its own tests in its own language.

mod c;
mod crates;
mod go;
mod machines;
mod node;
pub mod python;

use crate::support::{fresh, gatekeeper, run, scratch, skip};
use goblin::elf::Elf;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

pub fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the source tree")
}

/// A copy of a folder of the source tree that every user can read. Links become what they lead to.
pub fn copy_of(folder: &str) -> PathBuf {
    let dir = fresh("copy");
    run(Command::new("cp").arg("-rL").arg(top().join(folder).join(".")).arg(&dir)).exits(0);
    dir
}

/// The program under test without debug information, which would make the packages ten times as large.
pub fn stripped() -> &'static Path {
    static STRIPPED: OnceLock<PathBuf> = OnceLock::new();
    STRIPPED.get_or_init(|| {
        let file = scratch().join("gatekeeper-stripped");
        run(Command::new("strip").args(["--strip-unneeded", "-o"]).arg(&file).arg(gatekeeper())).exits(0);
        file
    })
}

/// Packs a binding by `make package-KIND`, which builds nothing, and returns the package. Only a static program is packed.
pub fn packed(kind: &str, python_path: Option<&Path>) -> Option<PathBuf> {
    let program = std::fs::read(stripped()).expect("own file");
    if Elf::parse(&program).expect("an ELF file").interpreter.is_some() {
        skip("the gatekeeper under test is not static; `make test` builds a static one");
        return None;
    }
    let dir = fresh(kind);
    let mut make = Command::new("make");
    make.arg("-s").arg("-C").arg(top()).arg(format!("package-{kind}")).arg(format!("DIST={}", dir.display()));
    make.arg(format!("GATEKEEPER={}", stripped().display())).env_remove("GATEKEEPER");
    make.envs(python_path.map(|path| ("PYTHONPATH", path)));
    run(make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").env_remove("MFLAGS")).exits(0);
    let mut made = std::fs::read_dir(&dir).expect("own directory").flatten().map(|entry| entry.path());
    Some(made.next().expect("a package"))
}
