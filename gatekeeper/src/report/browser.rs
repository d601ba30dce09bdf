//! The part of a report about a browser's own sandbox.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InnerSandbox {
    On,
    /// Either its namespaces or its filter is missing.
    Partial,
    Off,
    /// No renderer process was seen.
    Unknown,
}

/// Whether the browser's own sandbox was on, as observed in its renderer processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrowserReport {
    pub inner_sandbox: InnerSandbox,
    pub detail: String,
}
