//! Finds what a killed daemon left, and removes it. Doing it twice, or at the same time as another reaper, is harmless.
//!
//! Processes need no reaping: each browser has a supervisor on a leash, a pipe that only its daemon holds. The kernel closes
//! the pipe when the daemon dies, the supervisor ends, and its guardian kills the browser. What stays are rows, directories
//! and transient recordings.

use super::instance::{entries, place, runs};
use super::{SessionError, Settings, audit};
use crate::recording;
use crate::store::{Store, now};
use serde_json::json;
use std::path::Path;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reaped {
    /// Sessions whose daemon is gone.
    pub sessions: Vec<String>,
    /// Directories of daemons that are gone.
    pub directories: usize,
}

pub async fn reap(store: &Store, settings: &Settings) -> Result<Reaped, SessionError> {
    let state = &settings.state;
    let failed = |source| SessionError::File { path: state.clone(), source };
    let mut reaped = Reaped { sessions: Vec::new(), directories: 0 };
    for row in store.alive_sessions(&place(state)).await? {
        if runs(state, &row.instance).map_err(failed)? {
            continue;
        }
        let detail = json!({ "reason": "the daemon was killed" });
        audit::write(store, &audit::daemon(&row.tenant), Some(&row.id), "reap_session", detail).await?;
        if row.record == "transient" {
            recording::discard(&settings.recordings, &row.tenant, &row.id);
        } else {
            recording::tidy(&settings.recordings, &row.tenant, &row.id);
        }
        // The row last: killed before this, the next reaper does it all again.
        if store.end_session(&row.id, "reaped", "the daemon was killed", now()).await? {
            reaped.sessions.push(row.id);
        }
    }
    // One directory for each daemon. Daemons with another store may share the state directory, so rows do not matter here.
    for instance in entries(&state.join("sessions")).map_err(failed)? {
        if !runs(state, &instance).map_err(failed)? {
            remove(&state.join("sessions").join(&instance)).await.map_err(failed)?;
            reaped.directories += 1;
        }
    }
    for instance in entries(&state.join("instances")).map_err(failed)? {
        runs(state, &instance).map_err(failed)?;
    }
    Ok(reaped)
}

/// Removes a directory. The browser may still be ending and write, so a failure is tried again for a while.
async fn remove(directory: &Path) -> std::io::Result<()> {
    let mut tries = 0;
    loop {
        match tokio::fs::remove_dir_all(directory).await {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) if tries == 20 => return Err(error),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            Ok(()) => return Ok(()),
        }
        tries += 1;
    }
}

/// Closes a session from another process: asks its daemon, and waits until it has done so; or reaps it, if its daemon is
/// gone. False if there is no such open session.
pub async fn close_from_outside(store: &Store, settings: &Settings, id: &str) -> Result<bool, SessionError> {
    if !store.request_close(id).await? {
        return Ok(false);
    }
    for _ in 0..150 {
        reap(store, settings).await?;
        match store.session(id).await? {
            Some(row) if row.alive() => tokio::time::sleep(Duration::from_millis(200)).await,
            _ => return Ok(true),
        }
    }
    Err(SessionError::Busy)
}
