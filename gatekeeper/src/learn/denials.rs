//! Makes a policy from the denials of a report: each denial names the flags that would allow it.
//!
//! A report may come from anywhere, so only flags that grant are accepted, and never the profiles without a sandbox. What they
//! grant may still be wide: the policy is a proposal, and `gatekeeper lint` and `diff` show what it opens.

use super::{Learned, merged};
use crate::policy::{Document, Profile, grants};
use crate::report::{Decision, Report};
use std::path::PathBuf;

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

/// The same from the answers of a run that asked: what was approved is granted.
pub fn from_answers(report: &Report, old: Document) -> Result<Learned, FromDenialsError> {
    let approved = report.asked.iter().flatten().filter(|asked| asked.decision != Decision::Deny);
    let questions = approved.map(|asked| &asked.question);
    let granted = questions.map(|question| (&question.allow_with, question.syscall.as_str(), question.rule.as_str()));
    let mut learned = granting(granted, old)?;
    let refused = report.asked.iter().flatten().filter(|asked| asked.decision == Decision::Deny);
    learned.notes.extend(refused.map(|asked| {
        let what = asked.question.path.as_ref().or(asked.question.host.as_ref());
        format!("not approved: {} {}", asked.question.access.word(), what.map_or("", String::as_str))
    }));
    Ok(learned)
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
