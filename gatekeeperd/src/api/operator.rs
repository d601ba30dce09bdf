//! What needs an operator token: grants, credentials, refreshing a login. Each operator acts for one tenant only.

use super::guard::json;
use super::{Problem, Shared, sessions};
use crate::session::{Kind, OpenRequest};
use crate::store::iso;
use crate::vault::{Caller, Credential, Grant, Issue};
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

type Asked = (State<Shared>, Extension<Caller>);

fn operator(caller: &Caller) -> Result<(), Problem> {
    if caller.operator { Ok(()) } else { Err(Problem::operators_only()) }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct IssueRequest {
    domains: Vec<String>,
    ttl_seconds: Option<u64>,
    #[serde(default)]
    multi_use: bool,
    origin_session_id: Option<String>,
}

pub async fn issue(
    (State(shared), Extension(caller)): Asked,
    headers: HeaderMap,
    body: Bytes,
) -> Result<(StatusCode, Json<Value>), Problem> {
    operator(&caller)?;
    let request: IssueRequest = json(&headers, &body)?;
    let issue = Issue {
        tenant: caller.tenant.clone(),
        domains: request.domains.clone(),
        ttl: request.ttl_seconds.map_or(Issue::TTL, Duration::from_secs),
        single_use: !request.multi_use,
        operator_id: caller.id.clone(),
        origin_session_id: request.origin_session_id,
    };
    let detail =
        json!({ "domains": request.domains, "single_use": issue.single_use, "ttl_seconds": issue.ttl.as_secs() });
    shared.manager.audit(&caller, None, "issue_grant", detail).await?;
    let issued = shared.manager.vault().issue_grant(issue).await?;
    let mut answer = grant(&issued.grant);
    answer["grant_token"] = json!(*issued.grant_token);
    Ok((StatusCode::CREATED, Json(answer)))
}

pub async fn grants((State(shared), Extension(caller)): Asked) -> Result<Json<Value>, Problem> {
    operator(&caller)?;
    let rows = shared.manager.vault().store().grants(Some(&caller.tenant)).await?;
    Ok(Json(json!({ "grants": rows.iter().map(grant).collect::<Vec<_>>() })))
}

pub async fn revoke((State(shared), Extension(caller)): Asked, Path(jti): Path<String>) -> Result<StatusCode, Problem> {
    operator(&caller)?;
    shared.manager.audit(&caller, None, "revoke_grant", json!({ "jti": jti })).await?;
    match shared.manager.vault().store().remove_grant(&jti, Some(&caller.tenant)).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Problem::not_found()),
    }
}

/// A grant without its token.
pub fn grant(row: &Grant) -> Value {
    json!({
        "jti": row.jti,
        "tenant": row.tenant,
        "operator_id": row.operator_id,
        "origin_session_id": row.origin_session_id,
        "allowed_domains": row.allowed_domains,
        "issued_at": iso(row.issued_at),
        "expires_at": iso(row.expires_at),
        "single_use": row.single_use,
        "consumed_at": row.consumed_at.map(iso),
        "consumed_by": row.consumed_by,
    })
}

pub async fn credentials((State(shared), Extension(caller)): Asked) -> Result<Json<Value>, Problem> {
    operator(&caller)?;
    let stored = shared.manager.vault().credentials(Some(&caller.tenant)).await?;
    Ok(Json(json!({ "credentials": stored.iter().map(credential).collect::<Vec<_>>() })))
}

pub async fn remove_credential(
    (State(shared), Extension(caller)): Asked,
    Path(domain): Path<String>,
) -> Result<StatusCode, Problem> {
    operator(&caller)?;
    shared.manager.audit(&caller, None, "remove_credential", json!({ "domain": domain })).await?;
    match shared.manager.vault().store().remove_credential(&caller.tenant, &domain).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Problem::not_found()),
    }
}

/// What may be shown of stored cookies.
pub fn credential(stored: &Credential) -> Value {
    json!({
        "tenant": stored.tenant,
        "domain": stored.domain,
        "cookie_count": stored.cookie_count,
        "key_id": stored.key_id,
        "created_at": iso(stored.created_at),
        "last_refreshed_at": iso(stored.last_refreshed_at),
        "last_injected_at": stored.last_injected_at.map(iso),
    })
}

/// Opens a session in which an operator logs in.
pub async fn refresh((State(shared), Extension(caller)): Asked) -> Result<(StatusCode, Json<Value>), Problem> {
    operator(&caller)?;
    // A login must not be on a screenshot.
    let request = OpenRequest { record: crate::recording::Mode::Off, ..OpenRequest::default() };
    let opened = shared.manager.open(&caller, request, Kind::Refresh).await?;
    Ok((StatusCode::CREATED, Json(sessions::answer(&opened))))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StoreRequest {
    domains: Vec<String>,
}

/// Stores the cookies of a refresh session, and closes it.
pub async fn store_login(
    (State(shared), Extension(caller)): Asked,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Value>, Problem> {
    operator(&caller)?;
    let request: StoreRequest = json(&headers, &body)?;
    let stored = shared.manager.store_login(&caller, &id, &request.domains).await?;
    let stored: Vec<Value> =
        stored.iter().map(|(domain, done)| json!({ "domain": domain, "cookie_count": done.stored })).collect();
    Ok(Json(json!({ "stored": stored })))
}
