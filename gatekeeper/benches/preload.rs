//! What the preload adds to one exec of /bin/true, by interleaved runs in a new random order each round.
//!
//! `make bench`, or `cargo bench -p gatekeeper-sandbox --bench preload -- ROUNDS`. Asserts nothing: times differ between
//! machines.

use sandbox_contract::bpf::{self, Insn, List, ret};
use sandbox_contract::{file, grammar, groups, syscalls};
use std::ffi::{CString, c_char};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

struct Case {
    name: &'static str,
    environment: Vec<CString>,
    micros: Vec<f64>,
    faults: i64,
}

fn main() {
    let rounds = std::env::args().find_map(|word| word.parse::<usize>().ok()).unwrap_or(400);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let library = dir.path().join("libsandbox.so");
    std::fs::write(&library, libsandbox_embed::LIBSANDBOX.expect("built with its sources")).expect("it can be written");
    let empty = empty_library(dir.path());
    let (few, many) = (names(25), names(120));
    let filter = dir.path().join("filter");
    std::fs::write(&filter, compiled(&many)).expect("it can be written");

    let preload = |path: &Path| format!("LD_PRELOAD={}", path.display());
    let allow = |list: &[String]| format!("SECCOMP_SYSCALL_ALLOW={}", list.join(":"));
    let ours = preload(&library);
    let mut cases = [
        case("plain exec", &[]),
        case("an empty .so", &[&preload(&empty)]),
        case("no variables", &[&ours]),
        case("25 names", &[&ours, &allow(&few)]),
        case("120 names", &[&ours, &allow(&many)]),
        case("120 names, compiled", &[&ours, &format!("SANDBOX_FILTER={}", filter.display())]),
    ];
    let mut order: Vec<usize> = (0..cases.len()).collect();
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    for round in 0..rounds + 10 {
        for i in (1..order.len()).rev() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            order.swap(i, (random >> 33) as usize % (i + 1));
        }
        for at in &order {
            let (micros, faults) = exec(&cases[*at].environment);
            // The first rounds fill the page cache.
            if round >= 10 {
                cases[*at].micros.push(micros);
                cases[*at].faults = faults;
            }
        }
    }
    print(&mut cases);
}

fn print(cases: &mut [Case]) {
    let mut medians = Vec::new();
    for case in cases.iter_mut() {
        case.micros.sort_by(f64::total_cmp);
        medians.push(case.micros[case.micros.len() / 2]);
    }
    println!("{:<22}{:>10}{:>10}{:>14}", "", "median us", "added us", "page faults");
    for (case, median) in cases.iter().zip(&medians) {
        println!("{:<22}{median:>10.0}{:>10.0}{:>14}", case.name, median - medians[0], case.faults);
    }
    let added = |at: usize| medians[at] - medians[0];
    println!("\nno variables / empty .so           {:>6.2}   aim: at most 2.5", added(2) / added(1));
    println!("25 names, plain exec being 600 us  {:>6.0}   aim: at most 250 us", added(3) * 600.0 / medians[0]);
    println!("compiled 120 names / 25 names      {:>6.2}   aim: at most 1.3", added(5) / added(3));
}

fn case(name: &'static str, environment: &[&str]) -> Case {
    let environment = environment.iter().map(|word| CString::new(*word).expect("no NUL in it")).collect();
    Case { name, environment, micros: Vec::new(), faults: 0 }
}

/// Runs /bin/true once: its time in microseconds and its minor page faults.
fn exec(environment: &[CString]) -> (f64, i64) {
    let pointers = |list: &[CString]| -> Vec<*mut c_char> {
        list.iter().map(|word| word.as_ptr().cast_mut()).chain([std::ptr::null_mut()]).collect()
    };
    let program = c"/bin/true";
    let argv = [program.as_ptr().cast_mut(), std::ptr::null_mut()];
    let envp = pointers(environment);
    let start = Instant::now();
    // SAFETY: `argv` and `envp` are null-terminated arrays of live C strings; the rest is written by the calls.
    let (status, usage) = unsafe {
        let mut pid = 0;
        let mut status = 0;
        let mut usage: libc::rusage = std::mem::zeroed();
        let (no_actions, no_attributes) = (std::ptr::null(), std::ptr::null());
        let answer =
            libc::posix_spawn(&mut pid, program.as_ptr(), no_actions, no_attributes, argv.as_ptr(), envp.as_ptr());
        assert_eq!(answer, 0, "/bin/true cannot be started");
        assert_eq!(libc::wait4(pid, &mut status, 0, &mut usage), pid);
        (status, usage)
    };
    let micros = start.elapsed().as_nanos() as f64 / 1000.0;
    assert_eq!(status, 0, "/bin/true did not end well under {environment:?}");
    (micros, usage.ru_minflt)
}

fn empty_library(dir: &Path) -> std::path::PathBuf {
    let (source, library) = (dir.join("empty.c"), dir.join("empty.so"));
    std::fs::write(&source, "").expect("it can be written");
    let status = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    assert!(status.is_ok_and(|status| status.success()), "cc cannot make an empty library");
    library
}

/// exit_group, which `true` needs, and further names in the order of the groups, as in a real list.
fn names(count: usize) -> Vec<String> {
    let here = |name: &&str| matches!(syscalls::number(name.as_bytes()), syscalls::Number::Here(_));
    let mut names = vec!["exit_group".to_owned()];
    for name in groups::GROUPS.iter().flat_map(|group| group.calls).copied().filter(here) {
        if names.len() < count && !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

fn compiled(names: &[String]) -> Vec<u8> {
    let list = names.join(":");
    let listed = grammar::parse(list.as_bytes()).expect("names of the table");
    let mut program = vec![Insn::default(); bpf::MAX_LEN];
    let list = List { listed: &listed, answer: ret::ALLOW, others: ret::KILL_PROCESS, first: &[] };
    let len = bpf::compile(&list, &mut program).expect("it fits");
    let mut out = Box::new([0u8; file::MAX_FILE]);
    let len = file::encode(&program[..len], &mut out).expect("it fits");
    out[..len].to_vec()
}
