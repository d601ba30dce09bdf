//! gatekeeper on other kernels: Debian's kernels boot under qemu with different settings, and inside of them
//! `inside.rs` checks that what gatekeeper reports is true and that no attack gets out which the report does not name.
//! `make kernels` boots all variants and rewrites the table in docs/threat-model.md.

mod contents;
mod inside;
mod judge;
mod machine;
mod table;

use crate::support::{has, note, skip};
use machine::Processor;
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;
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

/// AppArmor denies every capability to gatekeeper and what it starts, so a user namespace can be created but not used. Ubuntu's profile
/// `unprivileged_userns` does the same to programs of ordinary users; its sysctl is not in Debian's kernels.
const APPARMOR: Variant =
    Variant { name: "AppArmor as on Ubuntu 24.04", words: "policy=1 only=nobody", namespaces: false, ..PART };

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
    Variant { kernel: "6.12", ..APPARMOR },
];

/// How long one machine may take, on a machine that does other things too. Both are twenty times what it takes alone.
const LIMIT: Duration = Duration::from_secs(5400);
const SHORT: Duration = Duration::from_secs(600);

/// Tests of the suite that `make kernels` also runs inside: steps that fail, and features that are taken away. They need a shell and a few
/// probes. That the attacks work unconfined is shown outside only: on one emulated processor, the races among them take too long to be
/// won.
const MORE: &[&str] = &[
    "run::faults::a_step_that_fails_runs_nothing_and_is_named",
    "run::faults::a_step_that_fails_leaves_no_cgroup",
    "run::faults::a_cgroup_without_an_owner_is_swept_by_the_next_run",
    "run::faults::a_step_that_is_killed_for_runs_nothing_and_is_named",
    "run::faults::the_runs_that_are_made_to_fail_work_otherwise",
    "run::faults::limits_need_no_auxiliary_vector",
    "run::faults::a_mount_layer_that_fails_is_told_and_never_silent",
    "run::faults::supervision_that_fails_ends_the_run",
    "run::outer::under_an_outer_filter",
    "run::outer::under_an_outer_filter_with_a_listener",
    "run::outer::an_exact_list_under_a_listener",
    "run::outer::inside_itself",
    "run::outer::with_user_namespaces_disabled",
    "run::outer::inside_bubblewrap",
    "run::outer::without_landlock_the_run_is_refused_or_told",
    "run::outer::without_seccomp_the_run_is_refused",
    "run::outer::without_proc",
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
    let mut files = contents::files(variant.processor)?;
    if let Some(overlay) = &kernel.overlay {
        files.add_file("lib/overlay.ko", overlay);
    }
    if variant.words.contains("policy") {
        match machine::policy() {
            Ok(policy) => files.add("suite/policy", 0o644, policy),
            Err(why) => {
                skip(&format!("no policy for AppArmor: {why}"));
                return None;
            }
        }
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
        None => {
            let log: Box<dyn Write + Send> = match std::env::var_os("KERNELS_LOG").map(log) {
                Some(file) => Box::new(fs::File::create(file).expect("KERNELS_LOG is writable")),
                None => Box::new(std::io::sink()),
            };
            let limit = if short { SHORT } else { LIMIT };
            machine::boot((variant.processor, &kernel.image), &files, &words, limit, log)
                .unwrap_or_else(|lines| panic!("{name} did not end in {limit:?}:\n{}", lines.join("\n")))
        }
    };
    let took = began.elapsed();
    // The first of them follows the name of the test, on the same line.
    let parsed = printed.iter().filter_map(|line| line.split_once(inside::MARK));
    let lines: Vec<Value> =
        parsed.map(|(_, line)| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect();
    let says = |words: &str| printed.iter().any(|line| line.starts_with(words));
    let passed = format!("test result: ok. {} passed;", MORE.len());
    let whole = lines.iter().any(|line| line["what"] == "done") && says("@ended 0") && (!more || says(&passed));
    assert!(whole && !says("@failed"), "{name} failed inside:\n{}", printed.join("\n"));
    let release = lines.iter().find_map(|line| line["release"].as_str()).expect("the first line").to_owned();
    let seen = Seen { release, lines };
    judge::judge(variant, &name, &seen);
    note(&format!("{name}: {} in {} s", seen.release, took.as_secs()));
    Some(seen)
}

#[test]
fn an_older_kernel_holds_what_the_report_says() {
    short(PLAIN);
}

#[test]
fn a_kernel_without_landlock_runs_nothing_unless_the_caller_accepts_it() {
    short(NO_LANDLOCK);
}

/// As one ordinary user, and attacked under one profile: about half a minute.
#[track_caller]
fn short(variant: Variant) {
    if !cfg!(target_arch = "x86_64") {
        return skip("the machine gets the programs of this one, and is an x86_64 machine");
    }
    // Newer releases of Debian lack the older one.
    let kernel = if machine::kernel(variant.kernel, variant.processor).is_ok() { variant.kernel } else { "6.12" };
    try_out(&Variant { kernel, ..variant }, true);
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

/// Tries the variants, as many at once as there are processors, and writes their table. KERNELS_ONLY, a part of a variant's name such as
/// `6.1 as it is`, tries some and writes nothing.
fn try_all(which: &str, variants: &[Variant]) {
    let only = std::env::var("KERNELS_ONLY").ok();
    let name = |variant: &Variant| format!("{} {}", variant.kernel, variant.name);
    let chosen = variants.iter().filter(|variant| only.as_ref().is_none_or(|only| name(variant).contains(only)));
    // Those that take longest first.
    let mut waiting: Vec<&Variant> = chosen.collect();
    waiting.sort_by_key(|variant| variant.whole);
    let (waiting, done) = (Mutex::new(waiting), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(variant) = { waiting.lock().expect("no panic").pop() } {
                    // A failure has printed itself; the other variants go on.
                    let seen = catch_unwind(AssertUnwindSafe(|| try_out(variant, false)));
                    done.lock()
                        .expect("no panic")
                        .push((name(variant), seen.map(|seen| seen.map(|seen| table::row(variant, &seen)))));
                }
            });
        }
    });
    let done = done.into_inner().expect("no panic");
    let of = |variant: &Variant| done.iter().find(|(tried, _)| *tried == name(variant)).map(|(_, row)| row);
    let rows: String = variants.iter().filter_map(|variant| of(variant)?.as_ref().ok()?.clone()).collect();
    note(&rows);
    let failed: Vec<&String> = done.iter().filter(|(_, row)| row.is_err()).map(|(name, _)| name).collect();
    assert!(failed.is_empty(), "failed: {failed:?}");
    if only.is_none() {
        table::write(which, &rows);
    }
}
