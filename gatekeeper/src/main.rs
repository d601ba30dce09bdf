//! The `gatekeeper` program: passes its arguments to the library and exits with the code that it returns.

// The C library calls `main`, instead of Rust's runtime: see `sys::start`.
#![cfg_attr(not(test), no_main)]

use gatekeeper::sys::memory;
#[cfg(not(test))]
use {gatekeeper::sys::start, std::io::Write};

#[global_allocator]
static MEMORY: memory::Memory = memory::Memory;

#[cfg(not(test))]
#[unsafe(no_mangle)]
extern "C" fn main(_count: std::ffi::c_int, words: start::Words) -> i32 {
    start::keep(words);
    start::standard_streams();
    let code = gatekeeper::cli::main(start::arguments().into_iter());
    // Rust's runtime would write the last line if it does not end with a newline.
    let _ = std::io::stdout().flush();
    i32::from(code)
}
