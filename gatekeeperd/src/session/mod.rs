//! Opens, drives, limits, closes and reaps sessions. Everything that a client can ask for passes here, whether it came by
//! HTTP, by MCP or from a task's model: the tenant is checked, and an audit row is written before the action.

mod act;
mod audit;
mod ending;
mod error;
mod instance;
mod open;
mod reap;
mod recordings;
mod refresh;
mod task;
mod watch;

pub use act::{Action, Answer};
pub use audit::{Event, shown as shown_audit, write as write_audit};
pub use error::SessionError;
pub use instance::place;
pub use open::{CredentialMode, OpenRequest, Opened};
pub use reap::{Reaped, close_from_outside, reap};
pub use task::TaskRequest;

use crate::browser::Browser;
use crate::recording::Recorder;
use crate::store::{Store, now};
use crate::vault::{Caller, Vault};
use instance::Instance;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::{broadcast, watch as signal};

/// What the operator of the daemon chose.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Keys, locks and the directories of running sessions.
    pub state: PathBuf,
    pub recordings: PathBuf,
    /// How long recordings of the mode `audit` are kept, and how many bytes all recordings may take.
    pub retention: Duration,
    pub quota: u64,
    pub limits: Limits,
    /// Ports of this machine that pages may reach.
    pub local_ports: Vec<u16>,
    pub chromium: Option<PathBuf>,
    pub viewport: (u32, u32),
    pub model: Option<crate::task::Model>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            state: PathBuf::new(),
            recordings: PathBuf::new(),
            retention: Duration::from_secs(7 * 24 * 3600),
            quota: 20 << 30,
            limits: Limits::default(),
            local_ports: Vec::new(),
            chromium: None,
            viewport: (1280, 800),
            model: None,
        }
    }
}

#[derive(Debug, Clone)]
pub struct Limits {
    /// Open sessions in all.
    pub sessions: usize,
    /// Open sessions of one tenant.
    pub per_tenant: usize,
    /// Bytes and descriptors of one browser.
    pub memory: Option<u64>,
    pub files: Option<u64>,
    /// A session's longest life, its longest rest, and the longest time of one action.
    pub deadline: Duration,
    pub idle: Duration,
    pub action: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            sessions: 16,
            per_tenant: 4,
            memory: Some(2 << 30),
            files: Some(4096),
            deadline: Duration::from_secs(3600),
            idle: Duration::from_secs(600),
            action: Duration::from_secs(30),
        }
    }
}

/// The sessions of this process. Clones share them.
#[derive(Clone)]
pub struct Manager(Arc<Inner>);

struct Inner {
    settings: Settings,
    store: Store,
    vault: Vault,
    instance: Instance,
    /// Open sessions and those that are opening or closing: all of them count towards the limits.
    table: Mutex<HashMap<String, Slot>>,
    events: broadcast::Sender<Arc<Event>>,
    /// No session may open any more.
    stopping: AtomicBool,
}

struct Slot {
    tenant: String,
    /// None while the browser starts or ends.
    live: Option<Arc<Live>>,
    /// How the session ended, until its row says so. The store may fail just then; the watch writes it later.
    ended: Option<ending::Ended>,
}

/// An open session.
struct Live {
    id: String,
    tenant: String,
    kind: Kind,
    browser: Browser,
    recorder: Recorder,
    started_at: i64,
    used_at: AtomicI64,
    /// The number of the first notice that no answer has carried yet.
    untold: AtomicU64,
    /// Actions of one session run one after the other.
    turn: tokio::sync::Mutex<()>,
    /// True once the session is to end; a task stops at its next step.
    ending: signal::Sender<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Session,
    Task,
    Refresh,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Session => "session",
            Kind::Task => "task",
            Kind::Refresh => "refresh",
        }
    }
}

impl Live {
    fn touch(&self) {
        self.used_at.store(now(), Ordering::Relaxed);
    }
}

impl Manager {
    /// Takes the state directory into use, reaps what a killed daemon left there, and starts to watch over sessions.
    pub async fn start(vault: Vault, settings: Settings) -> Result<Manager, SessionError> {
        let store = vault.store().clone();
        let instance = Instance::begin(&settings.state)?;
        reap(&store, &settings).await?;
        let (events, _) = broadcast::channel(256);
        let inner = Inner {
            settings,
            store,
            vault,
            instance,
            table: Mutex::default(),
            events,
            stopping: AtomicBool::new(false),
        };
        let manager = Manager(Arc::new(inner));
        tokio::spawn(watch::over(Arc::downgrade(&manager.0)));
        Ok(manager)
    }

    pub fn vault(&self) -> &Vault {
        &self.0.vault
    }

    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// Actions as they happen.
    pub fn events(&self) -> broadcast::Receiver<Arc<Event>> {
        self.0.events.subscribe()
    }

    fn table(&self) -> MutexGuard<'_, HashMap<String, Slot>> {
        self.0.table.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// An open session of the caller's tenant. The session of another tenant is not found, like one that never was.
    ///
    /// In a refresh session an operator is logged in, without a grant: only operators see it and act in it. A task that
    /// could would have every cookie of the login.
    async fn find(&self, caller: &Caller, id: &str) -> Result<Arc<Live>, SessionError> {
        if let Some(slot) = self.table().get(id).filter(|slot| slot.tenant == caller.tenant) {
            if let Some(ended) = &slot.ended {
                return Err(SessionError::Ended(ended.reason.clone()));
            }
            let live = slot.live.clone().ok_or(SessionError::Busy)?;
            return match live.kind == Kind::Refresh && !caller.operator {
                true => Err(SessionError::Forbidden("this session refreshes a login: it needs an operator token")),
                false => Ok(live),
            };
        }
        match self.0.store.session(id).await? {
            Some(row) if row.tenant == caller.tenant && !row.alive() => {
                Err(SessionError::Ended(row.end_reason.unwrap_or_else(|| row.state.clone())))
            }
            Some(row) if row.tenant == caller.tenant => Err(SessionError::Elsewhere),
            _ => Err(SessionError::NotFound),
        }
    }
}
