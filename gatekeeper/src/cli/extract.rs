//! `gatekeeper extract`: writes the embedded libsandbox.so to a file.

use super::{args::ExtractArgs, failed, harmless, output};
use std::path::PathBuf;

pub fn main(args: &ExtractArgs) -> u8 {
    let path = args.path.clone().unwrap_or_else(|| PathBuf::from("libsandbox.so"));
    let Some(bytes) = libsandbox_embed::LIBSANDBOX else {
        return failed(
            "this gatekeeper was built without libsandbox.so; build it from the full source tree, or set LIBSANDBOX_SO at build time",
        );
    };
    match output::write(&path, bytes, 0o755) {
        Ok(()) => output::print(&format!("{}\n", harmless(&path.display().to_string()))),
        Err(error) => failed(format_args!("extract: cannot write {}: {error}", path.display())),
    }
}
