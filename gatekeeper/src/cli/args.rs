//! Every command and flag, as clap parses them. What they mean is decided by the commands' own modules.

mod audit;
mod browser;
mod container;
pub mod examples;
mod forms;
mod quick;
mod run;
mod shared;
mod stage;

pub use audit::*;
pub use browser::*;
pub use container::*;
pub use forms::*;
pub use run::*;
pub use shared::*;
pub use stage::*;

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Parser, Debug)]
#[command(name = "gatekeeper", version, about, max_term_width = 100, propagate_version = true, after_help = examples::ALL)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

/// Only `run`, and its flags as those of a program: building the parsers of all commands takes longer than confining a
/// process. Whatever it does not parse, `--help` included, is left to `Cli`.
#[derive(Parser, Debug)]
#[command(disable_help_flag = true, disable_version_flag = true, disable_help_subcommand = true)]
struct RunOnly {
    #[command(flatten)]
    args: RunArgs,
}

impl Cli {
    /// Parses a command line. The error is also how clap returns `--help` and `--version`.
    pub fn of(words: &[OsString]) -> Result<Command, clap::Error> {
        if words.get(1).is_some_and(|word| word == "run") {
            if let Some(args) = quick::parse(&words[2..]) {
                return Ok(Command::Run(Box::new(args)));
            }
            if let Ok(RunOnly { args }) = RunOnly::try_parse_from(&words[1..]) {
                return refuse_value_apart(words, &args.command).map(|()| Command::Run(Box::new(args)));
            }
        }
        let command = Cli::try_parse_from(words)?.command;
        match &command {
            Command::Run(args) | Command::Plan(args) => refuse_value_apart(words, &args.command)?,
            _ => {}
        }
        Ok(command)
    }
}

/// Refuses `--require-sandbox true -- cmd`. The value of this flag may be left out, so `true` was taken as the command, which
/// succeeds without having done anything.
fn refuse_value_apart(words: &[OsString], command: &[OsString]) -> Result<(), clap::Error> {
    let Some(first) = command.first().filter(|word| *word == "true" || *word == "false") else { return Ok(()) };
    let flags = words.split(|word| word == "--").next().unwrap_or_default();
    if !flags.windows(2).any(|pair| pair[0] == "--require-sandbox" && pair[1] == *first) {
        return Ok(());
    }
    let value = first.display();
    let text = format!("write --require-sandbox={value}, with an equals sign; {value} would be the command\n");
    Err(clap::Error::raw(clap::error::ErrorKind::InvalidValue, text))
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Check whether LD_PRELOAD can confine a file or command
    Check(CheckArgs),
    /// Run a command confined, never with less protection than you asked for
    Run(Box<RunArgs>),
    #[command(after_help = examples::PLAN)]
    /// Print the steps that `run` would take with the same options, without running anything
    Plan(Box<RunArgs>),
    /// List the built-in profiles, show what one grants, or test them
    Profiles(ProfilesArgs),
    /// Test each sandbox layer on this machine, and show how to fix what does not work
    Doctor(DoctorArgs),
    /// Write the embedded libsandbox.so to a file and print its path
    Extract(ExtractArgs),
    /// Run a command once, unconfined, and write a policy that allows what it did
    Learn(Box<LearnArgs>),
    /// Run many commands for a program, asked for and answered by JSON lines
    Serve(ServeArgs),
    /// Run commands for a Model Context Protocol client on standard input and output
    #[cfg(feature = "mcp")]
    Mcp(Box<McpArgs>),
    /// Explain what was denied, by which rule, and which grant would allow it
    #[command(visible_alias = "explain")]
    Why(WhyArgs),
    /// Find holes, contradictions and rules without effect in a policy
    Lint(LintArgs),
    /// Convert the syscall rules of a policy to a filter file, a colon list or OCI JSON
    Compile(CompileArgs),
    /// Convert the seccomp profile of a container engine (OCI, Docker, Podman) to a policy
    Import(ImportArgs),
    /// Compare two policies: what the second allows that the first does not, and the reverse
    Diff(DiffArgs),
    /// Run Chromium confined to its profile and the media directories of a workspace
    Browser(Box<BrowserArgs>),
    /// Show, take over or throw away the changes that `run --stage` has kept
    Stage(StageArgs),
    /// Check or print the audit files that `run --audit` writes
    Audit(AuditArgs),
    /// Run commands in containers of podman or docker, each confined and reported as by `run`
    Box(Box<BoxArgs>),
    /// Print the JSON Schema of policies or reports
    Schema(SchemaArgs),
    /// Print shell completions
    Completions(CompletionsArgs),
    /// Write a man page for each command to a directory
    #[command(hide = true)]
    Man(ManArgs),
    #[command(name = "__probe", hide = true)]
    Probe { words: Vec<OsString> },
}

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, after_help = examples::PROFILES)]
pub struct ProfilesArgs {
    #[command(subcommand)]
    pub command: Option<ProfilesCommand>,

    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

#[derive(Subcommand, Debug)]
pub enum ProfilesCommand {
    #[command(after_help = examples::PROFILES_SHOW)]
    /// Show what a profile does with each syscall
    Show {
        /// A profile, or a union of profiles such as write+network
        #[arg(value_name = "NAME", value_parser = profiles)]
        profile: Profiles,

        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Run the test corpus: commands that must work, and actions that must be denied
    Test(TestArgs),
}

#[derive(Args, Debug)]
#[command(after_help = examples::PROFILES_TEST)]
pub struct TestArgs {
    /// Test only this profile [default: each command in its smallest profile and in write+network]
    #[arg(value_name = "NAME", value_parser = ["minimal", "read", "network", "write", "write+network"])]
    pub profile: Option<String>,

