//! Stages: working directories whose changes wait for a yes.
//!
//! A run with a stage writes into the stage instead of its working directory. The real tree stays as it is until
//! [`Stage::apply`]. This module keeps the stages (`store`), finds what they change (`changes`, against what `base`
//! recorded), prints it (`patch`) and takes it over (`apply`). It mounts nothing: `enforce` does that for a run.

mod apply;
mod attributes;
mod base;
mod beside;
mod changes;
mod conflicts;
mod content;
mod copied;
mod files;
mod hunks;
mod kept;
mod lifted;
mod lines;
mod listed;
mod means;
mod moving;
mod names;
mod node;
pub(crate) mod patch;
mod protected;
mod quoting;
mod seen;
mod store;
mod take;
mod tree;
mod unsaid;
mod view;

pub use apply::{Applied, Conflict, Protected};
pub use changes::{Change, What};
pub use kept::Stage;
pub use patch::{Form, Patch};
pub use tree::Kind;

pub(crate) use copied::LeftOut;
pub(crate) use kept::Held;
pub(crate) use listed::Listed;
pub(crate) use store::{Copying, Store};
pub(crate) use view::{View, stage_has};

use std::io;
use std::path::PathBuf;

/// How large a copy may get unless the caller says otherwise.
pub(crate) const DEFAULT_LIMIT: u64 = 1 << 30;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StageError {
    #[error(
        "a stage is named by 1 to 64 letters, digits, '.', '_' and '-', and begins with a letter or digit: not {0:?}"
    )]
    Name(String),
    #[error("there is no stage {0}; gatekeeper stage list shows the stages")]
    Missing(String),
    #[error("stage {name} is in use by {holder}")]
    InUse { name: String, holder: String },
    #[error("stage {name} belongs to {}, not to {}", tree.display(), asked.display())]
    OtherTree { name: String, tree: PathBuf, asked: PathBuf },
    #[error("stage {name}: {} was replaced since the stage was made; discard the stage", tree.display())]
    Replaced { name: String, tree: PathBuf },
    #[error("{0}")]
    Unusable(String),
    #[error("{doing}: {error}")]
    Io { doing: String, error: io::Error },
}

impl StageError {
    pub(crate) fn io(doing: impl Into<String>, error: impl Into<io::Error>) -> StageError {
        StageError::Io { doing: doing.into(), error: error.into() }
    }
}

/// Refuses names that could lead out of the store or be mistaken for a flag.
pub(crate) fn check_name(name: &str) -> Result<(), StageError> {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    if begins && name.len() <= 64 && name.bytes().all(known) { Ok(()) } else { Err(StageError::Name(name.to_owned())) }
}
