//! The OpenAPI document: a file, because it is the contract; a test holds the server to it.

use axum::http::header;
use axum::response::IntoResponse;

pub fn document() -> &'static str {
    include_str!("openapi.json")
}

pub async fn serve() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], document())
}
