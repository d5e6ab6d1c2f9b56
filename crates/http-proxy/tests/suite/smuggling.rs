//! Request smuggling by translation: an HTTP/2 client's request reaches an HTTP/1.1 upstream as the one request that
//! the proxy understood, or not at all. The test plays both, byte by byte.

use std::io::Read;
use std::net::TcpStream;
use std::time::Duration;

use tidegate::http::Router;
use tidegate::http::proxy::{Mirror, Proxy};

use crate::support::http2_peer::{DATA, END_HEADERS, END_STREAM, HEADERS, Peer};
use crate::support::proxy_peers::{Upstream, proxy_of, upstreams};
use crate::support::{Running, start};

fn client(proxy: &Running) -> Peer<TcpStream> {
    Peer::new(proxy.connect())
}

/// Reads until a stream is over, or the proxy has closed the connection.
fn finish(client: &mut Peer<TcpStream>, stream: u32) {
    while !client.is_over(stream) && !client.is_closed {
        client.read();
    }
}

/// Sends a request by a connection of its own, and asserts that the upstream gets it, and gets nothing before or behind.
#[track_caller]
fn assert_next_is_own(proxy: &Running, upstream: &Upstream) {
    let mut client = client(proxy);
    client.request(1, "GET", "/after", &[], true);
    let mut server = upstream.accept();
    let head = server.head();
    assert!(head.starts_with("GET /after HTTP/1.1\r\n"), "the upstream got {head:?}");
    server.send("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
    finish(&mut client, 1);
    assert_eq!(client.stream(1).status(), "204");
    let (rest, _) = server.rest();
    assert!(rest.is_empty(), "the upstream got {:?}", rest.escape_ascii().to_string());
}

/// Its end may come in a frame of its own. Some servers answer a POST without a length with 411.
#[test]
fn a_length_of_zero_goes_on_although_the_end_of_the_stream_follows() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    let mut client = client(&proxy);
    client.request(1, "POST", "/", &[("content-length", "0")], false);
    let mut server = upstream.accept();
    let head = server.head();
    assert!(head.contains("\r\nContent-Length: 0\r\n") && !head.contains("Transfer-Encoding"), "{head:?}");
    client.frame(DATA, END_STREAM, 1, &[]);
    server.send("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
    finish(&mut client, 1);
    assert_eq!(client.stream(1).status(), "204");
    let (rest, _) = server.rest();
    assert!(rest.is_empty(), "the upstream got {:?}", rest.escape_ascii().to_string());
}

/// Its end comes in a frame of its own, a turn later. Some servers refuse a GET with `Transfer-Encoding`.
#[test]
fn a_request_without_a_body_whose_end_follows_has_none_at_the_upstream_and_its_mirror() {
    let (upstream, other) = (Upstream::new(), Upstream::new());
    let (main, copies) = (upstreams(&[&upstream]), upstreams(&[&other]));
    let proxy = start(move || Router::new().fallback(Proxy::new(&main).mirror(Mirror::new(&copies)).end_wait(LONG)));
    for method in ["GET", "HEAD", "DELETE", "OPTIONS"] {
        let mut client = client(&proxy);
        client.request(1, method, "/", &[], false);
        turn_of(&mut client);
        client.frame(DATA, END_STREAM, 1, &[]);
        for upstream in [&upstream, &other] {
            let mut server = upstream.accept();
            let head = server.head();
            assert!(head.starts_with(&format!("{method} / HTTP/1.1\r\n")), "{head:?}");
            assert!(!head.contains("Transfer-Encoding") && !head.contains("Content-Length"), "{head:?}");
            server.send("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
            let (rest, _) = server.rest();
            assert!(rest.is_empty(), "the upstream got {:?}", rest.escape_ascii().to_string());
        }
        finish(&mut client, 1);
        assert_eq!(client.stream(1).status(), "204");
    }
}

/// A body, or none for longer than the proxy waits, goes on in chunks, whatever the method is.
#[test]
fn a_get_with_a_body_or_a_late_end_is_passed_on_in_chunks() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    for body in [&b"ebb"[..], b""] {
        let mut client = client(&proxy);
        client.request(1, "GET", "/", &[], false);
        turn_of(&mut client);
        if !body.is_empty() {
            client.frame(DATA, 0, 1, body);
        }
        let mut server = upstream.accept();
        let head = server.head();
        assert!(head.contains("\r\nTransfer-Encoding: chunked\r\n"), "{head:?}");
        client.frame(DATA, END_STREAM, 1, b" and flow");
        assert_eq!(server.chunks(), [body, b" and flow"].concat());
        server.send("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
        finish(&mut client, 1);
        assert_eq!(client.stream(1).status(), "204");
    }
}

/// Longer than any machine takes to pass an end on.
const LONG: Duration = Duration::from_secs(600);

/// Waits until the proxy has read all frames so far.
fn turn_of(client: &mut Peer<TcpStream>) {
    let pongs = client.pongs;
    client.ping();
    client.read_until(|client| client.pongs > pongs);
}

/// The fields of a request, with these in the place of those of the same name, or beside them.
fn with<'a>(changed: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let usual = [(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "sea")];
    let kept = usual.into_iter().filter(|(name, _)| changed.iter().all(|(other, _)| other != name));
    let (pseudo, others): (Vec<_>, Vec<_>) = changed.iter().copied().partition(|(name, _)| name.starts_with(':'));
    kept.chain(pseudo).chain(others).collect()
}

/// Heads that no HTTP/1.1 request can express, or only as something else.
const REFUSED: &[&[(&str, &str)]] = &[
    // Line ends and NUL, wherever they may be.
    &[("x", "a\r\nTransfer-Encoding: chunked")],
    &[("x", "a\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: sea")],
    &[("x", "a\nTransfer-Encoding: chunked")],
    &[("x", "a\rTransfer-Encoding: chunked")],
    &[("x", "a\0b")],
    &[("x", "a\x7fb")],
    &[("x\r\ntransfer-encoding", "chunked")],
    &[("x: y\r\ncontent-length", "5")],
    &[("x\0", "a")],
    &[("cookie", "a=b\r\nX-Evil: 1")],
    &[(":path", "/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\nX: y")],
    &[(":path", "/\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: sea")],
    &[(":path", "/\n")],
    &[(":path", "/\0")],
    &[(":method", "GET /smuggled HTTP/1.1\r\nHost: sea\r\n\r\nGET")],
    &[(":method", "POST\r\nX: y")],
    &[(":authority", "sea\r\nTransfer-Encoding: chunked")],
    &[(":authority", "sea\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: sea")],
    &[(":scheme", "http\r\nX: y")],
    // Spaces, which divide a request line.
    &[(":path", "/ HTTP/1.1")],
    &[(":path", "/a b")],
    &[(":path", "/a\tb")],
    &[(":path", " /")],
    &[(":method", "GET /smuggled")],
    &[(":method", "")],
    &[(":path", "")],
    &[(":authority", "sea side")],
    // Names that HTTP/1.1 divides otherwise.
    &[("transfer-encoding: chunked", "x")],
    &[("transfer-encoding ", "chunked")],
    &[(" transfer-encoding", "chunked")],
    &[("Transfer-Encoding", "chunked")],
    &[("x:", "y")],
    &[("", "y")],
    &[("x", " chunked")],
    &[("x", "chunked ")],
    // Fields that frame an HTTP/1.1 message, or concern its connection.
    &[("transfer-encoding", "chunked")],
    &[("transfer-encoding", "identity")],
    &[("transfer-encoding", "")],
    &[("connection", "transfer-encoding")],
    &[("connection", "close")],
    &[("keep-alive", "5")],
    &[("proxy-connection", "keep-alive")],
    &[("upgrade", "h2c")],
    &[("te", "trailers, chunked")],
    // A length that is none, or two.
    &[("content-length", "5"), ("content-length", "6")],
    &[("content-length", "0, 5")],
    &[("content-length", "+5")],
    &[("content-length", "-5")],
    &[("content-length", "0x5")],
    &[("content-length", "5.0")],
    &[("content-length", "")],
    &[("content-length", "99999999999999999999999")],
    // One that the end of the stream contradicts.
    &[("content-length", "5")],
    // Two hosts, or two of a unique field.
    &[("host", "shore")],
    &[("host", "sea"), ("host", "shore")],
    &[("host", "sea\r\nX: y")],
    &[(":authority", "sea"), (":authority", "shore")],
    &[(":path", "/"), (":path", "/smuggled")],
    &[(":method", "GET"), (":method", "POST")],
    &[(":authority", "evil@sea")],
    &[(":authority", "sea/path")],
    &[(":authority", "sea?query")],
    &[(":smuggled", "1")],
    &[(":status", "200")],
    // A path that two servers read differently.
    &[(":path", "smuggled")],
    &[(":path", "/a/../b")],
    &[(":path", "/%2e%2e/b")],
    &[(":path", "*")],
    &[(":path", "/a#b")],
    &[(":scheme", "http://shore/?")],
];

#[test]
fn requests_that_http1_cannot_express_are_not_forwarded() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    for changed in REFUSED {
        let mut client = client(&proxy);
        client.headers(1, &with(changed), true);
        finish(&mut client, 1);
        let answer = client.stream(1);
        assert!(!answer.status().starts_with('2'), "{changed:?}: {answer:?}");
        assert!(
            answer.reset.is_some() || answer.status().starts_with('4') || client.is_closed,
            "{changed:?}: {answer:?}"
        );
        assert_next_is_own(&proxy, &upstream);
    }
}

