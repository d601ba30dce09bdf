//! The verdict on a command, with its reasons and the exec chain. Serialises to the documented JSON.
//!
//! Each reason code implies a decision, and the verdict is the worst of these.

use serde::{Deserialize, Serialize, Serializer};
use std::path::{Path, PathBuf};

/// How a command can be confined, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// libsandbox.so will be loaded, and its filter applies from `main` on.
    Preload,
    /// The preload cannot enter it, but a filter installed before exec confines it.
    Enforce,
    /// Neither works; it must not be started.
    Refuse,
}

impl Decision {
    pub fn word(self) -> &'static str {
        match self {
            Decision::Preload => "preload",
            Decision::Enforce => "enforce",
            Decision::Refuse => "refuse",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasonCode {
    Static,
    StaticPie,
    Musl,
    UnknownLoader,
    Setuid,
    FileCaps,
    Unreadable,
    PreloadUnusable,
    MissingLoader,
    WrongClass,
    WrongMachine,
    Corrupt,
    NotFound,
    NotExecutable,
    ChainTooDeep,
}

impl ReasonCode {
    /// The decision that this reason implies.
    pub fn decision(self) -> Decision {
        use ReasonCode::*;
        match self {
            Static | StaticPie | Musl | UnknownLoader | Setuid | FileCaps | Unreadable | PreloadUnusable => {
                Decision::Enforce
            }
            MissingLoader | WrongClass | WrongMachine | Corrupt | NotFound | NotExecutable | ChainTooDeep => {
                Decision::Refuse
            }
        }
    }

    pub fn word(self) -> &'static str {
        use ReasonCode::*;
        match self {
            Static => "static",
            StaticPie => "static_pie",
            Musl => "musl",
            UnknownLoader => "unknown_loader",
            Setuid => "setuid",
            FileCaps => "file_caps",
            Unreadable => "unreadable",
            PreloadUnusable => "preload_unusable",
            MissingLoader => "missing_loader",
            WrongClass => "wrong_class",
            WrongMachine => "wrong_machine",
            Corrupt => "corrupt",
            NotFound => "not_found",
            NotExecutable => "not_executable",
            ChainTooDeep => "chain_too_deep",
        }
    }
}

/// Why the verdict is not better.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    pub code: ReasonCode,
    /// For messages.
    pub text: String,
}

impl Reason {
    pub fn new(code: ReasonCode, text: impl Into<String>) -> Reason {
        Reason { code, text: text.into() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Script,
    Elf,
    /// The kernel passes it to a registered binfmt_misc interpreter.
    Handler,
    /// Executable but not readable.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Linkage {
    Dynamic,
    Static,
    StaticPie,
}

impl Linkage {
    pub fn word(self) -> &'static str {
        match self {
            Linkage::Dynamic => "dynamic",
            Linkage::Static => "static",
            Linkage::StaticPie => "static-pie",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Libc {
    Glibc,
    Musl,
    /// Static: it loads no libc.
    None,
    Unknown,
}

impl Libc {
    pub fn word(self) -> &'static str {
        match self {
            Libc::Glibc => "glibc",
            Libc::Musl => "musl",
            Libc::None => "none",
            Libc::Unknown => "unknown",
        }
    }
}

/// One file in the exec chain from the command to the ELF file that the kernel starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    #[serde(serialize_with = "lossy")]
    pub path: PathBuf,
    /// The real path, if it differs.
    #[serde(default, serialize_with = "lossy_option", skip_serializing_if = "Option::is_none")]
    pub resolved: Option<PathBuf>,
    pub kind: Kind,
    pub machine: Option<String>,
    pub class: Option<u8>,
    pub linkage: Option<Linkage>,
    #[serde(default, serialize_with = "lossy_option")]
    pub interpreter: Option<PathBuf>,
    pub libc: Option<Libc>,
    pub setuid: bool,
    pub setgid: bool,
    pub file_caps: bool,
    /// DT_NEEDED, if details were requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needed: Vec<String>,
}

impl Link {
    pub fn new(path: &Path, kind: Kind) -> Link {
        Link {
            path: path.to_owned(),
            resolved: None,
            kind,
            machine: None,
            class: None,
            linkage: None,
            interpreter: None,
            libc: None,
            setuid: false,
            setgid: false,
            file_caps: false,
            needed: Vec::new(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The file that the command stands for.
    #[serde(serialize_with = "lossy")]
    pub path: PathBuf,
    pub verdict: Decision,
    pub reasons: Vec<Reason>,
    pub chain: Vec<Link>,
    /// Facts that do not change the verdict, such as code that runs before the filter.
    pub notes: Vec<String>,
}

impl Verdict {
    pub(super) fn new(path: &Path) -> Verdict {
        let path = path.to_owned();
        Verdict { path, verdict: Decision::Preload, reasons: Vec::new(), chain: Vec::new(), notes: Vec::new() }
    }

    pub(super) fn add(&mut self, reason: Reason) {
        self.verdict = self.verdict.max(reason.code.decision());
        if !self.reasons.contains(&reason) {
            self.reasons.push(reason);
        }
    }

    pub(super) fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    pub fn has(&self, code: ReasonCode) -> bool {
        self.reasons.iter().any(|reason| reason.code == code)
    }

    /// Whether static linking is the only obstacle for the preload. `static_binaries` applies only to this case.
    pub fn only_static(&self) -> bool {
        !self.reasons.is_empty()
            && self.reasons.iter().all(|reason| matches!(reason.code, ReasonCode::Static | ReasonCode::StaticPie))
    }
}

fn lossy<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

fn lossy_option<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    match path {
        Some(path) => lossy(path, serializer),
        None => serializer.serialize_none(),
    }
}
