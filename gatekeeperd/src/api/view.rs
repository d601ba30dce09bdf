//! What the page shows: live pictures, actions as they happen, denials, recordings, the audit trail, and the page's files.

use super::guard::{Proof, json};
use super::{Problem, Shared};
use crate::browser::Input;
use crate::page;
use crate::session::shown_audit;
use crate::store::AuditFilter;
use crate::vault::Caller;
use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use futures_util::stream::{self, Stream, StreamExt};
use serde::Deserialize;
use serde_json::{Value, json};
use std::io;
use std::time::Duration;
use tokio::sync::broadcast::error::RecvError;

type Asked = (State<Shared>, Extension<Caller>);

/// Separates the pictures of a stream.
const BOUNDARY: &str = "gatekeeperd-frame";

/// The page as it changes: a stream of JPEG pictures that an `img` element shows.
pub async fn frames(
    (State(shared), Extension(caller)): Asked,
    Extension(proof): Extension<Proof>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let frames = shared.manager.frames(&caller, &id).await?;
    let parts = stream::unfold((frames, true), |(mut frames, first)| async move {
        loop {
            match frames.recv().await {
                Ok(frame) => {
                    let length = frame.jpeg.len();
                    let head = format!("Content-Type: image/jpeg\r\nContent-Length: {length}\r\n\r\n");
                    // The boundary follows each picture at once: browsers show a picture when they have seen its end, and
                    // the next one may never come.
                    let (before, after) = (format!("--{BOUNDARY}\r\n"), format!("\r\n--{BOUNDARY}\r\n"));
                    let before = if first { before.as_bytes() } else { b"" };
                    let part = [before, head.as_bytes(), &frame.jpeg, after.as_bytes()].concat();
                    return Some((Ok(part), (frames, false)));
                }
                // A slow viewer misses pictures and goes on with the newest.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    });
    let kind = format!("multipart/x-mixed-replace; boundary={BOUNDARY}");
    Ok(streamed(&kind, parts.take_until(proof.void(shared))))
}

/// Actions of the caller's tenant as they happen, as server-sent events. Each is a row of the audit trail.
pub async fn events((State(shared), Extension(caller)): Asked, Extension(proof): Extension<Proof>) -> Response {
    let events = shared.manager.events();
    let lines = stream::unfold((events, caller.tenant), |(mut events, tenant)| async move {
        loop {
            // A comment now and then shows that the connection lives, and finds out if it does not.
            let event = match tokio::time::timeout(Duration::from_secs(15), events.recv()).await {
                Ok(event) => event,
                Err(_) => return Some((Ok(b": alive\n\n".to_vec()), (events, tenant))),
            };
            match event {
                Ok(event) if event.tenant == tenant => {
                    return Some((Ok(format!("data: {}\n\n", event.value).into_bytes()), (events, tenant)));
                }
                Ok(_) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    });
    streamed("text/event-stream", lines.take_until(proof.void(shared)))
}

fn streamed(kind: &str, parts: impl Stream<Item = io::Result<Vec<u8>>> + Send + 'static) -> Response {
    ([(header::CONTENT_TYPE, kind.to_owned())], Body::from_stream(parts)).into_response()
}

/// Mouse and keyboard of an operator who refreshes a login.
pub async fn input(
    (State(shared), Extension(caller)): Asked,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<StatusCode, Problem> {
    let event: Input = json(&headers, &body)?;
    shared.manager.input(&caller, &id, event).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub async fn denials(
    (State(shared), Extension(caller)): Asked,
    Path(id): Path<String>,
) -> Result<Json<Value>, Problem> {
    let denials = shared.manager.denials(&caller, &id).await?;
    Ok(Json(json!({ "denials": denials })))
}

pub async fn recordings(
    (State(shared), Extension(caller)): Asked,
    Path(id): Path<String>,
) -> Result<Json<Value>, Problem> {
    let names = shared.manager.recordings(&caller, &id).await?;
    Ok(Json(json!({ "recordings": names })))
}

pub async fn recording(
    (State(shared), Extension(caller)): Asked,
    Path((id, name)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let png = shared.manager.recording(&caller, &id, &name).await?;
    Ok(([(header::CONTENT_TYPE, "image/png")], png).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditQuery {
    session_id: Option<String>,
    action: Option<String>,
    before: Option<String>,
    limit: Option<i64>,
}

pub async fn audit(
    (State(shared), Extension(caller)): Asked,
    query: Result<Query<AuditQuery>, QueryRejection>,
) -> Result<Json<Value>, Problem> {
    let Query(query) = query?;
    let filter = AuditFilter {
        tenant: Some(caller.tenant),
        session: query.session_id,
        action: query.action,
        before: query.before,
        limit: query.limit.unwrap_or(100).clamp(1, 1000),
    };
    let rows = shared.manager.vault().store().audit(&filter).await?;
    Ok(Json(json!({ "audit": rows.iter().map(shown_audit).collect::<Vec<_>>() })))
}

/// The files of the page. They contain no secrets, so they need no token.
pub async fn file(method: Method, uri: Uri) -> Result<Response, Problem> {
    let found = page::file(uri.path()).filter(|_| method == Method::GET || method == Method::HEAD);
    let (kind, content) = found.ok_or_else(Problem::not_found)?;
    Ok(([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache")], content).into_response())
}
