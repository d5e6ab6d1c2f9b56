//! A proxy whose HTTP/2 upstream refuses, resets and leaves: a request is sent again only where that is safe, and has
//! one answer. And upstreams of `https`, which choose the version.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;

use tidegate::http::proxy::{Proxy, UpstreamUrl, Upstreams};
use tidegate::http::{Request, Response, Router, Server};
use tidegate::tls::{Certificates, ClientConfig, Provider, ServerConfig};

use crate::support::http2_upstream::{self, DATA, HEADERS, RST_STREAM, Upstream};
use crate::support::{Running, split, start};

/// REFUSED_STREAM, CANCEL and INTERNAL_ERROR.
const REFUSED: u32 = 7;
const CANCEL: u32 = 8;
const INTERNAL: u32 = 2;

fn proxy_of(upstreams: &[&Upstream]) -> Running {
    let urls: Vec<_> = upstreams.iter().map(|upstream| upstream.url()).collect();
    let upstreams = Upstreams::new(urls.iter().map(String::as_str)).expect("upstreams");
    start(move || Router::new().fallback(Proxy::new(&upstreams)))
}

/// A connection of a client that has sent a request.
fn ask(proxy: &Running, method: &str, body: &str) -> TcpStream {
    let mut stream = proxy.connect();
    let length = body.len();
    let wire = format!("{method} / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(wire.as_bytes()).expect("the proxy reads");
    stream
}

/// The status and the body of the one response to a request.
fn answer(mut stream: TcpStream) -> (String, String) {
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("a response");
    assert_eq!(text.matches("HTTP/1.1 ").count(), 1, "one response: {text}");
    let (head, body) = split(&text);
    (head[9..12].to_owned(), body)
}

/// Requests one after the other, so that the proxy has a connection to its upstream.
fn warm(proxy: &Running, upstream: &Upstream) -> http2_upstream::Session {
    let client = ask(proxy, "GET", "");
    let mut session = upstream.accept();
    let stream = session.request();
    session.answer(stream, "warm");
    assert_eq!(answer(client), ("200".into(), "warm".into()));
    session
}

#[test]
fn a_refused_stream_is_sent_again_whatever_its_method_is() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&[&upstream]);
    let mut session = warm(&proxy, &upstream);
    let client = ask(&proxy, "POST", "");
    let stream = session.request();
    session.reset(stream, REFUSED);
    let stream = session.request();
    session.answer(stream, "second");
    assert_eq!(answer(client), ("200".into(), "second".into()));
}

#[test]
fn the_code_by_which_http3_rejects_a_request_is_no_refusal_in_http2() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&[&upstream]);
    let mut session = warm(&proxy, &upstream);
    let client = ask(&proxy, "POST", "");
    let stream = session.request();
    session.reset(stream, 0x10b);
    assert_eq!(answer(client).0, "502");
    drop(proxy);
    assert_eq!(session.heads_to_the_end(), 0, "it may have been processed");
}

#[test]
fn a_refused_stream_goes_to_another_upstream() {
    let both = [Upstream::new(), Upstream::new()];
    let proxy = proxy_of(&[&both[0], &both[1]]);
    let threads = both.map(|upstream| {
        thread::spawn(move || {
            let mut session = upstream.accept();
            let stream = session.request();
            let is_first = FIRST.swap(false, std::sync::atomic::Ordering::SeqCst);
            if is_first {
                session.reset(stream, REFUSED);
            } else {
                session.answer(stream, "other");
            }
            session.heads_to_the_end()
        })
    });
    let client = ask(&proxy, "POST", "");
    assert_eq!(answer(client), ("200".into(), "other".into()));
    drop(proxy);
    for thread in threads {
        assert_eq!(thread.join().expect("it is good"), 0, "no further request");
    }
}

/// Whether no upstream of the test above has a request yet.
static FIRST: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(true);

