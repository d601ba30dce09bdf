//! The flags of `gatekeeper browser`.

use super::{CONFINEMENT, LaunchArgs, PERMISSIONS, ReportArgs, examples};
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Args, Debug)]
#[command(
    override_usage = "gatekeeper browser [OPTIONS] -- CHROMIUM [ARGS]\n       gatekeeper browser --wrapper PATH [OPTIONS] -- CHROMIUM [ARGS]",
    after_help = examples::BROWSER,
    mut_arg("read", |read| read.help("Also allow reading PATH and everything below it")),
    mut_arg("net", |net| net.help("Network access: none, own, loopback, full, or hosts=NAME[:PORT],... [default: full]")),
    mut_arg("require_sandbox", |required| {
        required.help("Refuse to run if this machine lacks a layer, bubblewrap included [default: true; false with --config]")
    }),
)]
pub struct BrowserArgs {
    /// Directory for the browser's profiles, created if missing [default: a private directory, removed at the end]
    #[arg(long, value_name = "DIR")]
    pub profile_dir: Option<PathBuf>,

    /// Workspace: the browser may write to its media/browser and media/downloads, and sees nothing else of it
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,

    /// Settings file of an agent (browser.sandbox ...), JSON or TOML; flags override it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Write a script that stands in for the browser and starts it with these options, and run nothing
    #[arg(long, value_name = "PATH")]
    pub wrapper: Option<PathBuf>,

    /// Deny private, link-local and metadata addresses, after name resolution
    #[arg(help_heading = PERMISSIONS, long)]
    pub deny_private: bool,

    /// Keep a port of this machine reachable under --deny-private
    #[arg(help_heading = PERMISSIONS, long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..), requires = "deny_private")]
    pub local_port: Vec<u16>,

    /// Allow access to the GPU, if there is one [default: true]
    #[arg(help_heading = PERMISSIONS, long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub gpu: Option<bool>,

    /// Turn off the browser's own sandbox. A --no-sandbox among its arguments is ignored
    #[arg(help_heading = CONFINEMENT, long)]
    pub no_inner_sandbox: bool,

    // After the flags above, so that --help lists the headings in the same order as for run.
    #[command(flatten)]
    pub launch: LaunchArgs,

    #[command(flatten)]
    pub reporting: ReportArgs,

    /// The browser and its arguments
    #[arg(value_name = "CHROMIUM", trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    pub command: Vec<OsString>,
}
