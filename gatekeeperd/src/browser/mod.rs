//! One confined Chromium: opened empty, driven over its debugging pipe, gone at the end.
//!
//! Every page is untrusted, and so is what the browser says about it. Each action has a time limit. A page that never
//! loads, a dialog, a download, a pop-up or a crashed renderer leaves the browser usable and is reported as a [`Notice`];
//! when the browser itself ends, every later call says why.

mod act;
mod cookie;
mod events;
mod keys;
mod launch;
mod look;
mod navigate;
pub mod role;
mod state;

pub use act::{Button, Clicks, Input, MouseKind, Target};
pub use cookie::Cookie;
pub use look::{Dom, Frame, MOST_PIXELS, Picture};
pub use navigate::{Navigated, check_address};
pub use state::{Ended, Notice, NoticeKind, Reason};

use crate::cdp::{CallError, Connection};
use gatekeeper::Denial;
use launch::Launched;
use serde_json::{Value, json};
use state::{Page, Shared};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// How long the browser may take to start.
const START: Duration = Duration::from_secs(60);
/// How long it may take to close by itself, and then to be killed.
const CLOSE: Duration = Duration::from_secs(3);
const KILL: Duration = Duration::from_secs(10);
/// How long an action waits for an element that is not there yet.
const APPEAR: Duration = Duration::from_secs(2);
/// The most bytes of text to type at once.
const LONGEST_TEXT: usize = 64 * 1024;

/// How to open a browser.
#[derive(Debug, Clone)]
pub struct Options {
    /// Width and height in pixels.
    pub viewport: (u32, u32),
    /// Ports of this machine that stay reachable. Every other private address is denied.
    pub local_ports: Vec<u16>,
    /// In bytes, for all processes of the browser together.
    pub memory: Option<u64>,
    /// Open descriptors of each process.
    pub files: Option<u64>,
    /// After this time the browser is killed.
    pub deadline: Option<Duration>,
    pub action_timeout: Duration,
    /// The working directory of the supervising process. Nothing is written there.
    pub state_dir: PathBuf,
    /// Default: `chromium`, from the directories of the system.
    pub chromium: Option<PathBuf>,
    /// The program that answers the hidden role of a supervisor. Default: this program.
    pub supervisor: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            viewport: (1280, 800),
            local_ports: Vec::new(),
            memory: None,
            files: None,
            deadline: None,
            action_timeout: Duration::from_secs(30),
            state_dir: PathBuf::from("/"),
            chromium: None,
            supervisor: None,
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BrowserError {
    #[error("the browser did not start: {0}")]
    Start(String),
    #[error("the browser has ended: {0}")]
    Ended(Ended),
    #[error("{what} took longer than {} ms; the session is still usable", within.as_millis())]
    Timeout { what: String, within: Duration },
    #[error("the page crashed; navigate again to go on")]
    Crashed,
    #[error("the page was closed meanwhile, by itself or by another page; the session shows another one now")]
    Gone,
    #[error("{url}: {why}")]
    Address { url: String, why: &'static str },
    #[error("{url} could not be loaded: {error}")]
    Load { url: String, error: String },
    #[error("{url} is a download, and downloads are refused")]
    Download { url: String },
    #[error("{url}: access to {} is denied: {}{}", denial.host.as_deref().unwrap_or("this address"), denial.rule, remedy(denial))]
    Denied { url: String, denial: Box<Denial> },
    #[error("no element matches {selector:?}")]
    NoElement { selector: String },
    #[error("{selector:?} is not a CSS selector: {error}")]
    Selector { selector: String, error: String },
    #[error("the element {selector:?} {why}")]
    Element { selector: String, why: &'static str },
    #[error("({x}, {y}) is outside of the viewport of {} x {} pixels", viewport.0, viewport.1)]
    Outside { x: f64, y: f64, viewport: (u32, u32) },
    #[error("{0}")]
    Wrong(String),
    #[error("the browser refused: {0}")]
    Refused(String),
}

fn remedy(denial: &Denial) -> String {
    denial.allow_with.as_ref().map(|flag| format!("; gatekeeperd serve {flag} would allow it")).unwrap_or_default()
}

/// How a browser was closed.
#[derive(Debug, Clone)]
pub struct Closed {
    pub closed_at: SystemTime,
    pub ended: Ended,
    /// Whether every process of the browser has ended.
    pub gone: bool,
}

/// A handle to one browser. Clones share it; when the last one is dropped, the browser is killed.
#[derive(Clone)]
pub struct Browser {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    options: Options,
    /// The supervising process ends when this is closed.
    leash: Mutex<Option<OwnedFd>>,
    /// One action at a time.
    acting: tokio::sync::Mutex<()>,
    closed: tokio::sync::OnceCell<Closed>,
}

impl std::fmt::Debug for Browser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Browser").field("ended", &self.ended()).finish_non_exhaustive()
    }
}

impl Browser {
    /// Starts a confined browser with an empty profile and one blank page.
    pub async fn open(options: Options) -> Result<Browser, BrowserError> {
        let start = |error: std::io::Error| BrowserError::Start(error.to_string());
        let Launched { child, to, from, leash, denials, report, complaints } =
            launch::start(&options).map_err(BrowserError::Start)?;
        let (connection, incoming) = Connection::new(to, from).map_err(start)?;
        let shared = Arc::new(Shared::new(connection, options.viewport, options.action_timeout));
        tokio::spawn(events::handle(Arc::clone(&shared), incoming));
        tokio::spawn(launch::collect_denials(Arc::clone(&shared), denials).map_err(start)?);
        tokio::spawn(launch::watch(Arc::clone(&shared), child, report, complaints).map_err(start)?);
        let inner = Inner {
            shared,
            options,
            leash: Mutex::new(Some(leash)),
            acting: tokio::sync::Mutex::default(),
            closed: tokio::sync::OnceCell::new(),
        };
        let browser = Browser { inner: Arc::new(inner) };
        match tokio::time::timeout(START, browser.prepare()).await {
            Ok(Ok(())) => Ok(browser),
            Ok(Err(error)) => {
                if matches!(error, BrowserError::Ended(_)) {
                    // Its own end has the reason; after a call of close, that would be all it says.
                    let _ = tokio::time::timeout(CLOSE, browser.inner.shared.wait_ended()).await;
                }
                let closed = browser.close().await;
                Err(match error {
                    BrowserError::Ended(_) => BrowserError::Start(closed.ended.detail),
                    other => other,
                })
            }
            Err(_) => {
                browser.close().await;
                Err(BrowserError::Start(format!("it was not ready after {} s", START.as_secs())))
            }
        }
    }

