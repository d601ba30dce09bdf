//! Report: what happened. The JSON shape is a contract (schema 1); fields are added, never changed.

use crate::browser::inner::BrowserReport;
use crate::check::Verdict;
use crate::plan::refusal::Refusal;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    Exited,
    Signaled,
    Timeout,
    /// A limit of the policy ended it; `limit` says which.
    Limit,
    Refused,
    SetupFailed,
    NotFound,
}

impl Outcome {
    /// As the JSON has it.
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
    /// What gatekeeper exits with: the command's own code, or 128 and the signal, or one of 124 to 127.
    pub exit_code: i32,
    pub signal: Option<i32>,
    pub duration_ms: u64,
    pub command: Vec<String>,
    /// Why nothing ran, or what ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub verdict: Option<Verdict>,
    pub layers: Vec<LayerReport>,
    pub denials: Vec<Denial>,
    /// Whether every refused read is among the denials. Not where files may have been opened by the descriptor of a
    /// directory that holds something closed, which only `--explain` looks at.
    pub reads_recorded: bool,
    /// Denials beyond the first thousand distinct ones.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub denials_dropped: u64,
    /// The limit that was reached, whether or not that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Exceeded>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Of a browser: whether its own sandbox was on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub browser: Option<BrowserReport>,
    /// The run's own directory, where it was to be kept or could not be removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<PathBuf>,
    /// Why it could not be removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_because: Option<String>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub captured: Option<Captured>,
}

impl Report {
    /// Of a run that did not take place.
    pub(crate) fn refused(command: Vec<String>, refusal: Refusal, duration: Duration) -> Report {
        Report {
            schema: 1,
            outcome: refusal.outcome,
            exit_code: i32::from(refusal.exit_code()),
            signal: None,
            duration_ms: duration.as_millis() as u64,
            command,
            error: Some(refusal.message),
            verdict: refusal.verdict.map(|verdict| *verdict),
            layers: Vec::new(),
            denials: Vec::new(),
            reads_recorded: false,
            denials_dropped: 0,
            limit: None,
            usage: None,
            browser: None,
            kept: None,
            kept_because: None,
            captured: None,
        }
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Layer {
    Seccomp,
    Landlock,
    Limits,
    Namespaces,
    Proxy,
}

/// What one layer achieved. A run reports one per layer; nothing is dropped silently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum LayerStatus {
    Enforced,
    /// In force, but for what `detail` names.
    Partial,
    /// Asked for, and this host cannot.
    Unavailable,
    /// Not asked for.
    Off,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LayerReport {
    pub layer: Layer,
    pub status: LayerStatus,
    pub detail: String,
}

/// One thing that was denied, however often.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Denial {
    pub layer: Layer,
    pub syscall: String,
    pub args: Vec<String>,
    pub path: Option<String>,
    pub host: Option<String>,
    pub pid: i32,
    pub tid: i32,
    pub comm: String,
    /// The program, where this process may know.
    pub exe: Option<String>,
    /// What the program got, or is about to get; `0` where it was let through and only recorded, `SIGSYS` where it was killed
    /// for it.
    pub errno: String,
    pub count: u64,
    pub rule: String,
    /// The smallest flags that would let it through.
    pub allow_with: Option<String>,
    /// The same as a line of a policy file.
    pub allow_with_policy: Option<String>,
}

impl Denial {
    /// The policy denies it and `on_violation = log` let it through: the program got what it asked for.
    pub(crate) fn let_through(&mut self) {
        self.errno = "0".to_owned();
        self.rule = format!("{LET_THROUGH}: {}", self.rule);
    }

    pub(crate) fn was_let_through(&self) -> bool {
        self.rule.starts_with(LET_THROUGH)
    }
}

/// What the rule of such a denial begins with.
pub(crate) const LET_THROUGH: &str = "let through by on_violation = log";
/// In place of an errno, of a call that got none: its process was killed.
pub(crate) const KILLED: &str = "SIGSYS";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Usage {
    pub cpu_user_ms: u64,
    pub cpu_system_ms: u64,
    pub peak_memory: u64,
    /// Whose peak that is.
    pub peak_of: PeakOf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum PeakOf {
    /// The largest single process.
    Process,
    /// The whole tree, as a memory limit has it counted.
    Tree,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Captured {
    pub stdout: String,
    pub stderr: String,
    pub stdout_truncated: u64,
    pub stderr_truncated: u64,
    /// Files with the whole of what was cut, where a place for them was given; the caller's to remove.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdout_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stderr_file: Option<PathBuf>,
}

/// A limit that was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Exceeded {
    pub which: Which,
    pub value: u64,
    pub peak: u64,
    pub unit: Unit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Unit {
    Bytes,
    Processes,
    Ms,
}

impl Unit {
    pub fn word(self) -> &'static str {
        match self {
            Unit::Bytes => "bytes",
            Unit::Processes => "processes",
            Unit::Ms => "ms",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Which {
    Memory,
    Processes,
    Cpu,
    Time,
    Disk,
    Output,
}

impl Which {
    pub fn word(self) -> &'static str {
        match self {
            Which::Memory => "memory",
            Which::Processes => "processes",
            Which::Cpu => "cpu",
            Which::Time => "time",
            Which::Disk => "disk",
            Which::Output => "output",
        }
    }

    pub(crate) fn exceeded(self, value: u64, peak: u64) -> Exceeded {
        let unit = match self {
            Which::Memory | Which::Disk | Which::Output => Unit::Bytes,
            Which::Processes => Unit::Processes,
            Which::Cpu | Which::Time => Unit::Ms,
        };
        Exceeded { which: self, value, peak, unit }
    }
}
