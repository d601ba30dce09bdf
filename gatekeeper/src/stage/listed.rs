//! The list of all stages.

use super::StageError;
use super::changes::Scan;
use super::files::{ABOUT, LOCK, now, parse, read};
use super::kept::Stage;
use super::store::{DIRECTORY, Locked, Store};
use crate::report::StageMeans;
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

/// A line of `gatekeeper stage list`.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Listed {
    pub name: String,
    pub tree: PathBuf,
    pub age: Duration,
    pub changes: usize,
    /// The bytes that it takes on disk.
    pub size: u64,
    pub means: StageMeans,
    /// What uses it now.
    pub holder: Option<String>,
}

impl Store {
    /// Describes every stage, also those in use. Calls `unreadable` with those that cannot be opened.
    pub fn list(&self, unreadable: &dyn Fn(&str, &StageError)) -> Result<Vec<Listed>, StageError> {
        let mut listed = Vec::new();
        for name in self.names()? {
            let (stage, holder) = match self.stage(&name) {
                Ok(stage) => (stage, None),
                Err(StageError::InUse { holder, .. }) => match self.peek(&name) {
                    Ok(stage) => (stage, Some(holder)),
                    Err(_) => continue,
                },
                // Discarded meanwhile, or never finished.
                Err(StageError::Missing(_)) => continue,
                Err(error) => {
                    unreadable(&name, &error);
                    continue;
                }
            };
            // While a run goes on, files come and go; and one stage that cannot be read does not hide the others.
            let mut scan = Scan::default();
            let _ = stage.scan_into(&mut scan);
            let age = Duration::from_secs(u64::try_from(now() - stage.about.created).unwrap_or(0));
            let (changes, size, means) = (scan.changes.len(), scan.size, stage.about.means);
            listed.push(Listed { name, tree: stage.tree(), age, changes, size, means, holder });
        }
        Ok(listed)
    }

    /// Opens a stage without its lock, to look at it only.
    fn peek(&self, name: &str) -> Result<Stage, StageError> {
        let failed = |error: Errno| StageError::io(format!("stage {name}"), error);
        let directory = openat(&self.directory, name, DIRECTORY, Mode::empty()).map_err(failed)?;
        let lock =
            File::from(openat(&directory, LOCK, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(failed)?);
        let about = read(&directory, ABOUT)?.ok_or_else(|| StageError::Missing(name.to_owned()))?;
        let locked = Locked { directory, lock, holder: String::new(), running: None };
        let mut stage = self.opened(name, locked, parse(name, &about)?)?;
        stage.lifts = None;
        Ok(stage)
    }
}
