//! A policy grown from the denials of a report: each record names the flags that would let it through.
//!
//! A report may come from anywhere. Only flags that grant a little are taken; what would take the sandbox away is not.

use super::{Learned, merged};
use crate::policy::{Document, Profile, grants};
use crate::report::Report;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FromDenialsError {
    #[error("the report's remedy '{0}' is not one that gatekeeper writes")]
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
        // A file has no flag's `--read`: there the list of what may be read names it, with everything else.
        let also = std::mem::take(&mut grown.paths.also_read);
        if !also.is_empty() {
            document.paths.read.get_or_insert_with(|| vec![PathBuf::from("/")]).extend(also);
        }
        document = merged(Learned { document: grown, notes: Vec::new(), credentials: Vec::new() }, document);
    }
    Ok(Learned { document, notes, credentials: Vec::new() })
}
