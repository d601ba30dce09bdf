//! Sessions, their actions, and tasks.

use super::guard::json;
use super::{Problem, Shared};
use crate::session::{Action, Answer, Kind, OpenRequest, Opened, TaskRequest};
use crate::store::{SessionRow, iso};
use crate::vault::Caller;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use serde_json::{Value, json};

type Asked = (State<Shared>, Extension<Caller>);

pub async fn open(
    (State(shared), Extension(caller)): Asked,
    headers: HeaderMap,
    body: Bytes,
) -> Result<(StatusCode, Json<Value>), Problem> {
    let request: OpenRequest = json(&headers, &body)?;
    let opened = shared.manager.open(&caller, request, Kind::Session).await?;
    Ok((StatusCode::CREATED, Json(answer(&opened))))
}

pub fn answer(opened: &Opened) -> Value {
    json!({
        "session_id": opened.session_id,
        "credential_mode": opened.credential_mode,
        "record": opened.record,
        "started_at": iso(opened.started_at),
    })
}

pub async fn act(
    (State(shared), Extension(caller)): Asked,
    Path((id, action)): Path<(String, String)>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Answer>, Problem> {
    let arguments: Value = json(&headers, &body)?;
    let action = Action::parse(&action, arguments)?;
    Ok(Json(shared.manager.act(&caller, &id, action).await?))
}

pub async fn close((State(shared), Extension(caller)): Asked, Path(id): Path<String>) -> Result<Json<Value>, Problem> {
    let closed_at = shared.manager.close(&caller, &id).await?;
    Ok(Json(json!({ "closed_at": iso(closed_at) })))
}

pub async fn list((State(shared), Extension(caller)): Asked) -> Result<Json<Value>, Problem> {
    let rows = shared.manager.vault().store().sessions(Some(&caller.tenant)).await?;
    let rows = rows.into_iter().map(|row| shown(&shared.manager.corrected(row)));
    Ok(Json(json!({ "sessions": rows.collect::<Vec<_>>() })))
}

pub async fn show((State(shared), Extension(caller)): Asked, Path(id): Path<String>) -> Result<Json<Value>, Problem> {
    let row = shared.manager.vault().store().session(&id).await?;
    let row = row.filter(|row| row.tenant == caller.tenant).ok_or_else(Problem::not_found)?;
    Ok(Json(shown(&shared.manager.corrected(row))))
}

/// A session as its tenant sees it.
pub fn shown(row: &SessionRow) -> Value {
    json!({
        "session_id": row.id,
        "kind": row.kind,
        "credential_mode": row.credential_mode,
        "domains": row.domains,
        "record": row.record,
        "state": row.state,
        "started_at": iso(row.started_at),
        "ended_at": row.ended_at.map(iso),
        "end_reason": row.end_reason,
    })
}

pub async fn run_task(
    (State(shared), Extension(caller)): Asked,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Value>, Problem> {
    let request: TaskRequest = json(&headers, &body)?;
    Ok(Json(shared.manager.run_task(&caller, request).await?))
}

/// Stops a task. Its caller gets the status `aborted`.
pub async fn abort_task(
    (State(shared), Extension(caller)): Asked,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    shared.manager.abort_task(&caller, &id).await?;
    Ok(StatusCode::ACCEPTED)
}
