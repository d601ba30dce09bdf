//! The flags of `box`.

use super::{RunArgs, examples};
use clap::{Args, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Args, Debug)]
#[command(after_help = examples::BOX)]
pub struct BoxArgs {
    #[command(subcommand)]
    pub command: BoxCommand,
}

#[derive(Subcommand, Debug)]
pub enum BoxCommand {
    /// Make the container of an agent and session, and remove containers that are idle or old
    #[command(after_help = examples::BOX_UP)]
    Up(BoxUpArgs),
    /// Run a command in the container of an agent and session; makes it if there is none
    #[command(after_help = examples::BOX_EXEC)]
    Exec(Box<BoxExecArgs>),
    /// List the containers
    #[command(after_help = examples::BOX_LIST)]
    List(BoxListArgs),
    /// Remove containers that are idle, old, dead or unfinished
    #[command(after_help = examples::BOX_PRUNE)]
    Prune(BoxPruneArgs),
    /// Remove containers
    #[command(after_help = examples::BOX_RM)]
    Rm(BoxRmArgs),
    /// Start the browser of an agent and session in its own container, and print its address
    #[command(after_help = examples::BOX_BROWSER)]
    Browser(BoxBrowserArgs),
    /// Print the effective settings of a session, and the key that decides each
    #[command(after_help = examples::BOX_EXPLAIN)]
    Explain(BoxUpArgs),
}

/// The container engine.
#[derive(Args, Debug, Default)]
pub struct EngineArgs {
    /// Container engine: podman, docker, or the path of one [default: GATEKEEPER_ENGINE, or the one that works]
    #[arg(help_heading = "Container", long, value_name = "ENGINE")]
    pub engine: Option<String>,

    /// Arguments for each call of the engine, separated by blanks, such as '--remote' [default: GATEKEEPER_ENGINE_ARGS]
    #[arg(help_heading = "Container", long, value_name = "ARGS", allow_hyphen_values = true)]
    pub engine_args: Option<String>,
}

/// Whose container.
#[derive(Args, Debug, Default)]
pub struct WhoseArgs {
    #[command(flatten)]
    pub engine: EngineArgs,

    /// The agent
    #[arg(help_heading = "Container", long, value_name = "NAME", default_value = "main")]
    pub agent: String,

    /// The session of the agent
    #[arg(help_heading = "Container", long, value_name = "NAME", default_value = "main")]
    pub session: String,

    /// The agent's own workspace [default: agents.list[].workspace or agents.defaults.workspace]
    #[arg(help_heading = "Container", long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub struct BoxUpArgs {
    /// Configuration: JSON5 with agents.defaults.sandbox, or a policy with [box]
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,

    #[command(flatten)]
    pub whose: WhoseArgs,

    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
#[command(mut_arg("config", |config| config.help("Configuration: JSON5 with agents.defaults.sandbox, or a policy with [box]").required(true)))]
pub struct BoxExecArgs {
    #[command(flatten)]
    pub whose: WhoseArgs,

    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Args, Debug)]
pub struct BoxBrowserArgs {
    #[command(flatten)]
    pub up: BoxUpArgs,

    /// Where: sandbox (a container) or host (`gatekeeper browser` on this machine, if browser.allowHostControl is true)
    #[arg(help_heading = "Container", long, value_name = "TARGET", default_value = "sandbox", value_parser = ["sandbox", "host"])]
    pub target: String,

    /// For --target host: the browser and its arguments
    #[arg(value_name = "CHROMIUM", trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub struct BoxListArgs {
    #[command(flatten)]
    pub engine: EngineArgs,

    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct BoxPruneArgs {
    /// Configuration with prune.idleHours and prune.maxAgeDays, for containers without a rule of their own [default: 24 hours, 7 days]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    #[command(flatten)]
    pub engine: EngineArgs,

    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct BoxRmArgs {
    /// Names of containers, as `list` prints them
    #[arg(value_name = "NAME", required_unless_present_any = ["agent", "session", "all"])]
    pub names: Vec<String>,

    /// Containers of this agent
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,

    /// Containers of this session
    #[arg(long, value_name = "NAME")]
    pub session: Option<String>,

    /// All containers of gatekeeper
    #[arg(long)]
    pub all: bool,

    /// Also those in which commands run
    #[arg(long)]
    pub force: bool,

    #[command(flatten)]
    pub engine: EngineArgs,

    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}
