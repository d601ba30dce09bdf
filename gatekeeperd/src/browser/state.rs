//! What is known about one browser, shared by the tasks that listen to it and the calls that act on it.

use super::BrowserError;
use super::look::Frame;
use crate::cdp::Connection;
use gatekeeper::Denial;
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::{broadcast, watch};

/// The most notices and distinct denials that are kept. A page can cause any number.
const MOST: usize = 500;
/// How many loads of a page are remembered.
const LOADS: usize = 32;
/// Frames that a slow viewer may lag behind.
const FRAMES: usize = 4;
/// The longest text of a page in a notice.
const LONGEST: usize = 500;

/// Why a browser ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// It was closed.
    Closed,
    /// It crashed or was killed.
    Crashed,
    /// The time of the session was over.
    Deadline,
    /// It used more memory or other resources than allowed.
    Limit,
    /// It could not be confined, so it was not started.
    Refused,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Ended {
    pub reason: Reason,
    pub detail: String,
}

impl Ended {
    pub fn new(reason: Reason, detail: &str) -> Ended {
        Ended { reason, detail: detail.to_owned() }
    }
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.detail)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NoticeKind {
    /// A dialog of the page was dismissed.
    Dialog,
    /// A download was refused.
    Download,
    /// The page asked for a file to upload and got none.
    Upload,
    /// The page opened a window, which is shown now.
    Popup,
    /// The page's renderer crashed.
    Crash,
    /// The browser refused a stored cookie, so the session lacks it.
    Cookie,
    /// The page is usable, but parts of it were still loading when the time was over.
    Unfinished,
}

/// Something that happened beside the actions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Notice {
    pub number: u64,
    #[serde(skip)]
    pub at: Option<SystemTime>,
    pub kind: NoticeKind,
    pub text: String,
}

/// How the request for a document was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    pub status: u16,
    /// The address after all redirects.
    pub url: String,
    /// The proxy's header is on it, so no host has answered. Any site can send that header as well, but makes only its own
    /// pages fail by it.
    pub by_proxy: bool,
}

/// One page (a tab or window) of the browser.
#[derive(Debug, Clone, Default)]
pub struct Page {
    pub session: String,
    /// Also the id of its main frame.
    pub target: String,
    /// Set up, so that it may run.
    pub ready: bool,
    pub crashed: bool,
    /// It did not answer in time. The next navigation asks it again.
    pub hangs: bool,
    pub loading: bool,
    /// Loads that finished, and whose document is complete, by loader id.
    pub loaded: VecDeque<String>,
    /// How many loads have finished.
    pub loads: u64,
    pub parsed: VecDeque<String>,
    /// The address that its main frame asked for last; each redirect counts.
    pub asked: String,
    /// Answers to requests for its document, by loader id.
    pub answers: VecDeque<(String, Answered)>,
}

impl Page {
    pub fn note(list: &mut VecDeque<String>, loader: &str) {
        if list.len() >= LOADS {
            list.pop_front();
        }
        list.push_back(loader.to_owned());
    }

    pub fn note_answer(&mut self, loader: &str, answered: Answered) {
        if self.answers.len() >= LOADS {
            self.answers.pop_front();
        }
        self.answers.push_back((loader.to_owned(), answered));
    }

    pub fn answer(&self, loader: &str) -> Option<Answered> {
        self.answers.iter().rfind(|(known, _)| known == loader).map(|(_, answered)| answered.clone())
    }
}

#[derive(Default)]
pub struct State {
    /// In the order of opening; the last one that is ready is shown.
    pub pages: Vec<Page>,
    pub notices: VecDeque<Notice>,
    pub next_notice: u64,
    pub denials: Vec<Denial>,
    pub ended: Option<Ended>,
    pub closing: bool,
    /// A page of ours is being opened, in place of one that hangs.
    pub replacing: bool,
    /// The session of the page whose frames are streamed.
    pub casting: Option<String>,
    /// When the last frame was streamed, and whether a task sends pictures in between.
    pub last_frame: Option<Instant>,
    pub pulsing: bool,
}

impl State {
    /// Why the browser has ended, or is about to: its pages go before it does.
    pub fn over(&self) -> Option<Ended> {
        self.ended.clone().or_else(|| self.closing.then(|| Ended::new(Reason::Closed, "closed")))
    }

    pub fn page(&self, session: &str) -> Option<&Page> {
        self.pages.iter().find(|page| page.session == session)
    }

    pub fn page_mut(&mut self, session: &str) -> Option<&mut Page> {
        self.pages.iter_mut().find(|page| page.session == session)
    }

    pub fn notice(&mut self, kind: NoticeKind, text: &str) {
        if self.notices.len() >= MOST {
            self.notices.pop_front();
        }
        // A page wrote it: no control characters, and not too long.
        let text = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(LONGEST).collect();
        self.notices.push_back(Notice { number: self.next_notice, at: Some(SystemTime::now()), kind, text });
        self.next_notice += 1;
    }

    pub fn denial(&mut self, denial: Denial) {
        let room = self.denials.len() < MOST;
        let same = |known: &&mut Denial| known.host == denial.host && known.rule == denial.rule;
        match self.denials.iter_mut().find(same) {
            Some(known) => known.count += denial.count,
            None if room => self.denials.push(denial),
            None => {}
        }
    }
}

pub struct Shared {
    pub connection: Connection,
    pub viewport: (u32, u32),
    pub action_timeout: Duration,
    pub frames: broadcast::Sender<Frame>,
    state: Mutex<State>,
    /// Counts changes of the state.
    changes: watch::Sender<u64>,
}

impl Shared {
    pub fn new(connection: Connection, viewport: (u32, u32), action_timeout: Duration) -> Shared {
        let (frames, changes) = (broadcast::channel(FRAMES).0, watch::channel(0).0);
        Shared { connection, viewport, action_timeout, frames, state: Mutex::default(), changes }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and wakes those who wait for a change.
    pub fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state());
        self.changes.send_modify(|count| *count += 1);
        result
    }

    /// Waits until the state has what `found` looks for. The caller sets the time limit.
    pub async fn until<T>(&self, found: impl Fn(&State) -> Option<T>) -> Result<T, BrowserError> {
        let mut changes = self.changes.subscribe();
        loop {
            {
                let state = self.state();
                if let Some(found) = found(&state) {
                    return Ok(found);
                }
                if let Some(ended) = &state.ended {
                    return Err(BrowserError::Ended(ended.clone()));
                }
            }
            // The sender lives as long as self.
            let _ = changes.changed().await;
        }
    }

    pub async fn wait_ended(&self) -> Ended {
        match self.until(|_| None::<Ended>).await {
            Err(BrowserError::Ended(ended)) => ended,
            _ => Ended::new(Reason::Closed, "closed"),
        }
    }

    pub fn begin_closing(&self) {
        self.change(|state| state.closing = true);
    }
}
