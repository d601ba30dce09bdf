//! Generates the table of syscall names and numbers for the target architecture from libseccomp.
//!
//! At build time, so that the preload contains a 10 KB table instead of a library that allocates.

#[path = "src/groups.rs"]
#[allow(dead_code)]
mod groups;
#[path = "src/slots.rs"]
mod slots;

use libseccomp_sys::*;
use std::collections::BTreeMap;
use std::env;
use std::ffi::CStr;
use std::fmt::Write;
use std::path::PathBuf;

/// No architecture uses higher numbers. Must equal `bpf::LIMIT`.
const LIMIT: i32 = 1024;

/// Syscalls that the oldest libseccomp we build against (2.5.4) may lack. From 424 on, all architectures share numbers.
const NEWER: &[(&str, u16)] = &[
    ("map_shadow_stack", 453),
    ("futex_wake", 454),
    ("futex_wait", 455),
    ("futex_requeue", 456),
    ("statmount", 457),
    ("listmount", 458),
    ("lsm_get_self_attr", 459),
    ("lsm_set_self_attr", 460),
    ("lsm_list_modules", 461),
    ("mseal", 462),
    ("setxattrat", 463),
    ("getxattrat", 464),
    ("listxattrat", 465),
    ("removexattrat", 466),
    ("open_tree_attr", 467),
    ("file_getattr", 468),
    ("file_setattr", 469),
];
const NEWER_X86_64: &[(&str, u16)] = &[("uretprobe", 335), ("uprobe", 336)];

/// Architectures whose names are known too, so that a name without a number here is reported as such, not as a typo.
const OTHERS: [u32; 13] = [
    SCMP_ARCH_X86,
    SCMP_ARCH_X86_64,
    SCMP_ARCH_X32,
    SCMP_ARCH_ARM,
    SCMP_ARCH_AARCH64,
    SCMP_ARCH_MIPS,
    SCMP_ARCH_MIPS64,
    SCMP_ARCH_PPC,
    SCMP_ARCH_PPC64LE,
    SCMP_ARCH_S390,
    SCMP_ARCH_S390X,
    SCMP_ARCH_PARISC,
    SCMP_ARCH_RISCV64,
];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/groups.rs");
    println!("cargo:rerun-if-changed=src/slots.rs");
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it");
    let (native, newer) = match arch.as_str() {
        "x86_64" => (SCMP_ARCH_X86_64, NEWER_X86_64),
        "aarch64" => (SCMP_ARCH_AARCH64, &[][..]),
        "riscv64" => (SCMP_ARCH_RISCV64, &[][..]),
        other => panic!("no table for {other}: x86_64, aarch64 and riscv64 only"),
    };
    let mut names: BTreeMap<String, Option<u16>> = BTreeMap::new();
    for other in OTHERS {
        // MIPS numbers start at 4000, 5000 and 6000; x32 numbers have bit 30 set.
        for base in [0, 4000, 5000, 6000, 0x4000_0000] {
            names.extend(known(other, base).into_iter().map(|(name, _)| (name, None)));
        }
    }
    names.extend(known(native, 0).into_iter().map(|(name, number)| (name, Some(number))));
    names.extend(NEWER.iter().chain(newer).map(|(name, number)| ((*name).to_owned(), Some(*number))));

    let mut text = format!("static TEXT: &[u8] = {:?};\n", names.keys().map(String::as_str).collect::<String>())
        .replacen('"', "b\"", 1);
    let ends = names.keys().scan(0, |end, name| {
        *end += name.len();
        Some(*end)
    });
    writeln!(text, "static ENDS: &[u16] = &{:?};", ends.collect::<Vec<_>>()).expect("a string takes all");
    let numbers: Vec<u16> = names.values().map(|number| number.unwrap_or(u16::MAX)).collect();
    writeln!(text, "static NUMBERS: &[u16] = &{numbers:?};").expect("a string takes all");
    let here = numbers.iter().filter(|number| **number != u16::MAX);
    let count = here.max().map_or(0, |last| last + 1);
    assert!(i32::from(count) <= LIMIT, "syscall numbers end at {count}, after LIMIT");
    let mut places = vec![u16::MAX; usize::from(count)];
    for (place, number) in (0u16..).zip(&numbers).filter(|(_, number)| **number != u16::MAX) {
        places[usize::from(*number)] = place;
    }
    writeln!(text, "static PLACES: &[u16] = &{places:?};").expect("a string takes all");
    writeln!(text, "/// No number from this one up has a name.\npub const COUNT: u16 = {count};")
        .expect("a string takes all");
    writeln!(text, "static SLOTS: &[u16] = &{:?};", table(names.keys())).expect("a string takes all");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    std::fs::write(out.join("names.rs"), text).expect("OUT_DIR is writable");
    std::fs::write(out.join("sets.rs"), sets(&names)).expect("OUT_DIR is writable");
}

/// The hash table of the names.
fn table<'n>(names: impl ExactSizeIterator<Item = &'n String>) -> Vec<u16> {
    assert!(names.len() < usize::from(slots::COUNT) * 3 / 4, "{} names are too many for the table", names.len());
    let mut table = vec![slots::FREE; usize::from(slots::COUNT)];
    for (place, name) in (0u16..).zip(names) {
        let hash = slots::hash(name.as_bytes());
        let mut at = usize::from(hash % slots::COUNT);
        while table[at] != slots::FREE {
            at = (at + 1) % table.len();
        }
        table[at] = hash / slots::COUNT * slots::COUNT + place;
    }
    table
}

/// The numbers of each group, as the source of a `NumberSet`.
fn sets(names: &BTreeMap<String, Option<u16>>) -> String {
    let words = |group: &groups::Group| {
        let mut words = [0u64; LIMIT as usize / 64];
        for number in group.calls.iter().filter_map(|call| *names.get(*call)?) {
            words[usize::from(number / 64)] |= 1 << (number % 64);
        }
        words
    };
    let sets: Vec<_> = groups::GROUPS.iter().map(words).collect();
    let sets: Vec<String> = sets.iter().map(|words| format!("NumberSet({words:?})")).collect();
    format!("static SETS: [NumberSet; {}] = [{}];\n", sets.len(), sets.join(", "))
}

/// The syscalls of an architecture from `base` on, with numbers relative to it.
fn known(arch: u32, base: i32) -> Vec<(String, u16)> {
    let name = |number: i32| {
        // SAFETY: libseccomp accepts any architecture and number, and returns null or a C string from malloc, which
        // this short program never frees.
        let text = unsafe { seccomp_syscall_resolve_num_arch(arch, base + number) };
        // SAFETY: not null, so it is such a C string.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    };
    (0..LIMIT).filter_map(|number| Some((name(number)?, number as u16))).collect()
}
