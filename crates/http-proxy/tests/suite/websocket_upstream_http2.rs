//! WebSockets through a proxy whose upstream speaks HTTP/2, on both backends: an HTTP/2 client's extended CONNECT (RFC
//! 8441) stays one, and an HTTP/1.1 client's upgrade becomes one.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate::Backend;
use tidegate::http::proxy::{Proxy, UpstreamLimits, Upstreams};
use tidegate::http::{Request, Response, Router, Server, WebSocketUpgrade};
use tidegate::websocket::Message;

use crate::support::http2_peer::Peer;
use crate::support::http2_upstream::{self, DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, Session, Upstream};
use crate::support::{Running, split};

const VERSION: (&str, &str) = ("sec-websocket-version", "13");
/// SETTINGS_ENABLE_CONNECT_PROTOCOL.
const ALLOWS: [u8; 6] = [0, 8, 0, 0, 0, 1];
const BACKENDS: [Backend; 2] = [Backend::Epoll, Backend::Auto];

fn start_on(backend: Backend, router: impl Fn() -> Router + Send + Sync + 'static) -> Running {
    let server = Server::bind("127.0.0.1:0").expect("an address").backend(backend).loops(1);
    Running(server.start(router).expect("the server starts"))
}

fn proxy_on(backend: Backend, url: &str, limits: UpstreamLimits) -> Running {
    let upstreams = Upstreams::builder().server(url.parse().expect("a URL")).limits(limits).build().expect("upstreams");
    start_on(backend, move || Router::new().fallback(Proxy::new(&upstreams)))
}

fn masked(payload: &[u8]) -> Vec<u8> {
    [&[0x82, 0x80 | payload.len() as u8][..], &[0; 4], payload].concat()
}

/// A client whose stream 1 asks for a WebSocket, the connection of the proxy, and its stream for that.
fn begin(proxy: &Running, upstream: &Upstream) -> (Peer<TcpStream>, Session, u32) {
    let mut client = Peer::new(proxy.connect());
    client.extended_connect(1, "websocket", "/ws", &[VERSION]);
    let mut session = upstream.accept_with(&ALLOWS);
    let stream = session.head();
    (client, session, stream)
}

/// The next frame of a stream that is not a grant of window.
fn next(session: &mut Session, stream: u32) -> http2_upstream::Frame {
    loop {
        let frame = session.receive().expect("a frame");
        if frame.stream == stream && matches!(frame.kind, DATA | HEADERS | RST_STREAM) {
            return frame;
        }
    }
}

