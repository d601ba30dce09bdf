//! `[commands]`: which programs may be started. Landlock enforces `allow` through the right to execute. `block` only
//! guards against accidents, because a shell can build any name.

use super::paths::{PathPlan, Tree};
use super::refusal::Refusal;
use crate::check::{Target, Verdict};
use crate::policy::Policy;
use crate::request::{Asked, Request};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Checks each word against `block`, and the command against `allow`. `allow` compares files, not names.
pub fn permit(
    request: &Request,
    policy: &Policy,
    verdict: &Verdict,
    look_up: &dyn Fn(&OsStr) -> Verdict,
    tree: &dyn Tree,
) -> Result<(), Refusal> {
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
    {
        let file = tree.resolve(&verdict.path);
        let is_it = |entry: &String| file.is_some() && tree.resolve(&look_up(OsStr::new(entry)).path) == file;
        if !allow.iter().any(is_it) {
            return Err(Refusal::refused(format!(
                "{} is not among the commands that the policy allows ([commands] allow: {})",
                word.display(),
                allow.join(", ")
            )));
        }
    }
    Ok(())
}

/// Whether a blocked entry matches a word: a path matches itself, a name matches any path that ends in it.
fn names(entry: &str, word: &OsStr) -> bool {
    let word = Path::new(word);
    match entry.contains('/') {
        true => Path::new(entry) == word,
        false => word.file_name() == Some(OsStr::new(entry)),
    }
}

/// The words of a shell line, split at blanks and the shell's special characters. Nothing is expanded.
fn line_words(line: &OsStr) -> Vec<OsString> {
    let text = line.to_string_lossy();
    let is_special = |c: char| c.is_whitespace() || ";|&()<>{}`$\"'".contains(c);
    text.split(is_special).filter(|word| !word.is_empty()).map(OsString::from).collect()
}

/// Program directories. A command that may start only some programs must not read them, because the dynamic loader runs
/// any program that it can read.
const PROGRAM_DIRECTORIES: &[&str] = &[
    "/bin",
    "/sbin",
    "/usr/bin",
    "/usr/sbin",
    "/usr/local/bin",
    "/usr/local/sbin",
    "/usr/games",
    "/opt/bin",
    "/snap/bin",
];

/// The program directories to close if the policy allows only some commands.
pub fn closed_directories(policy: &Policy, search_path: Option<&OsString>, tree: &dyn Tree) -> Vec<PathBuf> {
    if policy.commands.allow.is_empty() {
        return Vec::new();
    }
    let searched = search_path.iter().flat_map(std::env::split_paths).filter(|path| path.is_absolute());
    let all = PROGRAM_DIRECTORIES.iter().map(PathBuf::from).chain(searched);
    all.filter_map(|path| tree.resolve(&path)).filter(|path| path != Path::new("/")).collect()
}

/// Grants execution only for the command and the allowed programs, with their interpreters and loaders.
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
    let real: BTreeSet<PathBuf> = programs.iter().filter_map(|path| tree.resolve(path)).collect();
    paths.execute_only(real);
    paths.programs = programs;
}

/// Every file of an exec chain that the kernel opens for execution.
pub fn files_of(verdict: &Verdict) -> Vec<PathBuf> {
    let chain = verdict.chain.iter();
    chain.flat_map(|link| std::iter::once(link.path.clone()).chain(link.interpreter.clone())).collect()
}
