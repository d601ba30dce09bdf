//! The flags of the commands that read or convert policies (lint, compile, import, diff), and of schema, completions
//! and man.

use super::{SyscallArgs, examples};
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
#[command(after_help = examples::COMPILE, mut_arg("on_violation", |action| {
    action.help("When the filter denies a call: errno (it fails), kill, or log (it is made, and the kernel logs it) [default: errno]")
}))]
pub struct CompileArgs {
    #[command(flatten)]
    pub syscalls: SyscallArgs,

    /// Output format
    #[arg(long, value_name = "FORM", value_enum)]
    pub to: CompileForm,

    /// Where the format cannot express a condition, allow the call without it and print a note
    #[arg(long)]
    pub lossy: bool,

    /// Output file [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompileForm {
    /// The compiled filter that libsandbox.so loads from SANDBOX_FILTER
    Filter,
    /// A colon list for SECCOMP_SYSCALL_ALLOW
    List,
    /// Seccomp JSON as the OCI runtime specification defines it
    Oci,
}

#[derive(Args, Debug)]
#[command(after_help = examples::IMPORT)]
pub struct ImportArgs {
    /// A seccomp profile, or the config.json of an OCI runtime
    #[arg(value_name = "FILE")]
    pub profile: PathBuf,

    /// Assume that the container has this capability, such as CAP_SYS_ADMIN [default: none]
    #[arg(long, value_name = "CAP")]
    pub cap: Vec<String>,

    /// Kernel version to compare minKernel with [default: the running kernel's]
    #[arg(long, value_name = "X.Y")]
    pub kernel: Option<String>,

    /// Output file for the policy [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[derive(Args, Debug)]
#[command(after_help = examples::DIFF)]
pub struct DiffArgs {
    /// The first policy file, or the name of a profile
    #[arg(value_name = "A")]
    pub first: PathBuf,

    /// The second policy file, or the name of a profile
    #[arg(value_name = "B")]
    pub second: PathBuf,

    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = examples::COMPLETIONS)]
pub struct CompletionsArgs {
    /// The shell
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
    /// Which schema to print
    #[arg(value_enum)]
    pub of: SchemaOf,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaOf {
    /// Policy files
    Policy,
    /// The reports that --json and --report of `run` write
    Report,
}
