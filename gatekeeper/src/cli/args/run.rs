//! The flags of the commands that run others: run, plan, learn, mcp.

use super::{Cli, Command, examples};
use crate::policy::{Isolate, NetworkMode, OnViolation, Profile, StaticBinaries, ValueError, values};
use clap::{Args, Parser};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Args, Debug)]
#[command(after_help = examples::RUN)]
pub struct RunArgs {
    #[command(flatten)]
    pub policy: PolicyArgs,

    /// Keep the whole of a captured stream that is too long as a file in this directory; yours to remove
    #[arg(help_heading = "What is told", long, value_name = "DIR", requires = "json")]
    pub spill: Option<PathBuf>,

    /// Leave the private temporary directory behind and say where it is
    #[arg(help_heading = "What is told", long)]
    pub keep_tmp: bool,

    /// Write the report to a file
    #[arg(help_heading = "What is told", long, value_name = "FILE", conflicts_with = "report_fd")]
    pub report: Option<PathBuf>,

    /// Write the report to a descriptor
    #[arg(help_heading = "What is told", long, value_name = "N")]
    pub report_fd: Option<i32>,

    /// Capture both streams and print one JSON document
    #[arg(help_heading = "What is told", long)]
    pub json: bool,

    /// No word from gatekeeper itself
    #[arg(help_heading = "What is told", short, long)]
    pub quiet: bool,

    /// A line for sh, with new processes granted
    #[arg(short = 'c', value_name = "LINE", conflicts_with = "command")]
    pub line: Option<OsString>,

    /// The command and its arguments
    #[arg(value_name = "CMD", trailing_var_arg = true, required_unless_present = "line")]
    pub command: Vec<OsString>,
}

/// What is allowed, in every command that runs others.
#[derive(Args, Debug)]
pub struct PolicyArgs {
    /// What is granted: minimal, read, network, write, unrestricted, or a union such as write+network; repeats as a
    /// union [default: minimal]
    #[arg(help_heading = "What is granted", short, long, value_name = "P[+P...]", value_parser = profiles)]
    pub profile: Vec<Profiles>,

    /// Syscalls and @groups to allow beside the profile's
    #[arg(help_heading = "What is granted", long, value_name = "LIST", value_parser = list)]
    pub allow: Vec<List>,

    /// Syscalls and @groups to deny; wins over every allow
    #[arg(help_heading = "What is granted", long, value_name = "LIST", value_parser = list)]
    pub deny: Vec<List>,

    /// A path to read, although it holds credentials or the policy does not list it
    #[arg(help_heading = "What is granted", long, value_name = "PATH")]
    pub read: Vec<PathBuf>,

    /// A path below which everything may be written
    #[arg(help_heading = "What is granted", long, value_name = "PATH")]
    pub write: Vec<PathBuf>,

    /// A path that may be neither read nor written, or a pattern of such paths: '**/.env', 'secrets/*.json'
    #[arg(help_heading = "What is granted", long, value_name = "PATH")]
    pub deny_path: Vec<PathBuf>,

    /// A UNIX socket that may be connected to
    #[arg(help_heading = "What is granted", long, value_name = "PATH")]
    pub unix: Vec<PathBuf>,

    /// Network: none, loopback, full, or hosts=NAME[:PORT],... [default: as the profile says]
    #[arg(help_heading = "What is granted", long, value_name = "MODE", overrides_with = "net")]
    pub net: Option<NetworkMode>,

    /// A TCP port that may be reached, where the network's mode leaves a choice [default: all]
    #[arg(help_heading = "What is granted", long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Vec<u16>,

    /// Namespaces by bubblewrap: required, preferred or disabled
    #[arg(help_heading = "How it is confined", long, value_name = "MODE")]
    pub isolate: Option<Isolate>,

    /// Pass a variable on, or set it
    #[arg(help_heading = "What is granted", long, value_name = "NAME[=VALUE]")]
    pub env: Vec<String>,

    /// The working directory [default: this one]
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,

    /// End everything after this time, such as 30s or 5m
    #[arg(help_heading = "Limits", long, value_name = "TIME", value_parser = values::duration)]
    pub timeout: Option<Duration>,

    /// Memory of the whole tree, such as 512M or 2G
    #[arg(help_heading = "Limits", long, value_name = "SIZE", value_parser = values::size)]
    pub memory: Option<u64>,

    /// Processes and threads of the whole tree
    #[arg(help_heading = "Limits", long, value_name = "N")]
    pub processes: Option<u64>,

    /// Open descriptors of a process
    #[arg(help_heading = "Limits", long, value_name = "N")]
    pub files: Option<u64>,

