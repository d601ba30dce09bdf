//! Flags that several commands share, each defined once.

use crate::policy::{Document, NetworkMode, OnViolation, Profile, Syscalls, ValueError, values};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// Headings of `--help`, in the order in which they appear there.
pub const PERMISSIONS: &str = "Permissions";
pub const CONFINEMENT: &str = "Confinement";
pub const LIMITS: &str = "Limits";
pub const REPORTING: &str = "Reporting";

/// The syscall policy, as run, plan, mcp and compile take it.
#[derive(Args, Debug, Default, Clone)]
pub struct SyscallArgs {
    /// What to allow: minimal, read, network, write, unrestricted, or a union such as write+network; repeat to combine
    /// [default: minimal]
    #[arg(help_heading = PERMISSIONS, short, long, value_name = "P[+P...]", value_parser = profiles)]
    pub profile: Vec<Profiles>,

    /// Syscalls and @groups to allow in addition to the profile
    #[arg(help_heading = PERMISSIONS, long, value_name = "LIST", value_parser = list)]
    pub allow: Vec<List>,

    /// Syscalls and @groups to deny, whatever else allows them
    #[arg(help_heading = PERMISSIONS, long, value_name = "LIST", value_parser = list)]
    pub deny: Vec<List>,

    /// Policy file, TOML or JSON; flags override its single values and add to its lists
    #[arg(help_heading = CONFINEMENT, long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// When the filter denies a call: errno (it fails), kill, or log (it is made and recorded; the rules for paths,
    /// addresses and limits still apply) [default: errno]
    #[arg(help_heading = CONFINEMENT, long, value_name = "ACTION")]
    pub on_violation: Option<OnViolation>,
}

impl SyscallArgs {
    /// The flags as a policy, to be merged over that of `config`.
    pub fn document(&self) -> Document {
        let names = |lists: &[List]| lists.iter().flat_map(|list| list.0.clone()).collect();
        Document {
            profile: union(&self.profile),
            on_violation: self.on_violation,
            syscalls: Syscalls { allow: names(&self.allow), deny: names(&self.deny), ..Syscalls::default() },
            ..Document::default()
        }
    }
}

/// What run, plan, mcp and browser have in common.
#[derive(Args, Debug, Default, Clone)]
pub struct LaunchArgs {
    /// Also allow reading PATH and everything below it; credentials must be named themselves
    #[arg(help_heading = PERMISSIONS, long, value_name = "PATH")]
    pub read: Vec<PathBuf>,

    /// Also allow writing to PATH and everything below it
    #[arg(help_heading = PERMISSIONS, long, value_name = "PATH")]
    pub write: Vec<PathBuf>,

    /// Network access: none, own, loopback, full, or hosts=NAME[:PORT],... [default: set by the profile]
    #[arg(help_heading = PERMISSIONS, long, value_name = "MODE")]
    pub net: Option<NetworkMode>,

    /// Refuse to run if this machine lacks a layer [default: true]
    #[arg(help_heading = CONFINEMENT, long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub require_sandbox: Option<bool>,

    /// Stop the whole process tree after this time, such as 30s or 5m
    #[arg(help_heading = LIMITS, long, value_name = "TIME", value_parser = values::duration)]
    pub timeout: Option<Duration>,

    /// Memory limit of the whole process tree, such as 512M or 2G
    #[arg(help_heading = LIMITS, long, value_name = "SIZE", value_parser = values::size)]
    pub memory: Option<u64>,

    /// Maximum number of processes and threads in the tree
    #[arg(help_heading = LIMITS, long, value_name = "N")]
    pub processes: Option<u64>,

    /// Also record denied reads of files that are opened relative to a directory, as recursive scans do; slower
    #[arg(help_heading = REPORTING, long)]
    pub explain: bool,
}

/// Who decides about refused calls, for run, plan and learn.
#[derive(Args, Debug, Default)]
pub struct AskArgs {
    /// Ask at the terminal about each refused path, host and UNIX socket; the call waits for the answer
    #[arg(help_heading = CONFINEMENT, long, conflicts_with = "ask_fd")]
    pub ask: bool,

    /// Ask on an open file descriptor, as JSON lines: a socket, or two pipes as READ,WRITE
    #[arg(help_heading = CONFINEMENT, long, value_name = "N", value_delimiter = ',', num_args = 1, value_parser = clap::value_parser!(i32).range(0..))]
    pub ask_fd: Vec<i32>,

    /// Deny what is not answered in this time [default: 60s]
    #[arg(help_heading = CONFINEMENT, long, value_name = "TIME", value_parser = values::duration)]
    pub ask_timeout: Option<Duration>,
}

/// What run and browser print and where they write their report.
#[derive(Args, Debug, Default)]
pub struct ReportArgs {
    /// Write the report to a file
    #[arg(help_heading = REPORTING, long, value_name = "FILE", conflicts_with = "report_fd")]
    pub report: Option<PathBuf>,

    /// Write the report to an open file descriptor
    #[arg(help_heading = REPORTING, long, value_name = "N")]
    pub report_fd: Option<i32>,

    /// Append a line for each decision to this file [default: the variable GATEKEEPER_AUDIT]
    #[arg(help_heading = REPORTING, long, value_name = "FILE")]
    pub audit: Option<PathBuf>,

    /// Suppress gatekeeper's own messages, unless nothing was run
    #[arg(help_heading = REPORTING, short, long)]
    pub quiet: bool,
}

/// The profiles of one flag. A newtype, because clap takes a field of type `Vec` as a repeated flag.
#[derive(Debug, Clone)]
pub struct Profiles(pub Vec<Profile>);

pub fn profiles(text: &str) -> Result<Profiles, ValueError> {
    values::profiles(text).map(Profiles)
}

/// The union of a repeated flag, each profile once; `None` if the flag was not given.
fn union(flags: &[Profiles]) -> Option<Vec<Profile>> {
    flags.iter().map(|flag| flag.0.clone()).fold(None, |union, flag| values::union(union, Some(flag)))
}

/// The names of one list.
#[derive(Debug, Clone)]
pub struct List(pub Vec<String>);

pub fn list(text: &str) -> Result<List, ValueError> {
    values::syscalls(text).map(List)
}

#[cfg(test)]
mod tests {
    use crate::cli::args::{Cli, Command};
    use crate::policy::NetworkMode;
    use clap::Parser;

    #[test]
    fn the_last_net_wins_in_run_and_a_second_one_is_an_error_in_browser() {
        let parse = |command: &str| {
            let words = ["gatekeeper", command, "--net", "none", "--net", "full", "--", "true"];
            Cli::try_parse_from(words).map(|cli| cli.command)
        };
        let Ok(Command::Run(args)) = parse("run") else { panic!("run takes the flag twice") };
        assert_eq!(args.policy.launch.net, Some(NetworkMode::Full));
        assert!(parse("browser").is_err());
    }
}
