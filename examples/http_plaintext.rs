//! The same response by functions of each kind over the layer for applications, to measure the layer's cost.
//!
//! ```text
//! cargo run --features http --example http_plaintext                     # checks all paths and exits
//! cargo run --features http --example http_plaintext -- 127.0.0.1:8080   # serves until it is killed
//! ```
//!
//! | path | function |
//! |---|---|
//! | `/plaintext` | not async |
//! | `/async` | async, but complete at the first poll |
//! | `/awaits` | async, suspended once |
//! | `/echo` | not async, with a body that is collected |
//!
//! With the word `function` behind the address, one function that is not async serves all paths, without a router.
//! `examples/plaintext.rs` is the bare handler beside it, and benches/README.md has the command that compares them.

#![forbid(unsafe_code)]

use std::error::Error;
use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::task::Poll;
use std::time::Duration;

use tidegate::http::{Request, Response, Router, Server};
use tidegate::http1::ContentType;
use tidegate::{ServerHandle, StartError};

fn router() -> Router {
    Router::new()
        .get("/plaintext", hello)
        .get("/async", async || hello())
        .get("/awaits", async || {
            yield_once().await;
            hello()
        })
        .post("/echo", |request: Request| Response::new().body(request.into_body()))
}

fn hello() -> Response {
    Response::new().content_type(ContentType::TEXT).body("Hello, World!")
}

/// Suspends the task once.
async fn yield_once() {
    let mut has_yielded = false;
    poll_fn(move |cx| {
        if has_yielded {
            return Poll::Ready(());
        }
        has_yielded = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

fn start(address: &str, kind: &str) -> Result<ServerHandle, StartError> {
    let server = Server::bind(address)?.loops(1);
    match kind {
        "function" => server.serve(hello),
        _ => server.start(router),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if let [address, kind @ ..] = &arguments[..] {
        let server = start(address, kind.first().map_or("router", String::as_str))?;
        println!("listening on {}", server.address());
        server.wait();
        return Ok(());
    }
    for (kind, paths) in [("router", &["/plaintext", "/async", "/awaits"][..]), ("function", &["/plaintext"])] {
        let server = start("127.0.0.1:0", kind)?;
        let mut stream = TcpStream::connect(server.address().ip().ok_or("not an IP address")?)?;
        for path in paths {
            write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")?;
        }
        stream.write_all(b"GET /plaintext HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")?;
        let mut answers = String::new();
        stream.read_to_string(&mut answers)?;
        assert_eq!(answers.matches("\r\n\r\nHello, World!").count(), paths.len() + 1, "{answers}");
        println!("{kind}: {}", answers.lines().next().unwrap_or_default());
        server.drain(Duration::from_secs(5));
    }
    Ok(())
}
