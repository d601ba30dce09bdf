//! gatekeeper: looks at what is about to be executed, runs it confined, and tells what was denied.
//!
//! The modules are the stages of one pipeline, in order:
//! Request -> Policy -> Verdict (+ Host) -> Plan -> layers -> Report.
//! A program that runs commands starts at [`sandbox`]; the other modules are the stages behind it, and move with them.
//! `policy`, `check` and `plan` are pure: values in, values out; only `sys` holds `unsafe`.

pub mod check;
pub mod cli;
pub mod compile;
pub mod diff;
pub mod doctor;
pub mod enforce;
pub mod host;
pub mod isolate;
pub mod learn;
pub mod library;
pub mod lint;
pub mod oci;
pub mod plan;
pub mod policy;
pub mod profiles;
pub mod proxy;
pub mod request;
pub mod run;
pub mod sandbox;
pub mod supervise;
pub mod sys;

pub use policy::{OnViolation, StaticBinaries};
pub use sandbox::{Builder, Running, Sandbox};
pub use supervise::report::{Captured, Denial, Layer, LayerReport, LayerStatus, Outcome, Report, Usage};
