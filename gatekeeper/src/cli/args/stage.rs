//! The flags of `gatekeeper stage`.

use super::examples;
use crate::policy::values;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Args, Debug)]
#[command(after_help = examples::STAGE)]
pub struct StageArgs {
    #[command(subcommand)]
    pub command: StageCommand,
}

#[derive(Subcommand, Debug)]
pub enum StageCommand {
    /// List the stages: name, working directory, age, number of changes, size
    #[command(after_help = examples::STAGE_LIST)]
    List {
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Print what a stage changes, as a patch for `git apply` and `patch -p1`
    #[command(after_help = examples::STAGE_DIFF)]
    Diff {
        name: String,

        /// Print one JSON document: an array of changes
        #[arg(long, conflicts_with = "stat")]
        json: bool,

        /// Print one line for each change
        #[arg(long)]
        stat: bool,
    },
    /// Take the changes of a stage over into the working directory
    #[command(after_help = examples::STAGE_APPLY)]
    Apply {
        name: String,

        /// Take only the changes at and below PATH
        #[arg(value_name = "PATH")]
        paths: Vec<PathBuf>,

        /// What to do with files that decide what other programs run, such as hooks and start-up files
        #[arg(long, value_name = "ACTION", value_enum, default_value_t = ProtectedAction::Refuse)]
        protected: ProtectedAction,
    },
    /// Throw a stage away; the working directory stays as it is
    #[command(after_help = examples::STAGE_DISCARD)]
    Discard { name: String },
    /// Throw away stages that no run has used for a time
    #[command(after_help = examples::STAGE_PRUNE)]
    Prune {
        /// Only stages that were made longer ago than this, such as 7d
        #[arg(long, value_name = "TIME", value_parser = values::duration)]
        older: Duration,
    },
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtectedAction {
    /// Change nothing
    Refuse,
    /// Leave them in the stage, and take the rest
    Skip,
    /// Take them too
    Take,
}
