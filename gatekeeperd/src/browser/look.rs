//! What a browser shows: pictures, a stream of frames, and the document's text.

use super::state::{Page, Shared};
use super::{Browser, BrowserError};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::broadcast;

/// The tallest and widest picture of a whole page; Chromium draws nothing beyond.
const LARGEST_SIDE: f64 = 16_384.0;
/// The most pixels of a picture. A page of noise cannot be compressed: with four bytes for a pixel, as base64, its picture
/// still fits into one message of the browser. A larger message would end the session.
pub const MOST_PIXELS: u32 = 24_000_000;
const _: () = assert!(MOST_PIXELS as usize * 4 / 3 * 4 + (4 << 20) < crate::cdp::LARGEST);
const QUALITY: u32 = 65;
/// How long a viewer waits for a picture of a page that streams none.
const PULSE: Duration = Duration::from_millis(1500);

/// A screenshot.
#[derive(Clone)]
pub struct Picture {
    pub png: Vec<u8>,
    pub width: u32,
    pub height: u32,
    pub captured_at: SystemTime,
    /// Whether the page is larger than the picture of the whole page.
    pub cut: bool,
}

/// One frame of the live view.
#[derive(Clone)]
pub struct Frame {
    pub jpeg: Arc<[u8]>,
    /// The size of the viewport that it shows.
    pub width: u32,
    pub height: u32,
}

/// The document as HTML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dom {
    pub html: String,
    /// The number of bytes to which it was cut, if it was.
    pub truncated_to: Option<usize>,
}

impl Frame {
    pub fn read(params: &Value) -> Option<Frame> {
        let jpeg = STANDARD.decode(params["data"].as_str()?).ok()?;
        let side = |name: &str| params["metadata"][name].as_f64().map(|side| side as u32);
        Some(Frame { jpeg: jpeg.into(), width: side("deviceWidth")?, height: side("deviceHeight")? })
    }
}

/// Width and height of a PNG file, from its first chunk.
pub fn png_size(png: &[u8]) -> Option<(u32, u32)> {
    let side = |at: usize| Some(u32::from_be_bytes(png.get(at..at + 4)?.try_into().ok()?));
    png.starts_with(b"\x89PNG\r\n\x1a\n").then(|| Some((side(16)?, side(20)?)))?
}

impl Browser {
    /// A picture of the viewport, or of the whole page.
    pub async fn screenshot(&self, full_page: bool) -> Result<Picture, BrowserError> {
        let _acting = self.inner.acting.lock().await;
        let page = self.sound_page()?;
        self.within("the screenshot", self.picture(&page, full_page)).await
    }

    async fn picture(&self, page: &Page, full_page: bool) -> Result<Picture, BrowserError> {
        let mut params = json!({"format": "png"});
        let mut cut = false;
        if full_page {
            let metrics = self.call(page, "Page.getLayoutMetrics", json!({})).await?;
            let side = |name: &str| metrics["cssContentSize"][name].as_f64().unwrap_or(1.0).max(1.0).ceil();
            let width = side("width").min(LARGEST_SIDE);
            let height = side("height").min(LARGEST_SIDE).min((f64::from(MOST_PIXELS) / width).floor());
            cut = width < side("width") || height < side("height");
            params["captureBeyondViewport"] = json!(true);
            params["clip"] = json!({"x": 0, "y": 0, "width": width, "height": height, "scale": 1});
        }
        self.capture(page, params, cut).await
    }

    /// A picture of the viewport, smaller by this factor.
    pub async fn view(&self, scale: f64) -> Result<Picture, BrowserError> {
        let _acting = self.inner.acting.lock().await;
        let page = self.sound_page()?;
        self.within("the screenshot", async {
            let metrics = self.call(&page, "Page.getLayoutMetrics", json!({})).await?;
            let visible = &metrics["cssVisualViewport"];
            let (width, height) = self.viewport();
            let clip =
                json!({"x": visible["pageX"], "y": visible["pageY"], "width": width, "height": height, "scale": scale});
            self.capture(&page, json!({"format": "png", "clip": clip}), false).await
        })
        .await
    }

    async fn capture(&self, page: &Page, params: Value, cut: bool) -> Result<Picture, BrowserError> {
        let answer = self.call(page, "Page.captureScreenshot", params).await?;
        let wrong = || BrowserError::Wrong("the browser's answer is no picture".to_owned());
        let png = STANDARD.decode(answer["data"].as_str().unwrap_or_default()).map_err(|_| wrong())?;
        let (width, height) = png_size(&png).ok_or_else(wrong)?;
        Ok(Picture { png, width, height, captured_at: SystemTime::now(), cut })
    }

