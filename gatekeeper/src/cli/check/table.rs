//! Verdicts as a table: one row for each file, then a summary by verdict and reason.

use crate::check::walk::Done;
use crate::check::{Decision, Kind, ReasonCode, Verdict};
use crate::cli::harmless;
use std::collections::BTreeMap;
use std::io::{self, BufWriter, IsTerminal, Write};

pub fn print(done: &Done, only_blocked: bool) -> io::Result<()> {
    let colours = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let mut out = BufWriter::new(io::stdout().lock());
    let shown: Vec<&Verdict> =
        done.verdicts.iter().filter(|verdict| !only_blocked || verdict.verdict != Decision::Preload).collect();
    // One very long path must not push the other columns off the screen.
    let width = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0).min(60);
    let rows: Vec<[String; 3]> = shown.iter().map(|verdict| row(verdict)).collect();
    let paths = width(&mut rows.iter().map(|row| row[0].chars().count()));
    let kinds = width(&mut rows.iter().map(|row| row[1].chars().count()));
    for (verdict, [path, kind, why]) in shown.iter().zip(&rows) {
        let word = paint(verdict.verdict, &format!("{:<8}", verdict.verdict.word()), colours);
        writeln!(out, "{}", format!("{word} {path:<paths$}  {kind:<kinds$}  {why}").trim_end())?;
        if shown.len() == 1 {
            verdict.notes.iter().try_for_each(|note| writeln!(out, "         note: {}", harmless(note)))?;
        }
    }
    writeln!(out, "{}", summary(done))?;
    out.flush()
}

fn row(verdict: &Verdict) -> [String; 3] {
    let why: Vec<String> = verdict
        .reasons
        .iter()
        .map(|reason| {
            let path = verdict.path.display().to_string();
            let text =
                reason.text.strip_prefix(&path).map_or(reason.text.as_str(), |rest| rest.trim_start_matches(':'));
            format!("{}: {}", reason.code.word(), text.trim_start())
        })
        .collect();
    [harmless(&verdict.path.display().to_string()), kind(verdict), harmless(&why.join("; "))]
}

/// What the last file of the exec chain is, and whether scripts led to it: `script, x86_64 dynamic glibc`.
fn kind(verdict: &Verdict) -> String {
    let scripts = verdict.chain.iter().filter(|link| link.kind == Kind::Script).count();
    let mut words = vec!["script"; scripts.min(1)].join("");
    if let Some(elf) = verdict.chain.last().filter(|link| link.kind == Kind::Elf) {
        let parts = [elf.machine.as_deref(), elf.linkage.map(|linkage| linkage.word())];
        let libc = elf.libc.map(|libc| libc.word()).filter(|libc| *libc != "none");
        let text: Vec<&str> = parts.into_iter().chain([libc]).flatten().collect();
        words = if words.is_empty() { text.join(" ") } else { format!("{words}, {}", text.join(" ")) };
    }
    words
}

fn paint(decision: Decision, text: &str, colours: bool) -> String {
    let colour = match decision {
        Decision::Preload => 32,
        Decision::Enforce => 33,
        Decision::Refuse => 31,
    };
    if colours { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.into() }
}

fn summary(done: &Done) -> String {
    let mut reasons: BTreeMap<(Decision, ReasonCode), usize> = BTreeMap::new();
    let mut counts: BTreeMap<Decision, usize> = BTreeMap::new();
    for verdict in &done.verdicts {
        *counts.entry(verdict.verdict).or_default() += 1;
        // Count the first reason that by itself leads to this verdict.
        let worst = verdict.reasons.iter().map(|reason| reason.code).find(|code| code.decision() == verdict.verdict);
        worst.into_iter().for_each(|code| *reasons.entry((verdict.verdict, code)).or_default() += 1);
    }
    let part = |decision: Decision| {
        let count = counts.get(&decision).copied().unwrap_or(0);
        let why: Vec<String> = reasons
            .iter()
            .filter(|((of, _), _)| *of == decision)
            .map(|((_, code), count)| format!("{} {count}", code.word()))
            .collect();
        let why = if why.is_empty() { String::new() } else { format!(" ({})", why.join(", ")) };
        format!("{} {count}{why}", decision.word())
    };
    let parts = [Decision::Preload, Decision::Enforce, Decision::Refuse].map(part).join(", ");
    let skipped = match done.skipped {
        0 => String::new(),
        1 => "; skipped 1 file that is not executable".to_owned(),
        count => format!("; skipped {count} files that are not executable"),
    };
    let files = if done.verdicts.len() == 1 { "file" } else { "files" };
    format!("{} {files}: {parts}{skipped}", done.verdicts.len())
}
