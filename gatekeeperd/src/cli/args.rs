//! The arguments.

use crate::api::Address as Listen;
use crate::browser::MOST_PIXELS;
use crate::store::Address as Store;
use crate::task::Coordinates;
use clap::error::ErrorKind;
use clap::{Args as ClapArgs, CommandFactory, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Browser sessions for tasks: one confined Chromium each, with grants, injected cookies and an audit trail
#[derive(Parser)]
#[command(name = "gatekeeperd", version, after_help = EXAMPLES, max_term_width = 100)]
pub struct Args {
    #[command(flatten)]
    pub common: Common,
    #[command(subcommand)]
    pub command: Command,
}

impl Args {
    pub fn read(words: &[OsString]) -> Result<Args, clap::Error> {
        let args = Args::try_parse_from(words)?;
        // clap would repeat the value in its message, and it may contain a password.
        match args.common.store.as_deref().map(str::parse::<Store>) {
            Some(Err(error)) => Err(Args::command().error(ErrorKind::ValueValidation, format!("--store: {error}"))),
            _ => Ok(args),
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  gatekeeperd token create --tenant alice
  gatekeeperd serve --listen 127.0.0.1:7717
  gatekeeperd credential import --tenant alice --domain github.com --file cookies.json
  gatekeeperd grant issue --tenant alice --domain github.com --ttl 15m
  gatekeeperd mcp --tenant alice

Exit codes: 0, 1 if the command failed, 2 if the command line is wrong.
The document docs/browser-sessions.md leads through a first session.";

#[derive(ClapArgs)]
pub struct Common {
    /// sqlite:FILE or postgres://USER@HOST/DATABASE [default: $GATEKEEPERD_STORE, or gatekeeperd.db in the state directory]
    #[arg(long, global = true, value_name = "STORE")]
    pub store: Option<String>,
    /// Where keys, locks and the default store are [default: $STATE_DIRECTORY, or ~/.local/state/gatekeeperd]
    #[arg(long, global = true, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// The keys that encrypt cookies, mode 0600 [default: the systemd credential gatekeeperd-key, or key in the state directory]
    #[arg(long, global = true, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Where screenshots are kept [default: recordings in the state directory]
    #[arg(long, global = true, value_name = "DIR")]
    pub recordings: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Subcommand)]
pub enum Command {
    /// Serve HTTP, MCP and the operator's page
    Serve(Box<Serve>),
    /// Serve MCP on standard input and output
    Mcp(Box<Mcp>),
    /// Tokens of tenants and operators
    #[command(subcommand)]
    Token(Token),
    /// Grants: cookies of named hosts for a task, for a short time
    #[command(subcommand)]
    Grant(Grant),
    /// Stored cookies
    #[command(subcommand)]
    Credential(Credential),
    /// Sessions of this store
    #[command(subcommand)]
    Session(Session),
}

#[derive(ClapArgs)]
pub struct Serve {
    /// 127.0.0.1:PORT or unix:FILE; port 0 lets the kernel choose
    #[arg(long, default_value = "127.0.0.1:7717", value_name = "ADDRESS")]
    pub listen: Listen,
    #[command(flatten)]
    pub browsers: Browsers,
}

#[derive(ClapArgs)]
pub struct Mcp {
    /// The tenant to which the sessions belong
    #[arg(long, default_value = "local", value_name = "TENANT")]
    pub tenant: String,
    #[command(flatten)]
    pub browsers: Browsers,
}

/// How browsers run.
#[derive(ClapArgs)]
pub struct Browsers {
    /// A port of this machine that pages may reach; all other private addresses are denied (repeatable)
    #[arg(long, value_name = "PORT")]
    pub local_port: Vec<u16>,
    /// The browser [default: chromium in the directories of the system]
    #[arg(long, value_name = "FILE")]
    pub chromium: Option<PathBuf>,
    /// Open sessions in all
    #[arg(long, default_value_t = 16, value_name = "N")]
    pub max_sessions: usize,
    /// Open sessions of one tenant
    #[arg(long, default_value_t = 4, value_name = "N")]
    pub max_sessions_per_tenant: usize,
    /// Memory of one browser, such as 2G
    #[arg(long, default_value = "2G", value_parser = size, value_name = "SIZE")]
    pub memory: u64,
    /// Open descriptors of each process of a browser
    #[arg(long, default_value_t = 4096, value_name = "N")]
    pub files: u64,
    /// The longest life of a session
    #[arg(long, default_value = "1h", value_parser = time, value_name = "TIME")]
    pub deadline: Duration,
    /// The longest time without an action
    #[arg(long, default_value = "10m", value_parser = time, value_name = "TIME")]
    pub idle: Duration,
    /// The longest time of one action
    #[arg(long, default_value = "30s", value_parser = time, value_name = "TIME")]
    pub action_timeout: Duration,
    /// Width and height of the page in pixels
    #[arg(long, default_value = "1280x800", value_parser = viewport, value_name = "WxH")]
    pub viewport: (u32, u32),
    /// How long recordings of the mode audit are kept
    #[arg(long, default_value = "7days", value_parser = time, value_name = "TIME")]
    pub retention: Duration,
    /// How much all recordings together may take
    #[arg(long, default_value = "20G", value_parser = size, value_name = "SIZE")]
    pub quota: u64,
    #[command(flatten)]
    pub model: ModelArgs,
}

/// The model of tasks.
#[derive(ClapArgs)]
pub struct ModelArgs {
    /// An OpenAI-compatible endpoint for tasks, such as http://127.0.0.1:8000/v1
    #[arg(long = "model", value_name = "URL")]
    pub url: Option<String>,
    /// The name of the model
    #[arg(long = "model-name", default_value = "ui-tars", value_name = "NAME")]
    pub name: String,
    /// A file with the key of the endpoint
    #[arg(long = "model-key-file", value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// What the model's numbers mean: resized (pixels after its own resizing), pixels, or thousandths of each side
    #[arg(long = "model-coordinates", default_value = "resized", value_name = "WORD")]
    pub coordinates: Coordinates,
}

#[derive(Subcommand)]
pub enum Token {
    /// Make a token and print it; it cannot be shown again
    Create {
        #[arg(long, value_name = "TENANT")]
        tenant: String,
        /// May also issue grants and refresh logins of this tenant
        #[arg(long)]
        operator: bool,
    },
    /// List tokens by their ids
    List {
        #[arg(long, value_name = "TENANT")]
        tenant: Option<String>,
    },
    /// Remove a token
    Rm { id: String },
}

#[derive(Subcommand)]
pub enum Grant {
    /// Issue a grant and print its token; it cannot be shown again
    Issue {
        #[arg(long, value_name = "TENANT")]
        tenant: String,
        /// An exact host (repeatable)
        #[arg(long, required = true, num_args = 1.., value_name = "HOST")]
        domain: Vec<String>,
        #[arg(long, default_value = "15m", value_parser = time, value_name = "TIME")]
        ttl: Duration,
        /// Usable until it expires, not just once
        #[arg(long)]
        multi_use: bool,
    },
    /// Revoke a grant
    Revoke { jti: String },
    /// List grants
    List {
        #[arg(long, value_name = "TENANT")]
        tenant: Option<String>,
    },
}

#[derive(Subcommand)]
pub enum Credential {
    /// Store the cookies of a host, from a JSON file in the shape of CDP's Network.getCookies
    Import {
        #[arg(long, value_name = "TENANT")]
        tenant: String,
        #[arg(long, value_name = "HOST")]
        domain: String,
        /// The file; - for standard input
        #[arg(long, value_name = "FILE")]
        file: PathBuf,
    },
    /// List hosts with stored cookies; values are never shown
    List {
        #[arg(long, value_name = "TENANT")]
        tenant: Option<String>,
    },
    /// Remove the cookies of a host
    Rm {
        #[arg(long, value_name = "TENANT")]
        tenant: String,
        #[arg(long, value_name = "HOST")]
        domain: String,
    },
    /// Encrypt all cookies with a new key, and drop the old key
    Rotate,
}

#[derive(Subcommand)]
pub enum Session {
    /// List sessions, the newest first
    List {
        #[arg(long, value_name = "TENANT")]
        tenant: Option<String>,
    },
    /// Close a session
    Close { id: String },
    /// Remove what a killed daemon left
    Reap,
}

const LONGEST: Duration = Duration::from_secs(100 * 366 * 24 * 3600);

fn time(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| format!("{error}; write 90s, 15m or 2h"))?;
    match time {
        Duration::ZERO => Err("it must be longer than 0".to_owned()),
        // Moments that far away can still be computed.
        _ if time > LONGEST => Err("it must be at most 100 years".to_owned()),
        _ => Ok(time),
    }
}

fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?}: write a number of bytes, or with K, M, G or T");
    let (number, unit) = text.split_at(text.trim_end_matches(|c: char| c.is_ascii_alphabetic()).len());
    let shift = match unit.to_ascii_uppercase().as_str() {
        "" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        "T" | "TB" | "TIB" => 40,
        _ => return Err(wrong()),
    };
    number.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift)).ok_or_else(wrong)
}

fn viewport(text: &str) -> Result<(u32, u32), String> {
    let parsed = text.split_once('x').and_then(|(width, height)| Some((width.parse().ok()?, height.parse().ok()?)));
    parsed
        .filter(|(width, height)| (100..=8192).contains(width) && (100..=8192).contains(height))
        .filter(|(width, height)| width * height <= MOST_PIXELS)
        .ok_or_else(|| format!("{text:?}: write WIDTHxHEIGHT, each from 100 to 8192, at most {MOST_PIXELS} pixels"))
}
