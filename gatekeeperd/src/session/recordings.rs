//! Recordings of a tenant's sessions, also of those that have ended.

use super::{Manager, SessionError};
use crate::recording;
use crate::store::SessionRow;
use crate::vault::Caller;

impl Manager {
    /// The names of the session's screenshots, the oldest first.
    pub async fn recordings(&self, caller: &Caller, id: &str) -> Result<Vec<String>, SessionError> {
        let row = self.recorded(caller, id).await?;
        let directory = &self.0.settings.recordings;
        recording::list(directory, &row.tenant, &row.id).map_err(|source| self.unreadable(source))
    }

    /// One screenshot.
    pub async fn recording(&self, caller: &Caller, id: &str, name: &str) -> Result<Vec<u8>, SessionError> {
        let row = self.recorded(caller, id).await?;
        let read = recording::read(&self.0.settings.recordings, &row.tenant, &row.id, name);
        read.map_err(|source| self.unreadable(source))?.ok_or(SessionError::NotFound)
    }

    /// Removes recordings that are too old.
    pub(super) fn clean_recordings(&self) {
        // What cannot be removed now is tried again in the next round.
        let _ = recording::clean(&self.0.settings.recordings, self.0.settings.retention);
    }

    async fn recorded(&self, caller: &Caller, id: &str) -> Result<SessionRow, SessionError> {
        let row = self.0.store.session(id).await?.filter(|row| row.tenant == caller.tenant);
        row.ok_or(SessionError::NotFound)
    }

    fn unreadable(&self, source: std::io::Error) -> SessionError {
        SessionError::File { path: self.0.settings.recordings.clone(), source }
    }
}
