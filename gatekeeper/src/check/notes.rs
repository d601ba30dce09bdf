//! How a program can interfere with the preload: code that runs before the filter gives a note, and symbols that replace
//! functions of the library make the preload unusable.

use super::dynamic::Dynamic;
use super::files::{Files, Pages};
use super::verdict::Verdict;
use super::{Checker, Context, Preload, elf};
use goblin::elf::dynamic::{DF_1_INITFIRST, DT_NEEDED};
use std::ffi::OsStr;
use std::path::Path;

const DT_PREINIT_ARRAY: u64 = 32;
const DT_AUDIT: u64 = 0x6fff_fefc;
const DT_DEPAUDIT: u64 = 0x6fff_fefb;

/// The libc functions with which the preload installs its filter and reads its list.
pub const VITAL: [&str; 3] = ["syscall", "prctl", "getenv"];

/// Why a program's exports make the preload unusable. The loader searches the program first, so the preload would call
/// the program's function, which could report success and install nothing.
pub fn interposed(path: &Path, dynamic: &Dynamic, preload: &Preload) -> Option<String> {
    let shown = path.display();
    preload.calls.iter().filter(|name| **name != GETENV).find_map(|name| match dynamic.defines(name) {
        Some(false) => None,
        Some(true) => {
            Some(format!("{shown} exports its own {name}(), which the preload would call in place of libc's"))
        }
        None => Some(format!("{shown} has a symbol table that cannot be read, so it may export its own {name}()")),
    })
}

/// bash exports its own getenv, which works like libc's before main.
const GETENV: &str = "getenv";

/// Notes code of the program that runs before the preload's constructor, and so before its filter.
pub fn before_the_filter(
    verdict: &mut Verdict,
    path: &Path,
    dynamic: &Dynamic,
    loader: Option<&OsStr>,
    checker: &Checker,
) {
    let shown = path.display();
    if loader.is_none() {
        if dynamic.soname().is_some() {
            verdict.note(format!("{shown} is a shared library; executing it may do nothing useful"));
        }
        return;
    }
    if checker.context.preload.calls.contains(&GETENV) && dynamic.defines(GETENV) == Some(true) {
        verdict.note(format!("{shown} exports its own getenv(), with which the preload reads its list"));
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
    // Only libraries in the loader's directory, which are the system's, are examined.
    let Some(loader) = loader.map(|loader| checker.context.cwd.join(loader)) else { return };
    for name in dynamic.needed().iter().filter(|name| !name.contains('/')) {
        let library = loader.with_file_name(name);
        let known = checker.first.borrow().get(&library).copied();
        let first = known.unwrap_or_else(|| runs_first(&library, checker.context, checker.files));
        if known.is_none() {
            checker.first.borrow_mut().insert(library, first);
        }
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
