//! Single values: parses one word, duration, size or name from a file or a flag.
//!
//! Knows neither files nor keys, and never guesses: text that it does not understand is an error.

mod names;
mod network;
mod quantities;
mod syscalls;
mod words;

pub(super) use names::variable_value;
pub use names::{command, denied_path, passed_variable, path, set_variable};
pub(super) use network::NETWORK_MODES;
pub(super) use quantities::{DURATIONS, SIZES, at_least, bounded, cpu, disk, memory, output};
pub use quantities::{LEAST_FILES, MAX_DURATION, duration, size};
pub(super) use syscalls::{name, numbers};
pub use syscalls::{rule_action, syscall, syscalls};
pub(super) use words::combined;
pub use words::{Word, joined, profiles, union};
