//! Every command and flag, as clap sees them. No meaning is given to them here.

mod browser;
mod forms;

pub use browser::*;
pub use forms::*;

use crate::policy::{Isolate, NetworkMode, OnViolation, Profile, StaticBinaries, ValueError, values};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Parser, Debug)]
#[command(name = "gatekeeper", version, about, max_term_width = 100, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

/// `run` alone. To build every command takes longer than to confine one.
#[derive(Parser, Debug)]
struct RunOnly {
    #[command(subcommand)]
    run: Run,
}

#[derive(Subcommand, Debug)]
enum Run {
    Run(Box<RunArgs>),
}

impl Cli {
    /// What the words ask for, or what is to be said instead.
    pub fn of(words: &[OsString]) -> Result<Command, clap::Error> {
        if words.get(1).is_some_and(|word| word == "run")
            && let Ok(RunOnly { run: Run::Run(args) }) = RunOnly::try_parse_from(words)
        {
            return Ok(Command::Run(args));
        }
        Cli::try_parse_from(words).map(|cli| cli.command)
    }
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Tell for each file or command name whether the preload can confine it
    Check(CheckArgs),
    /// Run a command confined; nothing runs less confined than you were told
    Run(Box<RunArgs>),
    /// Print the steps that `run` with the same options would take, and change nothing
    Plan(Box<RunArgs>),
    /// The built-in profiles: what each grants, and the commands and actions that prove it
    Profiles(ProfilesArgs),
    /// Try each layer on this machine: what is there, why not, what is lost, and the fix
    Doctor(DoctorArgs),
    /// Write the embedded libsandbox.so to a file and print its path
    Extract(ExtractArgs),
    /// Run a command once, not confined, and write the policy under which it would have passed
    Learn(Box<LearnArgs>),
    /// Serve commands to a client of the Model Context Protocol, on standard input and output
    #[cfg(feature = "mcp")]
    Mcp(Box<McpArgs>),
    /// Tell in plain words what was denied, by which rule, and what would allow it
    #[command(visible_alias = "explain")]
    Why(WhyArgs),
    /// Tell what a policy leaves open, contradicts or says in vain
    Lint(LintArgs),
    /// Write the syscall part of a policy in another form
    Compile(CompileArgs),
    /// Turn a container engine's seccomp profile (OCI, Docker, podman) into a policy
    Import(ImportArgs),
    /// Tell in words what the second policy allows more, less and otherwise than the first
    Diff(DiffArgs),
    /// Run Chromium in its own confinement: its profile, the workspace's media directories, and nothing else
    Browser(Box<BrowserArgs>),
    /// Print the JSON Schema of a policy or of a report
    Schema(SchemaArgs),
    /// Print completions for a shell
    Completions(CompletionsArgs),
    /// Write a man page for each command into a directory
    #[command(hide = true)]
    Man(ManArgs),
    #[command(name = "__probe", hide = true)]
    Probe { words: Vec<OsString> },
}

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ProfilesArgs {
    #[command(subcommand)]
    pub command: Option<ProfilesCommand>,

    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

#[derive(Subcommand, Debug)]
pub enum ProfilesCommand {
    /// Every call that a profile allows, looks at, supervises, answers with ENOSYS or denies
    Show {
        /// A profile, or a union such as write+network
        #[arg(value_name = "NAME", value_parser = profiles)]
        profile: Profiles,

        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Run the corpus for real: commands that must work unchanged, actions that must be stopped
    Test(TestArgs),
}

#[derive(Args, Debug)]
#[command(
    after_help = "Exit status: 0 all as it should be, 1 some not, 2 error. What is not installed is skipped, and said."
)]
pub struct TestArgs {
    /// One profile [default: each command in its smallest profile and in write+network]
    #[arg(value_name = "NAME", value_parser = ["minimal", "network", "write", "write+network"])]
    pub profile: Option<String>,

    /// Only the commands and actions whose name holds this text
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,

    /// A corpus of your own, in place of the one built in
    #[arg(long, value_name = "FILE")]
    pub corpus: Option<PathBuf>,

    /// How many at once [default: one for each processor]
    #[arg(long, value_name = "N")]
    pub jobs: Option<usize>,

    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
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
#[command(after_help = "Exit status: 0 all there, 1 something lacks.")]
pub struct DoctorArgs {
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct ExtractArgs {
    /// Where to write it [default: libsandbox.so in the working directory]
    pub path: Option<PathBuf>,
}

#[derive(Args, Debug)]
#[command(after_help = "Exit status: the command's own; 0 with --from-denials; 2 or 125 where nothing was run.")]
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

#[derive(Args, Debug)]
#[command(
    override_usage = "gatekeeper why [--json] REPORT [N]\n       gatekeeper why [--json] [OPTIONS OF RUN] -- CMD [ARGS]",
    after_help = "Exit status: 0 told, 2 error."
)]
pub struct WhyArgs {
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,

