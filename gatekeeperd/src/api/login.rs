//! The operator's page exchanges a token once for a cookie that scripts cannot read and that other sites cannot send, and
//! for a key that the page sends with every request.
//!
//! The cookie alone is not enough, because cookies know no ports: a browser sends it to every server of this machine that
//! the operator visits, on whatever port. The key is in the page's own storage, which is separate for each port.
//!
//! Both are random. This process keeps their hashes and the token's, and asks the store for the token each time, so that a
//! removed token ends the login.

use super::guard::{Proof, json};
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
/// One more ends the oldest login of the token, so that no token uses up the places of the others.
const MOST_OF_TOKEN: usize = 20;

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
        let own = || logins.iter().filter(|(_, login)| login.token == token);
        if own().count() >= MOST_OF_TOKEN
            && let Some(oldest) = own().min_by_key(|(_, login)| login.until).map(|(cookie, _)| cookie.clone())
        {
            logins.remove(&oldest);
        }
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
    for cookie in cookies(&headers) {
        shared.logins.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&fingerprint(cookie));
    }
    let gone = format!("{COOKIE}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0");
    ([(header::SET_COOKIE, gone)], StatusCode::NO_CONTENT).into_response()
}

/// What the page's cookie and key prove.
pub fn proof(shared: &Shared, headers: &HeaderMap, query: Option<&str>) -> Option<Proof> {
    let in_query = || query?.split('&').find_map(|pair| pair.strip_prefix("key="));
    let key = fingerprint(headers.get(KEY).and_then(|value| value.to_str().ok()).or_else(in_query)?);
    let logins = shared.logins.0.lock().unwrap_or_else(PoisonError::into_inner);
    cookies(headers).map(fingerprint).find_map(|cookie| {
        // Hashes are compared, so the time tells nothing about the key.
        let login = logins.get(&cookie).filter(|login| login.until > Instant::now() && login.key == key)?;
        Some(Proof { token: login.token.clone(), login: Some(cookie) })
    })
}

/// Whether a login has neither ended nor been ended.
pub fn is_open(shared: &Shared, cookie: &str) -> bool {
    let logins = shared.logins.0.lock().unwrap_or_else(PoisonError::into_inner);
    logins.get(cookie).is_some_and(|login| login.until > Instant::now())
}

/// Every cookie of this name. A server on another port of this machine, or another site of this host, can set one as well,
/// and the browser then sends both.
fn cookies(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let texts = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = texts.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(|(name, _)| *name == COOKIE).map(|(_, value)| value)
}

fn who(caller: &Caller) -> serde_json::Value {
    json!({ "tenant": caller.tenant, "operator": caller.operator })
}
