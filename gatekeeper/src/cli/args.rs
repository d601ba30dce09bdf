//! Every command and flag, as clap sees them. No meaning is given to them here.

mod browser;
pub mod examples;
mod forms;
mod run;

pub use browser::*;
pub use forms::*;
pub use run::*;

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Parser, Debug)]
#[command(name = "gatekeeper", version, about, max_term_width = 100, propagate_version = true, after_help = examples::ALL)]
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
    #[command(after_help = examples::PLAN)]
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
#[command(after_help = examples::PROFILES_TEST)]
pub struct TestArgs {
    /// One profile [default: each command in its smallest profile and in write+network]
    #[arg(value_name = "NAME", value_parser = ["minimal", "read", "network", "write", "write+network"])]
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
#[command(after_help = examples::CHECK)]
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
#[command(after_help = examples::DOCTOR)]
pub struct DoctorArgs {
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = examples::EXTRACT)]
pub struct ExtractArgs {
    /// Where to write it [default: libsandbox.so in the working directory]
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

    /// A report, and the number of one denial in it; or a command behind --, or a line for sh behind -c
    #[arg(value_name = "REPORT [N]", trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    pub words: Vec<OsString>,
}
