//! The operator's page exchanges a token once for a cookie that scripts cannot read and that other sites cannot send, and
//! for a key that the page sends with every request.
//!
//! The cookie alone is not enough, because cookies know no ports: a browser sends it to every server of this machine that
//! the operator visits, on whatever port. The key is in the page's own storage, which is separate for each port.
//!
//! Both are random. This process keeps their hashes and the token's, and asks the store for the token each time, so that a
//! removed token ends the login.

use super::guard::{json, one};
use super::{Problem, Shared};
use crate::vault::{Caller, fingerprint, secret};
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Deserialize;
use serde_json::json;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

const COOKIE: &str = "gatekeeperd";
const LASTS: Duration = Duration::from_secs(12 * 3600);
const MOST: usize = 1000;

/// The header with the key. Pictures and events, for which a page cannot set headers, have it in the query.
const KEY: &str = "x-gatekeeperd-key";

/// By the hash of the cookie.
#[derive(Default)]
pub struct Logins(Mutex<HashMap<String, LoggedIn>>);

/// Hashes of the key and the token, and when the login ends.
struct LoggedIn {
    key: String,
    token: String,
    until: Instant,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Login {
    token: String,
}

pub async fn begin(State(shared): State<Shared>, headers: HeaderMap, body: Bytes) -> Result<Response, Problem> {
    let login: Login = json(&headers, &body)?;
    let token = fingerprint(Zeroizing::new(login.token).trim());
    let caller = shared.manager.vault().caller_by_fingerprint(&token).await?.ok_or_else(Problem::unauthorized)?;
    let (cookie, key) = (secret("gkp_")?, secret("key_")?);
    {
        let mut logins = shared.logins.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        logins.retain(|_, login| login.until > now);
        if logins.len() >= MOST {
            return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_logins", "too many logins are open"));
        }
        let login = LoggedIn { key: fingerprint(&key), token, until: now + LASTS };
        logins.insert(fingerprint(&cookie), login);
    }
    let set = format!("{COOKIE}={}; Path=/; HttpOnly; SameSite=Strict; Max-Age={}", *cookie, LASTS.as_secs());
    let mut answer = who(&caller);
    answer["key"] = json!(*key);
    Ok(([(header::SET_COOKIE, set)], Json(answer)).into_response())
}

/// Who is logged in.
pub async fn show(Extension(caller): Extension<Caller>) -> Json<serde_json::Value> {
    Json(who(&caller))
}

pub async fn end(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    if let Some(cookie) = cookie(&headers) {
        shared.logins.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&fingerprint(cookie));
    }
    let gone = format!("{COOKIE}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0");
    ([(header::SET_COOKIE, gone)], StatusCode::NO_CONTENT).into_response()
}

/// The caller by the page's cookie and key.
pub async fn caller(shared: &Shared, headers: &HeaderMap, query: Option<&str>) -> Result<Option<Caller>, Problem> {
    let in_query = || query?.split('&').find_map(|pair| pair.strip_prefix("key="));
    let key = headers.get(KEY).and_then(|value| value.to_str().ok()).or_else(in_query);
    let (Some(cookie), Some(key)) = (cookie(headers), key) else { return Ok(None) };
    let token = {
        let logins = shared.logins.0.lock().unwrap_or_else(PoisonError::into_inner);
        let login = logins.get(&fingerprint(cookie)).filter(|login| login.until > Instant::now());
        // Hashes are compared, so the time tells nothing about the key.
        login.filter(|login| login.key == fingerprint(key)).map(|login| login.token.clone())
    };
    match token {
        Some(token) => Ok(shared.manager.vault().caller_by_fingerprint(&token).await?),
        None => Ok(None),
    }
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    let pairs = one(headers, header::COOKIE)?.split(';');
    pairs.filter_map(|pair| pair.trim().split_once('=')).find(|(name, _)| *name == COOKIE).map(|(_, value)| value)
}

fn who(caller: &Caller) -> serde_json::Value {
    json!({ "tenant": caller.tenant, "operator": caller.operator })
}
