//! What is in a machine: a shell, bubblewrap, gatekeeper, this test program and its probes.

use super::machine::{self, Files, Processor};
use crate::support::{gatekeeper, has, probe, probe_of_many};
use std::fs;
use std::path::PathBuf;

/// The files of every machine of this processor. `None` if a program for it is missing here.
pub fn files(processor: Processor) -> Option<Files> {
    let mut files = Files::default();
    files.add("init", 0o755, include_bytes!("init").as_slice());
    files.add("etc/passwd", 0o644, "root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/nonexistent:/bin/sh\n");
    files.add("etc/group", 0o644, "root:x:0:\nnogroup:x:65534:\n");
    files.add("etc/shadow", 0o600, "root:*:1:0:99999:7:::\n");
    files.add("etc/os-release", 0o644, "ID=debian\nVERSION_ID=\"12\"\nPRETTY_NAME=\"Debian\"\n");
    let probes = |flags: &str, name: &str| format!("suite/probes/{name}{flags}");
    match processor {
        Processor::X86 => {
            if !has("busybox") || !has("bwrap") {
                return None;
            }
            files.add_program("bin/busybox", &found("busybox"));
            files.add_program("usr/bin/bwrap", &found("bwrap"));
            let itself = std::env::current_exe().expect("/proc is mounted");
            files.add_program("suite/blackbox", &machine::stripped(&itself, "strip"));
            files.add_program("suite/gatekeeper", &machine::stripped(gatekeeper(), "strip"));
            files.add_program(&probes("_lpthread", "escape"), &probe_of_many("escape", &["-lpthread"]));
            files.add_program(&probes("_static", "escape"), &probe_of_many("escape", &["-static"]));
            for name in PROBES {
                files.add_program(&probes("", name), &probe(name, &[]));
            }
            files.add("suite/foreign", 0o755, foreign(183));
        }
        Processor::Arm => {
            // scripts/aarch64 makes it.
            let built = PathBuf::from(std::env::var_os("KERNELS_AARCH64")?);
            files.add_tree(&built.join("root"));
            for name in ["blackbox", "gatekeeper"] {
                files.add_file(
                    &format!("suite/{name}"),
                    &machine::stripped(&built.join(name), "aarch64-linux-gnu-strip"),
                );
            }
            for entry in fs::read_dir(built.join("probes")).expect("readable").flatten() {
                let name = entry.file_name().into_string().expect("text");
                files.add_file(&probes("", &name), &entry.path());
            }
            files.add("suite/foreign", 0o755, foreign(62));
        }
    }
    Some(files)
}

const PROBES: [&str; 4] = ["hog", "bomb", "outer", "act"];

/// The path of a program on PATH.
fn found(program: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join(program)).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("{program} is not on PATH"))
}

/// The header of a static program for this machine number of elf(5).
fn foreign(machine: u16) -> Vec<u8> {
    let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
    bytes.resize(16, 0);
    for half in [2u16, machine] {
        bytes.extend_from_slice(&half.to_le_bytes());
    }
    bytes.extend_from_slice(&1u32.to_le_bytes());
    for long in [0x40_0078u64, 64, 0] {
        bytes.extend_from_slice(&long.to_le_bytes());
    }
    bytes.extend_from_slice(&0u32.to_le_bytes());
    for half in [64u16, 56, 1, 64, 0, 0] {
        bytes.extend_from_slice(&half.to_le_bytes());
    }
    // One segment: everything, readable and executable.
    for word in [1u32, 5] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    for long in [0u64, 0x40_0000, 0x40_0000, 120, 120, 4096] {
        bytes.extend_from_slice(&long.to_le_bytes());
    }
    bytes
}
