//! Makes a policy from the denials of a report: each denial names the flags that would allow it.
//!
//! A report may come from anywhere, so only flags that grant are accepted, and never the profiles without a sandbox. What they
//! grant may still be wide: the policy is a proposal, and `gatekeeper lint` and `diff` show what it opens.

use super::{Learned, merged};
use crate::policy::{Document, Profile, grants};
use crate::report::Report;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FromDenialsError {
    #[error("the report's suggestion '{0}' is not one that gatekeeper makes")]
    Foreign(String),
}

pub fn from_denials(report: &Report, old: Document) -> Result<Learned, FromDenialsError> {
    let mut document = old;
    let mut notes = Vec::new();
    for denial in &report.denials {
        let Some(flags) = &denial.allow_with else {
            notes.push(format!("stays denied: {} ({})", denial.syscall, denial.rule));
            continue;
        };
        let mut grown = grants::parse(flags).map_err(|_| FromDenialsError::Foreign(flags.clone()))?;
        if grown.profile.iter().flatten().any(|profile| matches!(profile, Profile::Unrestricted | Profile::Custom)) {
            notes.push(format!(
                "stays denied: {} ({}), because only {flags} would allow it",
                denial.syscall, denial.rule
            ));
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
