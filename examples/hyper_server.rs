//! A crate that knows nothing of Tidegate, on its loops: hyper's HTTP/1.1 server, over the streams of connections.
//!
//! ```text
//! cargo run --example hyper_server                      # checks itself, prints the results and exits
//! cargo run --example hyper_server -- 127.0.0.1:8080    # serves until it is killed
//! ```

#![forbid(unsafe_code)]

use std::convert::Infallible;
use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tidegate::compat::ByteStream;
use tidegate::framing::Raw;
use tidegate::{Channel, Server};

/// Answers with the path, or with the bytes of the request's body.
async fn answer(request: Request<Incoming>) -> Result<Response<Whole>, hyper::Error> {
    let path = request.uri().path().to_owned();
    let body = Whole::read(request.into_body()).await?;
    Ok(Response::new(if body.is_empty() { Whole::new(path.into()) } else { Whole::new(body) }))
}

/// Hands one connection to hyper. It reads and writes in this task, and needs no runtime of its own.
async fn serve(channel: Channel<Raw>) -> Result<(), hyper::Error> {
    let stream = TokioIo::new(ByteStream::new(channel));
    match http1::Builder::new().serve_connection(stream, service_fn(answer)).await {
        // hyper has answered with 400. An error that is returned would reset the connection, and destroy the answer.
        Err(error) if error.is_parse() => Ok(()),
        served => served,
    }
}

/// A body in one piece.
struct Whole(Option<Bytes>);

impl Whole {
    fn new(bytes: Bytes) -> Self {
        Self(Some(bytes))
    }

    /// Reads a body to its end.
    async fn read(mut body: Incoming) -> Result<Bytes, hyper::Error> {
        use hyper::body::Body;
        let mut all = Vec::new();
        while let Some(frame) = std::future::poll_fn(|cx| std::pin::Pin::new(&mut body).poll_frame(cx)).await {
            if let Some(bytes) = frame?.data_ref() {
                all.extend_from_slice(bytes);
            }
        }
        Ok(all.into())
    }
}

impl hyper::body::Body for Whole {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<Bytes>, Infallible>>> {
        std::task::Poll::Ready(self.0.take().map(|bytes| Ok(hyper::body::Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        hyper::body::SizeHint::with_exact(self.0.as_ref().map_or(0, Bytes::len) as u64)
    }
}

/// Sends a request with `Connection: close`, and returns the whole response.
fn ask(address: &str, request: &[u8]) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(request)?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    Ok(response)
}

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1);
    let server = Server::bind(address.as_deref().unwrap_or("127.0.0.1:0"))?.serve(|| Raw, serve)?;
    println!("listening on {}", server.address());
    if address.is_some() {
        server.wait();
        return Ok(());
    }
    let address = server.address().to_string();
    let response = ask(&address, b"GET /ebb HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")?;
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n") && response.ends_with("\r\n\r\n/ebb"), "{response}");
    println!("{}", response.lines().next().unwrap_or_default());
    server.drain(Duration::from_secs(5));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_with_and_without_bodies_are_answered() {
        let server = Server::bind("127.0.0.1:0").unwrap().loops(1).serve(|| Raw, serve).unwrap();
        let address = server.address().to_string();
        let body = "flow ".repeat(100_000);
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
        let response = ask(&address, format!("{head}{body}").as_bytes()).unwrap();
        assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{}", &response[..100]);
        assert!(response.ends_with(&body), "the body comes back whole");
        let two = b"GET /one HTTP/1.1\r\nHost: a\r\n\r\nGET /two HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        let response = ask(&address, two).unwrap();
        assert!(response.contains("/one") && response.ends_with("/two"), "{response}");
        let refused = ask(&address, b"no request\r\n\r\n").unwrap();
        assert!(refused.starts_with("HTTP/1.1 400 "), "{refused}");
        server.drain(Duration::from_secs(5));
    }
}
