//! axum 0.8 on one thread, served through hyper as in its entry in public benchmarks: HTTP/1 only, with pipelined
//! responses flushed together.

use std::net::SocketAddr;
use std::{env, error};

use axum::Router;
use axum::body::Bytes;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderValue, SERVER};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;

async fn plaintext() -> Response {
    respond(Bytes::from_static(b"Hello, World!"))
}

async fn bytes(Path(count): Path<usize>) -> Response {
    match FILLER.get(..count) {
        Some(bytes) => respond(Bytes::from_static(bytes)),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn echo(body: Bytes) -> Response {
    respond(body)
}

fn respond(body: Bytes) -> Response {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(SERVER, HeaderValue::from_static("axum"));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}

async fn serve(address: SocketAddr) -> Result<(), Box<dyn error::Error>> {
    let router = Router::new()
        .route("/plaintext", get(plaintext))
        .route("/bytes/{count}", get(bytes))
        .route("/echo", post(echo))
        .with_state(());
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

/// The whole program except its allocator, which each binary chooses.
///
/// # Errors
///
/// If there is no address to listen on, or it is in use.
pub fn run() -> Result<(), Box<dyn error::Error>> {
    let address = env::args().nth(1).ok_or("usage: axum08 ADDRESS")?.parse()?;
    tokio::runtime::Builder::new_current_thread().enable_io().build()?.block_on(serve(address))
}

static FILLER: [u8; 64 * 1024] = [b'x'; 64 * 1024];
