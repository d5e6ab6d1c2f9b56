//! The router that the examples `axum` and `axum_on_hyper` serve.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use axum::extract::Path;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};

/// `/plaintext` and `/json`, as `tidegate serve` answers them, and `/bytes/N` for a body of N bytes.
pub(crate) fn router() -> Router {
    Router::new().route("/plaintext", get(plaintext)).route("/json", get(json)).route("/bytes/{count}", get(bytes))
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

async fn bytes(Path(count): Path<usize>) -> Result<Vec<u8>, StatusCode> {
    if count <= BYTES_MAX { Ok(vec![b'x'; count]) } else { Err(StatusCode::NOT_FOUND) }
}

/// The longest body.
const BYTES_MAX: usize = 1024 * 1024;

/// Asks a server of this router for each, and compares.
pub(crate) fn check(address: SocketAddr) -> io::Result<()> {
    let message = r#"{"message":"Hello, World!"}"#;
    for (path, body) in [("/plaintext", "Hello, World!"), ("/json", message), ("/bytes/5", "xxxxx")] {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: sea\r\nConnection: close\r\n\r\n").as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with(&format!("\r\n\r\n{body}")), "{answer}");
    }
    println!("all responses are as expected");
    Ok(())
}
