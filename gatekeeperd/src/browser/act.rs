//! Mouse and keyboard: what a task, a tool or the live view does with a page. Events are those of a real user.

use super::keys::{self, Stroke};
use super::state::Page;
use super::{APPEAR, Browser, BrowserError, LONGEST_TEXT};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// Where to click.
#[derive(Debug, Clone, PartialEq)]
pub enum Target {
    /// Pixels from the left and the top of the viewport.
    Point { x: f64, y: f64 },
    /// The middle of the first element that a CSS selector matches.
    Selector(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Button {
    #[default]
    Left,
    Middle,
    Right,
    None,
}

impl Button {
    fn word(self) -> &'static str {
        match self {
            Button::Left => "left",
            Button::Middle => "middle",
            Button::Right => "right",
            Button::None => "none",
        }
    }
}

/// Which kind of click.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clicks {
    Single,
    Double,
    Right,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MouseKind {
    Move,
    Down,
    Up,
}

/// One event of the live view.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
pub enum Input {
    Mouse {
        kind: MouseKind,
        x: f64,
        y: f64,
        #[serde(default)]
        button: Button,
        #[serde(default)]
        clicks: u8,
        /// Alt 1, Ctrl 2, Meta 4, Shift 8.
        #[serde(default)]
        modifiers: u8,
    },
    Wheel {
        x: f64,
        y: f64,
        dx: f64,
        dy: f64,
    },
    /// A key by its name, as in `KeyboardEvent.key`.
    Key {
        down: bool,
        key: String,
        #[serde(default)]
        modifiers: u8,
    },
    /// Pasted text.
    Text {
        text: String,
    },
}

/// How often to look for an element that is not there yet.
const AGAIN: Duration = Duration::from_millis(100);
/// Steps of a drag, and the pause between them: pages ignore a mouse that jumps.
const STEPS: u32 = 10;
const STEP: Duration = Duration::from_millis(10);

impl Browser {
    /// One click with the left button.
    pub async fn click(&self, target: &Target) -> Result<(), BrowserError> {
        self.click_as(target, Clicks::Single).await
    }

    pub async fn click_as(&self, target: &Target, clicks: Clicks) -> Result<(), BrowserError> {
        let _acting = self.inner.acting.lock().await;
        let page = self.sound_page()?;
        self.within("the click", async {
            let at = self.place(&page, target).await?;
            let button = if clicks == Clicks::Right { Button::Right } else { Button::Left };
            self.mouse(&page, MouseKind::Move, at, Button::None, 0, 0).await?;
            for count in 1..=if clicks == Clicks::Double { 2 } else { 1 } {
                for kind in [MouseKind::Down, MouseKind::Up] {
                    match self.mouse(&page, kind, at, button, count, 0).await {
                        // The click itself closed the page.
                        Err(BrowserError::Gone) => return Ok(()),
                        done => done?,
                    }
                }
            }
            Ok(())
        })
        .await
    }

    /// Presses the left button at one place and releases it at another.
    pub async fn drag(&self, from: (f64, f64), to: (f64, f64)) -> Result<(), BrowserError> {
        let _acting = self.inner.acting.lock().await;
        let page = self.sound_page()?;
        let (from, to) = (self.inside(from)?, self.inside(to)?);
        self.within("the drag", async {
            self.mouse(&page, MouseKind::Move, from, Button::None, 0, 0).await?;
            self.mouse(&page, MouseKind::Down, from, Button::Left, 1, 0).await?;
            for step in 1..=STEPS {
                let part = f64::from(step) / f64::from(STEPS);
                let at = (from.0 + (to.0 - from.0) * part, from.1 + (to.1 - from.1) * part);
                self.mouse(&page, MouseKind::Move, at, Button::Left, 0, 0).await?;
                tokio::time::sleep(STEP).await;
            }
            self.mouse(&page, MouseKind::Up, to, Button::Left, 1, 0).await
        })
        .await
    }