#[test]
fn a_stream_that_is_refused_for_ever_is_sent_a_few_times() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&[&upstream]);
    let mut session = warm(&proxy, &upstream);
    let thread = thread::spawn(move || {
        let mut count = 0;
        while let Some(frame) = session.receive() {
            if frame.kind == HEADERS {
                count += 1;
                session.reset(frame.stream, REFUSED);
            }
        }
        count
    });
    let (status, _) = answer(ask(&proxy, "GET", ""));
    assert!(["502", "503"].contains(&&*status), "{status}");
    drop(proxy);
    let count = thread.join().expect("it is good");
    assert!((1..=3).contains(&count), "{count}");
}

#[test]
fn a_possibly_processed_request_is_not_sent_again() {
    for code in [CANCEL, INTERNAL] {
        let upstream = Upstream::new();
        let proxy = proxy_of(&[&upstream]);
        let mut session = warm(&proxy, &upstream);
        let client = ask(&proxy, "POST", "");
        let stream = session.request();
        session.reset(stream, code);
        assert_eq!(answer(client).0, "502", "{code}");
        drop(proxy);
        assert_eq!(session.heads_to_the_end(), 0, "{code}");
        assert!(!upstream.has_another());
    }
}

#[test]
fn a_refused_request_is_sent_again_with_its_body() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&[&upstream]);
    let client = ask(&proxy, "POST", "a small body");
    // The first stream of a fresh connection.
    let mut session = upstream.accept();
    let stream = session.request();
    session.reset(stream, REFUSED);
    let stream = session.head();
    assert_eq!(session.body(stream), b"a small body");
    session.answer(stream, "second");
    assert_eq!(answer(client), ("200".into(), "second".into()));
}

#[test]
fn a_request_that_a_first_goaway_leaves_unprocessed_is_sent_by_another_connection_with_its_body() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&[&upstream]);
    let client = ask(&proxy, "POST", "a small body");
    let mut session = upstream.accept();
    session.request();
    session.go_away(0);
    drop(session);
    let mut other = upstream.accept();
    let stream = other.head();
    assert_eq!(other.body(stream), b"a small body");
    other.answer(stream, "second");
    assert_eq!(answer(client), ("200".into(), "second".into()));
}

#[test]
fn a_body_that_is_not_complete_is_sent_again_as_far_as_it_has_come() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&[&upstream]);
    let mut session = warm(&proxy, &upstream);
    let mut client = proxy.connect();
    client
        .write_all(b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 9\r\n\r\nhalf")
        .expect("it reads");
    let stream = session.head();
    while session.receive().expect("a frame").kind != DATA {}
    session.reset(stream, REFUSED);
    let stream = session.head();
    client.write_all(b" rest").expect("it reads");
    assert_eq!(session.body(stream), b"half rest");
    session.answer(stream, "whole");
    assert_eq!(answer(client), ("200".into(), "whole".into()));
}

#[test]
fn a_body_of_more_than_64_kib_is_not_sent_again() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&[&upstream]);
    let mut session = warm(&proxy, &upstream);
    session.send(http2_upstream::SETTINGS, 0, 0, &[0, 4, 0, 16, 0, 0]);
    session.send(http2_upstream::WINDOW_UPDATE, 0, 0, &[0, 16, 0, 0]);
    let mut client = proxy.connect();
    const LENGTH: usize = 65 * 1024;
    let head = format!("PUT / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", LENGTH + 5);
    client.write_all(head.as_bytes()).expect("it reads");
    client.write_all(&[b'x'; LENGTH]).expect("it reads");
    let stream = session.head();
    let mut received = 0;
    while received < LENGTH {
        let frame = session.receive().expect("a frame");
        received += if frame.kind == DATA { frame.content.len() } else { 0 };
    }
    session.reset(stream, REFUSED);
    client.write_all(b" rest").expect("it reads");
    client.shutdown(Shutdown::Write).expect("a socket");
    let (status, _) = answer(client);
    assert!(["502", "503"].contains(&&*status), "{status}");
    drop(proxy);
    assert_eq!(session.heads_to_the_end(), 0);
}

