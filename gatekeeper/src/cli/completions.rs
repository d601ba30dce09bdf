//! `gatekeeper completions` and `gatekeeper man`: generated from the definitions that parse the command line.

use super::args::{Cli, CompletionsArgs, ManArgs};
use super::{failed, write_out};
use clap::CommandFactory;
use std::fs::OpenOptions;
use std::io::Write;

pub fn main(args: &CompletionsArgs) -> u8 {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "gatekeeper", &mut text);
    write_out(None, &text)
}

/// Appended to gatekeeper(1): clap has no place for references.
const SEE_ALSO: &str = ".SH \"SEE ALSO\"
.BR gatekeeper\\-run (1),
.BR gatekeeper\\-check (1),
.BR gatekeeper\\-policy (5),
.BR libsandbox (7),
.BR bwrap (1),
.BR seccomp (2),
.BR landlock (7)
";

pub fn man(args: &ManArgs) -> u8 {
    let pages = clap_mangen::generate_to(Cli::command(), &args.directory);
    let first = pages.and_then(|()| OpenOptions::new().append(true).open(args.directory.join("gatekeeper.1")));
    match first.and_then(|mut page| page.write_all(SEE_ALSO.as_bytes())) {
        Ok(()) => 0,
        Err(error) => failed(format_args!("man: {}: {error}", args.directory.display())),
    }
}
