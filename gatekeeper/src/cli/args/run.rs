//! The flags of the commands that run others: run, plan, learn, mcp.

use super::{AskArgs, CONFINEMENT, LIMITS, LaunchArgs, PERMISSIONS, REPORTING, ReportArgs, SyscallArgs, examples};
use crate::policy::{Credential, HttpRule, Isolate, StaticBinaries, values};
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Args, Debug, Default)]
#[command(after_help = examples::RUN)]
pub struct RunArgs {
    #[command(flatten)]
    pub policy: PolicyArgs,

    #[command(flatten)]
    pub asking: AskArgs,

    #[command(flatten)]
    pub reporting: ReportArgs,

    /// Capture stdout and stderr, and print one JSON document
    #[arg(help_heading = REPORTING, long)]
    pub json: bool,

    /// Save all of a captured stream that exceeds --output to a file in DIR, and leave it there
    #[arg(help_heading = REPORTING, long, value_name = "DIR", requires = "json")]
    pub spill: Option<PathBuf>,

    /// Keep the directory of the run, which contains the private TMPDIR as tmp, and print its path
    #[arg(help_heading = REPORTING, long)]
    pub keep_tmp: bool,

    /// Keep all changes below the working directory in stage NAME, until `gatekeeper stage apply NAME`
    #[arg(help_heading = CONFINEMENT, long, value_name = "NAME")]
    pub stage: Option<String>,

    /// How much to copy for a stage, where no overlay can be mounted [default: 1G]
    #[arg(help_heading = LIMITS, long, value_name = "SIZE", value_parser = values::size, requires = "stage")]
    pub stage_limit: Option<u64>,

    /// Set variables that are read from an open file descriptor, as NAME=VALUE, each ended by a NUL byte
    #[arg(help_heading = PERMISSIONS, long, value_name = "N", value_parser = clap::value_parser!(i32).range(3..))]
    pub env_fd: Option<i32>,

    /// Run LINE with sh, which may then start processes
    #[arg(short = 'c', value_name = "LINE", conflicts_with = "command")]
    pub line: Option<OsString>,

    /// The command and its arguments
    #[arg(value_name = "CMD", trailing_var_arg = true, required_unless_present = "line")]
    pub command: Vec<OsString>,
}

/// What the command may do, for run, plan and mcp.
#[derive(Args, Debug, Default, Clone)]
// The last --net wins, so that the remedy of a denial (`allow_with`) can be appended to any command line.
#[command(mut_arg("net", |net| net.overrides_with("net")))]
pub struct PolicyArgs {
    #[command(flatten)]
    pub syscalls: SyscallArgs,

    #[command(flatten)]
    pub launch: LaunchArgs,

    /// Deny reading and writing PATH, or all paths that match a pattern such as '**/.env' or 'secrets/*.json'
    #[arg(help_heading = PERMISSIONS, long, value_name = "PATH")]
    pub deny_path: Vec<PathBuf>,

    /// Allow connecting to a UNIX socket
    #[arg(help_heading = PERMISSIONS, long, value_name = "PATH")]
    pub unix: Vec<PathBuf>,

    /// Allow only this TCP port; repeat for more [default: all]
    #[arg(help_heading = PERMISSIONS, long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Vec<u16>,

    /// Allow these requests only, as in 'GET,HEAD api.example.org/v1/**'; the host is thereby listed
    #[arg(help_heading = PERMISSIONS, long, value_name = "[METHODS ]HOST[/PATH]")]
    pub http: Vec<HttpRule>,

    /// Give the command a placeholder for the secret in your variable NAME, which the proxy replaces in requests to HOST
    #[arg(help_heading = PERMISSIONS, long, value_name = "NAME@HOST[=AS]")]
    pub credential: Vec<Credential>,

    /// Pass on a variable (NAME) or set it (NAME=VALUE)
    #[arg(help_heading = PERMISSIONS, long, value_name = "NAME[=VALUE]")]
    pub env: Vec<String>,

    /// Put the caches of npm, pip, cargo, go and others in DIR, and allow writing there
    #[arg(help_heading = PERMISSIONS, long, value_name = "DIR")]
    pub cache: Option<PathBuf>,

    /// Isolate with bubblewrap namespaces: required, preferred or disabled [default: disabled]
    #[arg(help_heading = CONFINEMENT, long, value_name = "MODE")]
    pub isolate: Option<Isolate>,

    /// How to run programs that LD_PRELOAD cannot enter: enforce, block, warn or allow [default: enforce]
    #[arg(help_heading = CONFINEMENT, long = "static", value_name = "ACTION")]
    pub static_binaries: Option<StaticBinaries>,

    /// Maximum number of open file descriptors of each process
    #[arg(help_heading = LIMITS, long, value_name = "N")]
    pub files: Option<u64>,

