//! An exec tool: runs a line confined and streams its output. If something was denied, it asks on the terminal whether to grant
//! it and runs the line again; without a terminal it grants only with --yes. With --ask, a refused call waits for the answer
//! instead, and the line runs once.
//!
//!     exec_tool [--yes] [--timeout SECONDS] [--ask] LINE

use gatekeeper::{Builder, Decision, Outcome, Report, Sandbox};
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

/// Runs the line and streams its output.
fn run(builder: Builder) -> std::io::Result<Report> {
    let (stdout, to_stdout) = std::io::pipe()?;
    let (stderr, to_stderr) = std::io::pipe()?;
    // `spawn` consumes the builder and with it our write ends of the pipes, so reading ends when the command does.
    let running = builder.output_to(to_stdout, to_stderr).spawn();
    let errors = std::thread::spawn(move || std::io::copy(&mut { stderr }, &mut std::io::stderr()));
    for line in BufReader::new(stdout).lines() {
        writeln!(std::io::stdout(), "| {}", line?)?;
    }
    let _ = errors.join();
    Ok(running.wait())
}

/// Asks on the terminal. Without a terminal the answer is no.
fn agreed(prompt: &str) -> std::io::Result<bool> {
    if !std::io::stdin().is_terminal() {
        return Ok(false);
    }
    print!("{prompt} [y/N] ");
    std::io::stdout().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}

fn main() -> std::io::Result<ExitCode> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let (mut yes, mut asks) = (false, false);
    let mut timeout = Duration::from_secs(60);
    loop {
        match words.first().map(String::as_str) {
            Some("--yes") => yes = true,
            Some("--ask") => asks = true,
            Some("--timeout") if words.len() > 1 => {
                timeout = words.remove(1).parse().map(Duration::from_secs_f64).unwrap_or(timeout);
            }
            _ => break,
        }
        words.remove(0);
    }
    let mut builder = Sandbox::builder().timeout(timeout).line(words.join(" "));
    if asks {
        builder = builder.on_ask(move |question| async move {
            // The path is the program's own text: {:?} escapes what a terminal would obey.
            let what = question.path.as_ref().or(question.host.as_ref());
            println!("{:?} wants to {} {:?}", question.comm, question.access.word(), what.unwrap_or(&question.syscall));
            let agreed = yes || agreed("allow it?").unwrap_or(false);
            if agreed { Decision::Once } else { Decision::Deny }
        });
    }
    let mut report = run(builder.clone())?;
    // Each round adds one grant; after four, a command that still asks stays denied.
    for _ in 0..4 {
        let failed = report.outcome == Outcome::Exited && report.exit_code != 0;
        let Some(grant) =
            report.denials.iter().find_map(|denial| denial.allow_with.clone()).filter(|_| failed && !asks)
        else {
            break;
        };
        println!("denied; to be granted: {grant}");
        if !yes && !agreed("grant it, and run the line again?")? {
            break;
        }
        builder = builder.grant(&grant);
        report = run(builder.clone())?;
    }
    println!("{} {}", report.outcome.word(), report.exit_code);
    Ok(ExitCode::from(u8::try_from(report.exit_code).unwrap_or(125)))
}
