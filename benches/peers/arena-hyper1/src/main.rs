//! The workloads of `benches/arena` by hyper 1 on one thread, with pipelined responses flushed together.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use std::{env, error};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use mimalloc::MiMalloc;
use tokio::net::TcpListener;
use tokio::task::LocalSet;

#[path = "../../../arena/src/items.rs"]
mod items;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

async fn respond(
    request: Request<Incoming>,
    items: Rc<Vec<items::Item>>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let path = request.uri().path();
    Ok(match (request.method(), path) {
        (&Method::GET | &Method::POST, "/baseline11") => {
            let (head, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            text(sum(head.uri.query().unwrap_or_default(), &body).map(|sum| sum.to_string()))
        }
        (&Method::GET, "/pipeline") => text(Some("ok")),
        (&Method::POST, "/upload") => {
            let (mut body, mut bytes) = (request.into_body(), 0);
            while let Some(frame) = body.frame().await {
                bytes += frame?.data_ref().map_or(0, Bytes::len);
            }
            text(Some(bytes.to_string()))
        }
        (&Method::GET, path) => match (path.strip_prefix("/json/"), path.strip_prefix("/delay/")) {
            (Some(count), _) => page(count, request.uri().query().unwrap_or_default(), &items),
            (None, Some(milliseconds)) => delay(milliseconds).await,
            (None, None) => status(StatusCode::NOT_FOUND),
        },
        _ => status(StatusCode::NOT_FOUND),
    })
}

/// The sum of the integers in the query and in the body.
fn sum(query: &str, body: &[u8]) -> Option<i64> {
    let mut sum = 0_i64;
    let values = query.split('&').filter_map(|pair| pair.split_once('=').map(|(_, value)| value));
    let body = std::str::from_utf8(body).ok()?.trim();
    for value in values.chain(Some(body).filter(|body| !body.is_empty())) {
        sum = sum.checked_add(value.parse().ok()?)?;
    }
    Some(sum)
}

/// Answers after a time.
async fn delay(milliseconds: &str) -> Response<Full<Bytes>> {
    let Some(time) = milliseconds.parse().ok().filter(|time| *time <= DELAY_MAX) else {
        return status(StatusCode::BAD_REQUEST);
    };
    tokio::time::sleep(Duration::from_millis(time)).await;
    text(Some(time.to_string()))
}

/// The first items, each with its total.
fn page(count: &str, query: &str, items: &[items::Item]) -> Response<Full<Bytes>> {
    let count = count.parse().ok().filter(|count| (1..=items.len()).contains(count));
    let multiplier = query.split('&').find_map(|pair| pair.strip_prefix("m=")).map_or(Ok(1), str::parse);
    let (Some(count), Ok(multiplier)) = (count, multiplier) else { return status(StatusCode::BAD_REQUEST) };
    match serde_json::to_vec(&items::page(items, count, multiplier)) {
        Ok(page) => typed(page, "application/json"),
        Err(_) => status(StatusCode::INTERNAL_SERVER_ERROR),
    }
}

fn text(text: Option<impl Into<Bytes>>) -> Response<Full<Bytes>> {
    text.map_or_else(|| status(StatusCode::BAD_REQUEST), |text| typed(text, "text/plain; charset=utf-8"))
}

fn typed(body: impl Into<Bytes>, content_type: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

fn status(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}

async fn serve(address: SocketAddr) -> Result<(), Box<dyn error::Error>> {
    let items = Rc::new(items::items());
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    loop {
        let (socket, _) = listener.accept().await?;
        socket.set_nodelay(true)?;
        let items = items.clone();
        let service = service_fn(move |request| respond(request, items.clone()));
        let connection = http1::Builder::new().pipeline_flush(true).serve_connection(TokioIo::new(socket), service);
        // An error of a connection is the peer's: it is not reported.
        tokio::task::spawn_local(async { drop(connection.await) });
    }
}

fn main() -> Result<(), Box<dyn error::Error>> {
    let address = env::args().nth(1).ok_or("usage: arena-hyper1 ADDRESS")?.parse()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, serve(address))
}

/// The longest delay, in milliseconds.
const DELAY_MAX: u64 = 10_000;
