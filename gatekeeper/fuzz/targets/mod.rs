//! What is done with bytes that somebody else chose, one function for each way in. cargo-fuzz calls them
//! (`fuzz_targets/`), and so does `tests/fuzz`, with stable Rust, over the seeds and their mutations.
//!
//! A target fails by a panic: the code's own, or that of an assertion of what has to hold for all bytes.
#![allow(dead_code)]

mod files;
mod memory;
mod policies;
mod wire;
mod words;

type Target = (&'static str, fn(&[u8]));

/// Every target by its name, which is also the name of its directory of seeds.
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
