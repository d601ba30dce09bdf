//! The part of a report about the stage of a run.

use serde::{Deserialize, Serialize};

/// How a stage holds changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StageMeans {
    /// overlayfs over the working directory.
    Overlay,
    /// A copy of the working directory.
    Copy,
}

impl StageMeans {
    pub fn word(self) -> &'static str {
        match self {
            StageMeans::Overlay => "overlay",
            StageMeans::Copy => "copy",
        }
    }
}

/// The stage after the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StageReport {
    pub name: String,
    /// How many changes it holds, those of earlier runs included.
    pub changes: u64,
    pub means: StageMeans,
}
