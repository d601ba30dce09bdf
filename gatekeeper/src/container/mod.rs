//! Boxes: containers of an engine that is installed, under the same policy and with the same report as `run`.
//!
//! A configuration (`config`) gives [`Settings`] for an agent and session. [`Boxed`] makes the container that they describe,
//! by the command line of podman or docker (`engine`). In it, the same static gatekeeper runs each command (`inside`), and
//! the one outside (`front`, `attached`) passes streams and signals and gets the report (`wire`). Containers are found by their labels;
//! `state` has locks and the time of the last use. Nothing here stays running on
//! the host: the browser (`browser`, `chromium`) and the relay before its debugging port (`relay`) live in their container.

mod attached;
mod bind;
mod boxed;
mod browser;
mod chromium;
mod config;
pub mod engine;
mod explain;
mod file;
mod front;
pub mod inside;
mod keys;
mod listing;
mod log;
mod relay;
mod seen;
mod settings;
mod state;
mod streams;
mod tables;
mod tools;
mod trail;
pub mod trial;
mod vnc;
mod wire;
mod workspace;

pub use boxed::{Boxed, Sort};
pub use browser::Endpoint;
pub use config::{Config, load};
pub use explain::explain;
pub use front::{Running, exec};
pub use listing::{Entry, Removal, list, prune, remove};
pub use log::Log;
pub use settings::{Access, MAIN, Mode, Settings, name};
pub use state::{State, home};
pub use streams::{Inherited, Input, Streams};
pub use tools::{OURS, Ruling};
pub use workspace::Identity;

/// Where the gatekeeper program is in a container.
pub const PROGRAM: &str = "/gatekeeper";
/// The hidden command of the gatekeeper in a container.
pub const INSIDE: &str = "__box";
/// Where runs in a container make their private directories, if /tmp is not writable there.
pub const TEMPORARY: &str = "/gatekeeper-tmp";
