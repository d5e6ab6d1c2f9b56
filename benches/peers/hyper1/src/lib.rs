//! hyper 1 on one thread: HTTP/1.1 with pipelined responses flushed together.

use std::net::SocketAddr;
use std::{env, error};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue, SERVER};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

async fn respond(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let mut response = match request.uri().path() {
        "/plaintext" => Response::new(Full::new(Bytes::from_static(b"Hello, World!"))),
        "/echo" => Response::new(Full::new(request.into_body().collect().await?.to_bytes())),
        "/sum" => Response::new(Full::new(sum(request.into_body()).await?.into())),
        path => match filler(path) {
            Some(bytes) => Response::new(Full::new(Bytes::from_static(bytes))),
            None => {
                let mut missing = Response::new(Full::default());
                *missing.status_mut() = StatusCode::NOT_FOUND;
                missing
            }
        },
    };
    let headers = response.headers_mut();
    headers.insert(SERVER, HeaderValue::from_static("hyper"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    Ok(response)
}

/// The body of `/bytes/N`.
fn filler(path: &str) -> Option<&'static [u8]> {
    FILLER.get(..path.strip_prefix("/bytes/")?.parse().ok()?)
}

/// The length of a body and its CRC-32, in Tidegate's format.
async fn sum(mut body: Incoming) -> Result<String, hyper::Error> {
    let (mut length, mut remainder) = (0, crc32fast::Hasher::new());
    while let Some(frame) = body.frame().await {
        if let Some(data) = frame?.data_ref() {
            length += data.len();
            remainder.update(data);
        }
    }
    Ok(format!("{length} {:08x}\n", remainder.finalize()))
}

async fn serve(address: SocketAddr) -> Result<(), Box<dyn error::Error>> {
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    loop {
        let (socket, _) = listener.accept().await?;
        socket.set_nodelay(true)?;
        let connection =
            http1::Builder::new().pipeline_flush(true).serve_connection(TokioIo::new(socket), service_fn(respond));
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
    let address = env::args().nth(1).ok_or("usage: hyper1 ADDRESS")?.parse()?;
    tokio::runtime::Builder::new_current_thread().enable_io().build()?.block_on(serve(address))
}

static FILLER: [u8; 64 * 1024] = [b'x'; 64 * 1024];
