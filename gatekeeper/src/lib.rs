//! gatekeeper: looks at what is about to be executed, runs it confined, and tells what was denied.
//!
//! A program that runs commands starts at [`Sandbox`]. Behind it is one pipeline, with a type for each stage:
//!
//! | stage | question |
//! |---|---|
//! | [`Request`] | what was asked |
//! | [`Policy`] | what is allowed |
//! | [`Verdict`] | what the file really is |
//! | [`Host`] | what this machine can enforce |
//! | [`Plan`] | the steps that a run will take |
//! | [`LayerReport`] | what each step achieved |
//! | [`Report`] | what happened |
//!
//! What is documented here is kept stable. Modules that are not are the inside of the program `gatekeeper`, and change with
//! it; they are public for its tests.

// policy, check and plan are pure: values in, values out. Only sys holds unsafe.
#[doc(hidden)]
pub mod browser;
#[doc(hidden)]
pub mod check;
#[doc(hidden)]
pub mod cli;
#[doc(hidden)]
pub mod compile;
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
pub mod supervise;
#[doc(hidden)]
pub mod sys;
#[doc(hidden)]
pub mod trust;

pub use check::Verdict;
pub use host::Host;
pub use plan::Plan;
pub use policy::{OnViolation, Policy, StaticBinaries};
pub use report::{Captured, Denial, Layer, LayerReport, LayerStatus, Outcome, Report, Usage};
pub use request::Request;
pub use sandbox::{Builder, Running, Sandbox};

/// What a [`Verdict`] is made of.
pub mod verdict {
    pub use crate::check::{Decision, Kind, Libc, Link, Linkage, Reason, ReasonCode};
}