#[test]
fn a_websocket_goes_through_to_an_upstream_of_our_own() {
    for backend in BACKENDS {
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let noted = seen.clone();
        let upstream = start_on(backend, move || {
            let noted = noted.clone();
            Router::new().get("/ws", move |upgrade: WebSocketUpgrade, request: Request| -> Response {
                let fields = request.headers().map(|(name, _)| name.to_owned());
                noted.lock().expect("no panic").extend(fields);
                upgrade.protocols(&["tide"]).channel(async |mut channel| {
                    while let Some(message) = channel.recv().await? {
                        if matches!(message, Message::Binary(_)) {
                            channel.send(message)?;
                        }
                    }
                    Ok::<_, Box<dyn std::error::Error>>(())
                })
            })
        });
        let url = format!("h2c://{}", upstream.0.address().ip().expect("an address"));
        let proxy = proxy_on(backend, &url, UpstreamLimits::default());
        let mut client = Peer::new(proxy.connect());
        // Several at once, on one connection of the proxy.
        for stream in [1, 3, 5] {
            let more = [VERSION, ("sec-websocket-protocol", "tide"), ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")];
            client.extended_connect(stream, "websocket", "/ws", &more);
            client.data(stream, &masked(b"early"));
            client.read_until(|client| !client.stream(stream).body.is_empty());
            let received = client.stream(stream);
            assert_eq!((received.status(), received.field("sec-websocket-protocol")), ("200", Some("tide")));
            assert_eq!((&received.body[..], received.field("upgrade")), (&b"\x82\x05early"[..], None));
        }
        for stream in [5, 1, 3] {
            client.data(stream, &masked(&[stream as u8; 100]));
            client.read_until(|client| client.stream(stream).body.len() == 7 + 102);
            assert!(client.stream(stream).body.ends_with(&[stream as u8; 100]));
        }
        let accepted: u64 = upstream.0.counts().iter().map(|counts| counts.accepted).sum();
        assert!(accepted <= 1, "each has a stream of one connection");
        let seen = seen.lock().expect("no panic");
        assert!(!seen.iter().any(|name| name == "sec-websocket-key"), "{seen:?}");
        for expected in ["sec-websocket-version", "sec-websocket-protocol", "via"] {
            assert!(seen.iter().any(|name| name.eq_ignore_ascii_case(expected)), "{expected}: {seen:?}");
        }
    }
}

#[test]
fn each_direction_ends_on_its_own() {
    for backend in BACKENDS {
        let upstream = Upstream::new();
        let proxy = proxy_on(backend, &upstream.url(), UpstreamLimits::default());
        let (mut client, mut session, stream) = begin(&proxy, &upstream);
        // A 200 with a length, which says nothing of a tunnel (RFC 9110 §9.3.6).
        session.send(HEADERS, END_HEADERS, stream, &[0x88, 0x0f, 0x0d, 1, b'1']);
        session.send(DATA, 0, stream, b"hello");
        client.read_until(|client| client.stream(1).body == b"hello");
        assert_eq!((client.stream(1).status(), client.stream(1).field("content-length")), ("200", None));
        client.frame(DATA, END_STREAM, 1, b"ebb");
        let mut bytes = Vec::new();
        loop {
            let frame = next(&mut session, stream);
            assert_eq!(frame.kind, DATA);
            bytes.extend_from_slice(&frame.content);
            if frame.flags & END_STREAM != 0 {
                break;
            }
        }
        assert_eq!(bytes, b"ebb");
        session.send(DATA, 0, stream, b" and ");
        session.send(DATA, END_STREAM, stream, b"last");
        client.read_until(|client| client.stream(1).has_ended);
        assert_eq!((client.stream(1).body, client.stream(1).reset), (b"hello and last".to_vec(), None));
    }
}

#[test]
fn a_stream_that_is_over_makes_room_for_the_next() {
    for backend in BACKENDS {
        let upstream = Upstream::new();
        let mut limits = UpstreamLimits::default();
        limits.streams_per_connection_max = 1;
        let proxy = proxy_on(backend, &upstream.url(), limits);
        let (mut client, mut session, stream) = begin(&proxy, &upstream);
        session.send(HEADERS, END_HEADERS, stream, &[0x88]);
        session.send(DATA, END_STREAM, stream, b"bye");
        client.read_until(|client| client.stream(1).has_ended);
        client.frame(DATA, END_STREAM, 1, b"");
        while next(&mut session, stream).flags & END_STREAM == 0 {}
        for id in [3, 5] {
            client.request(id, "GET", "/", &[], true);
            let stream = session.request();
            session.answer(stream, "next");
            client.read_until(|client| client.is_over(id));
            assert_eq!(client.stream(id).body, b"next");
        }
        assert!(!upstream.has_another());
    }
}

#[test]
fn a_refusal_is_passed_on_and_the_request_ends() {
    for backend in BACKENDS {
        let upstream = Upstream::new();
        let proxy = proxy_on(backend, &upstream.url(), UpstreamLimits::default());
        let (mut client, mut session, stream) = begin(&proxy, &upstream);
        // 404.
        session.send(HEADERS, END_HEADERS, stream, &[0x8d]);
        session.send(DATA, END_STREAM, stream, b"none");
        client.read_until(|client| client.is_over(1));
        assert_eq!((client.stream(1).status(), client.stream(1).body), ("404", b"none".to_vec()));
        let frame = next(&mut session, stream);
        assert_eq!((frame.kind, frame.flags & END_STREAM, frame.content.len()), (DATA, END_STREAM, 0));
    }
}

#[test]
fn a_refusal_in_one_piece_is_passed_on_and_resets_nothing() {
    for backend in BACKENDS {
        let upstream = Upstream::new();
        let proxy = proxy_on(backend, &upstream.url(), UpstreamLimits::default());
        let (mut client, mut session, stream) = begin(&proxy, &upstream);
        refuse(&mut session, stream);
        client.read_until(|client| client.is_over(1));
        assert_eq!((client.stream(1).status(), client.stream(1).body), ("404", b"none".to_vec()));
        let frame = next(&mut session, stream);
        assert_eq!((frame.kind, frame.flags & END_STREAM, frame.content.len()), (DATA, END_STREAM, 0), "HTTP/2");
        // The same for an HTTP/1.1 client.
        let mut client = ask(&proxy, "Connection: upgrade, close\r\n");
        let stream = session.head();
        refuse(&mut session, stream);
        let mut response = String::new();
        client.read_to_string(&mut response).expect("a response");
        let (head, body) = split(&response);
        assert!(head.starts_with("HTTP/1.1 404 ") && head.contains("\r\nContent-Length: 4"), "{head}");
        assert!(!head.to_ascii_lowercase().contains("sec-websocket-accept"), "{head}");
        assert_eq!(body, "none");
        let frame = next(&mut session, stream);
        assert_eq!((frame.kind, frame.flags & END_STREAM, frame.content.len()), (DATA, END_STREAM, 0), "HTTP/1.1");
    }
}

/// A 404 with a body, by one write.
fn refuse(session: &mut Session, stream: u32) {
    let head = [&[0x8d, 0x0f, 0x0d, 1][..], b"4"].concat();
    session.send_at_once(&[(HEADERS, END_HEADERS, stream, &head), (DATA, END_STREAM, stream, b"none")]);
}

/// An HTTP/1.1 client that has asked for a WebSocket, with the key of RFC 6455 §1.3.
fn ask(proxy: &Running, lines: &str) -> TcpStream {
    let mut client = proxy.connect();
    let request = format!(
        "GET /ws HTTP/1.1\r\nHost: sea\r\nUpgrade: WebSocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: tide\r\n{lines}\r\n"
    );
    client.write_all(request.as_bytes()).expect("the proxy reads");
    client
}

fn read_head(client: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).expect("a head");
        head.push(byte[0]);
    }
    String::from_utf8(head).expect("a text")
}

