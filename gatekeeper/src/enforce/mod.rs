//! Layers put in force: a plan in, a running command and one status per layer out. Whatever fails, nothing runs.

pub mod landlock;
