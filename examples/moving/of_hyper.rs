//! The service on hyper, before the move.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

type Counters = Arc<Mutex<HashMap<String, u64>>>;

#[derive(Deserialize)]
struct Add {
    by: u64,
}

#[derive(Serialize)]
struct Total {
    total: u64,
}

async fn answer(request: Request<Incoming>, counters: Counters) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let name = |prefix| path.strip_prefix(prefix).filter(|name| !name.is_empty() && !name.contains('/'));
    let (status, body) = match (request.method(), name("/hello/"), name("/counters/")) {
        (&Method::GET, Some(name), _) => (StatusCode::OK, format!("Hello, {name}!")),
        (&Method::POST, _, Some(name)) => add(request, name, &counters).await,
        _ => (StatusCode::NOT_FOUND, String::new()),
    };
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    Ok(response)
}

async fn add(request: Request<Incoming>, name: &str, counters: &Counters) -> (StatusCode, String) {
    if request.headers().get("Authorization").is_none_or(|value| value != "Bearer harbour") {
        return (StatusCode::UNAUTHORIZED, String::new());
    }
    let Ok(body) = Limited::new(request.into_body(), 1024 * 1024).collect().await else {
        return (StatusCode::PAYLOAD_TOO_LARGE, String::new());
    };
    let Ok(Add { by }) = serde_json::from_slice(&body.to_bytes()) else {
        return (StatusCode::BAD_REQUEST, String::new());
    };
    let mut counters = counters.lock().unwrap_or_else(PoisonError::into_inner);
    let total = counters.entry(name.to_owned()).or_default();
    *total = total.saturating_add(by);
    (StatusCode::OK, serde_json::to_string(&Total { total: *total }).unwrap_or_default())
}

pub(crate) async fn serve(listener: TcpListener) -> io::Result<()> {
    let counters = Counters::default();
    loop {
        let (stream, _) = listener.accept().await?;
        let counters = counters.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(request, counters.clone()));
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}
