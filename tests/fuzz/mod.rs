//! The fuzz targets with stable Rust, over their seeds, which include past findings, and some thousand mutations that
//! are the same in every run. `make fuzz` searches further, guided by coverage.

#[path = "../../gatekeeper/fuzz/targets/mod.rs"]
mod targets;

use crate::support::probe;
use crate::support::random::Random;
use std::fs;
use std::path::{Path, PathBuf};

/// A seed with its name for failure messages.
type Seed = (String, Vec<u8>);

fn seeds(target: &str) -> Vec<Seed> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target);
    let mut paths: Vec<PathBuf> = match target {
        // Programs are built, not stored.
        "elf" => programs_built_here(),
        _ => fs::read_dir(directory)
            .expect("seeds of every target")
            .map(|entry| entry.expect("readable").path())
            .collect(),
    };
    paths.sort();
    // Truncate large programs to save time: the interesting part is at the start.
    let read = |path: PathBuf| -> Option<Seed> {
        let file = fs::metadata(&path).ok().filter(fs::Metadata::is_file).and_then(|_| fs::read(&path).ok())?;
        Some((path.display().to_string(), file.into_iter().take(64 * 1024).collect()))
    };
    paths.into_iter().filter_map(read).collect()
}

fn programs_built_here() -> Vec<PathBuf> {
    let flags: [&[&str]; 5] = [&[], &["-no-pie"], &["-static"], &["-DOWN_SYSCALL"], &["-DPREINIT", "-DIFUNC"]];
    flags.iter().map(|flags| probe("check_probe", flags)).collect()
}

/// Runs a target, and prints the input if it fails.
fn check(target: &str, name: &str, bytes: &[u8]) {
    if let Err(panic) = std::panic::catch_unwind(|| targets::run(target, bytes)) {
        let shown: String =
            bytes.iter().take(4000).flat_map(|byte| std::ascii::escape_default(*byte)).map(char::from).collect();
        eprintln!("target {target} fails on {name}, {} bytes:\n{shown}", bytes.len());
        std::panic::resume_unwind(panic);
    }
}

/// Applies some mutations, as a fuzzer does.
fn mutated(random: &mut Random, seeds: &[Seed], words: &[&[u8]]) -> (String, Vec<u8>) {
    let (name, bytes) = &seeds[random.below(seeds.len() as u64) as usize];
    let mut bytes = bytes.clone();
    for _ in 0..1 + random.below(4) {
        let place = random.below(bytes.len() as u64 + 1) as usize;
        let end = (place + 1 + random.below(16) as usize).min(bytes.len());
        match random.below(8) {
            0 | 1 if place < bytes.len() => bytes[place] ^= 1 << random.below(8),
            2 if place < bytes.len() => bytes[place] = random.pick(&[0, 1, 0x7f, 0x80, 0xff, b'\n', b':', b'"', b'/']),
            3 => drop(bytes.drain(place.min(end)..end)),
            4 => drop(bytes.splice(place..place, random.pick(words).iter().copied())),
            5 => {
                let part = bytes[place.min(end)..end].to_vec();
                drop(bytes.splice(place..place, part));
            }
            6 => {
                let (_, other) = &seeds[random.below(seeds.len() as u64) as usize];
                let from = random.below(other.len() as u64 + 1) as usize;
                bytes.truncate(place);
                bytes.extend_from_slice(&other[from..]);
            }
            _ => bytes.truncate(place),
        }
    }
    (name.clone(), bytes)
}

fn all(target: &str, mutations: u64, words: &[&[u8]]) {
    let seeds = seeds(target);
    assert!(!seeds.is_empty(), "{target} has no seeds");
    for (name, bytes) in &seeds {
        check(target, name, bytes);
    }
    let mut random = Random::new(1);
    for number in 0..mutations {
        let (name, bytes) = mutated(&mut random, &seeds, words);
        check(target, &format!("mutation {number} of {name}"), &bytes);
    }
}

#[test]
fn programs() {
    all("elf", 1500, &[b"\x7fELF", &[0xff; 8], &[0; 8], &[0, 0, 0, 0x80]]);
}

#[test]
fn scripts() {
    all("script", 2000, &[b"#!", b" -S ", b"/bin/env", b"'", b"\"", b"\\", b"\r\n", b"${A}"]);
}

#[test]
fn lists() {
    all("list", 1500, &[b"@network", b"read", b":", b"\0errno:", b"@", b"99999999999"]);
}

#[test]
fn filters() {
    all("filter", 5000, &[b"SBFILTER", &[5, 0, 0, 0, 0xff, 0xff, 0xff, 0xff], &[6, 0, 0, 0, 0, 0, 0xff, 0x7f]]);
}

#[test]
fn policies() {
    let toml: [&[u8]; 8] =
        [b"[[", b"]]", b"\"\"\"", b"\\u0000", b" = ", b"[syscalls]\n", b"0xffffffffffffffff", b"\x1b[2J"];
    all("toml", 2000, &toml);
    let json: [&[u8]; 8] = [b"{", b"}", b"[[[[", b"\\u001b", b"//", b"1e999", b"-0", b"\"tools\":"];
    all("json", 3000, &json);
}

#[test]
fn container_profiles() {
    all("oci", 700, &[b"SCMP_ACT_ALLOW", b"SCMP_CMP_MASKED_EQ", b"\"args\":", b"18446744073709551615", b"null", b"{"]);
}

#[test]
fn memory_of_a_hostile_program() {
    all("decode", 30_000, &[&[0xff; 8], &[0, 0, 0, 0, 0, 0x7f, 0, 0], b"/proc/self/", b"..", &[0x1b]]);
}

#[test]
fn what_is_said_to_the_proxy() {
    let http: [&[u8]; 8] = [
        b"\r\n",
        b"\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Content-Length: 1\r\n",
        b"@",
        b"HTTP/1.1",
        b"http://",
        b" ",
    ];
    all("http", 15_000, &http);
    all("socks", 30_000, &[&[5, 1, 0, 3], &[0xff; 4], b"a.org", &[0]]);
}

/// Every target has a test above, and cargo-fuzz builds it.
#[test]
fn no_target_is_left_out() {
    let source = include_str!("mod.rs");
    let manifest = include_str!("../../gatekeeper/fuzz/Cargo.toml");
    for (name, _) in targets::ALL {
        assert!(source.contains(&format!("all(\"{name}\"")), "{name} has no test");
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name} is no target of cargo-fuzz");
    }
}
