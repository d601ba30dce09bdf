//! Every error of the interface: a status, a code for programs, and a message for people, as
//! `{"error": {"code": "...", "message": "..."}}`.

use crate::session::SessionError;
use crate::store::StoreError;
use crate::vault::VaultError;
use axum::extract::rejection::QueryRejection;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// Seconds after which a client that met a limit may try again.
const RETRY_AFTER: u32 = 5;

#[derive(Debug)]
pub struct Problem {
    pub status: StatusCode,
    pub code: &'static str,
    pub message: String,
}

impl Problem {
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Problem {
        Problem { status, code, message: message.into() }
    }

    pub fn not_found() -> Problem {
        Problem::new(StatusCode::NOT_FOUND, "not_found", "there is nothing here")
    }

    pub fn unauthorized() -> Problem {
        let message = "send a token: Authorization: Bearer TOKEN; `gatekeeperd token create` makes one";
        Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
    }

    pub fn operators_only() -> Problem {
        Problem::new(StatusCode::FORBIDDEN, "forbidden", "this needs an operator token")
    }
}

impl From<SessionError> for Problem {
    fn from(error: SessionError) -> Problem {
        let code = error.code();
        let status = match code {
            "invalid_request" => StatusCode::BAD_REQUEST,
            "not_found" => StatusCode::NOT_FOUND,
            "session_ended" => StatusCode::GONE,
            "session_busy" | "session_elsewhere" | "no_credential" => StatusCode::CONFLICT,
            "too_many_sessions" => StatusCode::TOO_MANY_REQUESTS,
            "grant_required" | "grant_invalid" | "forbidden" => StatusCode::FORBIDDEN,
            "no_model" => StatusCode::NOT_IMPLEMENTED,
            "browser_failed" => StatusCode::UNPROCESSABLE_ENTITY,
            "quota_exhausted" => StatusCode::INSUFFICIENT_STORAGE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Problem { status, code, message: error.public() }
    }
}

impl From<VaultError> for Problem {
    fn from(error: VaultError) -> Problem {
        SessionError::from(error).into()
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Problem {
        SessionError::from(error).into()
    }
}

impl From<QueryRejection> for Problem {
    fn from(rejection: QueryRejection) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, "invalid_request", rejection.body_text())
    }
}

pub async fn wrong_method() -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", "this path does not take this method")
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = json!({ "error": { "code": self.code, "message": self.message } });
        let mut response = (self.status, axum::Json(body)).into_response();
        if self.status == StatusCode::TOO_MANY_REQUESTS {
            response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER.into());
        }
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
