//! `gatekeeper completions` and `gatekeeper man`: made from the same definitions as the command line itself.

use super::args::{Cli, CompletionsArgs, ManArgs};
use super::{failed, write_out};
use clap::CommandFactory;

pub fn main(args: &CompletionsArgs) -> u8 {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "gatekeeper", &mut text);
    write_out(None, &text)
}

pub fn man(args: &ManArgs) -> u8 {
    match clap_mangen::generate_to(Cli::command(), &args.directory) {
        Ok(()) => 0,
        Err(error) => failed(format_args!("man: {}: {error}", args.directory.display())),
    }
}
