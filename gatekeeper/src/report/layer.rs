//! What each layer of confinement achieved.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Layer {
    Seccomp,
    Landlock,
    Limits,
    Namespaces,
    Proxy,
    /// The working directory whose changes wait for `gatekeeper stage apply`.
    Stage,
    /// The container around the run, in `gatekeeper box`.
    Container,
}

/// What one layer achieved. A run reports one per layer; nothing is dropped silently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum LayerStatus {
    Enforced,
    /// In force, except for what `detail` names.
    Partial,
    /// Requested, but this host cannot enforce it.
    Unavailable,
    /// Not requested.
    Off,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LayerReport {
    pub layer: Layer,
    pub status: LayerStatus,
    #[serde(default)]
    pub detail: String,
}