#[test]
fn a_pseudo_field_behind_a_field_is_not_forwarded() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    let mut client = client(&proxy);
    let fields = [(":method", "GET"), (":scheme", "http"), ("x", "y"), (":path", "/smuggled"), (":authority", "sea")];
    client.headers(1, &fields, true);
    finish(&mut client, 1);
    assert!(client.stream(1).reset.is_some());
    assert_next_is_own(&proxy, &upstream);
}

#[test]
fn a_head_is_forwarded_as_it_was_understood() {
    // The sent fields, the request line, lines that come once, and names that do not come.
    type Case =
        (&'static [(&'static str, &'static str)], &'static str, &'static [&'static str], &'static [&'static str]);
    let cases: [Case; 8] = [
        (&[(":method", "GET")], "GET / HTTP/1.1", &["Host: sea"], &["transfer-encoding", "content-length"]),
        (&[(":path", "/a?b=c&d=%20")], "POST /a?b=c&d=%20 HTTP/1.1", &["Host: sea"], &[]),
        (&[("host", "sea")], "POST / HTTP/1.1", &["Host: sea"], &[]),
        (&[("host", "sea"), ("host", "sea")], "POST / HTTP/1.1", &["Host: sea"], &[]),
        (&[("cookie", "a=b"), ("cookie", "c=d")], "POST / HTTP/1.1", &["cookie: a=b; c=d"], &[]),
        (&[("content-length", "0")], "POST / HTTP/1.1", &["Content-Length: 0"], &["transfer-encoding"]),
        (&[("te", "trailers")], "POST / HTTP/1.1", &["Host: sea"], &["transfer-encoding", "\r\nte"]),
        (&[("x", "a: b, \"c\""), ("x", "d")], "POST / HTTP/1.1", &["x: a: b, \"c\"", "x: d"], &[]),
    ];
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    for (changed, line, lines, absent) in cases {
        let mut client = client(&proxy);
        client.headers(1, &with(changed), true);
        let mut server = upstream.accept();
        let head = server.head().to_ascii_lowercase();
        assert!(head.starts_with(&format!("{}\r\n", line.to_ascii_lowercase())), "{changed:?}: {head:?}");
        for line in lines {
            let line = format!("\r\n{}\r\n", line.to_ascii_lowercase());
            assert_eq!(head.matches(&line).count(), 1, "{changed:?}: {line:?} in {head:?}");
        }
        assert_eq!(head.matches("\r\nhost:").count(), 1, "{head:?}");
        for name in absent {
            assert!(!head.contains(&format!("{name}:")), "{changed:?}: {name} in {head:?}");
        }
        server.send("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
        finish(&mut client, 1);
        assert_eq!(client.stream(1).status(), "204");
        assert_eq!(server.rest().0, b"");
    }
}

