//! ELF files with one changed field: fields that the kernel reads, and fields that it ignores.

use super::*;

/// Fields of the ELF header.
pub fn headers(corpus: &mut Corpus) {
    let mut image = |name: &str, image: Image, verdict, code, real| corpus.image(name, image, verdict, code, real);
    image("ei-class-32", dynamic().u8(4, 1), "preload", "", Confined);
    image("ei-class-none", dynamic().u8(4, 0), "preload", "", Confined);
    image("ei-data-big-endian", dynamic().u8(5, 2), "preload", "", Confined);
    image("ei-data-none", dynamic().u8(5, 9), "preload", "", Confined);
    image("ei-version-9", dynamic().u8(6, 9), "preload", "", Confined);
    image("osabi-77", dynamic().u8(7, 77), "preload", "", Confined);
    image("e-version-0", dynamic().u8(20, 0), "preload", "", Confined);
    image("sections-are-nonsense", dynamic().u64(E_SHOFF, u64::MAX - 3).u16(E_SHNUM, 0xffff), "preload", "", Confined);
    image("no-sections", dynamic().u64(E_SHOFF, 0).u16(E_SHNUM, 0), "preload", "", Confined);
    image("trailing-bytes", dynamic().append(&[0xa5; 5000]), "preload", "", Confined);
    image("type-none", dynamic().u16(E_TYPE, 0), "refuse", "corrupt", Dead);
    image("type-object", dynamic().u16(E_TYPE, 1), "refuse", "not_executable", Dead);
    image("type-core", dynamic().u16(E_TYPE, 4), "refuse", "not_executable", Dead);
    image("type-unknown", dynamic().u16(E_TYPE, 0xfe00), "refuse", "corrupt", Dead);
    image("machine-none", dynamic().u16(E_MACHINE, 0), "refuse", "corrupt", Dead);
    image("machine-riscv", dynamic().u16(E_MACHINE, 243), "refuse", "wrong_machine", Dead);
    image("machine-i386-by-name-only", dynamic().u16(E_MACHINE, 3), "refuse", "wrong_class", Dead);
    image("phentsize-57", dynamic().u16(E_PHENTSIZE, 57), "refuse", "corrupt", Dead);
    image("phentsize-32", dynamic().u16(E_PHENTSIZE, 32), "refuse", "corrupt", Dead);
    image("phnum-0", dynamic().u16(E_PHNUM, 0), "refuse", "corrupt", Dead);
    image("phnum-ffff", dynamic().u16(E_PHNUM, 0xffff), "refuse", "corrupt", Dead);
    image("phnum-1171", dynamic().u16(E_PHNUM, 1171).append(&[0; 70000]), "refuse", "corrupt", Dead);
    image("phoff-past-the-end", dynamic().u64(E_PHOFF, 1 << 40), "refuse", "corrupt", Dead);
    image("phoff-all-ones", dynamic().u64(E_PHOFF, u64::MAX), "refuse", "corrupt", Dead);
    image("phoff-negative", dynamic().u64(E_PHOFF, 1 << 63), "refuse", "corrupt", Dead);
}

/// Program headers.
pub fn segments(corpus: &mut Corpus) {
    let mut image = |name: &str, image: Image, verdict, code, real| corpus.image(name, image, verdict, code, real);
    image("interp-one-byte", dynamic().segment(PT_INTERP, P_FILESZ, 1), "refuse", "corrupt", Dead);
    image("interp-too-long", dynamic().segment(PT_INTERP, P_FILESZ, 4097), "refuse", "corrupt", Dead);
    image("interp-huge", dynamic().segment(PT_INTERP, P_FILESZ, u64::MAX), "refuse", "corrupt", Dead);
    let length = dynamic().segment_field(PT_INTERP, P_FILESZ);
    image("interp-without-end", dynamic().segment(PT_INTERP, P_FILESZ, length - 1), "refuse", "corrupt", Dead);
    image("interp-past-the-end", dynamic().segment(PT_INTERP, P_OFFSET, 1 << 32), "refuse", "corrupt", Dead);
    image("interp-empty-name", dynamic().interpreter(b"\0\0"), "refuse", "missing_loader", Dead);
    let (first, last) = (dynamic().header(PT_INTERP), dynamic().last_header());
    image("interp-last", dynamic().swap(first, last), "preload", "", Confined);
    image("interp-twice", dynamic().retype(PT_NOTE, PT_INTERP), "preload", "", Confined);
    image("interp-gone", dynamic().retype(PT_INTERP, PT_NULL), "enforce", "static_pie", Dead);
    image("dynamic-gone", dynamic().retype(PT_DYNAMIC, PT_NULL), "refuse", "corrupt", Dead);
    image("dynamic-offset-lies", dynamic().segment(PT_DYNAMIC, P_OFFSET, 64), "preload", "", Confined);
    image("dynamic-size-lies", dynamic().segment(PT_DYNAMIC, P_FILESZ, 16), "preload", "", Confined);
    image("nothing-loaded", dynamic().retype_all(PT_LOAD, PT_NULL), "refuse", "corrupt", Dead);
    image("load-larger-in-file", dynamic().segment(PT_LOAD, P_MEMSZ, 16), "refuse", "corrupt", Dead);
    image(
        "load-in-kernel-space",
        dynamic().segment(PT_LOAD, P_VADDR, 0xffff_8000_0000_0000),
        "refuse",
        "corrupt",
        Dead,
    );
    image("load-enormous", dynamic().segment(PT_LOAD, P_MEMSZ, u64::MAX), "refuse", "corrupt", Dead);
    image("load-misaligned", dynamic().segment(PT_LOAD, P_OFFSET, 8), "refuse", "corrupt", Dead);
}

/// Truncated and empty files.
pub fn cut_short(corpus: &mut Corpus) {
    for length in [0, 1, 3, 4, 10, 63, 64, 100, 700] {
        corpus.image(&format!("cut-at-{length}"), dynamic().cut(length), "refuse", "corrupt", Dead);
    }
    let half = dynamic().0.len() / 2;
    corpus.image("cut-in-half", dynamic().cut(half), "refuse", "corrupt", Dead);
    corpus.file("garbage", [0xde, 0xad, 0xbe, 0xef, 0, 1, 2, 3], "refuse", "corrupt", Dead);
    corpus.file("text-without-line", "echo hello\n", "refuse", "not_executable", Dead);
    corpus.file("blank-before-magic", " #!/bin/sh\n", "refuse", "not_executable", Dead);
}
