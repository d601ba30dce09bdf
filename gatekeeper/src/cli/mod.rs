//! The command line: words in, one command called, an exit code out.

mod args;
mod check;
mod doctor;
mod extract;
mod learn;
mod run;
mod why;
mod words;

use clap::Parser;
use std::ffi::OsString;

/// Runs one command line and returns the exit code for it.
pub fn main(words: impl Iterator<Item = OsString>) -> u8 {
    let words: Vec<OsString> = words.collect();
    // Not a command for people: how a guardian cleans up after a front process that was killed.
    if let [_, word, directory] = words.as_slice()
        && word == crate::enforce::rundir::SWEEP
    {
        return u8::from(!crate::enforce::rundir::sweep(directory.as_ref()));
    }
    let cli = match args::Cli::try_parse_from(&words) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            // 2 could be the command's own answer.
            let launches = words.get(1).is_some_and(|word| word == "run" || word == "plan" || word == "learn");
            return if !error.use_stderr() {
                0
            } else if launches {
                EXIT_SETUP
            } else {
                EXIT_ERROR
            };
        }
    };
    match cli.command {
        args::Command::Check(args) => check::main(&args),
        args::Command::Run(args) => run::main(&args),
        args::Command::Plan(args) => run::plan(&args),
        args::Command::Doctor(args) => doctor::main(&args),
        args::Command::Extract(args) => extract::main(&args),
        args::Command::Learn(args) => learn::main(&args),
        args::Command::Why(args) => why::main(&args, &words),
    }
}

/// The grants that flags of `run` name, as a policy to be laid over another. Nothing but grants: a flag that asks for
/// something else is an error.
pub(crate) fn grant(words: &[String]) -> Result<crate::policy::Document, String> {
    const GRANTS: [&str; 7] = ["--profile", "--allow", "--read", "--write", "--unix", "--net", "--port"];
    let flags = words.chunks(2).map(|pair| pair.first().map_or("", String::as_str));
    if let Some(other) = flags.into_iter().find(|flag| !GRANTS.contains(flag)) {
        return Err(format!("{other:?} is no grant"));
    }
    let all = ["gatekeeper", "run"].into_iter().chain(words.iter().map(String::as_str)).chain(["--", "true"]);
    match args::Cli::try_parse_from(all) {
        Ok(args::Cli { command: args::Command::Run(args) }) if args.command == ["true"] => Ok(run::flags(&args)),
        Ok(_) => Err("this is no grant".to_owned()),
        Err(error) => Err(error.kind().to_string()),
    }
}

/// Usage and other errors of every command but `run`, `plan` and `browser`.
pub(crate) const EXIT_ERROR: u8 = 2;

/// The sandbox could not be set up: nothing was run.
pub(crate) const EXIT_SETUP: u8 = 125;

/// Prints one line `gatekeeper: ...` on stderr; a closed stderr is not an error.
pub(crate) fn complain(message: impl std::fmt::Display) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "gatekeeper: {}", harmless(&message.to_string()));
}

/// Text that may hold the words of a confined program, unable to drive the terminal.
pub(crate) fn harmless(text: &str) -> String {
    let escaped = |letter: char| match crate::policy::drives_terminal(letter) && letter != '\n' {
        true => letter.escape_default().collect::<String>(),
        false => letter.to_string(),
    };
    text.chars().map(escaped).collect()
}
