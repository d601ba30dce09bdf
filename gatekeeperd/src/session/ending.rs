//! Ending sessions. What is reported of a session is what is true: its row says that it has ended, or is made to say so as
//! soon as the store works again.

use super::{Manager, SessionError};
use crate::store::{SessionRow, StoreError, now};
use crate::vault::Caller;
use futures_util::future::join_all;
use serde_json::json;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long a daemon that stops waits for sessions that are opening or ending, and for the store.
const STOP: Duration = Duration::from_secs(30);
const AGAIN: Duration = Duration::from_millis(50);

/// The end of a session whose row does not say so yet.
#[derive(Clone)]
pub struct Ended {
    pub state: &'static str,
    pub reason: String,
    at: i64,
}

impl Manager {
    /// Closes a session for a caller. Closing it again gives the same answer.
    pub async fn close(&self, caller: &Caller, id: &str) -> Result<i64, SessionError> {
        match self.find(caller, id).await {
            Ok(_) => self.audit(caller, Some(id), "close_session", json!({})).await?,
            Err(SessionError::Ended(_)) => {}
            Err(error) => return Err(error),
        }
        self.end(id, "closed", "closed by the client").await?;
        let row = self.0.store.session(id).await?.ok_or(SessionError::NotFound)?;
        Ok(row.ended_at.unwrap_or_else(now))
    }

    /// Ends a session: its processes, its files, its row. Runs to its end even if the caller goes away. Of a session that
    /// has ended and whose row could not be written, it writes the row.
    pub(super) async fn end(&self, id: &str, state: &'static str, reason: &str) -> Result<(), SessionError> {
        let (manager, id, reason) = (self.clone(), id.to_owned(), reason.to_owned());
        let ending = tokio::spawn(async move {
            // The slot stays, and counts, until the processes are gone.
            let taken = manager.table().get_mut(&id).and_then(|slot| slot.live.take());
            let Some(live) = taken else { return manager.write_end(&id).await };
            live.ending.send_replace(true);
            live.browser.close().await;
            live.recorder.close();
            manager.discard(&id).await;
            manager.note_end(&id, state, &reason).await
        });
        ending.await.map_err(|_| SessionError::Stopped)?.map_err(SessionError::from)
    }

    /// Notes how a session ended, of which nothing runs any more.
    pub(super) async fn note_end(&self, id: &str, state: &'static str, reason: &str) -> Result<(), StoreError> {
        if let Some(slot) = self.table().get_mut(id) {
            slot.ended.get_or_insert(Ended { state, reason: reason.to_owned(), at: now() });
        }
        self.write_end(id).await
    }

    async fn write_end(&self, id: &str) -> Result<(), StoreError> {
        let ended = self.table().get(id).and_then(|slot| slot.ended.clone());
        if let Some(ended) = ended {
            self.0.store.end_session(id, ended.state, &ended.reason, ended.at).await?;
            self.table().remove(id);
        }
        Ok(())
    }

    /// Writes the ends that could not be written before, as long as the store works. Also ends rows of this daemon that have
    /// no session: a store may write a row and yet fail to say so.
    pub(super) async fn catch_up(&self, alive: &[SessionRow]) -> Result<(), StoreError> {
        let unwritten: Vec<String> =
            self.table().iter().filter(|(_, slot)| slot.ended.is_some()).map(|(id, _)| id.clone()).collect();
        for id in unwritten {
            self.write_end(&id).await?;
        }
        for row in alive.iter().filter(|row| row.instance == self.0.instance.id) {
            // A session has its place in the table before its row, and keeps it until the row has ended.
            if !self.table().contains_key(&row.id) {
                self.0.store.end_session(&row.id, "failed", "the store failed while it opened", now()).await?;
            }
        }
        Ok(())
    }

    /// The row as it will be when the store works again.
    pub fn corrected(&self, mut row: SessionRow) -> SessionRow {
        if let Some(ended) = self.table().get(&row.id).and_then(|slot| slot.ended.clone())
            && row.alive()
        {
            row.state = ended.state.to_owned();
            row.end_reason = Some(ended.reason);
            row.ended_at = Some(ended.at);
        }
        row
    }

    /// Closes every session, also those that are still opening, and opens none any more.
    pub async fn shutdown(&self) {
        self.0.stopping.store(true, Ordering::Relaxed);
        let closed = async {
            loop {
                let ids: Vec<String> = self.table().keys().cloned().collect();
                if ids.is_empty() {
                    break;
                }
                join_all(ids.iter().map(|id| self.end(id, "closed", "the daemon stopped"))).await;
                tokio::time::sleep(AGAIN).await;
            }
        };
        // What is left then is found by the reaper.
        let _ = tokio::time::timeout(STOP, closed).await;
        let _ = std::fs::remove_dir(self.0.settings.state.join("sessions").join(&self.0.instance.id));
    }

    pub(super) async fn discard(&self, id: &str) {
        // What cannot be removed now is found by the reaper.
        let _ = tokio::fs::remove_dir_all(self.directory(id)).await;
    }

    pub(super) fn directory(&self, id: &str) -> PathBuf {
        self.0.settings.state.join("sessions").join(&self.0.instance.id).join(id)
    }
}
