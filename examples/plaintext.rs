//! One small HTTP server, written twice: as a handler, which is called, and as a loop over a channel, which asks.
//!
//! ```text
//! cargo run --example plaintext                               # asks both, says what they answered and ends
//! cargo run --example plaintext -- 127.0.0.1:8080 handler     # serves until it is killed
//! cargo run --example plaintext -- 127.0.0.1:8080 channel
//! ```
//!
//! What the difference costs is in the README.

#![forbid(unsafe_code)]

use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use tidegate::http1::{self, Config, Incoming, Outgoing, Response, Status};
use tidegate::{Channel, Context, Handler, Outcome, Running, Server, StartError};

/// What is answered, whoever asks.
fn answer(path: &[u8]) -> Outgoing {
    Outgoing::Response(match path {
        b"/plaintext" => Response::text("Hello, World!"),
        _ => Response::new(Status::NOT_FOUND),
    })
}

/// Called with each message.
struct Site;

impl Handler<http1::Server> for Site {
    type Post = ();

    fn message(&mut self, message: Incoming, cx: &mut Context<'_, http1::Server>) -> Outcome<http1::Server> {
        match message {
            Incoming::Head(head) => cx.send(answer(head.path_bytes())).into(),
            // A body that nobody wants is read and dropped, up to the limits of HTTP.
            Incoming::Data(_) | Incoming::Trailers(_) | Incoming::End => Outcome::Continue,
        }
    }
}

/// Asks for each message.
async fn site(mut channel: Channel<http1::Server>) -> Result<(), Box<dyn Error>> {
    while let Some(message) = channel.recv().await? {
        if let Incoming::Head(head) = message {
            channel.send(answer(head.path_bytes()))?;
        }
    }
    Ok(())
}

fn start(address: &str, kind: &str) -> Result<Running, StartError> {
    let config = Arc::new(Config::default());
    let server = Server::bind(address)?.loops(1);
    match kind {
        "channel" => server.serve(move || http1::Server::new(config.clone()), site),
        _ => server.start(move || (http1::Server::new(config.clone()), Site)),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if let [address, kind] = &arguments[..] {
        let server = start(address, kind)?;
        println!("listening on {}", server.address());
        server.wait();
        return Ok(());
    }
    for kind in ["handler", "channel"] {
        let server = start("127.0.0.1:0", kind)?;
        let mut stream = TcpStream::connect(server.address().ip().ok_or("not an IP address")?)?;
        stream.write_all(b"GET /plaintext HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        assert!(answer.ends_with("Hello, World!"), "{answer}");
        println!("as a {kind}: {}", answer.lines().next().unwrap_or_default());
        server.drain(Duration::from_secs(5));
    }
    Ok(())
}
