//! The flags of `gatekeeper browser`.

use super::examples;
use crate::policy::{NetworkMode, values};
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Args, Debug)]
#[command(
    override_usage = "gatekeeper browser [OPTIONS] -- CHROMIUM [ARGS]\n       gatekeeper browser --wrapper PATH [OPTIONS] -- CHROMIUM [ARGS]",
    after_help = examples::BROWSER
)]
pub struct BrowserArgs {
    /// Where the browser keeps its profiles, made if it is missing [default: in a private directory, gone at the end]
    #[arg(long, value_name = "DIR")]
    pub profile_dir: Option<PathBuf>,

    /// The workspace: of it media/browser and media/downloads may be written, and nothing else is seen
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,

    /// Settings as an agent keeps them (browser.sandbox ...), JSON or TOML; flags stand over them
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Network: full, none, loopback, or hosts=NAME[:PORT],... [default: full]
    #[arg(long, value_name = "MODE")]
    pub net: Option<NetworkMode>,

    /// Refuse private, link-local and metadata addresses, after resolving
    #[arg(long)]
    pub deny_private: bool,

    /// A port of this machine that stays reachable under --deny-private
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..), requires = "deny_private")]
    pub local_port: Vec<u16>,

    /// Whether the graphics card may be used, where there is one [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub gpu: Option<bool>,

    /// Do without the browser's own sandbox. A --no-sandbox among its arguments is not passed on
    #[arg(long)]
    pub no_inner_sandbox: bool,

    /// Another path to read
    #[arg(long, value_name = "PATH")]
    pub read: Vec<PathBuf>,

    /// Another path below which everything may be written
    #[arg(long, value_name = "PATH")]
    pub write: Vec<PathBuf>,

    /// Write a script that does all this when it is started as if it were the browser, and run nothing
    #[arg(long, value_name = "PATH")]
    pub wrapper: Option<PathBuf>,

    /// End everything after this time, such as 30s or 5m
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub timeout: Option<Duration>,

    /// Memory of the whole tree, such as 2G
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub memory: Option<u64>,

    /// Processes and threads of the whole tree
    #[arg(long, value_name = "N")]
    pub processes: Option<u64>,

    /// Whether a layer that this machine lacks, bubblewrap too, stops the browser [default: true, but with --config false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub require_sandbox: Option<bool>,

    /// Write the report to a file
    #[arg(long, value_name = "FILE", conflicts_with = "report_fd")]
    pub report: Option<PathBuf>,

    /// Write the report to a descriptor
    #[arg(long, value_name = "N")]
    pub report_fd: Option<i32>,

    /// Record refused reads as well, at some cost
    #[arg(long)]
    pub explain: bool,

    /// No word from gatekeeper itself
    #[arg(short, long)]
    pub quiet: bool,

    /// The browser and its arguments
    #[arg(value_name = "CHROMIUM", trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    pub command: Vec<OsString>,
}
