//! Handles what the browser reports: new and closed pages, loads, dialogs, downloads, crashes, frames.
//!
//! Nothing here waits for an answer of the browser. While this task waited, events would pile up in front of that answer.

use super::look::{self, Frame};
use super::state::{Answered, NoticeKind, Page, Shared};
use crate::cdp::Event;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// The pause before the next frame is asked for, which bounds a stream at about 20 frames per second.
const BETWEEN_FRAMES: Duration = Duration::from_millis(40);
/// The most pages of one browser. A page that opens more loses them.
const MOST_PAGES: usize = 20;

pub async fn handle(shared: Arc<Shared>, mut events: mpsc::Receiver<Event>) {
    while let Some(event) = events.recv().await {
        one(&shared, &event);
    }
}

fn one(shared: &Arc<Shared>, event: &Event) {
    let params = &event.params;
    match (event.method.as_str(), event.session.as_deref()) {
        ("Target.attachedToTarget", _) => attached(shared, params),
        ("Target.detachedFromTarget", _) => detached(shared, text(&params["sessionId"])),
        ("Browser.downloadWillBegin", _) => {
            let named = format!("{} ({})", text(&params["url"]), text(&params["suggestedFilename"]));
            shared.change(|state| state.notice(NoticeKind::Download, &named));
        }
        ("Inspector.targetCrashed", Some(session)) => shared.change(|state| {
            if let Some(page) = state.page_mut(session) {
                page.crashed = true;
                state.notice(NoticeKind::Crash, "the page's renderer crashed");
            }
        }),
        ("Page.javascriptDialogOpening", Some(session)) => dialog(shared, session, params),
        ("Page.fileChooserOpened", Some(_)) => {
            shared.change(|state| state.notice(NoticeKind::Upload, "the page asked for a file; uploads are refused"));
        }
        ("Page.screencastFrame", Some(session)) => frame(shared, session, params),
        (_, Some(session)) => shared.change(|state| {
            if let Some(page) = state.page_mut(session) {
                loading(page, &event.method, params);
            }
        }),
        _ => {}
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn attached(shared: &Arc<Shared>, params: &Value) {
    let info = &params["targetInfo"];
    let (session, target) = (text(&params["sessionId"]).to_owned(), text(&info["targetId"]).to_owned());
    let post = |method, params| shared.connection.post(Some(&session), method, params);
    if info["type"] != "page" {
        return post("Runtime.runIfWaitingForDebugger", json!({}));
    }
    if shared.state().pages.len() >= MOST_PAGES {
        return shared.connection.post(None, "Target.closeTarget", json!({"targetId": target}));
    }
    let (width, height) = shared.viewport;
    let (there, known) = (Arc::clone(shared), session.clone());
    shared.change(|state| {
        // The first page is ours, and so is the one that replaces a page that hangs.
        if !state.pages.is_empty() && !state.replacing {
            state.notice(NoticeKind::Popup, "the page opened a window, which is shown now");
        }
        state.pages.push(Page { session: session.clone(), target, ..Page::default() });
    });
    let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
    // The browser handles them in this order. A page that waits answers some of them only when it runs, so wait for none.
    post("Page.enable", json!({}));
    post("Inspector.enable", json!({}));
    post("Network.enable", json!({"maxTotalBufferSize": 0, "maxResourceBufferSize": 0}));
    post("Page.setLifecycleEventsEnabled", json!({"enabled": true}));
    post("Emulation.setDeviceMetricsOverride", size);
    post("Page.setInterceptFileChooserDialog", json!({"enabled": true, "cancel": true}));
    tokio::spawn(async move {
        let run = "Runtime.runIfWaitingForDebugger";
        let _ = there.connection.call(Some(&known), run, json!({}), there.action_timeout).await;
        there.change(|state| {
            if let Some(page) = state.page_mut(&known) {
                page.ready = true;
            }
        });
        look::follow(&there);
    });
}

fn detached(shared: &Arc<Shared>, session: &str) {
    let last = shared.change(|state| {
        state.pages.retain(|page| page.session != session);
        state.pages.is_empty() && state.ended.is_none() && !state.closing
    });
    // A page that closes its only window must not leave a session without one.
    if last {
        shared.connection.post(None, "Target.createTarget", json!({"url": "about:blank"}));
    }
    look::follow(shared);
}

fn dialog(shared: &Shared, session: &str, params: &Value) {
    let kind = text(&params["type"]);
    // A page that asks to stay must not block a navigation.
    let accept = kind == "beforeunload";
    shared.connection.post(Some(session), "Page.handleJavaScriptDialog", json!({"accept": accept}));
    let said = format!("{kind}: {}", text(&params["message"]));
    shared.change(|state| state.notice(NoticeKind::Dialog, &said));
}

fn loading(page: &mut Page, method: &str, params: &Value) {
    let main = |frame: &Value| frame.as_str() == Some(&page.target);
    match method {
        "Page.frameStartedLoading" if main(&params["frameId"]) => page.loading = true,
        "Page.frameStoppedLoading" if main(&params["frameId"]) => page.loading = false,
        "Page.lifecycleEvent" if main(&params["frameId"]) => match text(&params["name"]) {
            "load" => {
                page.loads += 1;
                Page::note(&mut page.loaded, text(&params["loaderId"]));
            }
            "DOMContentLoaded" => Page::note(&mut page.parsed, text(&params["loaderId"])),
            _ => {}
        },
        "Network.responseReceived" if params["type"] == "Document" && main(&params["frameId"]) => {
            if let Some(answered) = answered(&params["response"]) {
                page.note_answer(text(&params["loaderId"]), answered);
            }
        }
        "Network.requestWillBeSent" if params["type"] == "Document" && main(&params["frameId"]) => {
            text(&params["request"]["url"]).clone_into(&mut page.asked);
        }
        // A crashed page that loads again has a new renderer.
        "Page.frameNavigated" if main(&params["frame"]["id"]) => page.crashed = false,
        _ => {}
    }
}

fn answered(response: &Value) -> Option<Answered> {
    let status = u16::try_from(response["status"].as_u64()?).ok()?;
    let mut names = response["headers"].as_object().into_iter().flat_map(|headers| headers.keys());
    let by_proxy = names.any(|name| name.eq_ignore_ascii_case("x-gatekeeper"));
    Some(Answered { status, url: text(&response["url"]).to_owned(), by_proxy })
}

fn frame(shared: &Arc<Shared>, session: &str, params: &Value) {
    let Some(frame) = Frame::read(params) else { return };
    let watched = shared.frames.receiver_count() > 0;
    let current = shared.change(|state| {
        let current = state.casting.as_deref() == Some(session);
        if current && !watched {
            state.casting = None;
        }
        state.last_frame = Some(Instant::now());
        current
    });
    if !current || !watched {
        return shared.connection.post(Some(session), "Page.stopScreencast", json!({}));
    }
    let _ = shared.frames.send(frame);
    let (there, session, number) = (Arc::clone(shared), session.to_owned(), params["sessionId"].clone());
    tokio::spawn(async move {
        tokio::time::sleep(BETWEEN_FRAMES).await;
        there.connection.post(Some(&session), "Page.screencastFrameAck", json!({"sessionId": number}));
    });
}