#[test]
fn an_upgrade_of_http1_becomes_an_extended_connect() {
    for backend in BACKENDS {
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let noted = seen.clone();
        let upstream = start_on(backend, move || {
            let noted = noted.clone();
            Router::new().get("/ws", move |upgrade: WebSocketUpgrade, request: Request| -> Response {
                let version = format!("{:?}", request.version());
                let names = request.headers().map(|(name, _)| name.to_ascii_lowercase());
                noted.lock().expect("no panic").extend(names.chain([version]));
                upgrade.protocols(&["tide"]).channel(async |mut channel| {
                    while let Some(message) = channel.recv().await? {
                        if matches!(message, Message::Binary(_)) {
                            channel.send(message)?;
                        }
                    }
                    Ok::<_, Box<dyn std::error::Error>>(())
                })
            })
        });
        let url = format!("h2c://{}", upstream.0.address().ip().expect("an address"));
        let proxy = proxy_on(backend, &url, UpstreamLimits::default());
        for _ in 0..2 {
            let mut client = ask(&proxy, "Connection: Upgrade\r\n");
            // Bytes right behind the request belong to the WebSocket.
            client.write_all(&masked(b"early")).expect("the proxy reads");
            let head = read_head(&mut client);
            assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
            let head = head.to_ascii_lowercase();
            let answer = "sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=";
            for line in ["upgrade: websocket", "connection: upgrade", "sec-websocket-protocol: tide", answer] {
                assert_eq!(head.matches(&format!("\r\n{line}\r\n")).count(), 1, "{line}: {head}");
            }
            let mut echoed = [0; 7];
            client.read_exact(&mut echoed).expect("an echo");
            assert_eq!(&echoed, b"\x82\x05early");
            client.write_all(&masked(&[7; 100])).expect("the proxy reads");
            let mut echoed = [0; 102];
            client.read_exact(&mut echoed).expect("an echo");
            assert_eq!(echoed[2..], [7; 100]);
        }
        let seen = seen.lock().expect("no panic");
        assert!(seen.iter().any(|version| version == "HTTP/2.0"), "{seen:?}");
        for absent in ["sec-websocket-key", "connection"] {
            assert!(!seen.iter().any(|name| name == absent), "{seen:?}");
        }
    }
}

#[test]
fn an_upgrade_of_http1_that_an_upstream_does_not_allow_is_a_bad_gateway() {
    for backend in BACKENDS {
        let upstream = Upstream::new();
        let proxy = proxy_on(backend, &upstream.url(), UpstreamLimits::default());
        let mut client = ask(&proxy, "Connection: upgrade, close\r\n");
        let _session = upstream.accept_with(&[]);
        let mut response = String::new();
        client.read_to_string(&mut response).expect("a response");
        assert!(response.starts_with("HTTP/1.1 502 "), "{response}");
        assert!(response.contains("SETTINGS_ENABLE_CONNECT_PROTOCOL"), "{response}");
    }
}