    /// Sets up the browser, and opens the first page.
    async fn prepare(&self) -> Result<(), BrowserError> {
        let call = |method, params| self.inner.shared.connection.call(None, method, params, START);
        let made = async {
            call("Browser.setDownloadBehavior", json!({"behavior": "deny", "eventsEnabled": true})).await?;
            // New windows stop until they are set up, so that a pop-up has no moment without these rules.
            let pages = json!([{"type": "page"}]);
            let attach = json!({"autoAttach": true, "waitForDebuggerOnStart": true, "flatten": true, "filter": pages});
            call("Target.setAutoAttach", attach).await?;
            let targets = call("Target.getTargets", json!({"filter": pages})).await?;
            let none = targets["targetInfos"].as_array().is_none_or(Vec::is_empty);
            if none {
                call("Target.createTarget", json!({"url": "about:blank"})).await?;
            }
            Ok(())
        };
        made.await.map_err(|error| self.failed("start", error))?;
        self.inner.shared.until(|state| state.pages.iter().any(|page| page.ready).then_some(())).await
    }

    /// Closes the browser: kills whatever is left of it. A second call returns the answer of the first.
    pub async fn close(&self) -> Closed {
        self.inner.closed.get_or_init(|| self.end()).await.clone()
    }

    async fn end(&self) -> Closed {
        let shared = &self.inner.shared;
        shared.begin_closing();
        let gone = async {
            shared.connection.closed().await;
            shared.wait_ended().await
        };
        shared.connection.post(None, "Browser.close", json!({}));
        let mut ended = tokio::time::timeout(CLOSE, gone).await.ok();
        // The supervising process exits, and its guardian kills the browser.
        drop(self.inner.leash.lock().unwrap_or_else(PoisonError::into_inner).take());
        if ended.is_none() {
            let gone = async {
                shared.connection.closed().await;
                shared.wait_ended().await
            };
            ended = tokio::time::timeout(KILL, gone).await.ok();
        }
        let gone = ended.is_some();
        let ended = ended.unwrap_or_else(|| Ended::new(Reason::Closed, "its processes did not end in time"));
        Closed { closed_at: SystemTime::now(), ended, gone }
    }

