//! The workloads of `benches/arena` by axum on hyper and tokio, on one thread, with pipelined responses flushed together:
//! `arena-axum08 ADDRESS FOLDER [DATABASE]`. FOLDER has the static files. HTTP/2 is by prior knowledge.

use std::sync::Arc;
use std::time::Duration;
use std::{env, error};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::ws::{WebSocket, WebSocketUpgrade};
use axum::extract::{Json, Path, Query, RawQuery, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::StreamExt;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use mimalloc::MiMalloc;
use tokio::net::TcpListener;
use tower_http::compression::CompressionLayer;
use tower_http::services::ServeDir;

#[path = "../../../arena/src/database.rs"]
mod database;
#[path = "../../../arena/src/items.rs"]
mod items;

use database::{Change, Database, Entry, List, Range};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

type Rows = State<Arc<Database>>;

type Items = State<Arc<Vec<items::Item>>>;

/// The sum of the integers in the query and in the body.
async fn sum(RawQuery(query): RawQuery, body: Bytes) -> Result<String, StatusCode> {
    let mut sum = 0_i64;
    let query = query.unwrap_or_default();
    let values = query.split('&').filter_map(|pair| pair.split_once('=').map(|(_, value)| value));
    let body = std::str::from_utf8(&body).map_err(|_| StatusCode::BAD_REQUEST)?.trim();
    for value in values.chain(Some(body).filter(|body| !body.is_empty())) {
        let value = value.parse().map_err(|_| StatusCode::BAD_REQUEST)?;
        sum = i64::checked_add(sum, value).ok_or(StatusCode::BAD_REQUEST)?;
    }
    Ok(sum.to_string())
}

/// The first items, each with its total.
async fn page(
    State(items): Items,
    Path(count): Path<usize>,
    RawQuery(query): RawQuery,
) -> Result<Response, StatusCode> {
    if !(1..=items.len()).contains(&count) {
        return Err(StatusCode::BAD_REQUEST);
    }
    let multiplier = query.as_deref().unwrap_or_default().split('&').find_map(|pair| pair.strip_prefix("m="));
    let multiplier = multiplier.map_or(Ok(1), str::parse).map_err(|_| StatusCode::BAD_REQUEST)?;
    Ok(Json(items::page(&items, count, multiplier)).into_response())
}

/// Answers after a time.
async fn delay(Path(milliseconds): Path<u64>) -> Result<String, StatusCode> {
    if milliseconds > DELAY_MAX {
        return Err(StatusCode::BAD_REQUEST);
    }
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
    Ok(milliseconds.to_string())
}

/// The length of the body, counted as it arrives.
async fn upload(body: Body) -> Result<String, StatusCode> {
    let (mut pieces, mut bytes) = (body.into_data_stream(), 0);
    while let Some(piece) = pieces.next().await {
        bytes += piece.map_err(|_| StatusCode::BAD_REQUEST)?.len();
    }
    Ok(bytes.to_string())
}

/// Sends every message back.
async fn echo(upgrade: WebSocketUpgrade) -> Response {
    upgrade.on_upgrade(async |mut socket: WebSocket| {
        while let Some(Ok(message)) = socket.recv().await {
            if socket.send(message).await.is_err() {
                return;
            }
        }
    })
}

async fn range(State(database): Rows, Query(range): Query<Range>) -> Response {
    json(database.range(&range).await)
}

async fn list(State(database): Rows, Query(list): Query<List>) -> Response {
    json(database.list(&list).await)
}

async fn read(State(database): Rows, Path(id): Path<i32>) -> Response {
    match database.read_cached(id).await {
        Ok(Some((item, is_hit))) => {
            ([("x-cache", if is_hit { "HIT" } else { "MISS" })], json::<tokio_postgres::Error>(Ok(item)))
                .into_response()
        }
        Ok(None) => StatusCode::NOT_FOUND.into_response(),
        Err(error) => failed(&error),
    }
}

async fn upsert(State(database): Rows, Json(entry): Json<Entry>) -> Response {
    database.upsert(&entry).await.map_or_else(|error| failed(&error), |_| StatusCode::CREATED.into_response())
}

async fn update(State(database): Rows, Path(id): Path<i32>, Json(change): Json<Change>) -> Response {
    match database.update(id, &change).await {
        Ok(true) => StatusCode::OK.into_response(),
        Ok(false) => StatusCode::NOT_FOUND.into_response(),
        Err(error) => failed(&error),
    }
}

fn json<E: error::Error>(body: Result<Vec<u8>, E>) -> Response {
    match body {
        Ok(body) => ([(CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => failed(&error),
    }
}

fn failed(error: &dyn error::Error) -> Response {
    eprintln!("a query failed: {error}");
    StatusCode::INTERNAL_SERVER_ERROR.into_response()
}

fn router(folder: &str) -> Router {
    let json = Router::new().route("/json/{count}", get(page)).layer(CompressionLayer::new());
    Router::new()
        .route("/baseline11", get(sum).post(sum))
        .route("/baseline2", get(sum).post(sum))
        .route("/pipeline", get(|| async { "ok" }))
        .route("/delay/{milliseconds}", get(delay))
        .route("/upload", post(upload))
        .route("/ws", get(echo))
        .merge(json)
        .with_state(Arc::new(items::items()))
        .nest_service("/static", ServeDir::new(folder).precompressed_br().precompressed_gzip())
}

async fn with_database(router: Router, settings: &str) -> Result<Router, Box<dyn error::Error>> {
    let database = Arc::new(Database::connect(settings).await?);
    let routes = Router::new()
        .route("/async-db", get(range))
        .route("/crud/items", get(list).post(upsert))
        .route("/crud/items/{id}", get(read).put(update));
    Ok(router.merge(routes.with_state(database)))
}

async fn serve(address: &str, folder: &str, settings: Option<&str>) -> Result<(), Box<dyn error::Error>> {
    let mut router = router(folder);
    if let Some(settings) = settings {
        router = with_database(router, settings).await?;
    }
    // `axum::serve` uses the same builder.
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().pipeline_flush(true);
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    loop {
        let (socket, _) = listener.accept().await?;
        socket.set_nodelay(true)?;
        let (builder, service) = (builder.clone(), TowerToHyperService::new(router.clone()));
        // An error of a connection is the peer's: it is not reported.
        tokio::spawn(async move { drop(builder.serve_connection_with_upgrades(TokioIo::new(socket), service).await) });
    }
}

fn main() -> Result<(), Box<dyn error::Error>> {
    let mut arguments = env::args().skip(1);
    let usage = "usage: arena-axum08 ADDRESS FOLDER [DATABASE]";
    let (address, folder) = (arguments.next().ok_or(usage)?, arguments.next().ok_or(usage)?);
    let settings = arguments.next();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    runtime.block_on(serve(&address, &folder, settings.as_deref()))
}

/// The longest delay, in milliseconds.
const DELAY_MAX: u64 = 10_000;
