//! Properties of every file: it has a verdict, the verdict is always the same, and appending bytes never improves it.

use crate::support::{libsandbox, probe};
use gatekeeper::check::memory::{Bytes, Memory};
use gatekeeper::check::{Caller, Context, Decision, NATIVE, Preload, ReasonCode, Verdict, check};
use proptest::prelude::*;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

const LOADER: &str =
    if cfg!(target_arch = "aarch64") { "/lib/ld-linux-aarch64.so.1" } else { "/lib64/ld-linux-x86-64.so.2" };

/// A small system: a loader, its libc, and some programs for `#!` lines.
fn system() -> &'static Memory {
    static SYSTEM: OnceLock<Memory> = OnceLock::new();
    SYSTEM.get_or_init(|| {
        let mut files = Memory::new(Caller { uid: 1000, gids: vec![] });
        let read = |path: &Path| std::fs::read(path).expect("readable");
        let real = std::fs::canonicalize(LOADER).expect("glibc is here");
        files.put(LOADER, Bytes::program(read(Path::new(LOADER))));
        files.put(
            Path::new(LOADER).with_file_name("libc.so.6"),
            Bytes::program(read(&real.with_file_name("libc.so.6"))),
        );
        for (name, flags) in [("/bin/dynamic", &[][..]), ("/bin/env", &[]), ("/bin/static", &["-static"])] {
            files.put(name, Bytes::program(read(&probe("check_probe", flags))));
        }
        files
    })
}

fn context() -> &'static Context {
    static CONTEXT: OnceLock<Context> = OnceLock::new();
    CONTEXT.get_or_init(|| Context {
        path: Some("/bin".into()),
        cwd: PathBuf::from("/"),
        caller: Caller { uid: 1000, gids: vec![] },
        preload: Preload::at(libsandbox(), Path::new("/"), &gatekeeper::check::Disk::new()),
        handlers: Vec::new(),
        machine: NATIVE,
        detail: true,
    })
}

fn verdict(content: &[u8]) -> Verdict {
    let mut files = system().clone();
    files.put("/file", Bytes::program(content.to_vec()));
    check(OsStr::new("/file"), context(), &files).verdict
}

/// The strictest reason decides the verdict, and repeated checks agree.
fn holds_together(content: &[u8]) -> Result<Verdict, TestCaseError> {
    let first = verdict(content);
    prop_assert_eq!(&first, &verdict(content));
    let heaviest = first.reasons.iter().map(|reason| reason.code.decision()).max().unwrap_or(Decision::Preload);
    prop_assert_eq!(first.verdict, heaviest);
    prop_assert!(serde_json::to_string(&first).is_ok());
    Ok(first)
}

/// Whether appending bytes may not improve the verdict. It may for truncated files.
fn complete(content: &[u8], verdict: &Verdict) -> bool {
    let line_ends = content.iter().take(256).any(|byte| *byte == b'\n');
    !verdict.has(ReasonCode::Corrupt) && (!content.starts_with(b"#") || content.len() > 256 || line_ends)
}

fn never_better(content: &[u8], tail: &[u8]) -> Result<(), TestCaseError> {
    let before = holds_together(content)?;
    let after = holds_together(&[content, tail].concat())?;
    if before.verdict != Decision::Preload && complete(content, &before) {
        prop_assert_ne!(after.verdict, Decision::Preload, "{:?}", before);
    }
    Ok(())
}

fn programs() -> &'static [Vec<u8>] {
    static PROGRAMS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        let flags: [&[&str]; 4] = [&[], &["-no-pie"], &["-static"], &["-static-pie"]];
        flags.iter().map(|flags| std::fs::read(probe("check_probe", flags)).expect("just built")).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_have_a_verdict(content in prop::collection::vec(any::<u8>(), 0..600), tail in prop::collection::vec(any::<u8>(), 0..64)) {
        never_better(&content, &tail)?;
    }

    #[test]
    fn any_damaged_program_has_a_verdict(
        which in 0..4usize,
        damage in prop::collection::vec((0..1200usize, any::<u8>()), 0..8),
        cut in prop::option::of(0..20_000usize),
        tail in prop::collection::vec(any::<u8>(), 0..128),
    ) {
        let mut content = programs()[which].clone();
        for (at, byte) in damage {
            content[at] = byte;
        }
        content.truncate(cut.unwrap_or(usize::MAX));
        never_better(&content, &tail)?;
    }

    #[test]
    fn any_line_has_a_verdict(
        line in "#! ?(/bin/(env|dynamic|static|none)|/file)( (-S)?[a-zA-Z='\"$\\\\{}_# ./\r-]{0,40})?",
        tail in "[\n a-z\\x00]{0,300}",
    ) {
        never_better(line.as_bytes(), tail.as_bytes())?;
    }

    #[test]
    fn any_elf_of_ones_and_extremes_has_a_verdict(fields in prop::collection::vec(prop::sample::select(vec![0u64, 1, 2, 56, 64, 0xffff, u32::MAX.into(), i64::MAX as u64, u64::MAX]), 30)) {
        let mut content = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0\x01\0\0\0".to_vec();
        fields.iter().for_each(|field| content.extend(field.to_le_bytes()));
        content[32..40].copy_from_slice(&64u64.to_le_bytes());
        content[54..58].copy_from_slice(&[56, 0, 3, 0]);
        never_better(&content, &[0; 64])?;
    }
}

#[test]
fn the_whole_file_is_preloadable_and_the_properties_are_not_empty() {
    assert_eq!(verdict(&programs()[0]).verdict, Decision::Preload);
    assert_eq!(verdict(b"#!/bin/env -S dynamic -x\n").verdict, Decision::Preload);
    assert_eq!(verdict(&programs()[2]).verdict, Decision::Enforce);
}
