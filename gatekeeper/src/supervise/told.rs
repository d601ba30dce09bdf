//! A report read back: bytes of anybody's in, what they tell of denials out. Whatever is not a report is an error.

use crate::trust::{self, Hostile, Untrusted};
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::path::{Path, PathBuf};

/// More than a report with captured output holds.
const LARGEST: u64 = 64 * 1024 * 1024;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToldError {
    #[error("{}: {source}", file.display())]
    Read { file: PathBuf, source: std::io::Error },
    #[error(transparent)]
    NotAFile(Untrusted),
    #[error("{} is larger than a report can be", file.display())]
    TooLarge { file: PathBuf },
    #[error("{} is not a report: {source}", file.display())]
    Json { file: PathBuf, source: serde_json::Error },
    #[error("{} is a report of schema {schema}; this version reads schema 1", file.display())]
    Schema { file: PathBuf, schema: u64 },
}

/// What a report says about its denials.
#[derive(Debug, Clone, Deserialize)]
pub struct Told {
    pub schema: u64,
    pub outcome: String,
    pub exit_code: i64,
    #[serde(default)]
    pub error: Option<String>,
    #[serde(default)]
    pub command: Vec<String>,
    #[serde(default)]
    pub layers: Vec<ToldLayer>,
    pub denials: Vec<ToldDenial>,
    #[serde(default)]
    pub denials_dropped: u64,
    #[serde(default)]
    pub reads_recorded: bool,
}

#[derive(Debug, Clone, Deserialize)]
pub struct ToldLayer {
    pub layer: String,
    pub status: String,
    #[serde(default)]
    pub detail: String,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct ToldDenial {
    pub layer: String,
    pub syscall: String,
    #[serde(default)]
    pub args: Vec<String>,
    #[serde(default)]
    pub path: Option<String>,
    #[serde(default)]
    pub host: Option<String>,
    #[serde(default)]
    pub pid: i64,
    #[serde(default)]
    pub comm: String,
    #[serde(default)]
    pub exe: Option<String>,
    #[serde(default)]
    pub errno: Option<String>,
    #[serde(default = "once")]
    pub count: u64,
    #[serde(default)]
    pub rule: String,
    #[serde(default)]
    pub allow_with: Option<String>,
    #[serde(default)]
    pub allow_with_policy: Option<String>,
}

impl ToldDenial {
    /// Whether `on_violation = log` let it through.
    pub fn was_let_through(&self) -> bool {
        self.errno.as_deref() == Some(super::report::LET_THROUGH) && self.layer == "seccomp"
    }
}

fn once() -> u64 {
    1
}

pub fn load(file: &Path) -> Result<Told, ToldError> {
    let wrong = |source| ToldError::Read { file: file.to_owned(), source };
    // Links are followed: what a report says is believed no more for the place where it lies.
    let (opened, _) = match trust::open_regular(file, &Hostile::default()) {
        Err(error @ Untrusted::NotAFile { .. }) => return Err(ToldError::NotAFile(error)),
        other => other.map_err(|error| wrong(error.into()))?,
    };
    let mut bytes = Vec::new();
    opened.take(LARGEST + 1).read_to_end(&mut bytes).map_err(wrong)?;
    if bytes.len() as u64 > LARGEST {
        return Err(ToldError::TooLarge { file: file.to_owned() });
    }
    parse(&bytes, file)
}

pub fn parse(bytes: &[u8], file: &Path) -> Result<Told, ToldError> {
    let told: Told =
        serde_json::from_slice(bytes).map_err(|source| ToldError::Json { file: file.to_owned(), source })?;
    match told.schema {
        1 => Ok(told),
        schema => Err(ToldError::Schema { file: file.to_owned(), schema }),
    }
}
