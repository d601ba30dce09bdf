//! `gatekeeper check`: prints whether LD_PRELOAD can confine files and commands, as a table or as JSON.

use super::args::{CheckArgs, StaticAction};
use super::{EXIT_ERROR, complain, failed};
use crate::check::walk::{self, Asked};
use crate::check::{Context, Decision, Disk, Preload, Verdict};
use std::io::{self, Write};

mod table;

/// At least one file is blocked.
const EXIT_BLOCKED: u8 = 1;

pub fn main(args: &CheckArgs) -> u8 {
    let disk = Disk::new();
    let mut context = Context::of_this_process(Preload::default());
    context.preload = match &args.preload {
        Some(path) => Preload::at(path, &context.cwd, &disk),
        None => Preload::embedded(),
    };
    let mut asked: Vec<Asked> = args.paths.iter().cloned().map(Asked::Command).collect();
    asked.extend(args.line.iter().flat_map(|line| guess(line)));
    let mut done = walk::check_all(&asked, args.recursive, &context, &disk, super::progress("files").as_deref());
    // A verdict about a file that this process could not open is about this process.
    done.errors.extend(disk.trouble().map(|trouble| format!("{trouble}; a verdict of it is not about the file")));
    done.errors.iter().for_each(|error| complain(format_args!("check: {error}")));
    let blocked = done.verdicts.iter().filter(|verdict| !passes(verdict, args.static_binaries)).count();
    if args.static_binaries == StaticAction::Warn {
        done.verdicts.iter().filter(|verdict| verdict.only_static()).for_each(|verdict| {
            complain(format_args!("warning: {} is static, so LD_PRELOAD would not confine it", verdict.path.display()));
        });
    }
    let printed = match args.json {
        true => json(&done.verdicts),
        false => table::print(&done, args.blocked),
    };
    match printed {
        // A reader that closes the pipe early is not an error: `gatekeeper check -r / | head`.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            return failed(format_args!("check: cannot write the result: {error}"));
        }
        _ => {}
    }
    match (done.errors.is_empty(), blocked) {
        (false, _) => EXIT_ERROR,
        (true, 0) => 0,
        (true, _) => EXIT_BLOCKED,
    }
}

fn passes(verdict: &Verdict, static_binaries: StaticAction) -> bool {
    verdict.verdict == Decision::Preload || (static_binaries != StaticAction::Block && verdict.only_static())
}

/// What a shell command line runs: the shell and, as a guess, the first word of the line.
fn guess(line: &str) -> [Asked; 2] {
    let word = line.split_whitespace().next().unwrap_or_default();
    [Asked::Command("/bin/sh".into()), Asked::Guess(word.into())]
}

fn json(verdicts: &[Verdict]) -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    serde_json::to_writer_pretty(&mut out, verdicts)?;
    out.write_all(b"\n")?;
    out.flush()
}
