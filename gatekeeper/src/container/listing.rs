//! The containers of this user: lists, prunes and removes them. Labels tell what a container is; they are not proof of
//! anything, because everybody who may use the engine can write the same ones. What is removed here is at most a container.

use super::boxed::{LABEL, PREFIX, Sort};
use super::browser;
use super::engine::{Engine, Listed};
use super::settings::Prune;
use super::state::{self, State};
use serde::Serialize;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A container of ours.
#[derive(Debug, Clone, Serialize)]
pub struct Entry {
    pub name: String,
    pub kind: String,
    pub agent: String,
    pub session: String,
    pub scope: String,
    pub image: String,
    pub running: bool,
    pub in_use: bool,
    pub config: String,
    /// Seconds since 1970.
    pub created: u64,
    pub last_used: u64,
}

/// What removed a container, or why it stayed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Removal {
    pub name: String,
    pub removed: bool,
    pub why: String,
}

/// Removes a container unless something runs in it. `false`: it stays.
pub fn take_away(state: &State, engine: &Engine, name: &str, force: bool) -> Result<bool, String> {
    let _making = state.making(name)?;
    let unused = state.unused(name);
    if unused.is_none() && !force {
        return Ok(false);
    }
    state.forget(name);
    engine.remove(name).map(|()| true)
}

fn ours(engine: &Engine) -> Result<Vec<Listed>, String> {
    let owner = format!("gatekeeper.owner={}", rustix::process::geteuid().as_raw());
    let mut all = engine.list(&owner)?;
    // A container also has the labels of its image, which anybody may have written; its name comes from whoever made it.
    all.retain(|listed| listed.name.starts_with(PREFIX) && listed.labels.contains_key(LABEL));
    Ok(all)
}

/// The containers of this user.
pub fn list(engine: &Engine) -> Result<Vec<Entry>, String> {
    let state = State::open()?;
    let seconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let entry = |listed: Listed| {
        let label = |name: &str| listed.labels.get(name).cloned().unwrap_or_default();
        let created = label("gatekeeper.created").parse().unwrap_or(0);
        let last_used = state.last_used(&listed.name).map_or(created, seconds);
        // Clients of a browser come and go without gatekeeper; its relay knows.
        let told =
            (label(LABEL) == Sort::Browser.word() && listed.running).then(|| browser::in_use(&state, &listed.name));
        let (clients, idle) = told.flatten().unwrap_or((false, u64::MAX));
        let in_use =
            clients || state.making(&listed.name).ok().is_some_and(|_making| state.unused(&listed.name).is_none());
        Entry {
            kind: label(LABEL),
            agent: label("gatekeeper.agent"),
            session: label("gatekeeper.session"),
            scope: label("gatekeeper.scope"),
            config: label("gatekeeper.config"),
            image: listed.image.clone(),
            running: listed.running,
            in_use,
            created,
            last_used: last_used.max(state::now().saturating_sub(idle)),
            name: listed.name.clone(),
        }
    };
    Ok(ours(engine)?.into_iter().map(entry).collect())
}

/// Removes containers that are idle or old, that died, that were never finished, or that a changed configuration replaced.
/// One in use stays. Each has the rule of the configuration that used it last; `rule` is for those without one.
pub fn prune(engine: &Engine, rule: &Prune) -> Result<Vec<Removal>, String> {
    let state = State::open()?;
    let now = state::now();
    let hours = |count: u64| Duration::from_secs(count.saturating_mul(3600)).as_secs();
    let mut removals = Vec::new();
    for entry in list(engine)? {
        let idle = now.saturating_sub(entry.last_used);
        let age = now.saturating_sub(entry.created);
        let note = state.note(&entry.name);
        let own = note.as_ref().and_then(|note| note.prune);
        let (idle_hours, days) = own.unwrap_or((rule.idle_hours.value, rule.max_age_days.value));
        let why = match () {
            () if !entry.running => "it does not run",
            () if note.is_none() => "it was never finished",
            () if state.is_replaced(&entry.name) => "the configuration changed",
            () if idle_hours > 0 && idle >= hours(idle_hours) => "idle for longer than prune.idleHours",
            () if days > 0 && age >= hours(days.saturating_mul(24)) => "older than prune.maxAgeDays",
            () => continue,
        };
        let busy = entry.in_use && entry.kind == Sort::Browser.word();
        let removed = !busy && take_away(&state, engine, &entry.name, false)?;
        let why = if removed { why.to_owned() } else { format!("{why}, but commands run in it") };
        removals.push(Removal { name: entry.name, removed, why });
    }
    Ok(removals)
}

/// Removes the containers that match. Without `force`, one in use stays.
pub fn remove(engine: &Engine, matches: &dyn Fn(&Entry) -> bool, force: bool) -> Result<Vec<Removal>, String> {
    let state = State::open()?;
    let mut removals = Vec::new();
    for entry in list(engine)?.into_iter().filter(|entry| matches(entry)) {
        let removed = take_away(&state, engine, &entry.name, force)?;
        let why = if removed { "as asked" } else { "commands run in it; --force ends them" };
        removals.push(Removal { name: entry.name, removed, why: why.to_owned() });
    }
    Ok(removals)
}
