//! gatekeeper on other kernels: Debian's kernels boot under qemu with different settings, and inside of them
//! `inside.rs` checks that what gatekeeper reports is true and that no attack gets out which the report does not name.
//! `make kernels` boots all variants and rewrites the table in docs/threat-model.md.

mod inside;
mod machine;

use crate::support::{gatekeeper, has, note, probe, probe_of_many, skip};
use machine::{Files, Processor};
use serde_json::Value;
use std::fmt::Write;
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
}

const PLAIN: Variant =
    Variant { kernel: "6.1", processor: Processor::X86, name: "as it is", words: "", landlock: true, namespaces: true };

const VARIANTS: &[Variant] = &[
    PLAIN,
    NO_LANDLOCK,
    Variant {
        name: "`user.max_user_namespaces=0`",
        words: "setting=user/max_user_namespaces=0",
        namespaces: false,
        ..PLAIN
    },
    Variant {
        name: "`kernel.unprivileged_userns_clone=0`",
        words: "setting=kernel/unprivileged_userns_clone=0",
        namespaces: false,
        ..PLAIN
    },
    Variant { name: "a cgroup delegated to the user", words: "delegate=1", ..PLAIN },
    Variant { kernel: "6.12", ..PLAIN },
    Variant { kernel: "6.12", name: "a cgroup delegated to the user", words: "delegate=1", ..PLAIN },
];

const NO_LANDLOCK: Variant = Variant {
    name: "`lsm=` without Landlock",
    words: "lsm=lockdown,yama,integrity,apparmor",
    landlock: false,
    ..PLAIN
};

/// Attacks that may get through, and what the report of that run must say for it: a layer, its status, and words of its
/// detail. An attack ends with `*` if the name goes on, and may be a whole theme.
const GAPS: &[(&str, &str, &str, &str)] = &[
    ("signal-*", "landlock", "partial", "signals and abstract sockets"),
    ("truncate*", "landlock", "partial", "truncation"),
    ("hook-*", "landlock", "partial", "stays writable"),
    ("config-*", "landlock", "partial", "stays writable"),
    ("read-env-file", "landlock", "partial", "stays readable and writable"),
    ("shared-memory", "landlock", "partial", "is shared with processes outside"),
    ("files/*", "landlock", "unavailable", ""),
    ("races/*", "landlock", "unavailable", ""),
    // Files of other processes, of devices and of the kernel, and the capabilities that root loses with Landlock.
    ("proc-*", "landlock", "unavailable", ""),
    ("signal-*", "landlock", "unavailable", ""),
    ("terminal-*", "landlock", "unavailable", ""),
    ("dev-*", "landlock", "unavailable", ""),
    ("sysctl*", "landlock", "unavailable", ""),
    ("cgroup-*", "landlock", "unavailable", ""),
    ("oom-score", "landlock", "unavailable", ""),
    ("rename-process", "landlock", "unavailable", ""),
    ("clear-refs", "landlock", "unavailable", ""),
    ("uid-map", "landlock", "unavailable", ""),
    ("userfaultfd-device", "landlock", "unavailable", ""),
    ("core-pattern", "landlock", "unavailable", ""),
    ("sysrq", "landlock", "unavailable", ""),
    ("power-state", "landlock", "unavailable", ""),
    ("kcore", "landlock", "unavailable", ""),
    ("capset", "landlock", "unavailable", ""),
    ("ambient-capability", "landlock", "unavailable", ""),
    ("raise-limit", "landlock", "unavailable", ""),
    ("raw-socket", "landlock", "unavailable", ""),
    ("netlink-change", "landlock", "unavailable", ""),
];

/// How long one machine may take, on a machine that does other things too.
const LIMIT: Duration = Duration::from_secs(1500);

/// Tests of the suite that `make kernels` also runs inside: they need nothing but a shell.
const MORE: &[&str] = &[
    "escape::every_way_is_open_without_confinement",
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
    let more = !short && variant.landlock && variant.namespaces;
    files.add("suite/more", 0o644, if more { MORE.join("\n") } else { String::new() });
    let words = format!("{} what={}", variant.words, if short { "short" } else { "all" });
    let began = Instant::now();
    let booted = machine::boot(variant.processor, &kernel.image, &files, &words, LIMIT);
    let took = began.elapsed();
    let name = format!("{} {:?}, {}", variant.kernel, variant.processor, variant.name);
    let printed = booted.unwrap_or_else(|lines| panic!("{name} did not end in {LIMIT:?}:\n{}", lines.join("\n")));
    if let Some(directory) = std::env::var_os("KERNELS_LOG") {
        let file = Path::new(&directory).join(name.replace(|c: char| !c.is_ascii_alphanumeric(), "-"));
        fs::write(file, printed.join("\n")).expect("KERNELS_LOG is writable");
    }
    let parsed = printed.iter().filter_map(|line| line.strip_prefix(inside::MARK));
    let lines: Vec<Value> =
        parsed.map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect();
    let ended = |end: &str| printed.iter().any(|line| line == end);
    let whole = lines.iter().any(|line| line["what"] == "done") && ended("@ended 0") && (!more || ended("@more 0"));
    let failed = printed.iter().any(|line| line.starts_with("@failed"));
    assert!(whole && !failed, "{name} failed inside:\n{}", printed.join("\n"));
    let release = lines.iter().find_map(|line| line["release"].as_str()).expect("the first line").to_owned();
    let seen = Seen { release, lines };
    judge(variant, &name, &seen);
    note(&format!("{name}: {} in {} s", seen.release, took.as_secs()));
    Some(seen)
}

