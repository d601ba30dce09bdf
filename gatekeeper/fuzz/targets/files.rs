//! Fuzzes the ELF and script checks: any bytes as a program, a loader and a preload, in an in-memory file system.

use gatekeeper::check::memory::{Bytes, Memory};
use gatekeeper::check::{Caller, Checker, Context, Decision, NATIVE, Preload};
use std::ffi::OsStr;
use std::sync::OnceLock;

const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

fn system() -> &'static (Memory, Context) {
    static SYSTEM: OnceLock<(Memory, Context)> = OnceLock::new();
    SYSTEM.get_or_init(|| {
        let caller = Caller { uid: 1000, gids: vec![] };
        let mut files = Memory::new(caller.clone());
        let read = |path: &str| std::fs::read(path).unwrap_or_default();
        files.put(LOADER, Bytes::program(read(LOADER)));
        for name in ["/bin/true", "/bin/env", "/bin/sh"] {
            files.put(name, Bytes::program(read("/bin/true")));
        }
        let context = Context {
            path: Some("/bin".into()),
            cwd: "/".into(),
            caller,
            preload: Preload::embedded(),
            handlers: Vec::new(),
            machine: NATIVE,
            detail: true,
        };
        (files, context)
    })
}

pub fn elf(content: &[u8]) {
    try_file(content);
}

/// Any bytes after `#!`, directly and as arguments of env.
pub fn script(line: &[u8]) {
    try_file(&[b"#!", line].concat());
    try_file(&[b"#!/bin/env -S ", line, b"\n"].concat());
}

/// The verdict is the same twice, and the strictest of its reasons decides it.
fn try_file(content: &[u8]) {
    let (files, context) = system();
    let mut files = files.clone();
    files.put("/file", Bytes::program(content.to_vec()));
    // Hostile bytes are read in three roles: program, loader and preload.
    let verdict = Checker::new(context, &files).check(OsStr::new("/file")).verdict;
    assert_eq!(verdict, Checker::new(context, &files).check(OsStr::new("/file")).verdict);
    let heaviest = verdict.reasons.iter().map(|reason| reason.code.decision()).max();
    assert_eq!(verdict.verdict, heaviest.unwrap_or(Decision::Preload));
    files.put(LOADER, Bytes::program(content.to_vec()));
    let _ = Checker::new(context, &files).check(OsStr::new("true"));
    let _ = Preload::at("/file".as_ref(), "/".as_ref(), &files);
}
