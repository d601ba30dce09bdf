//! Every command and flag, as clap sees them. No meaning is given to them here.

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

#[derive(Parser, Debug)]
#[command(name = "gatekeeper", version, about, max_term_width = 100, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Write the embedded libsandbox.so to a file and print its path
    Extract(ExtractArgs),
}

#[derive(Args, Debug)]
pub struct ExtractArgs {
    /// Where to write it [default: libsandbox.so in the working directory]
    pub path: Option<PathBuf>,
}
