//! The program. Exit codes are chosen here and nowhere else.

use std::process::ExitCode;

#[global_allocator]
static MEMORY: gatekeeper::sys::memory::Memory = gatekeeper::sys::memory::Memory;

fn main() -> ExitCode {
    ExitCode::from(gatekeeper::cli::main(std::env::args_os()))
}
