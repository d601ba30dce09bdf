//! The proxy's own answers: one line for a person in the header X-Gatekeeper, and JSON for a program in the body.

use super::Inspector;
use super::decide::path_of;
use super::upstream::Body;
use crate::proxy::gate::Guest;
use crate::proxy::rules::Refused;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Request, Response, StatusCode};
use serde_json::{Value, json};
use std::sync::Arc;

pub fn empty() -> Body {
    Empty::<Bytes>::new().map_err(|never| match never {}).boxed()
}

/// Refuses a request, and records that.
pub fn refuse<B>(
    inspector: &Arc<Inspector>,
    named: &str,
    guest: &Guest,
    request: &Request<B>,
    refused: Refused,
) -> Response<Body> {
    let (method, path) = (request.method().as_str(), path_of(request.uri()));
    inspector.record(named, guest, method, path, &refused);
    let Refused { why, allow_with } = refused;
    let line =
        format!("gatekeeper: the sandbox refused {method} {named}{path}: {why}. Retrying will fail the same way.");
    let body = json!({
        "error": "refused",
        "message": line,
        "host": named,
        "method": method,
        "path": path,
        "rule": why,
        "allow_with": allow_with,
    });
    own(StatusCode::FORBIDDEN, &line, body)
}

pub fn forbidden(why: &str) -> Response<Body> {
    let line = format!("gatekeeper: the sandbox refused {why}. Retrying will fail the same way.");
    let body = json!({"error": "refused", "message": line, "rule": why, "allow_with": null});
    own(StatusCode::FORBIDDEN, &line, body)
}

pub fn failed(why: &str) -> Response<Body> {
    let line = format!("gatekeeper: {why}");
    own(StatusCode::BAD_GATEWAY, &line, json!({"error": "failed", "message": line}))
}

fn own(status: StatusCode, line: &str, body: Value) -> Response<Body> {
    let text = Bytes::from(format!("{body}\n"));
    let mut response = Response::new(Full::new(text).map_err(|never| match never {}).boxed());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let line: String = line
        .chars()
        .map(|letter| if letter.is_ascii_graphic() || letter == ' ' { letter } else { '?' })
        .take(1000)
        .collect();
    let line = HeaderValue::from_str(&line).unwrap_or_else(|_| HeaderValue::from_static("refused"));
    response.headers_mut().insert("x-gatekeeper", line);
    response
}
