//! The program. Exit codes are chosen here and nowhere else.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(gatekeeper::cli::main(std::env::args_os()))
}
