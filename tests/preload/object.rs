//! The library file, parsed with goblin: its dependencies, exports and size.

use crate::support::{gatekeeper, libsandbox, run};
use goblin::elf::Elf;
use goblin::elf::dynamic::{DF_1_INITFIRST, DF_1_NODELETE, DF_1_NOW, DT_FLAGS_1, DT_INIT_ARRAYSZ, DT_TEXTREL};
use std::fs;
use std::process::{Command, Stdio};

fn with_elf(check: impl FnOnce(&Elf<'_>, &[u8])) {
    let bytes = fs::read(libsandbox()).expect("the library was extracted");
    check(&Elf::parse(&bytes).expect("an ELF file"), &bytes);
}

#[test]
fn it_needs_libc_and_nothing_else() {
    with_elf(|elf, _| {
        for needed in &elf.libraries {
            assert!(*needed == "libc.so.6" || needed.starts_with("ld-linux"), "{needed}");
        }
        assert!(elf.libraries.contains(&"libc.so.6"));
        assert_eq!(elf.soname, Some("libsandbox.so"));
    });
}

#[test]
fn it_exports_versioned_sandbox_symbols_and_nothing_else() {
    with_elf(|elf, _| {
        let defined =
            elf.dynsyms.iter().enumerate().filter(|(_, symbol)| symbol.st_shndx != 0 && symbol.st_bind() != 0);
        let mut exports = Vec::new();
        for (at, symbol) in defined {
            let name = elf.dynstrtab.get_at(symbol.st_name).expect("a name");
            // The version itself is an absolute symbol in the table.
            if name == "LIBSANDBOX_1" {
                continue;
            }
            let version = elf.versym.as_ref().and_then(|table| table.get_at(at)).expect("a version");
            assert!(version.version() >= 2, "{name} has no version");
            exports.push(name);
        }
        exports.sort_unstable();
        assert_eq!(exports, ["sandbox_install", "sandbox_strerror"]);
        let versions = elf.verdef.as_ref().expect("it defines versions").iter();
        let names: Vec<_> = versions.flat_map(|version| version.iter().collect::<Vec<_>>()).collect();
        let names: Vec<_> = names.iter().filter_map(|version| elf.dynstrtab.get_at(version.vda_name)).collect();
        // The file itself, then the version that a program linked against the library requires.
        assert_eq!(names, ["libsandbox.so", "LIBSANDBOX_1"]);
    });
}

/// Programs that were built before must keep working: lines may be added to abi.txt; to change one, add a version beside LIBSANDBOX_1.
#[test]
fn the_interface_is_that_of_the_snapshot() {
    let exports = run(Command::new("objdump").arg("-T").arg(libsandbox())).exits(0).stdout();
    let exported = exports.lines().filter_map(|line| line.split_once("LIBSANDBOX_1")).map(|(_, name)| name.trim());
    let mut lines: Vec<String> =
        exported.filter(|name| name.starts_with("sandbox_")).map(|name| format!("{name} LIBSANDBOX_1")).collect();
    lines.sort_unstable();
    let header = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../libsandbox/include/sandbox.h");
    let declared = run(Command::new("cc").args(["-E", "-P"]).arg(header)).exits(0).stdout();
    let declared = declared.split_whitespace().collect::<Vec<_>>().join(" ").replace("; ", ";\n");
    lines.extend(declared.lines().map(str::to_owned));
    assert_eq!(lines, include_str!("abi.txt").lines().collect::<Vec<_>>());
}

#[test]
fn it_runs_on_glibc_2_17() {
    with_elf(|elf, _| {
        let mut highest = (0, 0);
        for library in elf.verneed.as_ref().expect("it needs versions").iter() {
            for version in library.iter() {
                let name = elf.dynstrtab.get_at(version.vna_name).expect("a name");
                let number = name.strip_prefix("GLIBC_").unwrap_or_else(|| panic!("{name}"));
                let mut parts = number.split('.').map(|part| part.parse::<u32>().expect("a number"));
                highest = highest.max((parts.next().unwrap_or(0), parts.next().unwrap_or(0)));
            }
        }
        assert!(highest > (2, 0) && highest <= (2, 17), "{highest:?}");
    });
}

#[test]
fn it_is_small_and_stripped() {
    with_elf(|elf, bytes| {
        assert!(bytes.len() <= 200 * 1024, "{}", bytes.len());
        assert_eq!(elf.syms.len(), 0);
        assert!(
            !elf.section_headers.iter().any(|section| {
                elf.shdr_strtab.get_at(section.sh_name).is_some_and(|name| name.starts_with(".debug"))
            })
        );
    });
}

#[test]
fn it_has_one_plain_constructor_and_no_text_relocation() {
    with_elf(|elf, _| {
        let dynamic = elf.dynamic.as_ref().expect("a dynamic section");
        let value = |tag: u64| dynamic.dyns.iter().find(|entry| entry.d_tag == tag).map(|entry| entry.d_val);
        // Two constructors: gcc's frame_dummy, and ours. With initfirst, libraries would be initialised under the
        // filter.
        assert_eq!(value(DT_INIT_ARRAYSZ), Some(16));
        let flags = value(DT_FLAGS_1).unwrap_or(0);
        assert_eq!(flags & DF_1_INITFIRST, 0);
        assert_ne!(flags & DF_1_NOW, 0);
        // dlclose must not unmap the handler of the trap action.
        assert_ne!(flags & DF_1_NODELETE, 0);
        assert_eq!(value(DT_TEXTREL), None);
    });
}

#[test]
fn its_stack_is_not_executable_and_its_data_is_made_read_only() {
    with_elf(|elf, _| {
        let header = |wanted: u32| elf.program_headers.iter().find(|header| header.p_type == wanted);
        let stack = header(goblin::elf::program_header::PT_GNU_STACK).expect("a stack header");
        assert!(!stack.is_executable());
        assert!(header(goblin::elf::program_header::PT_GNU_RELRO).is_some());
        assert!(elf.program_headers.iter().all(|header| !(header.is_write() && header.is_executable())));
    });
}

#[test]
fn it_calls_nothing_that_the_program_could_answer_in_the_kernels_place() {
    with_elf(|elf, _| {
        let imports = || elf.dynsyms.iter().filter(|symbol| symbol.st_shndx == 0);
        let names: Vec<&str> = imports().filter_map(|symbol| elf.dynstrtab.get_at(symbol.st_name)).collect();
        // All strong imports: `__environ` to remove our variables, `__errno_location` for `sandbox_install`,
        // `getauxval` after a late dlopen, and `gnu_get_libc_version` so that musl does not load it. gcc's start-up
        // code imports weak symbols.
        let known = ["__environ", "__errno_location", "getauxval", "gnu_get_libc_version"];
        let strong = imports().filter(|symbol| symbol.st_bind() != goblin::elf::sym::STB_WEAK);
        let mut strong: Vec<&str> = strong.filter_map(|symbol| elf.dynstrtab.get_at(symbol.st_name)).collect();
        strong.retain(|name| !name.is_empty());
        strong.sort_unstable();
        assert_eq!(strong, known);
        let start_up = ["_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable", "__cxa_finalize", "__gmon_start__"];
        for name in names.iter().filter(|name| !name.is_empty() && !known.contains(name)) {
            assert!(start_up.contains(name), "{name}");
        }
    });
}

#[test]
fn it_has_no_way_to_panic_and_no_unwinder() {
    with_elf(|elf, bytes| {
        for symbol in elf.dynsyms.iter() {
            let name = elf.dynstrtab.get_at(symbol.st_name).expect("a name");
            assert!(!name.contains("panic") && !name.starts_with("_Unwind"), "{name}");
        }
        let holds = |text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
        assert!(!holds(b"panicked at"));
        assert!(!holds(b"index out of bounds"));
        // The control: the search finds a string that exists.
        assert!(holds(b"libsandbox: "));
    });
}

#[test]
fn extract_writes_a_loadable_file_where_it_is_told() {
    let dir = crate::support::fresh("extract");
    let path = dir.join("lib.so");
    run(Command::new(gatekeeper()).arg("extract").arg(&path)).exits(0).prints(&format!("{}\n", path.display()));
    assert_eq!(fs::read(&path).expect("it was written"), fs::read(libsandbox()).expect("it was written"));
    run(Command::new(gatekeeper()).arg("extract").current_dir(&dir)).exits(0).prints("libsandbox.so\n");
    let nowhere = dir.join("missing/lib.so");
    run(Command::new(gatekeeper()).arg("extract").arg(&nowhere)).exits(2).prints("").complains(&format!(
        "gatekeeper: extract: cannot write {}: No such file or directory (os error 2)\n",
        nowhere.display()
    ));
    // A script that takes the path from the output would take an empty one.
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("a device");
    let status = Command::new(gatekeeper()).arg("extract").arg(&path).stdout(full).stderr(Stdio::null()).status();
    assert_eq!(status.expect("gatekeeper starts").code(), Some(2));
}
