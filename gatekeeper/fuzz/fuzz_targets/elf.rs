//! Any bytes as a program, as a loader and as a preload.
#![no_main]

mod system;

libfuzzer_sys::fuzz_target!(|content: &[u8]| system::try_file(content));
