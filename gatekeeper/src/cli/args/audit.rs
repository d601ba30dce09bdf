//! The flags of `audit`.

use super::examples;
use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Args, Debug)]
#[command(after_help = examples::AUDIT)]
pub struct AuditArgs {
    #[command(subcommand)]
    pub command: AuditCommand,
}

#[derive(Subcommand, Debug)]
pub enum AuditCommand {
    /// Check whether a line was changed or removed
    Verify(VerifyArgs),
    /// Print the lines as a table
    Show(ShowArgs),
}

#[derive(Args, Debug)]
#[command(after_help = examples::AUDIT_VERIFY)]
pub struct VerifyArgs {
    /// Audit files; a rotated file comes before the one that continues it
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,

    /// The hash that the last line must have, as an earlier check printed it
    #[arg(long, value_name = "HASH")]
    pub head: Option<String>,

    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = examples::AUDIT_SHOW)]
pub struct ShowArgs {
    /// An audit file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Only lines whose host contains TEXT
    #[arg(long, value_name = "TEXT")]
    pub host: Option<String>,

    /// Only lines whose path contains TEXT
    #[arg(long, value_name = "TEXT")]
    pub path: Option<String>,

    /// Only what was allowed, denied, or attempted in vain
    #[arg(long, value_name = "DECISION", value_parser = ["allowed", "denied", "attempted"])]
    pub decision: Option<String>,

    /// Only lines of one kind
    #[arg(long, value_name = "KIND", value_parser = ["start", "end", "exec", "host", "http", "open", "call", "asked", "continued"])]
    pub kind: Option<String>,

    /// Only lines of one run
    #[arg(long, value_name = "ID")]
    pub run: Option<String>,

    /// Only lines from this time on: 2026-11-17T04:00, or how long ago, such as 1h
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,

    /// Only lines up to this time
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,

    /// Print the lines as they are
    #[arg(long)]
    pub json: bool,
}
