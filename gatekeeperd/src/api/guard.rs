//! What every request passes before its handler.

use super::listen::Address;
use super::visitors::Met;
use super::{LONGEST_BODY, LONGEST_LOGIN, Problem, Shared, keys, login};
use crate::vault::{Caller, fingerprint};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// The time for the body of a request.
const BODY: Duration = Duration::from_secs(15);

/// The names under which clients reach this server.
pub struct Hosts(Vec<String>);

impl Hosts {
    pub fn of(address: &Address) -> Hosts {
        let names = match address {
            Address::Tcp(at) => {
                ["127.0.0.1", "localhost", "[::1]"].iter().map(|name| format!("{name}:{}", at.port())).collect()
            }
            // No page can reach a UNIX socket; clients of such sockets send localhost.
            Address::Unix(_) => vec!["localhost".to_owned()],
        };
        Hosts(names)
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

/// Refuses a request that a page of another site made the user's browser send.
pub async fn same_machine(State(hosts): State<Arc<Hosts>>, request: Request, next: Next) -> Result<Response, Problem> {
    let host = one(request.headers(), header::HOST).map(str::to_owned);
    let host = host.or_else(|| request.uri().authority().map(ToString::to_string));
    let host = host.filter(|host| hosts.has(host)).ok_or_else(|| {
        Problem::new(StatusCode::FORBIDDEN, "wrong_host", "the Host header does not name this server on this machine")
    })?;
    if request.headers().contains_key(header::ORIGIN) {
        let own = format!("http://{host}");
        let origin = one(request.headers(), header::ORIGIN);
        if !origin.is_some_and(|origin| origin.eq_ignore_ascii_case(&own)) {
            return Err(Problem::new(StatusCode::FORBIDDEN, "wrong_origin", "requests of other sites are refused"));
        }
    }
    Ok(next.run(request).await)
}

/// The caller, by bearer token, or by the cookie and the key of the page.
pub async fn authenticate(State(shared): State<Shared>, mut request: Request, next: Next) -> Result<Response, Problem> {
    let headers = request.headers();
    // A picture or a script of another site carries no Origin, but browsers say where it came from.
    if let Some(site) = headers.get("sec-fetch-site")
        && site != "same-origin"
        && site != "none"
    {
        return Err(Problem::new(StatusCode::FORBIDDEN, "wrong_origin", "requests of other sites are refused"));
    }
    let proof = match headers.contains_key(header::AUTHORIZATION) {
        true => {
            let given = one(headers, header::AUTHORIZATION).unwrap_or_default();
            let (scheme, token) = given.split_once(' ').unwrap_or_default();
            scheme.eq_ignore_ascii_case("bearer").then(|| Proof { token: fingerprint(token.trim()), login: None })
        }
        false => login::proof(&shared, headers, request.uri().query()),
    };
    let proof = proof.ok_or_else(Problem::unauthorized)?;
    let caller = proof.caller(&shared).await?.ok_or_else(Problem::unauthorized)?;
    if request.extensions().get::<Met>().is_some_and(|met| !met.known(&caller.tenant)) {
        let message = "this tenant has too many connections; close some";
        return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_connections", message));
    }
    request.extensions_mut().insert(caller);
    request.extensions_mut().insert(proof);
    Ok(next.run(request).await)
}

/// How a caller is known: the hashes of the token and, on the page, of the login's cookie.
#[derive(Clone)]
pub struct Proof {
    pub token: String,
    pub login: Option<String>,
}

/// How often a stream that goes on asks whether its caller still may have it.
const RECHECK: Duration = Duration::from_secs(3);

impl Proof {
    /// Whom it proves now: tokens are removed, and logins end.
    async fn caller(&self, shared: &Shared) -> Result<Option<Caller>, Problem> {
        match &self.login {
            Some(login) if !login::is_open(shared, login) => Ok(None),
            _ => Ok(shared.manager.vault().caller_by_fingerprint(&self.token).await?),
        }
    }

    /// Waits until it proves nothing any more. A store that cannot say so counts as a no.
    pub async fn void(self, shared: Shared) {
        loop {
            tokio::time::sleep(RECHECK).await;
            if !matches!(self.caller(&shared).await, Ok(Some(_))) {
                return;
            }
        }
    }
}

/// Refuses a path whose escapes are no UTF-8.
pub async fn readable_path(request: Request, next: Next) -> Result<Response, Problem> {
    let mut bytes = Vec::new();
    let mut rest = request.uri().path().as_bytes();
    while let [first, more @ ..] = rest {
        let digit = |at: usize| more.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high * 16 + low) as u8);
                rest = &more[2..];
            }
            _ => {
                bytes.push(*first);
                rest = more;
            }
        }
    }
    match std::str::from_utf8(&bytes) {
        Ok(_) => Ok(next.run(request).await),
        Err(_) => Err(Problem::new(StatusCode::BAD_REQUEST, "invalid_request", "the path is not UTF-8")),
    }
}

