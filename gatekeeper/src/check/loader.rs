//! The program loader that PT_INTERP names: which libc it belongs to, and whether it can be trusted to preload.
//!
//! Takes a path, gives the libc and its release. The contents decide, not the path: NixOS and Alpine use other paths, and
//! a name proves nothing.

use super::dynamic::{Dynamic, Release, Versions};
use super::files::{Facts, Files, Opened, Pages};
use super::verdict::{Libc, Linkage, Reason, ReasonCode};
use super::{Context, elf, lookup};
use std::path::{Path, PathBuf};

/// The verdict on a loader.
#[derive(Clone, Debug)]
pub struct Loader {
    pub libc: Libc,
    /// The glibc release, from libc.so.6 in the same directory.
    pub release: Option<Release>,
    /// Why this loader cannot preload.
    pub reason: Option<Reason>,
    pub note: Option<String>,
}

impl Loader {
    fn unfit(libc: Libc, code: ReasonCode, text: impl Into<String>) -> Loader {
        Loader { libc, release: None, reason: Some(Reason::new(code, text)), note: None }
    }
}

pub fn judge(path: &Path, context: &Context, files: &dyn Files) -> Loader {
    let shown = path.display();
    let found = match lookup::open(path, context, files) {
        Ok(found) => found,
        Err(reason) if reason.code == ReasonCode::NotFound => {
            return Loader::unfit(
                guess_by_name(path),
                ReasonCode::MissingLoader,
                format!("its loader {}", reason.text),
            );
        }
        Err(reason) => return Loader::unfit(Libc::Unknown, reason.code, format!("its loader {}", reason.text)),
    };
    let file = found.file.as_ref();
    if !file.facts().readable {
        let text = format!("its loader {shown} cannot be read, so it is unknown whether it preloads");
        return Loader::unfit(Libc::Unknown, ReasonCode::UnknownLoader, text);
    }
    let Ok(pages) = Pages::new(file) else {
        return Loader::unfit(Libc::Unknown, ReasonCode::Corrupt, format!("its loader {shown} cannot be read"));
    };
    if !elf::is_elf(pages.head()) {
        return Loader::unfit(Libc::Unknown, ReasonCode::Corrupt, format!("its loader {shown} is not an ELF file"));
    }
    let elf = elf::read(&pages, context.machine);
    if let Some(problem) = elf.problem {
        return Loader::unfit(Libc::Unknown, problem.code, format!("its loader {shown}: {}", problem.text));
    }
    let Some(dynamic) = Dynamic::read(&pages, &elf.segments).filter(|_| elf.linkage == Some(Linkage::StaticPie)) else {
        let text = format!("its loader {shown} is an ordinary program, which does not preload");
        return Loader::unfit(Libc::Unknown, ReasonCode::UnknownLoader, text);
    };
    let versions = dynamic.defined_versions();
    if is_glibc(&dynamic, &versions) {
        return glibc(path, file, &versions, context, files);
    }
    if is_musl(&dynamic, &versions) {
        let text = "linked to musl, whose loader cannot load libsandbox.so (it needs glibc)";
        return Loader::unfit(Libc::Musl, ReasonCode::Musl, text);
    }
    let text = format!("its loader {shown} is neither glibc's nor musl's");
    Loader::unfit(Libc::Unknown, ReasonCode::UnknownLoader, text)
}

fn is_glibc(dynamic: &Dynamic, versions: &Versions) -> bool {
    dynamic.soname().is_some_and(|name| name.starts_with("ld") && name.contains(".so"))
        && versions.private
        && versions.newest.is_some()
        && dynamic.defines("_rtld_global") == Some(true)
}

fn is_musl(dynamic: &Dynamic, versions: &Versions) -> bool {
    versions.count == 0
        && dynamic.defines("__libc_start_main") == Some(true)
        && (["_dlstart", "__dls3", "_dl_debug_addr"].iter().any(|name| dynamic.defines(name) == Some(true))
            || dynamic.soname().is_some_and(|name| name.starts_with("libc.musl-")))
}

/// Only for the message about a missing loader.
fn guess_by_name(path: &Path) -> Libc {
    match path.file_name().map(|name| name.to_string_lossy()) {
        Some(name) if name.starts_with("ld-musl-") => Libc::Musl,
        Some(name) if name.starts_with("ld-linux") => Libc::Glibc,
        _ => Libc::Unknown,
    }
}

fn glibc(path: &Path, file: &dyn Opened, versions: &Versions, context: &Context, files: &dyn Files) -> Loader {
    if !trusted(file, files) {
        let text = format!(
            "its loader {} looks like glibc's but is not the system's, so its owner could have changed it",
            path.display()
        );
        return Loader::unfit(Libc::Glibc, ReasonCode::UnknownLoader, text);
    }
    let release = libc_release(path, file, context, files);
    let note = match release {
        Some(_) => None,
        None => Some(format!("no libc.so.6 next to the loader {}; its release is unknown", path.display())),
    };
    Loader { libc: Libc::Glibc, release: release.max(versions.newest), reason: None, note }
}

/// The loader's path according to the ABI. On NixOS and Alpine it is absent or another file, and never matches.
const ABI_LOADER: &str =
    if cfg!(target_arch = "aarch64") { "/lib/ld-linux-aarch64.so.1" } else { "/lib64/ld-linux-x86-64.so.2" };

/// Whether a loader can be trusted. A forged one can look like glibc's, so it must be the system's loader, an exact copy
/// of it, or a file of the system's owner that no other user can write.
fn trusted(file: &dyn Opened, files: &dyn Files) -> bool {
    let facts = file.facts();
    // Not simply uid 0: in a user namespace that may be the caller, while the system's owner is unmapped.
    let owner = files.owner(Path::new("/")).unwrap_or(0);
    if facts.mode & 0o022 == 0 && facts.uid == owner {
        return true;
    }
    files
        .open(Path::new(ABI_LOADER))
        .is_ok_and(|system| system.facts().id == facts.id || same_bytes(file, system.as_ref()))
}

fn same_bytes(one: &dyn Opened, other: &dyn Opened) -> bool {
    const LARGEST: u64 = 4 << 20;
    let Facts { size, .. } = *one.facts();
    if size != other.facts().size || size > LARGEST {
        return false;
    }
    let whole = |file: &dyn Opened| Pages::new(file).ok().and_then(|pages| pages.exact(0, size as usize));
    whole(one).is_some_and(|bytes| Some(bytes) == whole(other))
}

/// The release, from libc.so.6 in the loader's directory: the loader's own symbol versions lag behind.
fn libc_release(path: &Path, file: &dyn Opened, context: &Context, files: &dyn Files) -> Option<Release> {
    let given = context.cwd.join(path);
    let real: PathBuf = file.resolved().unwrap_or_else(|| given.clone());
    [real, given].iter().find_map(|loader| {
        let libc = files.open(&loader.with_file_name("libc.so.6")).ok()?;
        let pages = Pages::new(libc.as_ref()).ok().filter(|_| libc.facts().readable)?;
        let elf = elf::is_elf(pages.head()).then(|| elf::read(&pages, context.machine))?;
        Dynamic::read(&pages, &elf.segments)?.defined_versions().newest
    })
}
