//! `[commands]`: which programs may be started. `allow` is enforced in the kernel, by the right to execute; `block` is a
//! guard against accidents, since a shell can build any word.

use super::paths::{PathPlan, Tree};
use super::refusal::Refusal;
use crate::check::{Target, Verdict};
use crate::policy::Policy;
use crate::request::{Asked, Request};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Checks the command, or every word of the line, against both lists.
pub fn permit(request: &Request, policy: &Policy) -> Result<(), Refusal> {
    let words: Vec<OsString> = match &request.asked {
        Asked::Command(words) => words.iter().take(1).cloned().collect(),
        Asked::Line(line) => line_words(line),
    };
    if let Some(word) = words.iter().find(|word| policy.commands.block.iter().any(|blocked| names(blocked, word))) {
        return Err(Refusal::refused(format!("{} is blocked by the policy ([commands] block)", word.display())));
    }
    let allow = &policy.commands.allow;
    if let Asked::Command(words) = &request.asked
        && let Some(word) = words.first()
        && !allow.is_empty()
        && !allow.iter().any(|allowed| names(allowed, word))
    {
        return Err(Refusal::refused(format!(
            "{} is not among the commands that the policy allows ([commands] allow: {})",
            word.display(),
            allow.join(", ")
        )));
    }
    Ok(())
}

/// Whether an entry means this word: a path means itself, a name means any path that ends in it.
fn names(entry: &str, word: &OsStr) -> bool {
    let word = Path::new(word);
    match entry.contains('/') {
        true => Path::new(entry) == word,
        false => word.file_name() == Some(OsStr::new(entry)),
    }
}

/// The words of a line between blanks and the shell's own signs; quotes are dropped, nothing is expanded.
fn line_words(line: &OsStr) -> Vec<OsString> {
    let text = line.to_string_lossy();
    let is_sign = |c: char| c.is_whitespace() || ";|&()<>{}`$\"'".contains(c);
    text.split(is_sign).filter(|word| !word.is_empty()).map(OsString::from).collect()
}

/// Leaves the right to execute only to the allowed programs, with their interpreters and loaders, and the command itself.
pub fn confine_execution(
    paths: &mut PathPlan,
    look_up: &dyn Fn(&OsStr) -> Verdict,
    policy: &Policy,
    (verdict, target): (&Verdict, &Target),
    tree: &dyn Tree,
) {
    if policy.commands.allow.is_empty() {
        return;
    }
    let mut programs = vec![target.path.clone()];
    programs.extend(files_of(verdict));
    for entry in &policy.commands.allow {
        let found = files_of(&look_up(OsStr::new(entry)));
        if found.is_empty() {
            paths.missing.push(PathBuf::from(entry));
        }
        programs.extend(found);
    }
    // Grants are of real paths: nobody follows a link for them later.
    let real = programs.into_iter().map(|program| tree.resolve(&program).unwrap_or(program));
    paths.execute_only(&real.collect::<Vec<_>>());
}

/// Every file of an exec chain that the kernel opens to execute.
pub fn files_of(verdict: &Verdict) -> Vec<PathBuf> {
    let chain = verdict.chain.iter();
    chain.flat_map(|link| std::iter::once(link.path.clone()).chain(link.interpreter.clone())).collect()
}
