//! What a program does to the preload without keeping it out: code that runs before the filter, symbols that replace
//! those the library calls. The first are notes, the second makes the preload unusable.

use super::dynamic::Dynamic;
use super::files::{Files, Pages};
use super::verdict::Verdict;
use super::{Context, elf};
use goblin::elf::dynamic::{DF_1_INITFIRST, DT_NEEDED};
use std::ffi::OsStr;
use std::path::Path;

const DT_PREINIT_ARRAY: u64 = 32;
const DT_AUDIT: u64 = 0x6fff_fefc;
const DT_DEPAUDIT: u64 = 0x6fff_fefb;

/// The functions of libc by which libsandbox.so reads its list and installs the filter. A program that exports its own
/// comes first in the loader's search, so the library would call that one.
const VITAL: [&str; 3] = ["syscall", "prctl", "getenv"];

pub fn interposed(path: &Path, dynamic: Option<&Dynamic>) -> Option<String> {
    let name = VITAL.iter().find(|name| dynamic.is_some_and(|dynamic| dynamic.defines(name)))?;
    Some(format!("{} exports its own {name}(), which the preload would call in place of libc's", path.display()))
}

/// Code of the program that runs before the preload's constructor, and so before any filter of its.
pub fn before_the_filter(
    verdict: &mut Verdict,
    path: &Path,
    dynamic: &Dynamic,
    loader: Option<&OsStr>,
    context: &Context,
    files: &dyn Files,
) {
    let shown = path.display();
    if loader.is_none() {
        if dynamic.soname().is_some() {
            verdict.note(format!("{shown} is a shared library; executing it may do nothing useful"));
        }
        return;
    }
    if dynamic.has(DT_PREINIT_ARRAY) {
        verdict.note(format!("{shown} has a preinit_array, which runs before the filter"));
    }
    if dynamic.has(DT_AUDIT) || dynamic.has(DT_DEPAUDIT) {
        verdict.note(format!("{shown} names an audit library, which runs before the filter"));
    }
    if dynamic.has_ifunc_relocations() {
        verdict.note(format!("{shown} has IFUNC resolvers, which run before the filter"));
    }
    if !dynamic.has(DT_NEEDED) {
        return;
    }
    // The libraries beside the loader are the system's; others are not looked for.
    let beside = loader.map(|loader| context.cwd.join(loader));
    for name in dynamic.needed().iter().filter(|name| !name.contains('/')) {
        let first = beside.as_ref().is_some_and(|loader| runs_first(&loader.with_file_name(name), context, files));
        if first {
            verdict
                .note(format!("{name}, a library of {shown}, initialises first (DF_1_INITFIRST), before the filter"));
        }
    }
}

fn runs_first(library: &Path, context: &Context, files: &dyn Files) -> bool {
    let Ok(file) = files.open(library) else { return false };
    let Some(pages) = Pages::new(file.as_ref()).ok().filter(|pages| elf::is_elf(pages.head())) else { return false };
    let elf = elf::read(&pages, context.machine);
    Dynamic::read(&pages, &elf.segments).is_some_and(|dynamic| dynamic.flags_1() & DF_1_INITFIRST != 0)
}
