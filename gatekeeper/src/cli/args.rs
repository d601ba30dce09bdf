//! Every command and flag, as clap sees them. No meaning is given to them here.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Parser, Debug)]
#[command(name = "gatekeeper", version, about, max_term_width = 100, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Tell for each file or command name whether the preload can confine it
    Check(CheckArgs),
    /// Write the embedded libsandbox.so to a file and print its path
    Extract(ExtractArgs),
}

#[derive(Args, Debug)]
#[command(after_help = "Exit status: 0 all preloadable, 1 some blocked, 2 error.")]
pub struct CheckArgs {
    /// Files, command names looked up in PATH, or directories with -r
    #[arg(value_name = "PATH", required_unless_present = "line")]
    pub paths: Vec<OsString>,

    /// Look at every program under the directories named
    #[arg(short, long)]
    pub recursive: bool,

    /// Print one JSON document, an array of verdicts
    #[arg(long)]
    pub json: bool,

    /// What to think of static programs, which the preload cannot enter
    #[arg(long = "static", value_name = "ACTION", value_enum, default_value_t = StaticAction::Block)]
    pub static_binaries: StaticAction,

    /// Show only what is not preloadable
    #[arg(short, long)]
    pub blocked: bool,

    /// A command line for sh: the shell, and the first word as a guess
    #[arg(short = 'c', long, value_name = "LINE")]
    pub line: Option<String>,

    /// The library to preload [default: the one embedded]
    #[arg(long, value_name = "FILE")]
    pub preload: Option<PathBuf>,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaticAction {
    /// Not preloadable is blocked
    Block,
    /// Say so on stderr and let it pass
    Warn,
    /// Let it pass
    Allow,
}

#[derive(Args, Debug)]
pub struct ExtractArgs {
    /// Where to write it [default: libsandbox.so in the working directory]
    pub path: Option<PathBuf>,
}
