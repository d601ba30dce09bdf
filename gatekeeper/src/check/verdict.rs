//! The answer: a verdict on one command, with its reasons and the chain of files behind it.
//!
//! Takes facts, gives values that serialise to the documented JSON. It decides nothing about files: each reason code
//! has one fixed weight, and the verdict is the heaviest weight found.

use serde::{Deserialize, Serialize, Serializer};
use std::path::{Path, PathBuf};

/// Whether and how the file can be confined. Ordered: the later, the worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// libsandbox.so will be loaded, and its filter will hold from `main` on.
    Preload,
    /// The preload cannot get in, but a filter installed before exec confines it.
    Enforce,
    /// Neither; it must not be started.
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
    /// What this reason alone makes of the verdict.
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

/// Why the verdict is not better than it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    pub code: ReasonCode,
    /// For people; written once, here.
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
    /// Handed by the kernel to a registered binfmt_misc interpreter.
    Handler,
    /// It can be executed but not read.
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
    /// Nothing is loaded: the file brings what it needs.
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

/// One file on the way from the command to the ELF that the kernel starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    #[serde(serialize_with = "lossy")]
    pub path: PathBuf,
    /// Where symbolic links lead, if elsewhere.
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
    /// DT_NEEDED, where it was asked for.
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
    /// The file that the command named, as it was found.
    #[serde(serialize_with = "lossy")]
    pub path: PathBuf,
    pub verdict: Decision,
    pub reasons: Vec<Reason>,
    pub chain: Vec<Link>,
    /// True things that do not change the verdict, such as code that runs before the filter.
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

    /// Whether being static is all that keeps the preload out: the case that `staticBinaryAction` is about.
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
