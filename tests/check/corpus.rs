//! The corpus: programs that the test builds, each with its expected verdict.

mod damaged;
mod programs;
mod scripts;

use super::bytes::*;
use super::{chmod, program};
use crate::support::{NOBODY, fresh, has, is_root, probe, skip};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What happens if the file is executed with the preload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Real {
    Confined,
    Unconfined,
    /// It does not start.
    Dead,
}
use Real::*;

/// A file and its expected verdict.
pub struct Case {
    pub name: String,
    pub path: PathBuf,
    pub verdict: &'static str,
    pub code: Option<&'static str>,
    pub real: Real,
    pub as_nobody: bool,
}

pub struct Corpus {
    pub directory: PathBuf,
    pub cases: Vec<Case>,
}

const LOADER: &str =
    if cfg!(target_arch = "aarch64") { "/lib/ld-linux-aarch64.so.1" } else { "/lib64/ld-linux-x86-64.so.2" };
/// gcc finds these headers only for its default class.
const KERNEL_HEADERS: &str = "-I/usr/include/x86_64-linux-gnu";
const NATIVE: bool = cfg!(target_arch = "x86_64");

impl Corpus {
    fn add(&mut self, path: &Path, verdict: &'static str, code: &'static str, real: Real) {
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        let code = Some(code).filter(|code| !code.is_empty());
        self.cases.push(Case { name, path: path.into(), verdict, code, real, as_nobody: false });
    }

    fn file(
        &mut self,
        name: &str,
        bytes: impl AsRef<[u8]>,
        verdict: &'static str,
        code: &'static str,
        real: Real,
    ) -> PathBuf {
        let path = program(&self.directory.join(name), bytes);
        self.add(&path, verdict, code, real);
        path
    }

    fn image(&mut self, name: &str, image: Image, verdict: &'static str, code: &'static str, real: Real) {
        self.file(name, image.0, verdict, code, real);
    }

    /// Builds the probe with another compiler. If that fails, the program counts as skipped.
    fn compiled(&mut self, name: &str, compiler: &str, flags: &[&str]) -> Option<PathBuf> {
        let path = self.directory.join(name);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/probes/check_probe.c");
        let built = Command::new(compiler).arg("-o").arg(&path).arg(source).args(flags).output();
        match built {
            Ok(output) if output.status.success() => Some(path),
            other => {
                skip(&format!("{compiler} {flags:?} cannot build {name}: {other:?}"));
                None
            }
        }
    }
}

pub fn build() -> Corpus {
    let mut corpus = Corpus { directory: fresh("corpus"), cases: Vec::new() };
    programs::linked(&mut corpus);
    programs::loaders(&mut corpus);
    programs::other_worlds(&mut corpus);
    damaged::headers(&mut corpus);
    damaged::segments(&mut corpus);
    damaged::cut_short(&mut corpus);
    scripts::scripts(&mut corpus);
    scripts::through_env(&mut corpus);
    scripts::permissions(&mut corpus);
    corpus
}

fn dynamic() -> Image {
    Image(std::fs::read(probe("check_probe", &[])).expect("just built"))
}
