//! Request smuggling by an HTTP/3 client whose body ends where its length does not say: the next request to the HTTP/1.1
//! upstream is never a part of it. The test plays both, byte by byte.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tidegate::engine::{SessionEndpoint, SessionLimits, SessionStreams};
use tidegate::framing::Raw;
use tidegate::http::proxy::Proxy;
use tidegate::http::{Router, Server};
use tidegate::http3::{self, qpack, varint};
use tidegate::quic::{self, Direction};
use tidegate::sys::DatagramOptions;
use tidegate::tls::ClientConfig;
use tidegate::{Backend, EventLoop, task};

use crate::support::Running;
use crate::support::proxy_peers::{Peer, Upstream, upstreams};
use crate::upstream_http3::{address, tls};

/// A gateway that speaks HTTP/3, and a client configuration that trusts it.
fn gateway(upstream: &Upstream) -> (Running, ClientConfig) {
    let (tls, trust) = tls("sea");
    let upstreams = upstreams(&[upstream]);
    let server = Server::bind("127.0.0.1:0").expect("an address").loops(1).tls(tls).http3().expect("QUIC");
    let running = server.start(move || Router::new().fallback(Proxy::new(&upstreams)));
    (Running(running.expect("it starts")), trust.with_alpn(["h3"]).expect("TLS"))
}

fn frame(kind: u64, payload: &[u8]) -> Vec<u8> {
    let mut wire = Vec::new();
    varint::write(kind, &mut wire);
    varint::write(payload.len() as u64, &mut wire);
    wire.extend_from_slice(payload);
    wire
}

fn head(method: &str, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let start = [(":method", method), (":scheme", "https"), (":authority", "sea"), (":path", path)];
    let mut section = Vec::new();
    qpack::encode_prefix(&mut section);
    for (name, value) in start.iter().chain(more) {
        qpack::encode(name.as_bytes(), value.as_bytes(), false, &mut section);
    }
    frame(1, &section)
}

/// Sends a request by a connection of its own, and its last bytes with the end of the stream, which is FIN alone without
/// bytes, once `may_end` is set. Returns the status of the response, which is empty without one.
fn ask(
    (gateway, trust): &(Running, ClientConfig),
    pieces: [Vec<u8>; 2],
    may_end: &Arc<AtomicBool>,
) -> JoinHandle<String> {
    let (server, trust, may_end) = (address(gateway), trust.clone(), may_end.clone());
    thread::spawn(move || {
        let mut event_loop = EventLoop::on(Backend::Epoll).expect("a loop");
        event_loop.block_on(exchange(server, trust, pieces, may_end)).expect("it runs")
    })
}

async fn exchange(
    server: SocketAddr,
    trust: ClientConfig,
    [first, last]: [Vec<u8>; 2],
    may_end: Arc<AtomicBool>,
) -> String {
    let config = quic::ClientConfig::new(&trust, quic::TransportLimits::default()).expect("limits");
    let endpoint = http3::Endpoint::client(Arc::new(http3::Config::default()), config.endpoint());
    let (options, limits) = (DatagramOptions::default(), SessionLimits::default());
    let own = SocketAddr::from(([127, 0, 0, 1], 0));
    let socket = SessionEndpoint::bind(own, &options, limits, endpoint, |_| SessionStreams::default());
    let connector = quic::Connector::new(socket.expect("a socket"), &config);
    let connection = connector.connect(server, "sea").await.expect("a connection");
    let mut channel = connection.open_when_allowed(Direction::Bidirectional, Raw).await.expect("a stream");
    channel.send(first.into()).expect("room");
    while !may_end.load(Ordering::Acquire) {
        task::sleep(Duration::from_millis(1)).await;
    }
    if !last.is_empty() {
        // The gateway may have reset the stream.
        let _reset = channel.send(last.into());
    }
    channel.shutdown_write();
    let mut wire = Vec::new();
    while let Ok(Some(bytes)) = channel.recv().await {
        wire.extend_from_slice(&bytes);
    }
    status(&wire).unwrap_or_default()
}

/// The status of the head with which a response begins.
fn status(wire: &[u8]) -> Option<String> {
    let (kind, first) = varint::read(wire)?;
    let (length, second) = varint::read(&wire[first..])?;
    assert_eq!(kind, 1);
    let section = wire[first + second..].get(..usize::try_from(length).ok()?)?;
    let mut status = None;
    let field = |name: &[u8], value: &[u8]| {
        if name == b":status" {
            status = Some(String::from_utf8_lossy(value).into_owned());
        }
    };
    qpack::decode(section, &mut Vec::new(), field).expect("a section");
    status
}

/// Sends the request of another user, and asserts that the upstream gets it as a request: by the next connection, or by
/// this one.
#[track_caller]
fn assert_next_is_own(gateway: &(Running, ClientConfig), upstream: &Upstream, same: Option<Peer>) {
    let now = Arc::new(AtomicBool::new(true));
    let asking = ask(gateway, [head("GET", "/after", &[]), Vec::new()], &now);
    let mut server = same.unwrap_or_else(|| upstream.accept());
    let head = server.head();
    assert!(head.starts_with("GET /after HTTP/1.1\r\n"), "the upstream got {head:?}");
    // Although the end of the stream may come behind the head.
    assert!(!head.contains("Transfer-Encoding"), "{head}");
    server.send("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
    assert_eq!(asking.join().expect("no panic"), "204");
    assert_eq!(server.rest().0.escape_ascii().to_string(), "");
}

const DATA: u64 = 0;

const SMUGGLED: &str = "0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: sea\r\n\r\n";

#[test]
fn a_body_of_unknown_length_stays_within_its_chunks() {
    let upstream = Upstream::new();
    let gateway = gateway(&upstream);
    for method in ["POST", "GET", "DELETE"] {
        let now = Arc::new(AtomicBool::new(true));
        let asking = ask(&gateway, [head(method, "/", &[]), frame(DATA, SMUGGLED.as_bytes())], &now);
        let mut server = upstream.accept();
        let head = server.head().to_ascii_lowercase();
        assert!(head.contains("\r\ntransfer-encoding: chunked\r\n") && !head.contains("content-length"), "{head}");
        assert_eq!(server.chunks(), SMUGGLED.as_bytes(), "{method}");
        server.send("HTTP/1.1 204 No Content\r\n\r\n");
        assert_eq!(asking.join().expect("no panic"), "204");
        // The connection is used again.
        assert_next_is_own(&gateway, &upstream, Some(server));
    }
}

#[test]
fn a_stream_that_ends_before_its_length_leaves_no_request_half_sent() {
    let upstream = Upstream::new();
    let gateway = gateway(&upstream);
    // FIN alone, a part of the body, more than the body.
    for body in ["", "abc", "abcdefgh", "abcdeGET /smuggled HTTP/1.1\r\n\r\n"] {
        let last = if body.is_empty() { Vec::new() } else { frame(DATA, body.as_bytes()) };
        let may_end = Arc::new(AtomicBool::new(false));
        let asking = ask(&gateway, [head("POST", "/", &[("content-length", "5")]), last], &may_end);
        let mut server = upstream.accept();
        assert!(server.head().contains("\r\nContent-Length: 5\r\n"), "{body}");
        may_end.store(true, Ordering::Release);
        let status = asking.join().expect("no panic");
        assert!(!status.starts_with('2'), "{body}: {status}");
        // The connection ends with a possible part of this body, and nothing follows.
        let (rest, _) = server.rest();
        assert!(rest.len() < 5, "{body}: {:?}", rest.escape_ascii().to_string());
        assert_next_is_own(&gateway, &upstream, None);
    }
}
