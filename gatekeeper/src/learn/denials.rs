//! Makes a policy from the denials of a report: each denial names the flags that would allow it.
//!
//! A report may come from anywhere, so only flags that grant are accepted, and never the profiles without a sandbox. What they
//! grant may still be wide: the policy is a proposal, and `gatekeeper lint` and `diff` show what it opens.

use super::{Learned, merged};
use crate::policy::pattern::Denied;
use crate::policy::{Document, NetworkMode, Profile, grants};
use crate::report::{AskedAccess, AskedKind, Decision, Question, Report};
use crate::supervise::remedy::is_typeable;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FromDenialsError {
    #[error("the report's suggestion '{0}' is not one that gatekeeper makes")]
    Foreign(String),
}

pub fn from_denials(report: &Report, old: Document) -> Result<Learned, FromDenialsError> {
    let denied = report.denials.iter();
    granting(denied.map(|denial| (&denial.allow_with, denial.syscall.as_str(), denial.rule.as_str())), old)
}

/// The same from the answers of a run that asked: what was approved is granted, and never what was refused. A new file needs a
/// grant of its directory, which may hold a refused file. The policy then denies that file, or does without the grant.
pub fn from_answers(report: &Report, old: Document) -> Result<Learned, FromDenialsError> {
    let asked = || report.asked.iter().flatten();
    let refused: Vec<&Question> =
        asked().filter(|asked| asked.decision == Decision::Deny).map(|asked| &asked.question).collect();
    let (mut denied, mut notes) = (Vec::new(), Vec::new());
    let approved = asked().filter(|asked| asked.decision != Decision::Deny).map(|asked| &asked.question);
    let granted: Vec<&Question> =
        approved.filter(|question| spares(question, &refused, &mut denied, &mut notes)).collect();
    let granted = granted.iter().map(|one| (&one.allow_with, one.syscall.as_str(), one.rule.as_str()));
    let mut learned = granting(granted, old)?;
    denied.retain(|path| !learned.document.paths.deny.contains(path));
    learned.document.paths.deny.extend(denied);
    learned.notes.extend(notes);
    learned.notes.extend(refused.iter().map(|refused| format!("not approved: {}", told(refused))));
    Ok(learned)
}

fn told(question: &Question) -> String {
    let what = question.path.as_ref().or(question.host.as_ref());
    format!("{} {}", question.access.word(), what.map_or("", String::as_str))
}

/// Whether the flags of an approved question can be granted without what was refused, if `denied` is denied.
fn spares(approved: &Question, refused: &[&Question], denied: &mut Vec<PathBuf>, notes: &mut Vec<String>) -> bool {
    // `granting` reports flags that cannot be parsed.
    let Some(Ok(grown)) = approved.allow_with.as_deref().map(grants::parse) else { return true };
    let mut closed = Vec::new();
    for refused in refused.iter().filter(|refused| includes(&grown, refused)) {
        let path = refused.path.as_deref().map(Path::new);
        match path.filter(|path| approved.path != refused.path && is_deniable(path)) {
            Some(path) if !denied.contains(&path.to_owned()) => closed.push(path.to_owned()),
            Some(_) => {}
            None => {
                let flags = approved.allow_with.as_deref().unwrap_or_default();
                notes.push(format!("not granted: {flags}, which would also allow to {}", told(refused)));
                return false;
            }
        }
    }
    notes.extend(closed.iter().map(|path| format!("denied: {}, which a grant would include", path.display())));
    denied.extend(closed);
    true
}

/// Whether these grants would allow what was refused.
fn includes(grown: &Document, refused: &Question) -> bool {
    let path = refused.path.as_deref().map(Path::new);
    let holds = |places: &[PathBuf]| path.is_some_and(|path| places.iter().any(|place| path.starts_with(place)));
    match refused.kind {
        AskedKind::Path => {
            holds(&grown.paths.write) || refused.access == AskedAccess::Read && holds(&grown.paths.also_read)
        }
        AskedKind::Socket => holds(&grown.network.unix),
        AskedKind::Host => grown.network.mode == Some(NetworkMode::Full) || !grown.network.ports.is_empty(),
    }
}

/// Whether `paths.deny` closes exactly this path. What does not exist yet could be created.
fn is_deniable(path: &Path) -> bool {
    let plain = |path: &Path| matches!(Denied::parse(path), Ok(Denied::Path(denied)) if denied == path);
    path.symlink_metadata().is_ok() && is_typeable(path) && plain(path)
}

fn granting<'a>(
    denied: impl Iterator<Item = (&'a Option<String>, &'a str, &'a str)>,
    old: Document,
) -> Result<Learned, FromDenialsError> {
    let mut document = old;
    let mut notes = Vec::new();
    for (flags, syscall, rule) in denied {
        let Some(flags) = flags else {
            notes.push(format!("stays denied: {syscall} ({rule})"));
            continue;
        };
        if flags.starts_with("--cache ") {
            notes.push(format!("stays denied: {syscall} ({rule}); only the flag {flags} would allow it"));
            continue;
        }
        let mut grown = grants::parse(flags).map_err(|_| FromDenialsError::Foreign(flags.clone()))?;
        if grown.profile.iter().flatten().any(|profile| matches!(profile, Profile::Unrestricted | Profile::Custom)) {
            notes.push(format!("stays denied: {syscall} ({rule}), because only {flags} would allow it"));
            continue;
        }
        // A policy file has no `--read`, which adds to the readable paths. Its read list must name `/` as well.
        let also = std::mem::take(&mut grown.paths.also_read);
        if !also.is_empty() {
            document.paths.read.get_or_insert_with(|| vec![PathBuf::from("/")]).extend(also);
        }
        document = merged(Learned { document: grown, notes: Vec::new(), credentials: Vec::new() }, document);
    }
    Ok(Learned { document, notes, credentials: Vec::new() })
}
