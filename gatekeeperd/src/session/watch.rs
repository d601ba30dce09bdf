//! Ends sessions that are too old, rest for too long, have lost their browser, or are to be closed.

use super::audit::daemon;
use super::instance::place;
use super::{Inner, Live, Manager};
use crate::store::now;
use serde_json::json;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

const ROUND: Duration = Duration::from_millis(500);
/// Expired grants stay visible for a day.
const FORGET: i64 = 24 * 3600 * 1000;
/// Rounds between two cleanings of grants and recordings.
const CLEAN: u32 = 1200;

/// Runs until the manager is gone.
pub async fn over(inner: Weak<Inner>) {
    let mut round = 0u32;
    loop {
        tokio::time::sleep(ROUND).await;
        let Some(manager) = inner.upgrade().map(Manager) else { return };
        let open: Vec<Arc<Live>> = manager.table().values().filter_map(|slot| slot.live.clone()).collect();
        for live in open {
            if let Some(reason) = over_now(&manager, &live) {
                end(&manager, &live, &reason).await;
            }
        }
        // A store that fails now is asked again in the next round.
        if let Ok(rows) = manager.0.store.alive_sessions(&place(&manager.0.settings.state)).await {
            let _ = manager.catch_up(&rows).await;
            for row in rows.iter().filter(|row| row.close_requested && row.instance == manager.0.instance.id) {
                let _ = manager.end(&row.id, "closed", "closed by an operator").await;
            }
        }
        if round.is_multiple_of(CLEAN) {
            let _ = manager.0.store.forget_grants(now() - FORGET).await;
            manager.clean_recordings();
        }
        round = round.wrapping_add(1);
    }
}

/// Why this session has to end now.
fn over_now(manager: &Manager, live: &Live) -> Option<String> {
    let limits = &manager.0.settings.limits;
    if let Some(ended) = live.browser.ended() {
        return Some(format!("the browser ended: {ended}"));
    }
    let (age, rest) = (now() - live.started_at, now() - live.used_at.load(Ordering::Relaxed));
    if age > milliseconds(limits.deadline) {
        return Some(format!("it was open for {}", humantime::format_duration(limits.deadline)));
    }
    // A task uses its browser without pause, and its own limits apply.
    if live.kind != super::Kind::Task && rest > milliseconds(limits.idle) {
        return Some(format!("it was not used for {}", humantime::format_duration(limits.idle)));
    }
    None
}

async fn end(manager: &Manager, live: &Live, reason: &str) {
    let _ = manager.audit(&daemon(&live.tenant), Some(&live.id), "end_session", json!({ "reason": reason })).await;
    let _ = manager.end(&live.id, "closed", reason).await;
}

fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
