//! The report: what happened in a run. Its JSON shape is a contract (schema 1): fields are added, never changed.
//!
//! Plan, layers and supervisor fill it in; this module depends on none of them.

mod asked;
mod browser;
mod denial;
mod layer;
mod limit;
mod stage;

pub use asked::{Asked, AskedAccess, AskedKind, Because, Decision, Question};
pub use browser::{BrowserReport, InnerSandbox};
pub use denial::Denial;
pub(crate) use denial::{KILLED, PROTECTED, TRUNCATION};
pub use layer::{Layer, LayerReport, LayerStatus};
pub use limit::{Exceeded, Unit, Which};
pub use stage::{StageMeans, StageReport};

use crate::check::Verdict;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The schema version of the JSON.
pub(crate) const SCHEMA: u32 = 1;
/// The exit code if the sandbox could not be set up. Nothing was run then.
pub(crate) const EXIT_SETUP: u8 = 125;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    Exited,
    Signaled,
    Timeout,
    /// A resource limit ended the run; `limit` says which.
    Limit,
    Refused,
    SetupFailed,
    NotFound,
}

impl Outcome {
    /// The value in the JSON.
    pub fn word(self) -> &'static str {
        match self {
            Outcome::Exited => "exited",
            Outcome::Signaled => "signaled",
            Outcome::Timeout => "timeout",
            Outcome::Limit => "limit",
            Outcome::Refused => "refused",
            Outcome::SetupFailed => "setup_failed",
            Outcome::NotFound => "not_found",
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Report {
    pub schema: u32,
    pub outcome: Outcome,
    /// The exit code of gatekeeper: that of the command, 128 plus the signal number, or 124 to 127.
    pub exit_code: i32,
    pub signal: Option<i32>,
    #[serde(default)]
    pub duration_ms: u64,
    #[serde(default)]
    pub command: Vec<String>,
    /// Why nothing was run, or what ended the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub verdict: Option<Verdict>,
    #[serde(default)]
    pub layers: Vec<LayerReport>,
    pub denials: Vec<Denial>,
    /// Whether every refused read is among the denials. False if the command opened a directory that contains closed
    /// files: opens through its descriptor are only recorded with `--explain`.
    #[serde(default)]
    pub reads_recorded: bool,
    /// How many denials were not kept, after the first thousand distinct ones.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub denials_dropped: u64,
    /// Each question about a refused call and its answer, if the run was asked to ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Vec<Asked>>,
    /// The limit that was reached, whether or not it ended the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Exceeded>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// For a browser: whether its own sandbox was on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub browser: Option<BrowserReport>,
    /// The stage that holds the command's changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<StageReport>,
    /// The run's private directory, if it was kept or could not be removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<PathBuf>,
    /// Why that directory could not be removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_because: Option<String>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub captured: Option<Captured>,
}

impl Report {
    /// A report with only the outcome filled in.
    pub(crate) fn of(outcome: Outcome) -> Report {
        Report {
            schema: SCHEMA,
            outcome,
            exit_code: 0,
            signal: None,
            duration_ms: 0,
            command: Vec::new(),
            error: None,
            verdict: None,
            layers: Vec::new(),
            denials: Vec::new(),
            reads_recorded: false,
            denials_dropped: 0,
            asked: None,
            limit: None,
            usage: None,
            browser: None,
            stage: None,
            kept: None,
            kept_because: None,
            captured: None,
        }
    }

    /// The report of a run whose output was to be captured. If nothing was run, both streams are empty.
    pub(crate) fn with_output(mut self) -> Report {
        self.captured.get_or_insert_default();
        self
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Usage {
    pub cpu_user_ms: u64,
    pub cpu_system_ms: u64,
    pub peak_memory: u64,
    /// What `peak_memory` was measured on.
    pub peak_of: PeakOf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum PeakOf {
    /// The largest single process.
    Process,
    /// The whole process tree, which is measured if a memory limit is set.
    Tree,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Captured {
    pub stdout: String,
    pub stderr: String,
    pub stdout_truncated: u64,
    pub stderr_truncated: u64,
    /// The stream as base64, if it is no UTF-8. The text then has U+FFFD in the place of what cannot be shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout_base64: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr_base64: Option<String>,
    /// Files with the whole of a truncated stream, if --spill was given. The caller removes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdout_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stderr_file: Option<PathBuf>,
}
