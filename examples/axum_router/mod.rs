//! The router that the examples `axum` and `axum_on_hyper` serve.

use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};

/// `/plaintext` and `/json`, as `tidegate serve` answers them.
pub(crate) fn router() -> Router {
    Router::new().route("/plaintext", get(plaintext)).route("/json", get(json))
}

async fn plaintext() -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/plain")], "Hello, World!")
}

/// A message as JSON.
#[derive(serde::Serialize)]
struct Message {
    message: &'static str,
}

async fn json() -> Json<Message> {
    Json(Message { message: "Hello, World!" })
}