    /// Presses keys together, such as `ctrl c`, named as in UI-TARS.
    pub async fn hotkey(&self, keys: &str) -> Result<(), BrowserError> {
        let chord = keys::chord(keys).map_err(BrowserError::Wrong)?;
        let _acting = self.inner.acting.lock().await;
        let page = self.sound_page()?;
        self.within("the hotkey", async {
            for event in chord.events() {
                self.call(&page, "Input.dispatchKeyEvent", event).await?;
            }
            Ok(())
        })
        .await
    }

    /// Types text into the focused element, or first focuses the one that a selector matches. A line end is the key Enter.
    pub async fn type_text(&self, selector: Option<&str>, text: &str) -> Result<(), BrowserError> {
        if text.len() > LONGEST_TEXT {
            return Err(BrowserError::Wrong(format!("the text is longer than {LONGEST_TEXT} bytes")));
        }
        let _acting = self.inner.acting.lock().await;
        let page = self.sound_page()?;
        self.within("the typing", self.strike(&page, selector, text)).await
    }

    async fn strike(&self, page: &Page, selector: Option<&str>, text: &str) -> Result<(), BrowserError> {
        if let Some(selector) = selector {
            let node = self.find(page, selector).await?;
            self.call(page, "DOM.focus", json!({"nodeId": node})).await.map_err(|error| match error {
                BrowserError::Refused(_) => {
                    BrowserError::Element { selector: selector.to_owned(), why: "cannot have the keyboard focus" }
                }
                other => other,
            })?;
        }
        for stroke in keys::strokes(text) {
            match stroke {
                Stroke::Key(events) => {
                    for event in events {
                        self.call(page, "Input.dispatchKeyEvent", event).await?;
                    }
                }
                Stroke::Text(text) => drop(self.call(page, "Input.insertText", json!({"text": text})).await?),
            }
        }
        Ok(())
    }

    /// Turns the mouse wheel over an element, or over the middle of the viewport.
    pub async fn scroll(&self, selector: Option<&str>, dx: f64, dy: f64) -> Result<(), BrowserError> {
        let (width, height) = self.inner.options.viewport;
        let target = match selector {
            Some(selector) => Target::Selector(selector.to_owned()),
            None => Target::Point { x: f64::from(width) / 2.0, y: f64::from(height) / 2.0 },
        };
        self.scroll_at(&target, dx, dy).await
    }

    pub async fn scroll_at(&self, target: &Target, dx: f64, dy: f64) -> Result<(), BrowserError> {
        let _acting = self.inner.acting.lock().await;
        let page = self.sound_page()?;
        self.within("the scrolling", async {
            let at = self.place(&page, target).await?;
            self.wheel(&page, at, dx, dy).await
        })
        .await
    }

    /// Passes an event of the live view on. It does not wait for an action that is under way.
    pub async fn input(&self, event: Input) -> Result<(), BrowserError> {
        let page = self.sound_page()?;
        match event {
            Input::Mouse { kind, x, y, button, clicks, modifiers } => {
                self.mouse(&page, kind, self.inside((x, y))?, button, clicks.min(3), modifiers).await
            }
            Input::Wheel { x, y, dx, dy } => self.wheel(&page, self.inside((x, y))?, dx, dy).await,
            Input::Key { down, key, modifiers } => {
                let event = keys::event(&key, down, modifiers).map_err(BrowserError::Wrong)?;
                self.call(&page, "Input.dispatchKeyEvent", event).await.map(drop)
            }
            Input::Text { text } if text.len() > LONGEST_TEXT => {
                Err(BrowserError::Wrong(format!("the text is longer than {LONGEST_TEXT} bytes")))
            }
            Input::Text { text } => self.call(&page, "Input.insertText", json!({"text": text})).await.map(drop),
        }
    }

    async fn mouse(
        &self,
        page: &Page,
        kind: MouseKind,
        (x, y): (f64, f64),
        button: Button,
        clicks: u8,
        modifiers: u8,
    ) -> Result<(), BrowserError> {
        let kind = match kind {
            MouseKind::Move => "mouseMoved",
            MouseKind::Down => "mousePressed",
            MouseKind::Up => "mouseReleased",
        };
        let held = if kind == "mouseMoved" && button == Button::Left { 1 } else { 0 };
        let params = json!({"type": kind, "x": x, "y": y, "button": button.word(), "buttons": held,
            "clickCount": clicks, "modifiers": modifiers & 15});
        self.call(page, "Input.dispatchMouseEvent", params).await.map(drop)
    }

