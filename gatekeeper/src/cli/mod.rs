//! The command line: parses the arguments, calls one command and returns its exit code.

mod args;
mod ask;
mod audit;
mod browser;
mod check;
mod compile;
mod completions;
mod container;
mod diff;
mod doctor;
mod extract;
mod import;
mod learn;
mod lint;
#[cfg(feature = "mcp")]
mod mcp;
mod output;
mod probe;
mod profiles;
mod run;
mod schema;
mod serve;
mod stage;
mod variables;
mod why;

pub(crate) use crate::explain::harmless;
pub(crate) use crate::report::EXIT_SETUP;

use output::write_out;

use std::ffi::OsString;
use std::fmt::Display;
use std::io::Write;
use std::path::PathBuf;

/// Runs one command line and returns its exit code.
pub fn main(words: impl Iterator<Item = OsString>) -> u8 {
    let words: Vec<OsString> = words.collect();
    // Internal: bubblewrap starts the inner gatekeeper with this word.
    if let [_, word, descriptors @ ..] = words.as_slice()
        && word == crate::run::inside::INSIDE
    {
        return crate::run::inside::main(descriptors);
    }
    if let [_, word, rest @ ..] = words.as_slice()
        && word == crate::container::INSIDE
    {
        return crate::container::inside::main(rest);
    }
    let command = match args::Cli::of(&words) {
        Ok(command) => command,
        Err(error) => {
            let word = |at: usize| words.get(at).and_then(|word| word.to_str()).unwrap_or_default();
            let command = if word(1) == "box" { format!("box {}", word(2)) } else { word(1).to_owned() };
            return not_parsed(&error, &command);
        }
    };
    match command {
        args::Command::Check(args) => check::main(&args),
        args::Command::Run(args) => run::main(&args),
        args::Command::Plan(args) => run::plan(&args),
        args::Command::Browser(args) => browser::main(&args),
        args::Command::Box(args) => container::main(&args.command),
        args::Command::Profiles(args) => profiles::main(&args),
        args::Command::Doctor(args) => doctor::main(&args),
        args::Command::Extract(args) => extract::main(&args),
        args::Command::Audit(args) => audit::main(&args),
        args::Command::Lint(args) => lint::main(&args),
        args::Command::Compile(args) => compile::main(&args),
        args::Command::Import(args) => import::main(&args),
        args::Command::Diff(args) => diff::main(&args),
        args::Command::Serve(args) => serve::main(&args),
        args::Command::Stage(args) => stage::main(&args),
        args::Command::Schema(args) => schema::main(&args),
        args::Command::Completions(args) => completions::main(&args),
        args::Command::Man(args) => completions::man(&args),
        args::Command::Probe { words } => probe::main(&words),
        args::Command::Learn(args) => learn::main(&args),
        #[cfg(feature = "mcp")]
        args::Command::Mcp(args) => mcp::main(&args),
        args::Command::Why(args) => why::main(&args, &words),
    }
}

/// Commands that exit with the code of the command they run, which may be 2.
const SETS_UP: [&str; 8] = ["run", "plan", "learn", "browser", "mcp", "serve", "box exec", "box up"];

/// Prints clap's error, or the help or version that was asked for, and returns the exit code.
fn not_parsed(error: &clap::Error, command: &str) -> u8 {
    let _ = error.print();
    if error.kind() == clap::error::ErrorKind::MissingRequiredArgument
        && let Some(example) = args::examples::first(command)
    {
        let _ = writeln!(std::io::stderr(), "For example: {example}");
    }
    match error.use_stderr() {
        false => 0,
        true if SETS_UP.contains(&command) => EXIT_SETUP,
        true => EXIT_ERROR,
    }
}

/// A usage error, or any other error of a command that does not run another program.
pub(crate) const EXIT_ERROR: u8 = 2;

/// Prints the message and returns the exit code of an error.
fn failed(message: impl Display) -> u8 {
    complain(message);
    EXIT_ERROR
}

/// Prints the message and returns the exit code of a sandbox that could not be set up.
fn setup_failed(message: impl Display) -> u8 {
    complain(message);
    EXIT_SETUP
}

/// Prints one line `gatekeeper: ...` on stderr. A closed stderr is not an error.
fn complain(message: impl Display) {
    let _ = writeln!(std::io::stderr(), "gatekeeper: {}", harmless(&message.to_string()));
}

/// The current directory, against which relative paths of flags are resolved.
fn working_directory() -> Result<PathBuf, String> {
    std::env::current_dir().map_err(|error| {
        let hint = match error.kind() {
            std::io::ErrorKind::NotFound => {
                "; it was removed: change to another one, or name one by its full path with --cwd"
            }
            _ => "",
        };
        format!("cannot determine the working directory: {error}{hint}")
    })
}

/// A progress bar on stderr, or `None` if stderr is not a terminal.
fn progress(what: &str) -> Option<Box<dyn Fn(usize, usize) + Sync>> {
    use std::io::IsTerminal;
    if !std::io::stderr().is_terminal() {
        return None;
    }
    let bar = indicatif::ProgressBar::new(0);
    let style = indicatif::ProgressStyle::with_template(&format!("{{bar:40}} {{pos}}/{{len}} {what}")).ok()?;
    bar.set_style(style);
    Some(Box::new(move |done, total| {
        bar.set_length(total as u64);
        bar.set_position(done as u64);
        if done >= total {
            bar.finish_and_clear();
        }
    }))
}
