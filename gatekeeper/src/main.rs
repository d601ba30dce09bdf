//! The `gatekeeper` program: passes its arguments to the library and exits with the code that it returns.

// With glibc, `main` is called by the C library instead of Rust's runtime: see `sys::start`. musl does not pass the
// arguments on to Rust then.
#![cfg_attr(all(target_env = "gnu", not(test)), no_main)]

use std::io::Write;

#[global_allocator]
static MEMORY: gatekeeper::sys::memory::Memory = gatekeeper::sys::memory::Memory;

#[cfg(all(target_env = "gnu", not(test)))]
#[unsafe(no_mangle)]
extern "C" fn main() -> i32 {
    gatekeeper::sys::start::standard_streams();
    i32::from(command_line())
}

#[cfg(not(all(target_env = "gnu", not(test))))]
fn main() -> std::process::ExitCode {
    std::process::ExitCode::from(command_line())
}

fn command_line() -> u8 {
    let code = gatekeeper::cli::main(std::env::args_os());
    // Rust's runtime would write the last line if it does not end with a newline.
    let _ = std::io::stdout().flush();
    code
}