    async fn wheel(&self, page: &Page, (x, y): (f64, f64), dx: f64, dy: f64) -> Result<(), BrowserError> {
        if !dx.is_finite() || !dy.is_finite() {
            return Err(BrowserError::Wrong("the distance to scroll is not a number".to_owned()));
        }
        let params = json!({"type": "mouseWheel", "x": x, "y": y, "deltaX": dx, "deltaY": dy});
        self.call(page, "Input.dispatchMouseEvent", params).await.map(drop)
    }

    /// A point, if it is inside of the viewport.
    fn inside(&self, (x, y): (f64, f64)) -> Result<(f64, f64), BrowserError> {
        let viewport = self.inner.options.viewport;
        let fits = |at: f64, side: u32| at.is_finite() && (0.0..f64::from(side)).contains(&at);
        match fits(x, viewport.0) && fits(y, viewport.1) {
            true => Ok((x, y)),
            false => Err(BrowserError::Outside { x, y, viewport }),
        }
    }

    /// The place to click. An element is scrolled into view.
    async fn place(&self, page: &Page, target: &Target) -> Result<(f64, f64), BrowserError> {
        let selector = match target {
            Target::Point { x, y } => return self.inside((*x, *y)),
            Target::Selector(selector) => selector,
        };
        let node = self.find(page, selector).await?;
        let element = |why| BrowserError::Element { selector: selector.clone(), why };
        let hidden = |error| match error {
            BrowserError::Refused(_) => element("is not visible"),
            other => other,
        };
        let params = json!({"nodeId": node});
        self.call(page, "DOM.scrollIntoViewIfNeeded", params.clone()).await.map_err(hidden)?;
        let quads = self.call(page, "DOM.getContentQuads", params).await.map_err(hidden)?;
        let middle = quads["quads"].as_array().into_iter().flatten().find_map(middle);
        self.inside(middle.ok_or_else(|| element("is not visible"))?)
    }

    /// The first element that matches. Waits a moment for one that is not there yet.
    async fn find(&self, page: &Page, selector: &str) -> Result<u64, BrowserError> {
        let until = Instant::now() + APPEAR.min(self.inner.options.action_timeout);
        loop {
            let document = self.call(page, "DOM.getDocument", json!({"depth": 0})).await?;
            let params = json!({"nodeId": document["root"]["nodeId"], "selector": selector});
            match self.call(page, "DOM.querySelector", params).await {
                Ok(found) => match found["nodeId"].as_u64() {
                    Some(node) if node != 0 => return Ok(node),
                    _ => {}
                },
                // The document was replaced between the two calls.
                Err(BrowserError::Refused(error)) if error.contains("find node") => {}
                Err(BrowserError::Refused(error)) => {
                    return Err(BrowserError::Selector { selector: selector.to_owned(), error });
                }
                Err(other) => return Err(other),
            }
            if Instant::now() >= until {
                return Err(BrowserError::NoElement { selector: selector.to_owned() });
            }
            tokio::time::sleep(AGAIN).await;
        }
    }
}

/// The middle of a quad: eight numbers, four corners. One without an area cannot be clicked.
fn middle(quad: &Value) -> Option<(f64, f64)> {
    let all: Vec<f64> = quad.as_array()?.iter().filter_map(Value::as_f64).collect();
    let [x1, y1, x2, y2, x3, y3, x4, y4] = all.as_slice() else { return None };
    let area = ((x1 * y2 - x2 * y1) + (x2 * y3 - x3 * y2) + (x3 * y4 - x4 * y3) + (x4 * y1 - x1 * y4)).abs() / 2.0;
    (area >= 1.0).then(|| ((x1 + x2 + x3 + x4) / 4.0, (y1 + y2 + y3 + y4) / 4.0))
}