/// Fails if something got out, or if a report was untrue.
fn judge(variant: &Variant, name: &str, seen: &Seen) {
    for user in ["root", "nobody"] {
        let landlock = seen.doctor(user, "landlock").0 != "unavailable";
        assert_eq!(landlock, variant.landlock, "{name}: doctor, {user}");
        let namespaces = seen.doctor(user, "user namespaces").0 == "available";
        let off = !variant.namespaces && (user == "nobody" || variant.words.contains("max_user_namespaces"));
        assert_eq!(namespaces, !off, "{name}: doctor, {user}");
        let mut unexplained = Vec::new();
        for attacks in seen.of("attacks", user) {
            for through in attacks["through"].as_array().expect("a list") {
                let (theme, attack) = (through[0].as_str().expect("text"), through[1].as_str().expect("text"));
                if !explained(theme, attack, &attacks["layers"]) {
                    unexplained
                        .push(format!("{theme}/{attack}, {}, {user}: {}", attacks["profile"], attacks["layers"]));
                }
            }
        }
        assert!(unexplained.is_empty(), "{name}: got through:\n{}", unexplained.join("\n"));
        for profile in seen.of("profile", user) {
            assert_eq!(profile["refused"], !landlock && profile["profile"] != "unrestricted", "{name}: {profile}");
        }
        let [limits] = seen.of("limits", user)[..] else { panic!("{name}: no limits") };
        let by_kernel = user == "root" || variant.words.contains("delegate");
        for which in ["memory", "processes"] {
            assert_eq!(limits[which][0], if by_kernel { "enforced" } else { "partial" }, "{name}: {limits}");
        }
    }
}

/// Whether the report names the gap through which an attack went.
fn explained(theme: &str, attack: &str, layers: &Value) -> bool {
    GAPS.iter().any(|(what, layer, status, words)| {
        let matches = match what.strip_suffix('*') {
            Some(start) => attack.starts_with(start) || format!("{theme}/{attack}").starts_with(start),
            None => attack == *what,
        };
        matches
            && layers.as_array().expect("a list").iter().any(|found| {
                found["layer"] == *layer
                    && found["status"] == *status
                    && found["detail"].as_str().expect("text").contains(words)
            })
    })
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
    let mut rows = String::from(HEAD);
    for variant in VARIANTS {
        if let Some(seen) = try_out(variant, false) {
            rows.push_str(&row(variant, &seen));
        }
    }
    note(&rows);
    write_table("x86_64", INTRODUCTION, &rows);
}

#[test]
#[ignore = "make aarch64 runs it: it needs a cross build"]
fn aarch64() {
    let arm = |variant: &Variant| Variant { processor: Processor::Arm, ..*variant };
    let mut rows = String::from(HEAD);
    for variant in [PLAIN, NO_LANDLOCK, Variant { kernel: "6.12", ..PLAIN }] {
        let variant = arm(&variant);
        if let Some(seen) = try_out(&variant, false) {
            rows.push_str(&row(&variant, &seen));
        }
    }
    note(&rows);
    write_table("aarch64", "The same on aarch64, by `make aarch64`:\n", &rows);
}

const INTRODUCTION: &str = "\
`make kernels` boots Debian's kernels under qemu, makes the attacks of [security-tests.md](security-tests.md) inside, and fails if an
attack gets through that the report of that run does not name as open. It wrote this table. Without Landlock, `run` refuses; the
attacks are then made with `--require-sandbox=false`. Every machine has cgroup v2: root can use it, other users only where a cgroup
is delegated to them.
";

const HEAD: &str = "| kernel | booted | user | Landlock | user namespaces | limits by | stage | attacks stopped | open, as the report says |\n\
    |---|---|---|---|---|---|---|---|---|\n";

/// The rows of a variant: one for root, one for nobody.
fn row(variant: &Variant, seen: &Seen) -> String {
    let mut text = String::new();
    for user in ["root", "nobody"] {
        let (status, detail) = seen.doctor(user, "landlock");
        let landlock = match status {
            "unavailable" => "refused",
            _ => detail.split(',').next().unwrap_or(detail),
        };
        let namespaces = if seen.doctor(user, "user namespaces").0 == "available" { "yes" } else { "no" };
        let enforced = seen.of("limits", user).iter().all(|limits| limits["memory"][0] == "enforced");
        let stage = seen.of("stage", user).first().and_then(|stage| stage["means"].as_str()).unwrap_or("-");
        let (mut tried, mut through) = (0, 0);
        let mut names: Vec<&str> = Vec::new();
        for attacks in seen.of("attacks", user) {
            tried += attacks["tried"].as_u64().expect("a number");
            for one in attacks["through"].as_array().expect("a list") {
                through += 1;
                names.push(one[1].as_str().expect("text"));
            }
        }
        names.sort_unstable();
        names.dedup();
        let open = match names.len() {
            0 => "nothing".to_owned(),
            many @ 13.. => format!("{many} attacks, most of them on files"),
            _ => names.join(", "),
        };
        let _ = writeln!(
            text,
            "| {} | {} | {user} | {landlock} | {namespaces} | {} | {stage} | {} of {tried} | {open} |",
            variant.kernel,
            variant.name,
            if enforced { "kernel" } else { "supervisor" },
            tried - through,
        );
    }
    text
}

/// Writes the table between its marks in docs/threat-model.md.
fn write_table(which: &str, introduction: &str, rows: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/threat-model.md");
    let text = fs::read_to_string(&path).expect("docs/threat-model.md is there");
    let (begin, end) = (format!("<!-- {which}: written by make kernels -->\n"), "<!-- up to here -->\n");
    let (before, rest) = text.split_once(&begin).expect("the mark where the table begins");
    let (_, after) = rest.split_once(end).expect("the mark where it ends");
    fs::write(&path, format!("{before}{begin}{introduction}\n{rows}{end}{after}")).expect("the docs are writable");
}
