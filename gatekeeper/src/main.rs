//! The `gatekeeper` program: passes its arguments to the library and exits with the code that it returns.

use std::process::ExitCode;

#[global_allocator]
static MEMORY: gatekeeper::sys::memory::Memory = gatekeeper::sys::memory::Memory;

fn main() -> ExitCode {
    ExitCode::from(gatekeeper::cli::main(std::env::args_os()))
}
