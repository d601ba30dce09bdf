//! Recordings of a tenant's sessions, also of those that have ended.

use super::{Manager, SessionError};
use crate::recording;
use crate::vault::Caller;
use std::io::Read;
use std::path::PathBuf;

/// No screenshot is longer.
const LONGEST: u64 = 64 << 20;

impl Manager {
    /// The names of the session's screenshots, the oldest first.
    pub async fn recordings(&self, caller: &Caller, id: &str) -> Result<Vec<String>, SessionError> {
        let directory = self.recorded(caller, id).await?;
        let mut names =
            super::instance::entries(&directory).map_err(|source| SessionError::File { path: directory, source })?;
        names.retain(|name| is_picture(name));
        names.sort_unstable();
        Ok(names)
    }

    /// One screenshot.
    pub async fn recording(&self, caller: &Caller, id: &str, name: &str) -> Result<Vec<u8>, SessionError> {
        let directory = self.recorded(caller, id).await?;
        if !is_picture(name) {
            return Err(SessionError::NotFound);
        }
        let file = std::fs::File::open(directory.join(name)).map_err(|_| SessionError::NotFound)?;
        let mut png = Vec::new();
        let path = directory.join(name);
        file.take(LONGEST).read_to_end(&mut png).map_err(|source| SessionError::File { path, source })?;
        Ok(png)
    }

    /// Removes recordings that are too old or over the quota.
    pub(super) fn clean_recordings(&self) {
        // What cannot be removed now is tried again in the next round.
        let _ = recording::clean(&self.0.settings.recordings, self.0.settings.retention);
    }

    /// Checks that the session is the caller's. Both names are safe as names of directories: the tenant's is checked when a
    /// token is made, the session's id comes from the store.
    async fn recorded(&self, caller: &Caller, id: &str) -> Result<PathBuf, SessionError> {
        let row = self.0.store.session(id).await?.filter(|row| row.tenant == caller.tenant);
        let row = row.ok_or(SessionError::NotFound)?;
        Ok(self.0.settings.recordings.join(row.tenant).join(row.id))
    }
}

fn is_picture(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    name.ends_with(".png") && !name.starts_with('.') && name.bytes().all(plain)
}