    /// Processor time of the whole tree
    #[arg(help_heading = "Limits", long, value_name = "TIME", value_parser = values::duration)]
    pub cpu: Option<Duration>,

    /// How much is kept of each captured stream [default: 1M]
    #[arg(help_heading = "Limits", long, value_name = "SIZE", value_parser = values::size)]
    pub output: Option<u64>,

    /// The largest file that may be written
    #[arg(help_heading = "Limits", long, value_name = "SIZE", value_parser = values::size)]
    pub disk: Option<u64>,

    /// Put the caches of npm, pip, cargo, go and others below this directory, which may then be written
    #[arg(help_heading = "What is granted", long, value_name = "DIR")]
    pub cache: Option<PathBuf>,

    /// What a call that the filter denies gets: errno, kill, or log, which lets it through and records it; paths,
    /// limits and the addresses of --net loopback and hosts hold under each [default: errno]
    #[arg(help_heading = "How it is confined", long, value_name = "ACTION")]
    pub on_violation: Option<OnViolation>,

    /// Programs that the preload cannot enter: enforce, block, warn or allow [default: enforce]
    #[arg(help_heading = "How it is confined", long = "static", value_name = "ACTION")]
    pub static_binaries: Option<StaticBinaries>,

    /// Whether a layer that this machine lacks stops the run [default: true]
    #[arg(help_heading = "How it is confined", long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub require_sandbox: Option<bool>,

    /// A policy file, TOML or JSON; flags stand over it
    #[arg(help_heading = "How it is confined", long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Record refused reads of scans as well (files opened by the descriptor of their directory), at some cost
    #[arg(help_heading = "What is told", long)]
    pub explain: bool,
}

#[cfg(feature = "mcp")]
#[derive(Args, Debug)]
#[command(after_help = examples::MCP)]
pub struct McpArgs {
    #[command(flatten)]
    pub policy: PolicyArgs,

    /// What a client may be granted when it asks, in the flags of run, such as '--write /srv/data' [default: nothing]
    #[arg(long, value_name = "GRANT", allow_hyphen_values = true)]
    pub grantable: Vec<String>,
}

/// The profiles of one flag; a type of its own, because clap reads a bare list as a repeated flag.
#[derive(Debug, Clone)]
pub struct Profiles(pub Vec<Profile>);

pub fn profiles(text: &str) -> Result<Profiles, ValueError> {
    values::profiles(text).map(Profiles)
}

/// The union of a repeated flag, each profile once; `None` where the flag was not given.
pub fn union(flags: &[Profiles]) -> Option<Vec<Profile>> {
    flags.iter().map(|flag| flag.0.clone()).fold(None, |union, flag| values::union(union, Some(flag)))
}

/// The names of one colon list.
#[derive(Debug, Clone)]
pub struct List(pub Vec<String>);

pub fn list(text: &str) -> Result<List, ValueError> {
    values::syscalls(text).map(List)
}

#[derive(Args, Debug)]
#[command(after_help = examples::LEARN)]
pub struct LearnArgs {
    /// Where to write the policy
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,

    /// A policy to which grants are added; what it denies stays denied
    #[arg(long, value_name = "POLICY")]
    pub merge: Option<PathBuf>,

    /// Take the denials of a report instead of a run
    #[arg(long, value_name = "REPORT", conflicts_with_all = ["command", "line"])]
    pub from_denials: Option<PathBuf>,

    /// Pass a variable on, or set it
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub env: Vec<String>,

    /// The working directory [default: this one]
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,

    /// End everything after this time, such as 30s or 5m
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub timeout: Option<Duration>,

    /// No word from gatekeeper itself
    #[arg(short, long)]
    pub quiet: bool,

    /// A line for sh
    #[arg(short = 'c', value_name = "LINE", conflicts_with = "command")]
    pub line: Option<OsString>,

    /// The command and its arguments
    #[arg(value_name = "CMD", trailing_var_arg = true, required_unless_present_any = ["line", "from_denials"])]
    pub command: Vec<OsString>,
}

impl RunArgs {
    /// The same run as flags of `run`.
    pub fn for_learning(args: &LearnArgs) -> Result<RunArgs, String> {
        let words = ["gatekeeper", "run", "true"];
        let Ok(Cli { command: Command::Run(run) }) = Cli::try_parse_from(words) else {
            return Err("the flags of run have changed".to_owned());
        };
        let policy = PolicyArgs { env: args.env.clone(), cwd: args.cwd.clone(), timeout: args.timeout, ..run.policy };
        Ok(RunArgs { policy, line: args.line.clone(), command: args.command.clone(), ..*run })
    }
}