    /// A report, and the number of one denial in it; or a command behind --
    #[arg(value_name = "REPORT [N]", trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    pub words: Vec<OsString>,
}

pub(super) const RUN_EXITS: &str = "Exit status: the command's own; 128+n if it died by signal n (159: killed for a denied call); \
124 timeout; 137 a limit was reached (the report says outcome limit); 125 the sandbox could not be set up, or the report not be written; 126 refused by policy or verdict; 127 not found.";

#[derive(Args, Debug)]
#[command(after_help = RUN_EXITS)]
pub struct RunArgs {
    #[command(flatten)]
    pub policy: PolicyArgs,

    /// Keep the whole of a captured stream that is too long as a file in this directory; yours to remove
    #[arg(long, value_name = "DIR", requires = "json")]
    pub spill: Option<PathBuf>,

    /// Leave the private temporary directory behind and say where it is
    #[arg(long)]
    pub keep_tmp: bool,

    /// Write the report to a file
    #[arg(long, value_name = "FILE", conflicts_with = "report_fd")]
    pub report: Option<PathBuf>,

    /// Write the report to a descriptor
    #[arg(long, value_name = "N")]
    pub report_fd: Option<i32>,

    /// Capture both streams and print one JSON document
    #[arg(long)]
    pub json: bool,

    /// No word from gatekeeper itself
    #[arg(short, long)]
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
    /// What is granted: minimal, network, write, unrestricted, or a union such as write+network [default: minimal]
    #[arg(short, long, value_name = "P[+P...]", value_parser = profiles)]
    pub profile: Option<Profiles>,

    /// Syscalls and @groups to allow beside the profile's
    #[arg(long, value_name = "LIST", value_parser = list)]
    pub allow: Vec<List>,

    /// Syscalls and @groups to deny; wins over every allow
    #[arg(long, value_name = "LIST", value_parser = list)]
    pub deny: Vec<List>,

    /// A path to read, although it holds credentials or the policy does not list it
    #[arg(long, value_name = "PATH")]
    pub read: Vec<PathBuf>,

    /// A path below which everything may be written
    #[arg(long, value_name = "PATH")]
    pub write: Vec<PathBuf>,

    /// A path that may be neither read nor written
    #[arg(long, value_name = "PATH")]
    pub deny_path: Vec<PathBuf>,

    /// A UNIX socket that may be connected to
    #[arg(long, value_name = "PATH")]
    pub unix: Vec<PathBuf>,

    /// Network: none, loopback, full, or hosts=NAME[:PORT],... [default: as the profile says]
    #[arg(long, value_name = "MODE")]
    pub net: Option<NetworkMode>,

    /// A TCP port that may be reached, where the network's mode leaves a choice [default: all]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Vec<u16>,

    /// Namespaces by bubblewrap: required, preferred or disabled
    #[arg(long, value_name = "MODE")]
    pub isolate: Option<Isolate>,

    /// Pass a variable on, or set it
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub env: Vec<String>,

    /// The working directory [default: this one]
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,

    /// End everything after this time, such as 30s or 5m
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub timeout: Option<Duration>,

    /// Memory of the whole tree, such as 512M or 2G
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub memory: Option<u64>,

    /// Processes and threads of the whole tree
    #[arg(long, value_name = "N")]
    pub processes: Option<u64>,

    /// Open descriptors of a process
    #[arg(long, value_name = "N")]
    pub files: Option<u64>,

    /// Processor time of the whole tree
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub cpu: Option<Duration>,

    /// How much is kept of each captured stream [default: 1M]
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub output: Option<u64>,

    /// The largest file that may be written
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub disk: Option<u64>,

    /// Put the caches of npm, pip, cargo, go and others below this directory, which may then be written
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,

    /// What a denied call gets: errno, kill or log [default: errno]
    #[arg(long, value_name = "ACTION")]
    pub on_violation: Option<OnViolation>,

    /// Programs that the preload cannot enter: enforce, block, warn or allow [default: enforce]
    #[arg(long = "static", value_name = "ACTION")]
    pub static_binaries: Option<StaticBinaries>,

    /// Whether a layer that this machine lacks stops the run [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub require_sandbox: Option<bool>,

    /// A policy file, TOML or JSON; flags stand over it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Record refused reads as well, at some cost
    #[arg(long)]
    pub explain: bool,
}

#[cfg(feature = "mcp")]
#[derive(Args, Debug)]
#[command(
    after_help = "Exit status: 0 the client is gone, 2 it did not speak the protocol, 125 no command could be run."
)]
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

fn profiles(text: &str) -> Result<Profiles, ValueError> {
    values::profiles(text).map(Profiles)
}

/// The names of one colon list.
#[derive(Debug, Clone)]
pub struct List(pub Vec<String>);

fn list(text: &str) -> Result<List, ValueError> {
    values::syscalls(text).map(List)
}