    /// CPU time limit of the whole process tree, such as 60s
    #[arg(help_heading = LIMITS, long, value_name = "TIME", value_parser = values::duration)]
    pub cpu: Option<Duration>,

    /// How much to keep of each captured stream [default: 1M]
    #[arg(help_heading = LIMITS, long, value_name = "SIZE", value_parser = values::size)]
    pub output: Option<u64>,

    /// Maximum size of a file that the command writes
    #[arg(help_heading = LIMITS, long, value_name = "SIZE", value_parser = values::size)]
    pub disk: Option<u64>,

    /// Working directory [default: the current one]
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
}

#[derive(Args, Debug)]
#[command(after_help = examples::SERVE)]
pub struct ServeArgs {
    /// Listen on this UNIX socket, for programs of this user only, instead of standard input and output
    #[arg(long, value_name = "FILE")]
    pub socket: Option<PathBuf>,
}

#[cfg(feature = "mcp")]
#[derive(Args, Debug)]
#[command(after_help = examples::MCP)]
pub struct McpArgs {
    #[command(flatten)]
    pub policy: PolicyArgs,

    /// A grant that the client may request, as flags of run, such as '--write /srv/data' [default: none]
    #[arg(long, value_name = "GRANT", allow_hyphen_values = true)]
    pub grantable: Vec<String>,

    /// Keep all changes below the working directory in stage NAME; the client can show them, but not apply them
    #[arg(help_heading = CONFINEMENT, long, value_name = "NAME")]
    pub stage: Option<String>,

    /// Let the client also apply and discard the stage. Its own changes then need no yes of yours
    #[arg(help_heading = CONFINEMENT, long, requires = "stage")]
    pub stage_decides: bool,

    /// Have the client's user decide about each refused path, host and UNIX socket, if the client has elicitation
    #[arg(long)]
    pub ask: bool,

    /// Append a line for each decision to this file [default: the variable GATEKEEPER_AUDIT]
    #[arg(long, value_name = "FILE")]
    pub audit: Option<PathBuf>,

    /// Serve the tools of this agent, in its container; --config is then the configuration of `gatekeeper box`
    #[arg(help_heading = "Container", long, value_name = "NAME", requires = "config", conflicts_with = "grantable")]
    pub agent: Option<String>,

    /// The session of the agent [default: main]
    #[arg(help_heading = "Container", long, value_name = "NAME", requires = "config", conflicts_with = "grantable")]
    pub session: Option<String>,

    /// The agent's own workspace [default: agents.list[].workspace or agents.defaults.workspace]
    #[arg(help_heading = "Container", long, value_name = "DIR", requires = "config")]
    pub workspace: Option<PathBuf>,

    #[command(flatten)]
    pub engine: super::EngineArgs,
}

#[derive(Args, Debug)]
#[command(after_help = examples::LEARN)]
pub struct LearnArgs {
    /// Output file for the policy
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,

    /// Add the grants to this policy; what it denies stays denied
    #[arg(long, value_name = "POLICY")]
    pub merge: Option<PathBuf>,

    /// Grant what was denied according to a report, instead of running a command
    #[arg(long, value_name = "REPORT", conflicts_with_all = ["command", "line"])]
    pub from_denials: Option<PathBuf>,

    /// With --ask or --ask-fd: run the command confined by this profile, ask, and write what was approved [default: minimal]
    #[arg(long, value_name = "P[+P...]", value_parser = super::profiles)]
    pub profile: Vec<super::Profiles>,

    #[command(flatten)]
    pub asking: AskArgs,

    /// Pass on a variable (NAME) or set it (NAME=VALUE)
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub env: Vec<String>,

    /// Working directory [default: the current one]
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,

    /// Stop the whole process tree after this time, such as 30s or 5m
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub timeout: Option<Duration>,

    /// Append a line for each decision to this file [default: the variable GATEKEEPER_AUDIT]
    #[arg(long, value_name = "FILE", conflicts_with = "from_denials")]
    pub audit: Option<PathBuf>,

    /// Do not print notes on stderr; the policy file still has them as comments
    #[arg(short, long)]
    pub quiet: bool,

    /// Run LINE with sh
    #[arg(short = 'c', value_name = "LINE", conflicts_with = "command")]
    pub line: Option<OsString>,

    /// The command and its arguments
    #[arg(value_name = "CMD", trailing_var_arg = true, required_unless_present_any = ["line", "from_denials"])]
    pub command: Vec<OsString>,
}

impl LearnArgs {
    /// The flags of learn as those of run.
    pub fn policy(&self) -> PolicyArgs {
        let launch = LaunchArgs { timeout: self.timeout, ..LaunchArgs::default() };
        let syscalls = SyscallArgs { profile: self.profile.clone(), ..SyscallArgs::default() };
        PolicyArgs { launch, syscalls, env: self.env.clone(), cwd: self.cwd.clone(), ..PolicyArgs::default() }
    }
}
