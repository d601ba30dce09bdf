//! Black-box tests of the built programs on a real kernel. One crate, with one folder per capability.

mod ask;
mod browser;
mod check;
mod container;
mod denials;
mod documents;
mod embed;
mod escape;
mod examples;
mod fuzz;
mod isolate;
mod learn;
mod lint;
mod mcp;
mod network;
mod oci;
mod plumbing;
mod policy;
mod preload;
mod profiles;
mod run;
mod serve;
mod soak;
mod stage;
mod supply;
mod support;
