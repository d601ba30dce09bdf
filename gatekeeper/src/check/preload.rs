//! The preload library: would the dynamic loader load it?
//!
//! Takes a path and the library's bytes, gives what prevents it. If LD_PRELOAD names an unusable file, ld.so prints one
//! "ignored" line and runs the program unconfined, so every such case must be found here.

use super::dynamic::{Dynamic, Release};
use super::files::{FileType, Files, Opened, Pages};
use super::{elf, notes};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Facts about libsandbox.so.
#[derive(Clone, Debug, Default)]
pub struct Preload {
    /// Its path; `None` if it is embedded and not yet written to a file.
    pub path: Option<PathBuf>,
    pub machine: u16,
    pub class: Option<u8>,
    /// The oldest glibc that it runs on.
    pub floor: Option<Release>,
    /// Which of the vital functions it imports from libc.
    pub calls: Vec<&'static str>,
    /// Why no loader would load it.
    pub problem: Option<String>,
}

impl Preload {
    /// The library embedded in this gatekeeper.
    pub fn embedded() -> Preload {
        match libsandbox_embed::LIBSANDBOX {
            Some(bytes) => Preload::of_bytes(bytes),
            None => Preload::unusable("this gatekeeper has no embedded libsandbox.so; name one with --preload"),
        }
    }

    pub fn of_bytes(bytes: &'static [u8]) -> Preload {
        Preload::of_file(&super::memory::Bytes::library(bytes))
    }

    /// The same library at the path where it will be written before exec.
    pub fn to_be_at(mut self, path: &Path) -> Preload {
        self.problem = unfit_name(path).map(str::to_owned).or(self.problem);
        self.path = Some(path.to_owned());
        self
    }

    /// A library on disk, by the path for LD_PRELOAD.
    pub fn at(path: &Path, cwd: &Path, files: &dyn Files) -> Preload {
        let mut preload = match files.open(&cwd.join(path)) {
            Ok(file) => Preload::of_file(file.as_ref()),
            Err(failure) => Preload::unusable(failure.to_string()),
        };
        preload.problem = unfit_name(path).map(str::to_owned).or(preload.problem);
        preload.path = Some(path.to_owned());
        preload
    }

    fn unusable(why: impl Into<String>) -> Preload {
        Preload { problem: Some(why.into()), ..Preload::default() }
    }

    fn of_file(file: &dyn Opened) -> Preload {
        let facts = file.facts();
        if facts.file_type != FileType::Regular {
            return Preload::unusable(format!("{}, not a library", facts.file_type));
        }
        if !facts.readable {
            return Preload::unusable("it cannot be read by you");
        }
        if facts.noexec {
            return Preload::unusable("it lies on a filesystem mounted noexec, so its code cannot be mapped");
        }
        let pages = match Pages::new(file) {
            Ok(pages) => pages,
            Err(error) => return Preload::unusable(error.to_string()),
        };
        if !elf::is_elf(pages.head()) {
            return Preload::unusable("not an ELF file");
        }
        let elf = elf::read(&pages, elf::NATIVE);
        let mut preload = Preload { machine: elf.machine, class: elf.class, ..Preload::default() };
        if let Some(problem) = &elf.problem {
            preload.problem = Some(problem.text.clone());
        } else if let Some(dynamic) = Dynamic::read(&pages, &elf.segments) {
            preload.floor = dynamic.needed_versions().newest;
            preload.calls = dynamic.imported(notes::VITAL);
        } else {
            preload.problem = Some("not a shared library".into());
        }
        preload
    }

    /// Why a loader with this glibc release would not load it.
    pub fn unusable_under(&self, release: Option<Release>) -> Option<String> {
        let name = self.path.as_deref().unwrap_or(Path::new("libsandbox.so")).display();
        if let Some(problem) = &self.problem {
            return Some(format!("{name} cannot be preloaded: {problem}"));
        }
        match (self.floor, release) {
            (Some(floor), Some(release)) if floor > release => Some(format!(
                "{name} needs glibc {}.{} or newer, and the program's loader has {}.{}",
                floor.0, floor.1, release.0, release.1
            )),
            _ => None,
        }
    }
}

/// LD_PRELOAD is split at blanks and colons, a relative name depends on the program's working directory, and the loader
/// expands `$ORIGIN`, `$LIB` and `$PLATFORM`.
fn unfit_name(path: &Path) -> Option<&'static str> {
    let bytes = path.as_os_str().as_bytes();
    if !path.is_absolute() {
        return Some("its path is relative");
    }
    if bytes.contains(&b' ') || bytes.contains(&b':') {
        return Some("its path has a space or a colon in it, where LD_PRELOAD is split");
    }
    if bytes.contains(&b'$') {
        return Some("its path has a $ in it, which the loader expands");
    }
    None
}