    /// Hosts that were denied so far, each with a count.
    pub fn denials(&self) -> Vec<Denial> {
        self.inner.shared.state().denials.clone()
    }

    /// Why the browser ended, if it did.
    pub fn ended(&self) -> Option<Ended> {
        self.inner.shared.state().ended.clone()
    }

    /// What happened beside the actions, since the notice of this number: dialogs, downloads, pop-ups, crashes.
    pub fn notices(&self, since: u64) -> Vec<Notice> {
        self.inner.shared.state().notices.iter().filter(|notice| notice.number >= since).cloned().collect()
    }

    /// The number that the next notice will have.
    pub fn next_notice(&self) -> u64 {
        self.inner.shared.state().next_notice
    }

    pub fn viewport(&self) -> (u32, u32) {
        self.inner.options.viewport
    }

    /// The address and title of the page that is shown, as the browser knows them.
    pub async fn address(&self) -> Result<(String, String), BrowserError> {
        let page = self.page()?;
        self.within("reading the address", self.shown(&page)).await
    }

    fn page(&self) -> Result<Page, BrowserError> {
        let state = self.inner.shared.state();
        if let Some(ended) = state.over() {
            return Err(BrowserError::Ended(ended));
        }
        state.pages.iter().rfind(|page| page.ready).cloned().ok_or(BrowserError::Gone)
    }

    /// The page that is shown, if it can be acted on.
    fn sound_page(&self) -> Result<Page, BrowserError> {
        let page = self.page()?;
        if page.crashed { Err(BrowserError::Crashed) } else { Ok(page) }
    }

    /// Runs an action with all its calls within the time of one action.
    async fn within<T>(
        &self,
        what: &str,
        action: impl Future<Output = Result<T, BrowserError>>,
    ) -> Result<T, BrowserError> {
        let within = self.inner.options.action_timeout;
        match tokio::time::timeout(within, action).await {
            Ok(done) => done,
            Err(_) => {
                if let Ok(page) = self.page() {
                    self.note_hanging(&page);
                }
                Err(BrowserError::Timeout { what: what.to_owned(), within })
            }
        }
    }

    /// The page did not answer in time.
    fn note_hanging(&self, page: &Page) {
        self.inner.shared.change(|state| state.page_mut(&page.session).map(|page| page.hangs = true));
    }

    /// Calls a method of a page, within the time of one action.
    async fn call(&self, page: &Page, method: &'static str, params: Value) -> Result<Value, BrowserError> {
        let within = self.inner.options.action_timeout;
        let shared = &self.inner.shared;
        let called = shared.connection.call(Some(&page.session), method, params, within);
        // A page that crashes or is closed never answers.
        let lost = shared.until(|state| match (state.page(&page.session), state.over()) {
            (_, Some(ended)) => Some(BrowserError::Ended(ended)),
            (None, None) => Some(BrowserError::Gone),
            (Some(page), None) => page.crashed.then_some(BrowserError::Crashed),
        });
        tokio::select! {
            answer = called => answer.map_err(|error| {
                if matches!(error, CallError::Timeout { .. }) {
                    self.note_hanging(page);
                }
                self.failed(method, error)
            }),
            lost = lost => Err(lost.unwrap_or_else(|ended| ended)),
        }
    }

    fn failed(&self, what: &str, error: CallError) -> BrowserError {
        match error {
            CallError::Timeout { within, .. } => BrowserError::Timeout { what: what.to_owned(), within },
            // It was closed before the call arrived.
            CallError::Refused { message, .. } if message.contains("Session with given id not found") => {
                self.page().err().unwrap_or(BrowserError::Gone)
            }
            CallError::Refused { message, .. } => BrowserError::Refused(message),
            CallError::Closed(why) => {
                BrowserError::Ended(self.ended().unwrap_or_else(|| Ended::new(Reason::Crashed, &why)))
            }
        }
    }
}
