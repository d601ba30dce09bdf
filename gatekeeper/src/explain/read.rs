//! Reads a report from a file. The file is untrusted: anything that is not a report is an error.

use crate::report::{Report, SCHEMA};
use crate::trust::{self, Hostile, Untrusted};
use std::io::Read;
use std::path::{Path, PathBuf};

/// The largest file to read; no report with captured output is larger.
const LARGEST: u64 = 64 * 1024 * 1024;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    #[error("{}: {source}", file.display())]
    Read { file: PathBuf, source: std::io::Error },
    #[error(transparent)]
    NotAFile(Untrusted),
    #[error("{} is larger than a report can be", file.display())]
    TooLarge { file: PathBuf },
    #[error("{} is not a report: {source}", file.display())]
    Json { file: PathBuf, source: serde_json::Error },
    #[error("{} is a report of schema {schema}; this version reads schema 1", file.display())]
    Schema { file: PathBuf, schema: u32 },
}

pub fn load(file: &Path) -> Result<Report, ReadError> {
    let wrong = |source| ReadError::Read { file: file.to_owned(), source };
    // Symbolic links are fine here: nothing trusts a report for its location.
    let (opened, _) = match trust::open_regular(file, &Hostile::default()) {
        Err(error @ Untrusted::NotAFile { .. }) => return Err(ReadError::NotAFile(error)),
        other => other.map_err(|error| wrong(error.into()))?,
    };
    let mut bytes = Vec::new();
    opened.take(LARGEST + 1).read_to_end(&mut bytes).map_err(wrong)?;
    if bytes.len() as u64 > LARGEST {
        return Err(ReadError::TooLarge { file: file.to_owned() });
    }
    parse(&bytes, file)
}

pub fn parse(bytes: &[u8], file: &Path) -> Result<Report, ReadError> {
    let report: Report =
        serde_json::from_slice(bytes).map_err(|source| ReadError::Json { file: file.to_owned(), source })?;
    match report.schema {
        SCHEMA => Ok(report),
        schema => Err(ReadError::Schema { file: file.to_owned(), schema }),
    }
}