#[test]
fn an_upgrade_of_http1_falls_back_to_an_upstream_of_its_version() {
    for backend in BACKENDS {
        let of_http1 = start_on(backend, || Router::new().fallback(|| "of HTTP/1.1"));
        let of_http2 = Upstream::new();
        let urls = [of_http2.url(), format!("http://{}", of_http1.0.address())];
        let upstreams = Upstreams::new(urls.iter().map(String::as_str)).expect("upstreams");
        let proxy = start_on(backend, move || Router::new().fallback(Proxy::new(&upstreams)));
        let accepted = std::thread::spawn(move || of_http2.accept_with(&[]));
        // Two, so that the HTTP/2 upstream has its turn.
        for _ in 0..2 {
            let mut client = ask(&proxy, "Connection: upgrade, close\r\n");
            let mut response = String::new();
            client.read_to_string(&mut response).expect("a response");
            assert!(response.starts_with("HTTP/1.1 200 ") && response.ends_with("of HTTP/1.1"), "{response}");
        }
        drop(accepted.join().expect("the proxy has connected"));
    }
}

#[test]
fn a_reset_of_either_side_ends_the_other() {
    for backend in BACKENDS {
        let upstream = Upstream::new();
        let proxy = proxy_on(backend, &upstream.url(), UpstreamLimits::default());
        let (mut client, mut session, stream) = begin(&proxy, &upstream);
        session.send(HEADERS, END_HEADERS, stream, &[0x88]);
        session.send(DATA, 0, stream, b"hello");
        client.read_until(|client| client.stream(1).body == b"hello");
        client.frame(RST_STREAM, 0, 1, &8_u32.to_be_bytes());
        assert_eq!(next(&mut session, stream).kind, RST_STREAM);
        // The connection goes on.
        client.extended_connect(3, "websocket", "/ws", &[VERSION]);
        let stream = session.head();
        session.send(HEADERS, END_HEADERS, stream, &[0x88]);
        session.send(DATA, 0, stream, b"hello");
        client.read_until(|client| client.stream(3).body == b"hello");
        session.reset(stream, 8);
        client.read_until(|client| client.is_over(3));
        assert!(client.stream(3).reset.is_some(), "{:?}", client.stream(3));
    }
}

#[test]
fn an_upstream_that_does_not_allow_it_gets_nothing_and_the_error_says_so() {
    for backend in BACKENDS {
        for settings in [&[][..], &[0, 8, 0, 0, 0, 0]] {
            let upstream = Upstream::new();
            let proxy = proxy_on(backend, &upstream.url(), UpstreamLimits::default());
            let mut client = Peer::new(proxy.connect());
            client.extended_connect(1, "websocket", "/ws", &[VERSION]);
            let mut session = upstream.accept_with(settings);
            client.read_until(|client| client.is_over(1));
            let received = client.stream(1);
            assert_eq!(received.status(), "502");
            let text = String::from_utf8(received.body).expect("a text");
            assert!(text.contains("SETTINGS_ENABLE_CONNECT_PROTOCOL"), "{text}");
            // The same connection takes other requests, and has had no head before.
            client.request(3, "GET", "/", &[], true);
            let stream = session.request();
            session.answer(stream, "a page");
            client.read_until(|client| client.is_over(3));
            assert_eq!((client.stream(3).status(), client.stream(3).body), ("200", b"a page".to_vec()));
            assert!(!upstream.has_another());
        }
    }
}

#[test]
fn an_upstream_whose_settings_never_come_is_not_waited_for_for_ever() {
    for backend in BACKENDS {
        let upstream = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("h2c://{}", upstream.local_addr().expect("an address"));
        let mut limits = UpstreamLimits::default();
        limits.connect_timeout = Duration::from_millis(300);
        let proxy = proxy_on(backend, &url, limits);
        let mut client = Peer::new(proxy.connect());
        client.extended_connect(1, "websocket", "/ws", &[VERSION]);
        client.read_until(|client| client.is_over(1));
        assert_eq!(client.stream(1).status(), "502");
    }
}
