//! The service on Tidegate.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tidegate::http::{Json, Middleware, Path, Request, Response, Router, Server, State, StatusCode};
use tidegate::{ServerHandle, StartError};

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

fn hello(Path(name): Path<String>) -> String {
    format!("Hello, {name}!")
}

fn add(State(counters): State<Counters>, Path(name): Path<String>, Json(Add { by }): Json<Add>) -> Json<Total> {
    let mut counters = counters.0.lock().unwrap_or_else(PoisonError::into_inner);
    let total = counters.entry(name).or_default();
    *total = total.saturating_add(by);
    Json(Total { total: *total })
}

/// Refuses requests without the token.
struct Authorized;

impl Middleware for Authorized {
    fn before(&self, request: &mut Request) -> Result<(), Response> {
        match request.header_str("Authorization") {
            Some("Bearer harbour") => Ok(()),
            _ => Err(Response::status(StatusCode::UNAUTHORIZED)),
        }
    }
}

/// The routes of a loop. All loops share the counters.
fn router(counters: Counters) -> Router {
    let writes = Router::with_state(counters).post("/{name}", add).with(Authorized);
    Router::new().get("/hello/{name}", hello).nest("/counters", writes)
}

pub(crate) fn start(address: &str) -> Result<ServerHandle, StartError> {
    let counters = Counters::default();
    Server::bind(address)?.start(move || router(counters.clone()))
}
