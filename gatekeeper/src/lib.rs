//! gatekeeper: looks at what is about to be executed, runs it confined, and tells what was denied.
//!
//! The modules are the stages of one pipeline, in order:
//! Request -> Policy -> Verdict (+ Host) -> Plan -> layers -> Report.
//! `policy`, `check` and `plan` are pure: values in, values out; only `sys` holds `unsafe`.

pub mod browser;
pub mod check;
pub mod cli;
pub mod compile;
pub mod diff;
pub mod doctor;
pub mod enforce;
pub mod host;
pub mod isolate;
pub mod learn;
pub mod lint;
pub mod oci;
pub mod plan;
pub mod policy;
pub mod profiles;
pub mod proxy;
pub mod request;
pub mod run;
pub mod supervise;
pub mod sys;
