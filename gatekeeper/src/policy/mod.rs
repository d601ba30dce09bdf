//! Policy: what a run is allowed to do. Comes from a file and flags; depends on nothing else on the machine.
//!
//! A file (`load`, [`parse`]) and the flags each give a [`Document`]. [`Document::over`] merges them, and
//! [`Policy::resolve`] fills in the defaults. Everything that is not understood is an error; nothing is skipped.

mod agent_sandbox;
pub mod amend;
pub mod document;
mod error;
mod exec_tool;
mod field;
pub mod grants;
pub mod hosts;
pub mod http;
mod json;
mod json5;
mod load;
mod node;
pub mod pattern;
pub(crate) mod print;
mod resolve;
mod rules;
mod schema;
pub mod values;

#[cfg(test)]
mod exec_tool_tests;
#[cfg(test)]
mod load_tests;
#[cfg(test)]
mod merge_tests;
#[cfg(test)]
mod print_tests;
#[cfg(test)]
mod schema_tests;
#[cfg(test)]
mod wrong_tests;

pub use document::{Document, Namespaces};
pub(crate) use error::nearest;
pub use error::{Place, PolicyError, ValueError, drives_terminal};
pub(crate) use field::Field;
pub use http::{Credential, HttpRule, Placed, SecretFrom};
pub use load::{MAX_EXTENDS, load, load_below, parse};
pub(crate) use load::{load_files, read};
pub use node::MAX_BYTES;
pub(crate) use node::{Source, Value};
pub use rules::MAX_RULES;
pub use values::Word;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Everything that a run is allowed to do, with all defaults filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// The union of these profiles is granted, as in write+network. Never empty.
    pub profiles: Vec<Profile>,
    pub on_violation: OnViolation,
    pub static_binaries: StaticBinaries,
    /// Whether to refuse the run if this host lacks a layer.
    pub require_sandbox: bool,
    pub timeout: Option<Duration>,
    pub syscalls: Syscalls,
    pub paths: Paths,
    pub network: Network,
    pub limits: Limits,
    pub env: Environment,
    pub commands: Commands,
    pub bubblewrap: Bubblewrap,
    /// The libsandbox.so to use instead of the embedded one.
    pub libsandbox: Option<PathBuf>,
    /// The files that this policy was read from. The command may not change them.
    pub sources: Vec<PathBuf>,
    /// What they say that has no effect.
    pub warnings: Vec<String>,
}

impl Policy {
    /// Whether the syscalls are exact lists that apply from main on. Until then the loader needs more calls.
    pub fn starts_at_main(&self) -> bool {
        self.profiles == [Profile::Custom] && self.syscalls.default.is_none()
    }

    /// Whether a profile allows starting programs, and so gives a private TMPDIR.
    pub fn starts_programs(&self) -> bool {
        self.profiles.iter().any(|profile| matches!(profile, Profile::Read | Profile::Write | Profile::Browser))
    }

    /// Whether files outside that TMPDIR may change: in the working directory or in a granted path.
    pub fn changes_files(&self) -> bool {
        let writes = |profile: &Profile| matches!(profile, Profile::Write | Profile::Browser);
        !self.paths.write.is_empty() || self.profiles.iter().any(writes)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Profile {
    Minimal,
    /// Minimal, and starting programs, with a private TMPDIR.
    Read,
    Network,
    Write,
    Unrestricted,
    /// A browser that creates its own sandbox inside ours.
    Browser,
    /// Exactly the lists of `syscalls`, from main on, as libsandbox.so enforces them without gatekeeper.
    Custom,
}

/// What happens on a denied call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnViolation {
    Errno,
    Kill,
    Log,
}

/// How to treat a program that the preload cannot enter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StaticBinaries {
    /// Confine it with a filter loaded before exec.
    Enforce,
    Block,
    /// Run it without the filter, with a warning.
    Warn,
    /// Run it without the filter.
    Allow,
}

/// Changes to the calls that the profiles grant: names, `@groups`, and rules on arguments. Deny wins.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Syscalls {
    /// What a `custom` policy does with calls that it does not name. With a default, the lists and rules apply from exec
    /// on. `None`: the lists apply from main on; an allow list denies all other calls, a deny list allows them.
    pub default: Option<RuleAction>,
    pub allow: Vec<String>,
    pub deny: Vec<String>,
    pub rules: Vec<SyscallRule>,
}

/// `[[syscalls.rule]]`: what happens to a call if all tests hold. The first rule that matches decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyscallRule {
    pub syscall: String,
    pub action: RuleAction,
    pub args: Vec<ArgTest>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleAction {
    Allow,
    /// As `on_violation` says.
    Deny,
    Errno(u16),
    Kill,
    Log,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArgTest {
    /// 0 to 5.
    pub index: u8,
    pub op: sandbox_contract::bpf::Op,
    pub mask: u64,
    pub value: u64,
}

/// Paths as written: absolute, relative to the working directory, or with a leading `~`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Paths {
    /// `None`: everything except credentials.
    pub read: Option<Vec<PathBuf>>,
    /// Readable in addition, even if they are credentials: what `--read` names.
    pub also_read: Vec<PathBuf>,
    /// Writable in addition to what the profile grants.
    pub write: Vec<PathBuf>,
    /// `None`: every readable file.
    pub execute: Option<Vec<PathBuf>>,
    pub deny: Vec<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Network {
    /// `None`: as the profiles say.
    pub mode: Option<NetworkMode>,
    /// The TCP ports that the mode may reach. Empty: all.
    pub ports: Vec<u16>,
    /// UNIX sockets that the command may connect to, in addition to those in writable trees.
    pub unix: Vec<PathBuf>,
    /// Limits a full network to public addresses and to `local_ports` of this machine.
    pub deny_private: bool,
    pub local_ports: Vec<u16>,
    /// What hosts may be asked for. Each host is thereby listed.
    pub http: Vec<HttpRule>,
    pub credentials: Vec<Credential>,
    /// Certificates that the proxy trusts beside the system's, as PEM files.
    pub upstream_ca: Vec<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkMode {
    None,
    /// A network namespace for this run alone, with nothing but a loopback interface.
    Own,
    Loopback,
    Full,
    /// `host`, `*.host`, `host:port`, as written.
    Hosts(Vec<String>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Bytes, for the whole process tree.
    pub memory: Option<u64>,
    pub processes: Option<u64>,
    /// Open descriptors in each process.
    pub files: Option<u64>,
    pub cpu: Option<Duration>,
    /// Bytes to keep of each captured stream.
    pub output: Option<u64>,
    /// Bytes of the largest file that may be written.
    pub disk: Option<u64>,
}

impl Limits {
    /// Each limit as a name and a value, for messages.
    pub fn described(&self) -> Vec<String> {
        let number = |name: &str, value: Option<u64>| value.map(|value| format!("{name} {value}"));
        [
            number("memory", self.memory),
            number("processes", self.processes),
            number("files", self.files),
            self.cpu.map(|cpu| format!("cpu {cpu:?}")),
            number("output", self.output),
            number("disk", self.disk),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Environment {
    pub pass: Vec<String>,
    pub set: BTreeMap<String, String>,
}

/// Programs by name or path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Commands {
    /// Empty: all.
    pub allow: Vec<String>,
    pub block: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Isolate {
    Required,
    Preferred,
    #[default]
    Disabled,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bubblewrap {
    pub isolate: Isolate,
    pub bwrap: Option<PathBuf>,
    pub extra_read: Vec<PathBuf>,
    pub extra_write: Vec<PathBuf>,
}