    /// Run only the commands and actions whose name contains TEXT
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,

    /// Use this corpus file instead of the built-in corpus
    #[arg(long, value_name = "FILE")]
    pub corpus: Option<PathBuf>,

    /// Number of parallel jobs [default: the number of processors]
    #[arg(long, value_name = "N")]
    pub jobs: Option<usize>,

    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = examples::CHECK)]
pub struct CheckArgs {
    /// Files, command names to look up in PATH, or directories with -r
    #[arg(value_name = "PATH", required_unless_present = "line")]
    pub paths: Vec<OsString>,

    /// Check every executable file below the directories
    #[arg(short, long)]
    pub recursive: bool,

    /// Print one JSON document: an array of verdicts
    #[arg(long)]
    pub json: bool,

    /// How to treat static programs, which LD_PRELOAD cannot enter
    #[arg(long = "static", value_name = "ACTION", value_enum, default_value_t = StaticAction::Block)]
    pub static_binaries: StaticAction,

    /// List only files that LD_PRELOAD cannot confine
    #[arg(short, long)]
    pub blocked: bool,

    /// Check what a shell command line runs: /bin/sh and, as a guess, its first word
    #[arg(short = 'c', long, value_name = "LINE")]
    pub line: Option<String>,

    /// The library to preload [default: the embedded libsandbox.so]
    #[arg(long, value_name = "FILE")]
    pub preload: Option<PathBuf>,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaticAction {
    /// Count them as blocked
    Block,
    /// Let them pass, with a warning on stderr
    Warn,
    /// Let them pass
    Allow,
}

#[derive(Args, Debug)]
#[command(after_help = examples::DOCTOR)]
pub struct DoctorArgs {
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = examples::EXTRACT)]
pub struct ExtractArgs {
    /// Output file [default: libsandbox.so in the working directory]
    pub path: Option<PathBuf>,
}

#[derive(Args, Debug)]
#[command(
    override_usage = "gatekeeper why [--json] REPORT [N]\n       gatekeeper why [--json] [OPTIONS OF RUN] -- CMD [ARGS]\n       gatekeeper why [--json] [OPTIONS OF RUN] -c LINE",
    after_help = examples::WHY
)]
pub struct WhyArgs {
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,

    /// A report and, optionally, the number of one denial in it; or a command after --, or a shell line after -c
    #[arg(value_name = "REPORT [N]", trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    pub words: Vec<OsString>,
}
