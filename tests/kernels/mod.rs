//! gatekeeper on other kernels: Debian's kernels boot under qemu with different settings, and inside of them
//! `inside.rs` checks that what gatekeeper reports is true and that no attack gets out which the report does not name.
//! `make kernels` boots all variants and rewrites the table in docs/threat-model.md.

mod inside;
mod judge;
mod machine;
mod table;

use crate::support::{gatekeeper, has, note, probe, probe_of_many, skip};
use machine::{Files, Processor};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A kernel and how it is booted.
struct Variant {
    kernel: &'static str,
    processor: Processor,
    /// In the words of the table.
    name: &'static str,
    /// Words of the kernel's command line; `init` reads those that the kernel does not know.
    words: &'static str,
    landlock: bool,
    namespaces: bool,
    /// Attack under every profile, and run the tests in `MORE`. The others are attacked under the narrowest and the widest profile.
    whole: bool,
}

const PLAIN: Variant = Variant {
    kernel: "6.1",
    processor: Processor::X86,
    name: "as it is",
    words: "",
    landlock: true,
    namespaces: true,
    whole: true,
};

const PART: Variant = Variant { whole: false, ..PLAIN };

const DELEGATED: Variant = Variant { name: "a cgroup delegated to the user", words: "delegate=1", ..PART };

const NO_LANDLOCK: Variant =
    Variant { name: "`lsm=` without Landlock", words: "lsm=lockdown,yama,integrity,apparmor", landlock: false, ..PART };

const VARIANTS: &[Variant] = &[
    PLAIN,
    NO_LANDLOCK,
    Variant {
        name: "`user.max_user_namespaces=0`",
        words: "setting=user/max_user_namespaces=0",
        namespaces: false,
        ..PART
    },
    Variant {
        name: "`kernel.unprivileged_userns_clone=0`",
        words: "setting=kernel/unprivileged_userns_clone=0",
        namespaces: false,
        ..PART
    },
    DELEGATED,
    Variant { kernel: "6.12", ..PLAIN },
    Variant { kernel: "6.12", ..DELEGATED },
];

/// How long one machine may take, on a machine that does other things too.
const LIMIT: Duration = Duration::from_secs(1500);

/// Tests of the suite that `make kernels` also runs inside: they need nothing but a shell. That the attacks work unconfined is shown
/// outside only: on one emulated processor, the races among them take too long to be won.
const MORE: &[&str] = &[
    "run::faults::a_step_that_fails_runs_nothing_and_is_named",
    "run::faults::the_runs_that_are_made_to_fail_work_otherwise",
    "run::faults::a_step_that_is_killed_for_runs_nothing_and_is_named",
    "run::faults::supervision_that_fails_ends_the_run",
];

/// What a machine printed, and what follows from it.
struct Seen {
    release: String,
    lines: Vec<Value>,
}

impl Seen {
    fn of(&self, what: &str, user: &str) -> Vec<&Value> {
        self.lines.iter().filter(|line| line["what"] == what && line["user"] == user).collect()
    }

    /// Those who tried.
    fn users(&self) -> impl Iterator<Item = &str> {
        let doctors = self.lines.iter().filter(|line| line["what"] == "doctor");
        doctors.map(|line| line["user"].as_str().expect("text"))
    }

    /// A finding of doctor.
    fn doctor(&self, user: &str, layer: &str) -> (&str, &str) {
        let [doctor] = self.of("doctor", user)[..] else { panic!("no doctor for {user}") };
        let finding = doctor["layers"].as_array().expect("a list").iter().find(|finding| finding["layer"] == layer);
        let finding = finding.unwrap_or_else(|| panic!("doctor does not know {layer}: {doctor:#}"));
        (finding["status"].as_str().expect("text"), finding["detail"].as_str().expect("text"))
    }
}

