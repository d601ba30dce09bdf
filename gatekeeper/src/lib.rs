//! gatekeeper inspects a command, runs it confined, and reports what it denied.
//!
//! Start with [`Sandbox`] to run commands from your program. Each stage of a run has a type:
//!
//! | stage | question |
//! |---|---|
//! | [`Request`] | what did the caller ask for? |
//! | [`Policy`] | what is allowed? |
//! | [`Verdict`] | what kind of file is the command? |
//! | [`Host`] | what can this machine enforce? |
//! | [`Plan`] | which steps will the run take? |
//! | [`LayerReport`] | what did each layer achieve? |
//! | [`Report`] | what happened? |
//!
//! Only the documented items are stable. The hidden modules are internals of the `gatekeeper` program, public for its
//! tests, and may change in any release.

// policy, check and plan are pure: values in, values out. Only sys contains unsafe code.
#[doc(hidden)]
pub mod audit;
#[doc(hidden)]
pub mod browser;
#[doc(hidden)]
pub mod check;
#[doc(hidden)]
pub mod cli;
#[doc(hidden)]
pub mod compile;
#[doc(hidden)]
pub mod container;
#[doc(hidden)]
pub mod diff;
#[doc(hidden)]
pub mod doctor;
#[doc(hidden)]
pub mod enforce;
#[doc(hidden)]
pub mod explain;
#[doc(hidden)]
pub mod host;
pub mod isolate;
#[doc(hidden)]
pub mod learn;
pub mod library;
#[doc(hidden)]
pub mod lint;
#[cfg(feature = "mcp")]
#[doc(hidden)]
pub mod mcp;
#[doc(hidden)]
pub mod oci;
#[doc(hidden)]
pub mod operation;
#[doc(hidden)]
pub mod plan;
#[doc(hidden)]
pub mod policy;
#[doc(hidden)]
pub mod profiles;
#[doc(hidden)]
pub mod proxy;
pub mod report;
#[doc(hidden)]
pub mod request;
#[doc(hidden)]
pub mod run;
pub mod sandbox;
#[doc(hidden)]
pub mod serve;
pub mod stage;
#[doc(hidden)]
pub mod supervise;
#[doc(hidden)]
pub mod sys;
#[doc(hidden)]
pub mod trust;
#[doc(hidden)]
pub mod warden;

pub use check::Verdict;
pub use host::Host;
pub use plan::Plan;
pub use policy::{OnViolation, Policy, StaticBinaries};
pub use report::{
    Asked, AskedAccess, AskedKind, Because, Captured, Decision, Denial, Layer, LayerReport, LayerStatus, Outcome,
    Question, Report, StageMeans, StageReport, Usage,
};
pub use request::Request;
pub use sandbox::{Builder, Running, Sandbox};
pub use stage::Stage;

/// The parts of a [`Verdict`].
pub mod verdict {
    pub use crate::check::{Decision, Kind, Libc, Link, Linkage, Reason, ReasonCode};
}