/// The most characters of a key that a message quotes.
const QUOTED: usize = 100;

/// Reads the whole body before the handler runs, within limits of time and length. JSON must have one meaning.
pub async fn whole_body(request: Request, next: Next) -> Result<Response, Problem> {
    Ok(next.run(read(request, LONGEST_BODY).await?).await)
}

/// The same for clients without a token.
pub async fn short_body(request: Request, next: Next) -> Result<Response, Problem> {
    Ok(next.run(read(request, LONGEST_LOGIN).await?).await)
}

async fn read(request: Request, longest: usize) -> Result<Request, Problem> {
    let (head, body) = request.into_parts();
    let read = tokio::time::timeout(BODY, axum::body::to_bytes(body, longest)).await;
    let too_large = |_| {
        let message = format!("the body is longer than {} KiB", longest >> 10);
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
    };
    let body = read
        .map_err(|_| Problem::new(StatusCode::REQUEST_TIMEOUT, "too_slow", "the body did not arrive in time"))?
        .map_err(too_large)?;
    if let Some(key) = keys::given_twice(&body) {
        let key: String = key.chars().take(QUOTED).collect();
        let message = format!("the key {key:?} is given twice");
        return Err(Problem::new(StatusCode::BAD_REQUEST, "invalid_request", message));
    }
    Ok(Request::from_parts(head, body.into()))
}

/// The JSON of a body. None at all counts as `{}`. Needs the content type of JSON, which no form of another site can send.
pub fn json<T: DeserializeOwned>(headers: &HeaderMap, body: &[u8]) -> Result<T, Problem> {
    let wrong = |message: &str| Problem::new(StatusCode::BAD_REQUEST, "invalid_request", message);
    if body.is_empty() {
        return serde_json::from_slice(b"{}").map_err(|error| wrong(&error.to_string()));
    }
    let kind = one(headers, header::CONTENT_TYPE).unwrap_or_default().split(';').next().unwrap_or_default();
    if !kind.trim().eq_ignore_ascii_case("application/json") {
        let message = "send JSON, with Content-Type: application/json";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid_request", message));
    }
    let value: Value = serde_json::from_slice(body)
        .map_err(|error| wrong(&format!("the body is not JSON (line {}, column {})", error.line(), error.column())))?;
    // serde would take a list for an object whose fields are all optional.
    if !value.is_object() {
        return Err(wrong("the body is not a JSON object"));
    }
    serde_json::from_value(value).map_err(|error| wrong(&quoteless(&error)))
}

/// serde's message without the value that it may quote, which may be a secret. Names of fields and variants stay.
pub fn quoteless(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.split_once(", expected ") {
        Some((before, expected)) if before.starts_with("invalid ") => {
            format!("a field has a wrong value: expected {expected}")
        }
        _ => text,
    }
}

/// Headers of every answer: no framing, no sniffing, no caching of what belongs to a tenant, and only our own scripts.
pub async fn headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; \
                  form-action 'none'; frame-ancestors 'none'; base-uri 'none'";
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ] {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

/// The value of a header that is there exactly once.
pub fn one(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    let mut all = headers.get_all(name).iter();
    let first = all.next()?;
    if all.next().is_some() {
        return None;
    }
    first.to_str().ok()
}
