//! The workloads of `benches/arena` that use a database, by axum on hyper and tokio, on one thread, with pipelined responses
//! flushed together: `arena-axum08 ADDRESS DATABASE`.

use std::sync::Arc;
use std::{env, error};

use axum::Router;
use axum::extract::{Json, Path, Query, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use mimalloc::MiMalloc;
use tokio::net::TcpListener;

#[path = "../../../arena/src/database.rs"]
mod database;

use database::{Change, Database, Entry, List, Range};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

type Rows = State<Arc<Database>>;

async fn range(State(database): Rows, Query(range): Query<Range>) -> Response {
    json(database.range(&range).await)
}

async fn list(State(database): Rows, Query(list): Query<List>) -> Response {
    json(database.list(&list).await)
}

async fn read(State(database): Rows, Path(id): Path<i32>) -> Response {
    match database.read_cached(id).await {
        Ok(Some((item, is_hit))) => {
            ([("x-cache", if is_hit { "HIT" } else { "MISS" })], json::<tokio_postgres::Error>(Ok(item))).into_response()
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

async fn serve(address: &str, settings: &str) -> Result<(), Box<dyn error::Error>> {
    let database = Arc::new(Database::connect(settings).await?);
    let router = Router::new()
        .route("/async-db", get(range))
        .route("/crud/items", get(list).post(upsert))
        .route("/crud/items/{id}", get(read).put(update))
        .with_state(database);
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    loop {
        let (socket, _) = listener.accept().await?;
        socket.set_nodelay(true)?;
        let service = TowerToHyperService::new(router.clone());
        let connection = http1::Builder::new().pipeline_flush(true).serve_connection(TokioIo::new(socket), service);
        // An error of a connection is the peer's: it is not reported.
        tokio::spawn(async { drop(connection.await) });
    }
}

fn main() -> Result<(), Box<dyn error::Error>> {
    let mut arguments = env::args().skip(1);
    let usage = "usage: arena-axum08 ADDRESS DATABASE";
    let (address, settings) = (arguments.next().ok_or(usage)?, arguments.next().ok_or(usage)?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    runtime.block_on(serve(&address, &settings))
}
