//! HTTP and MCP. This room turns requests into calls of [`crate::session`] and answers into JSON; it decides only who the
//! caller is.
//!
//! The server listens on this machine only, and browsers of this machine show pages of strangers. So every request passes
//! `guard`: a `Host` that is not ours (DNS rebinding) and an `Origin` that is not ours are refused, there is no CORS, and
//! all but the page's files and the OpenAPI document need a token.

mod error;
mod guard;
mod keys;
mod listen;
mod login;
mod mcp;
mod openapi;
mod operator;
mod patient;
mod sessions;
mod stdio;
mod tools;
mod view;
mod visitors;

pub use error::Problem;
pub use listen::{Address, Listener};
pub use openapi::document;
pub use operator::{credential as shown_credential, grant as shown_grant};
pub use sessions::shown as shown_session;
pub use stdio::serve as serve_stdio;

use crate::session::Manager;
use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{any_service, delete, get, post};
use guard::Hosts;
use login::Logins;
use std::sync::Arc;

/// The longest body of a request, with a token and without.
const LONGEST_BODY: usize = 1 << 20;
const LONGEST_LOGIN: usize = 4 << 10;

/// What every handler gets.
#[derive(Clone)]
pub struct Shared {
    pub manager: Manager,
    logins: Arc<Logins>,
}

/// All routes of the daemon.
pub fn router(manager: Manager, address: &Address) -> Router {
    let shared = Shared { manager, logins: Arc::default() };
    let with_token = Router::new()
        .route("/v1/sessions", get(sessions::list).post(sessions::open))
        .route("/v1/sessions/{id}", get(sessions::show).delete(sessions::close))
        .route("/v1/sessions/{id}/denials", get(view::denials))
        .route("/v1/sessions/{id}/view", get(view::frames))
        .route("/v1/sessions/{id}/input", post(view::input))
        .route("/v1/sessions/{id}/store", post(operator::store_login))
        .route("/v1/sessions/{id}/recordings", get(view::recordings))
        .route("/v1/sessions/{id}/recordings/{name}", get(view::recording))
        .route("/v1/sessions/{id}/{action}", post(sessions::act))
        .route("/v1/tasks", post(sessions::run_task))
        .route("/v1/tasks/{id}", delete(sessions::abort_task))
        .route("/v1/refreshes", post(operator::refresh))
        .route("/v1/audit", get(view::audit))
        .route("/v1/events", get(view::events))
        .route("/v1/grants", get(operator::grants).post(operator::issue))
        .route("/v1/grants/{jti}", delete(operator::revoke))
        .route("/v1/credentials", get(operator::credentials))
        .route("/v1/credentials/{domain}", delete(operator::remove_credential))
        .route("/v1/login", get(login::show).delete(login::end))
        .route("/mcp", any_service(mcp::service(shared.manager.clone())))
        // Layers run from the last to the first: without a token, no body is read.
        .layer(from_fn(guard::whole_body))
        .layer(from_fn_with_state(shared.clone(), guard::authenticate));
    let without_token = Router::new()
        .route("/v1/login", post(login::begin))
        .route("/openapi.json", get(openapi::serve))
        .layer(from_fn(guard::short_body));
    Router::new()
        .merge(with_token)
        .merge(without_token)
        .fallback(view::file)
        .method_not_allowed_fallback(error::wrong_method)
        .layer(from_fn_with_state(Arc::new(Hosts::of(address)), guard::same_machine))
        .layer(from_fn(guard::readable_path))
        .layer(from_fn(guard::headers))
        .with_state(shared)
}