#[test]
fn requests_that_goaway_leaves_unprocessed_are_sent_by_another_connection_and_the_rest_are_answered() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&[&upstream]);
    let mut session = warm(&proxy, &upstream);
    let first = ask(&proxy, "POST", "");
    let processed = session.request();
    let second = ask(&proxy, "POST", "");
    session.request();
    session.go_away(processed);
    let mut other = upstream.accept();
    let again = other.request();
    other.answer(again, "second");
    assert_eq!(answer(second), ("200".into(), "second".into()));
    session.answer(processed, "first");
    assert_eq!(answer(first), ("200".into(), "first".into()));
    assert_eq!(session.heads_to_the_end(), 0, "the old connection ends behind its last stream");
    // The other one serves the next requests.
    let third = ask(&proxy, "GET", "");
    let stream = other.request();
    other.answer(stream, "third");
    assert_eq!(answer(third), ("200".into(), "third".into()));
}

#[test]
fn requests_that_goaway_may_have_processed_fail_if_the_connection_ends() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&[&upstream]);
    let mut session = warm(&proxy, &upstream);
    let client = ask(&proxy, "POST", "");
    let stream = session.request();
    session.go_away(stream);
    drop(session);
    assert_eq!(answer(client).0, "502");
    drop(proxy);
    assert!(!upstream.has_another());
}

#[test]
fn clients_that_ask_for_upgrades_eject_no_upstream_of_http2() {
    let named = |name: &'static str| start(move || Router::new().fallback(move || name));
    let (a, b) = (named("a"), named("b"));
    let urls = [format!("h2c://{}", a.0.address()), format!("http://{}", b.0.address())];
    let upstreams = Upstreams::new(urls.iter().map(String::as_str)).expect("upstreams");
    let proxy = start(move || Router::new().fallback(Proxy::new(&upstreams)));
    for _ in 0..20 {
        let mut stream = proxy.connect();
        let wire = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade, close\r\nUpgrade: websocket\r\n\r\n";
        stream.write_all(wire.as_bytes()).expect("the proxy reads");
        assert_eq!(answer(stream), ("200".into(), "b".into()));
    }
    let mut answers: Vec<_> = (0..10).map(|_| answer(ask(&proxy, "GET", "")).1).collect();
    answers.sort_unstable();
    answers.dedup();
    assert_eq!(answers, ["a", "b"]);
}

/// The hosts that an upstream has got for requests without one.
fn hosts_without_host(proxy: &Running) -> [String; 2] {
    ["HTTP/1.0", "HTTP/1.1\r\nHost:\r\nConnection: close"].map(|version| {
        let response = proxy.exchange(&format!("GET /host {version}\r\n\r\n"));
        let (head, body) = split(&response);
        assert!(head.starts_with("HTTP/1.1 200 "), "{version}: {response}");
        body
    })
}

#[test]
fn a_response_whose_end_comes_behind_its_last_byte_is_not_reset() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&[&upstream]);
    let mut session = warm(&proxy, &upstream);
    let client = ask(&proxy, "GET", "");
    let stream = session.request();
    session.send(HEADERS, http2_upstream::END_HEADERS, stream, &[0x88, 0x0f, 0x0d, 1, b'4']);
    session.send(DATA, 0, stream, b"tide");
    // The next request shows that the proxy has read the data.
    let next = ask(&proxy, "GET", "");
    let second = loop {
        let frame = session.receive().expect("a request");
        assert_ne!(frame.kind, RST_STREAM, "stream {}", frame.stream);
        if frame.kind == HEADERS {
            break frame.stream;
        }
    };
    session.send(DATA, http2_upstream::END_STREAM, stream, b"");
    assert_eq!(answer(client), ("200".into(), "tide".into()));
    session.answer(second, "next");
    assert_eq!(answer(next), ("200".into(), "next".into()));
    drop(proxy);
    while let Some(frame) = session.receive() {
        assert_ne!(frame.kind, RST_STREAM, "stream {}", frame.stream);
    }
}

