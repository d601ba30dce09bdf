//! An agent whose changes need a yes: runs a line in a stage, shows the difference, asks, then applies or discards it.
//! Without a terminal it applies only with --yes, and otherwise discards.
//!
//!     staged_agent [--yes] LINE

use gatekeeper::stage::{Applied, Form, Protected, StageError};
use gatekeeper::{Sandbox, Stage};
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let yes = words.first().is_some_and(|word| word == "--yes");
    if yes {
        words.remove(0);
    }
    let name = format!("agent-{}", std::process::id());
    let report = Sandbox::builder().profile("write").stage(&name).line(words.join(" ")).run();
    if let Some(error) = &report.error {
        eprintln!("{error}");
    }
    if report.stage.is_none() {
        return ExitCode::from(report.exit_code as u8);
    }
    match decide(&name, yes) {
        Ok(said) => {
            println!("{said}");
            ExitCode::from(report.exit_code as u8)
        }
        Err(error) => {
            eprintln!("{error}; the changes are still in stage {name}");
            ExitCode::FAILURE
        }
    }
}

fn decide(name: &str, yes: bool) -> Result<String, StageError> {
    let stage = Stage::open(name)?;
    let patch = stage.diff(Form::Text)?;
    if patch.notes.is_empty() && patch.text.is_empty() {
        stage.discard()?;
        return Ok("no changes".to_owned());
    }
    print!("{}{}", patch.notes, String::from_utf8_lossy(&patch.text));
    if !yes && !agreed() {
        stage.discard()?;
        return Ok("discarded".to_owned());
    }
    match stage.apply(&[], Protected::Refuse)? {
        Applied::Done { taken, .. } => Ok(format!("{taken} changes applied")),
        Applied::Conflicts(conflicts) => {
            Ok(format!("{} files changed meanwhile; nothing was applied", conflicts.len()))
        }
        Applied::Protected(paths) => Ok(format!("{} protected files; nothing was applied", paths.len())),
        _ => Ok("nothing was applied".to_owned()),
    }
}

/// Asks on the terminal. Without a terminal the answer is no.
fn agreed() -> bool {
    if !std::io::stdin().is_terminal() {
        return false;
    }
    print!("apply these changes? [y/N] ");
    let _ = std::io::stdout().flush();
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).is_ok() && ["y", "yes"].contains(&answer.trim().to_lowercase().as_str())
}
