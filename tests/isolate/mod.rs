//! `--isolate`: bubblewrap around all other layers.

mod api;
mod broken;
mod nix;
mod planted;
mod world;

use crate::network::{Run, confined};
use crate::support::{on_path, skip};
use std::path::Path;

/// Whether bubblewrap works here. If it does not, the test or the part of it that needs bubblewrap counts as skipped.
#[track_caller]
pub fn works() -> bool {
    if !available() {
        skip("bubblewrap does not work here");
    }
    available()
}

/// The flags of a run without and, if bubblewrap works, with isolation.
#[track_caller]
pub fn ways() -> &'static [&'static [&'static str]] {
    if works() { &[&[], &["--isolate", "required"]] } else { &[&[]] }
}

/// Whether bubblewrap itself, without gatekeeper, works here.
fn available() -> bool {
    static WORKS: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *WORKS.get_or_init(|| {
        let mut command = std::process::Command::new("bwrap");
        command.args([
            "--unshare-pid",
            "--unshare-net",
            "--ro-bind",
            "/",
            "/",
            "--proc",
            "/proc",
            "--dev",
            "/dev",
            "true",
        ]);
        on_path("bwrap") && command.output().is_ok_and(|output| output.status.success())
    })
}

pub fn isolated(directory: &Path, user: Option<u32>, flags: &[&str]) -> Run {
    confined(directory, user, &[&["--isolate", "required"][..], flags].concat())
}