#[test]
fn an_upstream_of_https_chooses_the_version() {
    for (protocols, offers, expected) in [
        (&["h2", "http/1.1"][..], true, "HTTP/2.0"),
        (&["h2", "http/1.1"][..], false, "HTTP/1.1"),
        (&["http/1.1"][..], true, "HTTP/1.1"),
    ] {
        let provider = Provider::ring();
        let key = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
        let certificates =
            Certificates::from_pem(&provider, key.cert.pem().as_bytes(), key.signing_key.serialize_pem().as_bytes());
        let tls = ServerConfig::builder(&provider, certificates.expect("a certificate"));
        let tls = tls.alpn(protocols.iter().copied()).build().expect("a configuration");
        let router = || {
            Router::new()
                .get("/version", |request: Request| format!("{:?}", request.version()))
                .get("/host", |request: Request| request.host().to_owned())
                .post("/echo", async |request: Request| Response::new().body(request.into_body()))
        };
        let server = Server::bind("127.0.0.1:0").expect("a port").loops(1).tls(tls).start(router);
        let server = Running(server.expect("it starts"));
        let trusting = ClientConfig::dangerous_builder_without_verification(&provider).build().expect("it is valid");
        let url: UpstreamUrl = format!("https://{}", server.0.address()).parse().expect("a URL");
        let upstreams = Upstreams::builder().server(url).tls(trusting).http2(offers).build().expect("upstreams");
        let proxy = start(move || Router::new().fallback(Proxy::new(&upstreams)));
        for _ in 0..3 {
            assert_eq!(proxy.get("/version").1, expected, "{protocols:?}");
        }
        let authority = server.0.address().to_string();
        let host = if expected == "HTTP/2.0" { authority.as_str() } else { "" };
        assert_eq!(hosts_without_host(&proxy), [host; 2], "{protocols:?}");
        let body = "tide ".repeat(20_000);
        let length = body.len();
        let head = format!("POST /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
        let echoed = proxy.exchange(&format!("{head}{body}"));
        assert!(echoed.ends_with(&body), "{protocols:?}");
    }
}

#[test]
fn an_upstream_of_http2_can_be_a_unix_socket() {
    let path = std::env::temp_dir().join(format!("tidegate-h2c-{}.sock", std::process::id()));
    let router = || {
        Router::new()
            .get("/version", |request: Request| format!("{:?}", request.version()))
            .get("/host", |request: Request| request.host().to_owned())
            .post("/echo", async |request: Request| Response::new().body(request.into_body()))
    };
    let server = Server::bind(&format!("unix:{}", path.display())).expect("a socket").loops(1).start(router);
    let _server = Running(server.expect("it starts"));
    for (scheme, version) in [("unix+h2c", "HTTP/2.0"), ("unix", "HTTP/1.1")] {
        let upstreams = Upstreams::new([&*format!("{scheme}:{}", path.display())]).expect("upstreams");
        let proxy = start(move || Router::new().fallback(Proxy::new(&upstreams)));
        for _ in 0..3 {
            assert_eq!(proxy.get("/version").1, version, "{scheme}");
        }
        assert_eq!(proxy.get("/host").1, "test", "{scheme}");
        let host = if scheme == "unix" { "" } else { "localhost" };
        assert_eq!(hosts_without_host(&proxy), [host; 2], "{scheme}");
        let body = "tide ".repeat(20_000);
        let length = body.len();
        let head = format!("POST /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
        assert!(proxy.exchange(&format!("{head}{body}")).ends_with(&body), "{scheme}");
    }
}
