//! The audit trail of a run whose request names its file: opened before anything else happens, ended last.

use super::prepare::{hostile, policy_of};
use crate::audit::Audit;
use crate::report::{EXIT_SETUP, Report};
use crate::request::Request;
use std::sync::Arc;

/// Opens the trail that a request names, and keeps the command away from it. Without one that can be written, nothing may run.
pub fn open(request: &mut Request) -> Result<Option<Arc<Audit>>, String> {
    let Some(file) = request.audit.take() else { return Ok(None) };
    let mut hostile = hostile(request);
    request.also_written.iter().for_each(|tree| hostile.add(tree));
    // A policy that cannot be read keeps the command from running, and the report says so.
    let written = policy_of(request).map(|policy| policy.paths.write).unwrap_or_default();
    written.iter().for_each(|tree| hostile.add(&request.cwd.join(tree)));
    let words: Vec<String> = request.words().iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let audit = Audit::start(&file, &hostile, &words)?;
    request.deny(audit.paths());
    Ok(Some(audit))
}

/// Ends the trail. A report of a run that is not in it completely says so.
pub fn end(mut report: Report, audit: Option<Arc<Audit>>) -> Report {
    let Some(Err(error)) = audit.map(|audit| audit.finish(report.outcome.word(), report.exit_code)) else {
        return report;
    };
    report.error = Some(format!("{error}; lines are missing, and the run ended with {}", report.exit_code));
    report.exit_code = i32::from(EXIT_SETUP);
    report
}
