//! One fuzz target for each parser of untrusted bytes. cargo-fuzz calls them through `fuzz_targets/`, and `tests/fuzz`
//! calls them with stable Rust over the seeds and their mutations.
//!
//! A target fails by panicking, in the code itself or in an assertion of what must hold for all inputs.
#![allow(dead_code)]

mod files;
mod memory;
mod policies;
mod wire;
mod words;

type Target = (&'static str, fn(&[u8]));

/// Every target by name, which is also the name of its seed directory.
pub const ALL: [Target; 10] = [
    ("elf", files::elf),
    ("script", files::script),
    ("list", words::list),
    ("filter", words::filter),
    ("toml", policies::toml),
    ("json", policies::json),
    ("oci", policies::oci),
    ("decode", memory::decode),
    ("http", wire::http),
    ("socks", wire::socks),
];

pub fn run(name: &str, bytes: &[u8]) {
    let (_, target) = ALL.iter().find(|(known, _)| *known == name).expect("a target of this name");
    target(bytes);
}