/// A request that is smuggled where a body is taken for one.
const SMUGGLED: &str = "0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: sea\r\n\r\n";

#[test]
fn a_body_stays_within_the_framing_that_the_proxy_writes() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    let length = SMUGGLED.len().to_string();
    for method in ["POST", "GET", "DELETE", "SMUGGLE"] {
        for has_length in [true, false] {
            let mut client = client(&proxy);
            let fields: &[_] = if has_length { &[("content-length", length.as_str())] } else { &[] };
            client.request(1, method, "/", fields, false);
            client.frame(DATA, END_STREAM, 1, SMUGGLED.as_bytes());
            let mut server = upstream.accept();
            let head = server.head().to_ascii_lowercase();
            let mut body = Vec::new();
            if has_length {
                assert!(head.contains(&format!("\r\ncontent-length: {length}\r\n")), "{head}");
                assert!(!head.contains("transfer-encoding"), "{head}");
                body.resize(SMUGGLED.len(), 0);
                server.0.read_exact(&mut body).expect("the body");
            } else {
                assert!(head.contains("\r\ntransfer-encoding: chunked\r\n"), "{head}");
                assert!(!head.contains("content-length"), "{head}");
                body = server.chunks();
            }
            assert_eq!(body, SMUGGLED.as_bytes(), "{method} {has_length}");
            server.send("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
            finish(&mut client, 1);
            assert_eq!(server.rest().0, b"", "{method} {has_length}");
        }
    }
}

