//! The actions of a session: checked, audited, done, recorded.

use super::audit::harmless_url;
use super::{Live, Manager, SessionError};
use crate::browser::{Browser, Picture, Target, check_address};
use crate::store::iso;
use crate::vault::Caller;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::io::ErrorKind;
use std::sync::atomic::Ordering;
use std::time::UNIX_EPOCH;

/// The most bytes of a DOM that an answer carries, and the number if the request names none.
const LONGEST_DOM: usize = 2 << 20;
const USUAL_DOM: usize = 100_000;

/// A request to act, as HTTP and MCP carry it.
#[derive(Clone)]
pub enum Action {
    Navigate(Navigate),
    Screenshot(Screenshot),
    Click(Click),
    Type(Type),
    Scroll(Scroll),
    ReadDom(ReadDom),
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Navigate {
    pub url: String,
}

#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Screenshot {
    pub full_page: bool,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Click {
    pub x: Option<f64>,
    pub y: Option<f64>,
    pub selector: Option<String>,
    #[serde(default)]
    pub after_screenshot: bool,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Type {
    pub text: String,
    pub selector: Option<String>,
    #[serde(default)]
    pub after_screenshot: bool,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scroll {
    pub selector: Option<String>,
    #[serde(default)]
    pub dx: f64,
    #[serde(default)]
    pub dy: f64,
    #[serde(default)]
    pub after_screenshot: bool,
}

#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReadDom {
    pub max_bytes: Option<usize>,
}

impl Action {
    /// The action of this name, from its arguments.
    pub fn parse(name: &str, arguments: Value) -> Result<Action, SessionError> {
        let parsed = match name {
            "navigate" => serde_json::from_value(arguments).map(Action::Navigate),
            "screenshot" => serde_json::from_value(arguments).map(Action::Screenshot),
            "click" => serde_json::from_value(arguments).map(Action::Click),
            "type" => serde_json::from_value(arguments).map(Action::Type),
            "scroll" => serde_json::from_value(arguments).map(Action::Scroll),
            "read_dom" => serde_json::from_value(arguments).map(Action::ReadDom),
            _ => return Err(SessionError::NoAction),
        };
        // serde's message quotes a value of a wrong type, which may be the text to type.
        let hide = |error: serde_json::Error| {
            let text = error.to_string();
            let shown = if text.starts_with("invalid ") { "a field has a wrong type" } else { &text };
            SessionError::Invalid(format!("{name}: {shown}"))
        };
        parsed.map_err(hide)
    }

    fn name(&self) -> &'static str {
        match self {
            Action::Navigate(_) => "navigate",
            Action::Screenshot(_) => "screenshot",
            Action::Click(_) => "click",
            Action::Type(_) => "type",
            Action::Scroll(_) => "scroll",
            Action::ReadDom(_) => "read_dom",
        }
    }

    /// What the audit trail keeps. Typed text is secret: only its length is kept.
    fn detail(&self) -> Value {
        match self {
            Action::Navigate(with) => json!({ "url": harmless_url(&with.url) }),
            Action::Screenshot(with) => json!({ "full_page": with.full_page }),
            Action::Click(with) => json!({ "x": with.x, "y": with.y, "selector": with.selector }),
            Action::Type(with) => json!({ "selector": with.selector, "characters": with.text.chars().count() }),
            Action::Scroll(with) => json!({ "selector": with.selector, "dx": with.dx, "dy": with.dy }),
            Action::ReadDom(with) => json!({ "max_bytes": with.max_bytes }),
        }
    }
}

/// The fields of an answer.
pub type Answer = Map<String, Value>;

impl Manager {
    /// Carries out one action of a session.
    pub async fn act(&self, caller: &Caller, id: &str, action: Action) -> Result<Answer, SessionError> {
        let live = self.find(caller, id).await?;
        let _turn = live.turn.lock().await;
        if *live.ending.borrow() {
            return Err(SessionError::Ended("it was closed meanwhile".to_owned()));
        }
        let target = match &action {
            Action::Click(click) => Some(target(click)?),
            _ => None,
        };
        self.audit(caller, Some(id), action.name(), action.detail()).await?;
        live.touch();
        let done = perform(&live, &action, target).await;
        live.touch();
        // Whatever failed, the reason is that the session was closed under it.
        if done.is_err() && *live.ending.borrow() {
            return Err(SessionError::Ended("it was closed meanwhile".to_owned()));
        }
        let mut answer = done?;
        // What happened after an answer, or during an action that failed, is in the next one.
        let notices = live.browser.notices(live.untold.load(Ordering::Relaxed));
        if let Some(last) = notices.last() {
            live.untold.store(last.number + 1, Ordering::Relaxed);
            answer.insert("notices".to_owned(), json!(notices));
        }
        Ok(answer)
    }
}

async fn perform(live: &Live, action: &Action, target: Option<Target>) -> Result<Answer, SessionError> {
    let browser = &live.browser;
    let answer = match action {
        Action::Navigate(with) => {
            check_url(&with.url)?;
            let done = browser.navigate(&with.url).await?;
            json!({ "status": done.status, "final_url": done.final_url, "title": done.title })
        }
        Action::Screenshot(with) => picture(live, &browser.screenshot(with.full_page).await?)?,
        Action::Click(with) => {
            if let Some(target) = &target {
                browser.click(target).await?;
            }
            after(live, browser, with.after_screenshot).await?
        }
        Action::Type(with) => {
            browser.type_text(with.selector.as_deref(), &with.text).await?;
            after(live, browser, with.after_screenshot).await?
        }
        Action::Scroll(with) => {
            browser.scroll(with.selector.as_deref(), with.dx, with.dy).await?;
            after(live, browser, with.after_screenshot).await?
        }
        Action::ReadDom(with) => {
            let limit = with.max_bytes.unwrap_or(USUAL_DOM).min(LONGEST_DOM);
            let dom = browser.read_dom(limit).await?;
            json!({ "html": dom.html, "truncated_to": dom.truncated_to })
        }
    };
    match answer {
        Value::Object(fields) => Ok(fields),
        _ => Ok(Answer::new()),
    }
}

/// The answer of an action that changes the page.
async fn after(live: &Live, browser: &Browser, wanted: bool) -> Result<Value, SessionError> {
    match wanted {
        false => Ok(json!({ "success": true })),
        true => {
            browser.settle().await;
            let picture = picture(live, &browser.screenshot(false).await?)?;
            Ok(json!({ "success": true, "after_screenshot": picture }))
        }
    }
}

/// A picture as an answer; the recorder keeps it too, as the session's mode says.
fn picture(live: &Live, picture: &Picture) -> Result<Value, SessionError> {
    let captured = picture.captured_at.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let mut answer = json!({
        "image_base64": STANDARD.encode(&picture.png),
        "width": picture.width,
        "height": picture.height,
        "captured_at": iso(i64::try_from(captured).unwrap_or_default()),
    });
    // A session that has to be recorded shows nothing unrecorded.
    let kept = live.recorder.try_keep(picture).map_err(|source| match source.kind() {
        ErrorKind::QuotaExceeded => SessionError::Quota(source.to_string()),
        _ => SessionError::File { path: live.recorder.directory().to_owned(), source },
    });
    if let Some(path) = kept? {
        answer["persisted_path"] = json!(path.display().to_string());
    }
    Ok(answer)
}

pub(super) fn check_url(url: &str) -> Result<(), SessionError> {
    check_address(url).map_err(|error| SessionError::Invalid(format!("url: {error}")))
}

fn target(click: &Click) -> Result<Target, SessionError> {
    match (click.x, click.y, &click.selector) {
        (Some(x), Some(y), None) => Ok(Target::Point { x, y }),
        (None, None, Some(selector)) => Ok(Target::Selector(selector.clone())),
        _ => Err(SessionError::Invalid("click: give x and y, or selector".to_owned())),
    }
}
