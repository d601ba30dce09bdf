//! `--isolate`: bubblewrap around everything else.

mod api;
mod broken;
mod nix;
mod world;

use crate::network::{Run, confined};
use crate::support::on_path;
use std::path::Path;

/// Whether bubblewrap works here at all; asked of it directly, not of gatekeeper.
pub fn works() -> bool {
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