    /// The document as HTML, at most `limit` bytes of it.
    pub async fn read_dom(&self, limit: usize) -> Result<Dom, BrowserError> {
        let _acting = self.inner.acting.lock().await;
        let page = self.sound_page()?;
        // The getter of the prototype: no element of the page can take its place.
        let expression = format!(
            "(() => {{ const get = Object.getOwnPropertyDescriptor(Document.prototype, 'documentElement').get; \
             const root = get.call(document); const html = root ? root.outerHTML : ''; \
             return {{html: html.slice(0, {limit}).toWellFormed(), whole: html.length <= {limit}}}; }})()"
        );
        let mut value = self.within("reading the document", self.evaluate(&page, &expression)).await?;
        let whole = value["whole"].as_bool().unwrap_or(false);
        let Value::String(mut html) = value["html"].take() else {
            return Err(BrowserError::Wrong("the document cannot be read".to_owned()));
        };
        let end = (0..=limit.min(html.len())).rfind(|at| html.is_char_boundary(*at)).unwrap_or(0);
        let cut = !whole || end < html.len();
        html.truncate(end);
        Ok(Dom { truncated_to: cut.then_some(html.len()), html })
    }

    /// The frames of the page that is shown, as JPEG, whenever it changes. The browser streams only while a receiver
    /// exists.
    pub fn frames(&self) -> broadcast::Receiver<Frame> {
        let shared = &self.inner.shared;
        let receiver = shared.frames.subscribe();
        if shared.state().casting.is_none() {
            cast(shared);
        }
        tokio::spawn(pulse(Arc::clone(shared)));
        receiver
    }

    /// The value of an expression, in a world of its own, in which the page can replace nothing.
    pub(super) async fn evaluate(&self, page: &Page, expression: &str) -> Result<Value, BrowserError> {
        let world = json!({"frameId": page.target, "worldName": "gatekeeperd"});
        let context = self.call(page, "Page.createIsolatedWorld", world).await?["executionContextId"].take();
        let params = json!({"expression": expression, "contextId": context, "returnByValue": true});
        Ok(self.call(page, "Runtime.evaluate", params).await?["result"]["value"].take())
    }

    pub(super) async fn shown(&self, page: &Page) -> Result<(String, String), BrowserError> {
        // From the browser process: a page whose renderer hangs has an address, too.
        let history = self.call(page, "Page.getNavigationHistory", json!({})).await?;
        let entry = &history["entries"][history["currentIndex"].as_u64().unwrap_or(0) as usize];
        let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
        Ok((text("url"), text("title")))
    }
}

/// Sends a picture now, and one whenever nothing was streamed for a while, until there is no viewer. The browser streams
/// changes only, so that a new viewer of a page at rest would see nothing; and a change that happens while the browser
/// replaces a renderer is sometimes not streamed.
async fn pulse(shared: Arc<Shared>) {
    send_picture(&shared).await;
    if shared.change(|state| std::mem::replace(&mut state.pulsing, true)) {
        return;
    }
    loop {
        tokio::time::sleep(PULSE).await;
        let (over, quiet) = {
            let state = shared.state();
            let quiet = state.last_frame.is_none_or(|at| at.elapsed() >= PULSE);
            (shared.frames.receiver_count() == 0 || state.ended.is_some() || state.closing, quiet)
        };
        if over {
            return shared.change(|state| state.pulsing = false);
        }
        if quiet {
            send_picture(&shared).await;
        }
    }
}

async fn send_picture(shared: &Shared) -> Option<()> {
    let session = shared.state().pages.iter().rfind(|page| page.ready)?.session.clone();
    let params = json!({"format": "jpeg", "quality": QUALITY});
    let answer = shared.connection.call(Some(&session), "Page.captureScreenshot", params, shared.action_timeout).await;
    let jpeg = STANDARD.decode(answer.ok()?["data"].as_str()?).ok()?;
    let (width, height) = shared.viewport;
    shared.frames.send(Frame { jpeg: jpeg.into(), width, height }).ok().map(drop)
}

/// Starts to stream the page that is shown.
fn cast(shared: &Shared) {
    let session = shared.change(|state| {
        let session = state.pages.iter().rfind(|page| page.ready)?.session.clone();
        state.casting = Some(session.clone());
        Some(session)
    });
    let Some(session) = session else { return };
    let (width, height) = shared.viewport;
    let params = json!({"format": "jpeg", "quality": QUALITY, "maxWidth": width, "maxHeight": height});
    shared.connection.post(Some(&session), "Page.bringToFront", json!({}));
    shared.connection.post(Some(&session), "Page.startScreencast", params);
}

/// Lets the stream follow to the page that is shown now.
pub fn follow(shared: &Shared) {
    let (casting, shown) = {
        let state = shared.state();
        let shown = state.pages.iter().rfind(|page| page.ready).map(|page| page.session.clone());
        (state.casting.clone(), shown)
    };
    if let Some(casting) = casting
        && shown.as_ref() != Some(&casting)
    {
        shared.connection.post(Some(&casting), "Page.stopScreencast", json!({}));
        cast(shared);
    }
}