/// The files of every machine of this processor. `None` if a program for it is missing here.
fn files(processor: Processor) -> Option<Files> {
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

const PROBES: [&str; 3] = ["hog", "bomb", "outer"];

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

/// Boots a variant and judges what it printed. `None` if the kernel cannot be had here, which is a skip.
#[track_caller]
fn try_out(variant: &Variant, short: bool) -> Option<Seen> {
    if !has(variant.processor.qemu()) {
        return None;
    }
    let kernel = match machine::kernel(variant.kernel, variant.processor) {
        Ok(kernel) => kernel,
        Err(why) => {
            skip(&format!("Debian's kernel {} cannot be had: {why}", variant.kernel));
            return None;
        }
    };
    let mut files = files(variant.processor)?;
    if let Some(overlay) = &kernel.overlay {
        files.add_file("lib/overlay.ko", overlay);
    }
    let more = !short && variant.whole;
    files.add("suite/more", 0o644, if more { MORE.join("\n") } else { String::new() });
    let what = if short {
        "short"
    } else if variant.whole {
        "all"
    } else {
        "part"
    };
    let words = format!("{} what={what}", variant.words);
    let name = format!("{} {:?}, {}", variant.kernel, variant.processor, variant.name);
    let log = |directory| Path::new(&directory).join(name.replace(|c: char| !c.is_ascii_alphanumeric(), "-"));
    let began = Instant::now();
    let printed: Vec<String> = match std::env::var_os("KERNELS_FROM").map(log) {
        Some(kept) => fs::read_to_string(kept).expect("what KERNELS_LOG kept").lines().map(str::to_owned).collect(),
        None => machine::boot(variant.processor, &kernel.image, &files, &words, LIMIT)
            .unwrap_or_else(|lines| panic!("{name} did not end in {LIMIT:?}:\n{}", lines.join("\n"))),
    };
    let took = began.elapsed();
    if let Some(file) = std::env::var_os("KERNELS_LOG").map(log) {
        fs::write(file, printed.join("\n")).expect("KERNELS_LOG is writable");
    }
    // The first of them follows the name of the test, on the same line.
    let parsed = printed.iter().filter_map(|line| line.split_once(inside::MARK));
    let lines: Vec<Value> =
        parsed.map(|(_, line)| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect();
    let ended = |end: &str| printed.iter().any(|line| line == end);
    let whole = lines.iter().any(|line| line["what"] == "done") && ended("@ended 0") && (!more || ended("@more 0"));
    let failed = printed.iter().any(|line| line.starts_with("@failed"));
    assert!(whole && !failed, "{name} failed inside:\n{}", printed.join("\n"));
    let release = lines.iter().find_map(|line| line["release"].as_str()).expect("the first line").to_owned();
    let seen = Seen { release, lines };
    judge::judge(variant, &name, &seen);
    note(&format!("{name}: {} in {} s", seen.release, took.as_secs()));
    Some(seen)
}

#[test]
#[ignore = "not part of make test yet: the emulation takes a minute of one core"]
fn linux_6_1_holds_what_the_report_says() {
    try_out(&PLAIN, true);
}

#[test]
#[ignore = "not part of make test yet: the emulation takes a minute of one core"]
fn without_landlock_nothing_runs_unless_the_caller_accepts_it() {
    try_out(&NO_LANDLOCK, true);
}

#[test]
#[ignore = "make kernels runs it: all variants take many minutes"]
fn every_variant() {
    try_all("x86_64", VARIANTS);
}

#[test]
#[ignore = "make aarch64 runs it: it needs a cross build"]
fn aarch64() {
    let arm = |variant: Variant| Variant { processor: Processor::Arm, ..variant };
    try_all("aarch64", &[arm(PART), arm(NO_LANDLOCK), arm(Variant { kernel: "6.12", ..PLAIN })]);
}

/// Tries the variants and writes their table. KERNELS_ONLY, a part of a variant's name such as `6.1 as it is`, tries some and writes
/// nothing.
fn try_all(which: &str, variants: &[Variant]) {
    let only = std::env::var("KERNELS_ONLY").ok();
    let mut rows = String::new();
    for variant in variants {
        let name = format!("{} {}", variant.kernel, variant.name);
        if only.as_ref().is_none_or(|only| name.contains(only.as_str()))
            && let Some(seen) = try_out(variant, false)
        {
            rows.push_str(&table::row(variant, &seen));
        }
    }
    note(&rows);
    if only.is_none() {
        table::write(which, &rows);
    }
}
