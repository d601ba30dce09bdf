//! What a report says of a browser's own sandbox.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InnerSandbox {
    On,
    /// One of its two halves.
    Partial,
    Off,
    /// No renderer was seen.
    Unknown,
}

/// What the report says of a browser.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrowserReport {
    pub inner_sandbox: InnerSandbox,
    pub detail: String,
}
