//! The router that the examples `axum` and `axum_on_hyper` serve.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

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

/// Asks a server of this router for both, and compares.
pub(crate) fn check(address: SocketAddr) -> io::Result<()> {
    for (path, body) in [("/plaintext", "Hello, World!"), ("/json", r#"{"message":"Hello, World!"}"#)] {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: sea\r\nConnection: close\r\n\r\n").as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with(&format!("\r\n\r\n{body}")), "{answer}");
    }
    println!("both responses are as expected");
    Ok(())
}
