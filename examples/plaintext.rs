//! One small HTTP server, written twice: as a handler with callbacks, and as an async task that pulls messages.
//!
//! ```text
//! cargo run --example plaintext                               # checks both, prints their responses and exits
//! cargo run --example plaintext -- 127.0.0.1:8080 handler     # serves until it is killed
//! cargo run --example plaintext -- 127.0.0.1:8080 channel
//! cargo run --example plaintext -- 127.0.0.1:8080 stages      # the handler behind everything that a deployment adds
//! ```
//!
//! It answers `GET /plaintext`, `GET /bytes/N` and `POST /echo`: a constant body, a linked body, and a body that is
//! sent back while it arrives. `TIDEGATE_BACKEND` selects the backend, epoll or uring.
//!
//! docs/figures.md has the cost of the difference.

#![forbid(unsafe_code)]

use std::error::Error;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use tidegate::codec::Pipeline;
use tidegate::http1::{
    BodyLength, Config, ContentType, Incoming, Outgoing, RequestHead, Response, Status, StreamedResponse,
};
use tidegate::proxy_protocol::{Networks, Policy, ReceivesHeader};
use tidegate::sniff::{self, Match};
use tidegate::{
    Admission, Channel, ConnectionRate, Context, Deadlines, Handler, Limits, Outcome, Protocol, Protocols, Server,
    ServerHandle, StartError, http1,
};

/// The response to a message, for both versions. `echoes` is the only state of a request whose body is in progress.
fn answer(message: Incoming, echoes: &mut bool) -> Option<Outgoing> {
    match message {
        Incoming::Head(head) => {
            *echoes = head.path_bytes() == b"/echo" && head.has_body();
            Some(if *echoes { echo(&head) } else { Outgoing::Response(page(head.path_bytes())) })
        }
        // Sent back while it arrives. Pending output must not keep the receive buffer alive, so detach it.
        Incoming::Data(data) if *echoes => Some(Outgoing::Data(data.detach().into())),
        Incoming::End if std::mem::take(echoes) => Some(Outgoing::End),
        // Other bodies are read and dropped, up to the HTTP limits.
        Incoming::Data(_) | Incoming::Trailers(_) | Incoming::End | Incoming::Preface => None,
    }
}

fn page(path: &[u8]) -> Response {
    match path {
        b"/plaintext" => Response::text("Hello, World!"),
        // The request has no body, so neither has the response.
        b"/echo" => Response::new(Status::OK),
        // The body is linked, not copied.
        _ => match bytes_asked_for(path).and_then(|count| BLOCK.get(..count)) {
            Some(bytes) => Response::new(Status::OK).content_type(ContentType::BYTES).body(bytes),
            None => Response::new(Status::NOT_FOUND),
        },
    }
}

fn bytes_asked_for(path: &[u8]) -> Option<usize> {
    str::from_utf8(path.strip_prefix(b"/bytes/")?).ok()?.parse().ok()
}

/// The head of a response with a body as long as the request's; a body of unknown length is sent back chunked.
fn echo(head: &RequestHead) -> Outgoing {
    let response = StreamedResponse::new(Status::OK).content_type(ContentType::BYTES);
    Outgoing::Head(match head.body() {
        BodyLength::Known(length) => response.length(length),
        _ => response,
    })
}

/// The handler, which receives callbacks.
#[derive(Default)]
struct Site {
    echoes: bool,
}

impl<C: Pipeline<In = Incoming, Out = Outgoing>> Handler<C> for Site {
    type Post = ();

    fn message(&mut self, message: Incoming, cx: &mut Context<'_, C>) -> Outcome<C> {
        match answer(message, &mut self.echoes) {
            Some(answer) => cx.send(answer).into(),
            None => Outcome::Continue,
        }
    }
}

/// The async task, which pulls messages.
async fn site(mut channel: Channel<http1::Server>) -> Result<(), Box<dyn Error>> {
    let mut echoes = false;
    while let Some(message) = channel.recv().await? {
        if let Some(answer) = answer(message, &mut echoes) {
            channel.send(answer)?;
        }
    }
    Ok(())
}

/// The handler behind sniffing, an optional PROXY header, caps for each address, and deadlines for peers. The bounds are
/// such that no load meets them.
fn stages(server: Server, config: Arc<Config>) -> Result<ServerHandle, StartError> {
    let rate = ConnectionRate { interval: Duration::from_micros(1), burst: 1_000_000 };
    let admission = Admission {
        connections_per_address_max: Some(1_000_000),
        rate_per_address: Some(rate),
        deny: vec!["192.0.2.0/24".parse().expect("a network")],
        ..Admission::default()
    };
    let hour = Some(Duration::from_secs(60 * 60));
    let deadlines = Deadlines {
        idle_timeout: hour,
        read_timeout: hour,
        handshake_timeout: hour,
        age_max: hour,
        ..Deadlines::default()
    };
    let policy = Arc::new(Policy::optional(Networks::local()));
    server.admission(admission).limits(Limits { deadlines, ..Limits::default() }).sniff(move |_| {
        let (config, policy) = (config.clone(), policy.clone());
        let http = Protocol::handle(move || {
            // A rule does not know the peer; all of them are on this machine.
            let peer = Some(Ipv4Addr::LOCALHOST.into());
            (ReceivesHeader::new(&policy, peer, http1::Server::new(config.clone())), Site::default())
        });
        Protocols::new().on(either, http).deadline(Duration::from_secs(10))
    })
}

/// A header, or a request.
fn either(first: &[u8]) -> Match {
    match sniff::http1(first) {
        Match::NotMatched => sniff::proxy(first),
        found => found,
    }
}

fn start(address: &str, kind: &str) -> Result<ServerHandle, StartError> {
    let config = Arc::new(Config::default());
    let server = Server::bind(address)?.loops(1);
    match kind {
        "channel" => server.serve(move || http1::Server::new(config.clone()), site),
        "stages" => stages(server, config),
        _ => server.start(move || (http1::Server::new(config.clone()), Site::default())),
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
    for kind in ["handler", "channel", "stages"] {
        let server = start("127.0.0.1:0", kind)?;
        let mut stream = TcpStream::connect(server.address().ip().ok_or("not an IP address")?)?;
        stream.write_all(b"GET /plaintext HTTP/1.1\r\nHost: a\r\n\r\n")?;
        stream.write_all(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nConnection: close\r\n\r\nebb")?;
        let mut answers = String::new();
        stream.read_to_string(&mut answers)?;
        assert!(answers.contains("Hello, World!") && answers.ends_with("\r\n\r\nebb"), "{answers}");
        println!("{kind}: {}", answers.lines().next().unwrap_or_default());
        server.drain(Duration::from_secs(5));
    }
    Ok(())
}

/// The content of `/bytes/N`.
static BLOCK: [u8; 64 * 1024] = [b'x'; 64 * 1024];
