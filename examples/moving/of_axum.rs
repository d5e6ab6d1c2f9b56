//! The service on axum, before the move.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

#[derive(Clone, Default)]
struct Counters(Arc<Mutex<HashMap<String, u64>>>);

#[derive(Deserialize)]
struct Add {
    by: u64,
}

#[derive(Serialize)]
struct Total {
    total: u64,
}

async fn hello(Path(name): Path<String>) -> String {
    format!("Hello, {name}!")
}

async fn add(State(counters): State<Counters>, Path(name): Path<String>, Json(Add { by }): Json<Add>) -> Json<Total> {
    let mut counters = counters.0.lock().unwrap_or_else(PoisonError::into_inner);
    let total = counters.entry(name).or_default();
    *total = total.saturating_add(by);
    Json(Total { total: *total })
}

async fn authorized(request: Request, next: Next) -> Result<Response, StatusCode> {
    match request.headers().get("Authorization").and_then(|value| value.to_str().ok()) {
        Some("Bearer harbour") => Ok(next.run(request).await),
        _ => Err(StatusCode::UNAUTHORIZED),
    }
}

fn router() -> Router {
    let writes = Router::new().route("/{name}", post(add)).layer(from_fn(authorized)).with_state(Counters::default());
    Router::new().route("/hello/{name}", get(hello)).nest("/counters", writes)
}

pub(crate) async fn serve(listener: TcpListener) -> io::Result<()> {
    axum::serve(listener, router()).await
}
