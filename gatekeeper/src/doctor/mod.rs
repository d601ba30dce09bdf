//! doctor: tries each layer on this machine and returns one finding for each: whether it works, the cause if it does not,
//! what is lost without it, and the fix.
//!
//! Every try is undone, or happens in a short-lived process.

mod distribution;
mod engine;
mod fault;
mod layers;
mod preload;
mod stage;

use crate::sys::interrupt;
use distribution::Distribution;
use fault::Surroundings;
use serde::Serialize;

#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    pub layer: &'static str,
    pub status: Status,
    pub detail: String,
    /// Why it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// What a run lacks without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Available,
    /// It works in part; `cause` and `lost` tell what is missing.
    Partial,
    Unavailable,
}

impl Status {
    pub fn word(self) -> &'static str {
        match self {
            Status::Available => "available",
            Status::Partial => "partial",
            Status::Unavailable => "unavailable",
        }
    }
}

impl Finding {
    fn available(layer: &'static str, detail: impl Into<String>) -> Finding {
        let status = Status::Available;
        Finding { layer, status, detail: detail.into(), cause: None, lost: None, fix: None }
    }

    fn lacking(
        layer: &'static str,
        status: Status,
        detail: impl Into<String>,
        why: Why,
        lost: &'static str,
    ) -> Finding {
        let Why { cause, fix } = why;
        Finding { layer, status, detail: detail.into(), cause: Some(cause), lost: Some(lost), fix: Some(fix) }
    }
}

/// Why a layer does not work, and what would fix it.
struct Why {
    cause: String,
    fix: String,
}

/// Tries every layer. A signal that `interrupt` watches for ends it between two of them, and ends the trial of an engine.
pub fn examine() -> Vec<Finding> {
    let around = Surroundings::look();
    let distribution = Distribution::of_this_machine();
    let tries: [&dyn Fn() -> Finding; 11] = [
        &|| layers::seccomp(&around),
        &|| layers::actions(&around),
        &|| layers::user_notification(&around),
        &|| layers::landlock(&around, &distribution),
        &|| layers::user_namespaces(&around, &distribution),
        &|| layers::mount_namespaces(&around, &distribution),
        &|| stage::stage(&around, &distribution),
        &|| layers::bubblewrap(&around, &distribution),
        &|| layers::cgroups(&around, &distribution),
        &|| preload::preload(&distribution),
        &|| engine::engine(&distribution),
    ];
    tries.into_iter().take_while(|_| interrupt::arrived().is_none()).map(|attempt| attempt()).collect()
}
