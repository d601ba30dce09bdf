//! The flags of the commands about policies themselves: lint, compile, import, diff; and of what is made from all flags.

use super::{List, Profiles, examples, list, profiles};
use crate::policy::OnViolation;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

#[derive(Args, Debug)]
#[command(after_help = examples::LINT)]
pub struct LintArgs {
    /// A policy file, TOML or JSON
    #[arg(value_name = "POLICY")]
    pub policy: PathBuf,

    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = examples::COMPILE)]
pub struct CompileArgs {
    /// A policy file, TOML or JSON; flags stand over it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// What is granted: minimal, read, network, write, unrestricted, or a union such as write+network; repeats as a
    /// union [default: minimal]
    #[arg(short, long, value_name = "P[+P...]", value_parser = profiles)]
    pub profile: Vec<Profiles>,

    /// Syscalls and @groups to allow beside the profile's
    #[arg(long, value_name = "LIST", value_parser = list)]
    pub allow: Vec<List>,

    /// Syscalls and @groups to deny; wins over every allow
    #[arg(long, value_name = "LIST", value_parser = list)]
    pub deny: Vec<List>,

    /// What a denied call gets: errno, kill or log [default: errno]
    #[arg(long, value_name = "ACTION")]
    pub on_violation: Option<OnViolation>,

    /// The form
    #[arg(long, value_name = "FORM", value_enum)]
    pub to: CompileForm,

    /// Allow whole what the form cannot tell apart, and say what that is
    #[arg(long)]
    pub lossy: bool,

    /// Where to write it [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompileForm {
    /// The file that libsandbox.so loads with SANDBOX_FILTER
    Filter,
    /// The colon list for SECCOMP_SYSCALL_ALLOW
    List,
    /// Seccomp JSON of the OCI runtime specification
    Oci,
}

#[derive(Args, Debug)]
#[command(after_help = examples::IMPORT)]
pub struct ImportArgs {
    /// The profile, or a runtime's config.json
    #[arg(value_name = "FILE")]
    pub profile: PathBuf,

    /// A capability that the container would have, such as CAP_SYS_ADMIN [default: none]
    #[arg(long, value_name = "CAP")]
    pub cap: Vec<String>,

    /// The kernel version that minKernel is compared with [default: this kernel's]
    #[arg(long, value_name = "X.Y")]
    pub kernel: Option<String>,

    /// Where to write the policy [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[derive(Args, Debug)]
#[command(after_help = examples::DIFF)]
pub struct DiffArgs {
    /// A policy file, or the name of a profile
    #[arg(value_name = "A")]
    pub first: PathBuf,

    /// A policy file, or the name of a profile
    #[arg(value_name = "B")]
    pub second: PathBuf,

    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = examples::COMPLETIONS)]
pub struct CompletionsArgs {
    /// bash, zsh, fish, elvish or powershell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

#[derive(Args, Debug)]
pub struct ManArgs {
    /// An existing directory
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

#[derive(Args, Debug)]
#[command(after_help = examples::SCHEMA)]
pub struct SchemaArgs {
    /// Of what
    #[arg(value_enum)]
    pub of: SchemaOf,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaOf {
    /// A policy file, as JSON
    Policy,
    /// What --json and --report of `run` write
    Report,
}
