//! The command line: words in, one command called, an exit code out.

mod args;
mod browser;
mod check;
mod compile;
mod completions;
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
mod why;

pub(crate) use crate::explain::harmless;
pub(crate) use crate::report::EXIT_SETUP;

use output::write_out;

use std::ffi::OsString;

/// Runs one command line and returns the exit code for it.
pub fn main(words: impl Iterator<Item = OsString>) -> u8 {
    let words: Vec<OsString> = words.collect();
    // Not a command for people: how bubblewrap starts the one inside.
    if let [_, word, descriptors @ ..] = words.as_slice()
        && word == crate::run::inside::INSIDE
    {
        return crate::run::inside::main(descriptors);
    }
    let command = match args::Cli::of(&words) {
        Ok(command) => command,
        Err(error) => {
            let _ = error.print();
            if error.kind() == clap::error::ErrorKind::MissingRequiredArgument
                && let Some(example) = words.get(1).and_then(|word| word.to_str()).and_then(args::examples::first)
            {
                use std::io::Write;
                let _ = writeln!(std::io::stderr(), "For example: {example}");
            }
            // 2 could be the command's own answer.
            let launches = words
                .get(1)
                .is_some_and(|word| ["run", "plan", "learn", "browser", "mcp"].iter().any(|one| word == one));
            return if !error.use_stderr() {
                0
            } else if launches {
                EXIT_SETUP
            } else {
                EXIT_ERROR
            };
        }
    };
    match command {
        args::Command::Check(args) => check::main(&args),
        args::Command::Run(args) => run::main(&args),
        args::Command::Plan(args) => run::plan(&args),
        args::Command::Browser(args) => browser::main(&args),
        args::Command::Profiles(args) => profiles::main(&args),
        args::Command::Doctor(args) => doctor::main(&args),
        args::Command::Extract(args) => extract::main(&args),
        args::Command::Lint(args) => lint::main(&args),
        args::Command::Compile(args) => compile::main(&args),
        args::Command::Import(args) => import::main(&args),
        args::Command::Diff(args) => diff::main(&args),
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

/// Usage and other errors of every command but `run`, `plan` and `browser`.
pub(crate) const EXIT_ERROR: u8 = 2;

/// Complains, and gives the code of an error.
pub(crate) fn failed(message: impl std::fmt::Display) -> u8 {
    complain(message);
    EXIT_ERROR
}

/// Prints one line `gatekeeper: ...` on stderr; a closed stderr is not an error.
pub(crate) fn complain(message: impl std::fmt::Display) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "gatekeeper: {}", harmless(&message.to_string()));
}

/// A bar on stderr while many things are done, only where somebody watches.
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
