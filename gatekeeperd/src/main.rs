//! The program `gatekeeperd`.

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    if let Some(code) = gatekeeperd::browser::role::hidden(&words) {
        return ExitCode::from(code);
    }
    ExitCode::from(gatekeeperd::cli::main(&words))
}
