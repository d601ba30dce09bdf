//! The command line: words in, one command called, an exit code out.

mod args;
mod check;
mod extract;

use clap::Parser;
use std::ffi::OsString;

/// Runs one command line and returns the exit code for it.
pub fn main(words: impl Iterator<Item = OsString>) -> u8 {
    let cli = match args::Cli::try_parse_from(words) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { EXIT_ERROR } else { 0 };
        }
    };
    match cli.command {
        args::Command::Check(args) => check::main(&args),
        args::Command::Extract(args) => extract::main(&args),
    }
}

/// Usage and other errors of every command but `run`, `plan` and `browser`.
pub(crate) const EXIT_ERROR: u8 = 2;

/// Prints one line `gatekeeper: ...` on stderr; a closed stderr is not an error.
pub(crate) fn complain(message: impl std::fmt::Display) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "gatekeeper: {message}");
}