#[test]
fn a_length_that_lies_does_not_leave_a_request_half_sent() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    for body in ["abc", "abcdefgh", "abcdeGET /smuggled HTTP/1.1\r\n\r\n"] {
        let mut client = client(&proxy);
        client.request(1, "POST", "/", &[("content-length", "5")], false);
        let mut server = upstream.accept();
        assert!(server.head().contains("\r\nContent-Length: 5\r\n"));
        client.frame(DATA, END_STREAM, 1, body.as_bytes());
        finish(&mut client, 1);
        let answer = client.stream(1);
        assert!(answer.reset.is_some(), "{body}: {answer:?}");
        // The connection ends with a possible part of this body, and nothing follows.
        let (rest, _) = server.rest();
        assert!(rest.len() < 5, "{body}: {:?}", rest.escape_ascii().to_string());
        assert_next_is_own(&proxy, &upstream);
    }
}

#[test]
fn trailers_frame_nothing() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    let trailers: [(&str, &str); 8] = [
        ("transfer-encoding", "chunked"),
        ("content-length", "5"),
        ("host", "shore"),
        ("connection", "close"),
        (":path", "/smuggled"),
        ("x", "y\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: sea\r\n"),
        ("x y", "z"),
        ("Upper", "z"),
    ];
    for trailer in trailers {
        let mut client = client(&proxy);
        client.request(1, "POST", "/", &[], false);
        client.frame(DATA, 0, 1, b"tide");
        let mut server = upstream.accept();
        assert!(server.head().contains("\r\nTransfer-Encoding: chunked\r\n"));
        let block = client.block(&[trailer]);
        client.frame(HEADERS, END_HEADERS | END_STREAM, 1, &block);
        finish(&mut client, 1);
        assert!(client.stream(1).reset.is_some() || client.is_closed, "{trailer:?}");
        let (rest, _) = server.rest();
        let rest = String::from_utf8_lossy(&rest);
        assert!(matches!(&*rest, "" | "4\r\ntide\r\n"), "{trailer:?}: {rest:?}");
        assert_next_is_own(&proxy, &upstream);
    }
}
