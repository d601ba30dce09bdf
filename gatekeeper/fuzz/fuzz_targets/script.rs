//! Any bytes after `#!`, plain and behind env.
#![no_main]

mod system;

libfuzzer_sys::fuzz_target!(|line: &[u8]| {
    system::try_file(&[b"#!", line].concat());
    system::try_file(&[b"#!/bin/env -S ", line, b"\n"].concat());
});
