//! A proxy whose upstreams speak HTTP/3, on both backends: bodies both ways, upstreams that leave, clients that cancel.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tidegate::http::proxy::{HealthCheck, Http3Config, Proxy, UpstreamLimits, UpstreamUrl, Upstreams, UpstreamsError};
use tidegate::http::{Body, EarlyData, Request, Response, Router, Server, WebSocketUpgrade};
use tidegate::http1::Fields;
use tidegate::metrics::{Format, MetricsText};
use tidegate::tls::rustls::RootCertStore;
use tidegate::tls::{Certificates, ClientConfig, Provider, ServerConfig};
use tidegate::websocket::Message;
use tidegate::{Backend, task};

use crate::support::proxy_peers::Peer;
use crate::support::{Running, split};

const BACKENDS: [Backend; 2] = [Backend::Epoll, Backend::Auto];

/// A certificate of this name, and the trust in it.
pub(crate) fn tls(name: &str) -> (ServerConfig, ClientConfig) {
    let provider = Provider::aws_lc_rs();
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
    let key = made.signing_key.serialize_pem();
    let certificates = Certificates::from_pem(&provider, made.cert.pem().as_bytes(), key.as_bytes()).expect("PEM");
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).expect("a root");
    let server = ServerConfig::builder(&provider, certificates).build().expect("a configuration");
    (server, ClientConfig::builder(&provider, roots).expect("roots").build().expect("a configuration"))
}

fn upstream_at(
    address: SocketAddr,
    backend: Backend,
    tls: &ServerConfig,
    router: impl Fn() -> Router + Send + Sync + 'static,
) -> Running {
    let server = Server::bind(&address.to_string()).expect("an address").backend(backend).loops(1).tls(tls.clone());
    Running(server.http3().expect("QUIC").start(router).expect("it starts"))
}

fn upstream_on(backend: Backend, tls: &ServerConfig, router: impl Fn() -> Router + Send + Sync + 'static) -> Running {
    upstream_at(([127, 0, 0, 1], 0).into(), backend, tls, router)
}

pub(crate) fn address(server: &Running) -> SocketAddr {
    server.0.address().ip().expect("an IP address")
}

fn url(server: &Running) -> UpstreamUrl {
    format!("https+h3://{}", address(server)).parse().expect("a URL")
}

fn proxy_of(backend: Backend, upstreams: &Upstreams) -> Running {
    let upstreams = upstreams.clone();
    let server = Server::bind("127.0.0.1:0").expect("an address").backend(backend).half_close(true).loops(1);
    Running(server.start(move || Router::new().fallback(Proxy::new(&upstreams))).expect("it starts"))
}

/// A proxy with one upstream.
fn proxy_on(backend: Backend, upstream: &Running, tls: &ClientConfig) -> Running {
    let upstreams = Upstreams::builder().server(url(upstream)).tls(tls.clone()).build().expect("upstreams");
    proxy_of(backend, &upstreams)
}

/// The head and the body of the response to a GET.
fn get(proxy: SocketAddr, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(proxy).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(120))).expect("a socket");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("it reads");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("a response");
    split(&response)
}

/// Notes of functions.
type Notes = Arc<Mutex<Vec<String>>>;

fn until(notes: &Notes, is_so: impl Fn(&[String]) -> bool) {
    for _ in 0..12_000 {
        if is_so(&notes.lock().expect("no panic")) {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("it takes too long: {notes:?}");
}

fn router(notes: &Notes) -> Router {
    let (of_read, of_endless, of_cut) = (notes.clone(), notes.clone(), notes.clone());
    Router::new()
        .get("/", |request: Request| format!("{:?}", request.version()))
        .get("/port", |request: Request| request.peer().ip().expect("an address").port().to_string())
        .get("/large", || vec![b'x'; 3_000_000])
        .get("/pieces", || {
            Response::new().body(Body::produce(async |writer| {
                writer.write(b"ebb".to_vec()).await?;
                let mut trailers = Fields::new();
                trailers.push("Checksum", "7")?;
                Ok(writer.trailers(trailers)?)
            }))
        })
        .get("/cut", move || {
            let notes = of_cut.clone();
            Response::new().body(Body::produce(async move |writer| {
                writer.write(b"ebb".to_vec()).await?;
                // A reset drops the bytes that are on their way.
                while notes.lock().expect("no panic").is_empty() {
                    task::sleep(Duration::from_millis(1)).await;
                }
                Err("the function fails".into())
            }))
        })
        .get("/endless", move || {
            let notes = of_endless.clone();
            Response::new().body(Body::produce(async move |writer| {
                loop {
                    if let Err(error) = writer.write(vec![b'z'; 10_000]).await {
                        notes.lock().expect("no panic").push("given up".into());
                        return Err(error);
                    }
                }
            }))
        })
        .post("/read", async move |mut request: Request| {
            let mut text = String::new();
            while let Some(piece) = request.body_mut().next().await {
                match piece {
                    Ok(piece) => {
                        text.push_str(&String::from_utf8_lossy(&piece));
                        of_read.lock().expect("no panic").push("begun".into());
                    }
                    Err(_) => {
                        of_read.lock().expect("no panic").push(format!("{text}, cut off"));
                        return String::new();
                    }
                }
            }
            text
        })
        .post("/echo", async |request: Request| -> Body { request.into_body() })
        .get("/ws", echo)
}

/// Sends messages back.
fn echo(upgrade: WebSocketUpgrade) -> Response {
    upgrade.channel(async |mut channel| {
        while let Some(message) = channel.recv().await? {
            if matches!(message, Message::Binary(_)) {
                channel.send(message)?;
            }
        }
        Ok::<_, Box<dyn std::error::Error>>(())
    })
}

/// Runs a scenario with a proxy and its upstream, on each backend.
fn each(scenario: impl Fn(&Running, &Notes)) {
    for backend in BACKENDS {
        let (server, client) = tls("127.0.0.1");
        let notes = Notes::default();
        let own = notes.clone();
        let upstream = upstream_on(backend, &server, move || router(&own));
        let proxy = proxy_on(backend, &upstream, &client);
        scenario(&proxy, &notes);
    }
}

#[test]
fn requests_and_bodies_pass_both_ways() {
    each(|proxy, _| {
        assert_eq!(proxy.get("/").1, "HTTP/3.0");
        let large = proxy.get("/large");
        assert!(large.0.contains("Content-Length: 3000000"), "{}", large.0);
        assert_eq!(large.1.len(), 3_000_000);
        let head = proxy.exchange("HEAD /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert!(head.contains("Content-Length: 3000000\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        assert!(proxy.get("/nothing").0.starts_with("HTTP/1.1 404 "));
        // A body of unknown length, with trailers.
        let pieces = proxy.exchange("GET /pieces HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: close, TE\r\n\r\n");
        assert!(pieces.contains("Transfer-Encoding: chunked\r\n"), "{pieces}");
        assert!(pieces.to_lowercase().ends_with("\r\n3\r\nebb\r\n0\r\nchecksum: 7\r\n\r\n"), "{pieces}");
        let body = "y".repeat(1_000_000);
        let start = "POST /read HTTP/1.1\r\nHost: a\r\nConnection: close\r\n";
        // The function answers once it has all of it.
        let known = proxy.exchange(&format!("{start}Content-Length: 1000000\r\n\r\n{body}"));
        assert!(split(&known).1 == body, "{}", split(&known).0);
        let chunked = format!("{start}Transfer-Encoding: chunked\r\n\r\nf4240\r\n{body}\r\n0\r\n\r\n");
        let received = proxy.exchange(&chunked);
        assert!(split(&received).1 == body, "{}", split(&received).0);
    });
}

/// The client reads while it sends: the proxy's loop gets bytes of both its TCP connection and its stream in each turn.
#[test]
fn an_echo_in_chunks_passes_while_it_is_sent() {
    each(|proxy, _| {
        let body: Vec<u8> = (0..1_000_000_u32).map(|at| b'a' + (at % 23) as u8).collect();
        let mut wire =
            b"POST /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        for piece in body.chunks(7_000) {
            wire.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
            wire.extend_from_slice(piece);
            wire.extend_from_slice(b"\r\n");
        }
        wire.extend_from_slice(b"0\r\n\r\n");
        let mut client = Peer(proxy.connect());
        client.0.set_read_timeout(Some(Duration::from_secs(120))).expect("a socket");
        let mut sender = client.0.try_clone().expect("a socket");
        let sending = thread::spawn(move || sender.write_all(&wire));
        let head = client.head();
        assert!(head.contains("Transfer-Encoding: chunked\r\n"), "{head}");
        let echoed = client.chunks();
        assert!(echoed == body, "{} bytes", echoed.len());
        sending.join().expect("no panic").expect("the proxy reads");
    });
}

#[test]
fn requests_share_a_connection() {
    each(|proxy, _| {
        let proxy = address(proxy);
        // As many as a server permits at first: for a further one the gateway may connect once more.
        let threads: Vec<_> = (0..16).map(|_| thread::spawn(move || get(proxy, "/port").1)).collect();
        let ports: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("a response")).collect();
        assert!(ports.iter().all(|port| *port == ports[0]), "{ports:?}");
    });
}

#[test]
fn a_request_that_is_cut_off_is_none_at_the_upstream_and_never_takes_a_part_of_the_next_one() {
    each(|proxy, notes| {
        for _ in 0..3 {
            notes.lock().expect("no panic").clear();
            let mut client = proxy.connect();
            client.write_all(b"POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nebb").expect("it reads");
            // The upstream has the first part, so the end comes alone.
            until(notes, |notes| notes == ["begun"]);
            drop(client);
            until(notes, |notes| notes == ["begun", "ebb, cut off"]);
            let next = "POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nConnection: close\r\n\r\nflow";
            assert_eq!(split(&proxy.exchange(next)).1, "flow");
        }
    });
}

#[test]
fn a_response_that_is_cut_off_is_none_for_the_client() {
    each(|proxy, notes| {
        let mut client = proxy.connect();
        client.write_all(b"GET /cut HTTP/1.1\r\nHost: a\r\n\r\n").expect("it reads");
        let mut received = Vec::new();
        while !received.ends_with(b"ebb\r\n") {
            let mut byte = [0];
            client.read_exact(&mut byte).expect("a byte");
            received.push(byte[0]);
        }
        notes.lock().expect("no panic").push("go".into());
        let mut rest = Vec::new();
        // A reset, or an end without the last chunk.
        let _ = client.read_to_end(&mut rest);
        assert_eq!(String::from_utf8_lossy(&rest), "");
        assert_eq!(proxy.get("/").1, "HTTP/3.0");
    });
}

#[test]
fn a_client_that_leaves_cancels_its_request() {
    each(|proxy, notes| {
        let mut client = proxy.connect();
        client.write_all(b"GET /endless HTTP/1.1\r\nHost: a\r\n\r\n").expect("it reads");
        client.read_exact(&mut [0; 100_000]).expect("a body");
        drop(client);
        until(notes, |notes| notes == ["given up"]);
        assert_eq!(proxy.get("/").1, "HTTP/3.0");
    });
}

#[test]
fn a_websocket_of_http1_becomes_an_extended_connect() {
    each(|proxy, _| {
        let mut client = proxy.connect();
        let handshake = "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
            Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        client.write_all(handshake.as_bytes()).expect("it reads");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            client.read_exact(&mut byte).expect("a byte");
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).expect("text");
        assert!(head.starts_with("HTTP/1.1 101 ") && head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
        client.write_all(&[0x82, 0x83, 0, 0, 0, 0, b'e', b'b', b'b']).expect("it reads");
        let mut echo = [0; 5];
        client.read_exact(&mut echo).expect("an echo");
        assert_eq!(&echo, b"\x82\x03ebb");
    });
}

#[test]
fn an_upstream_that_stops_is_a_bad_gateway_until_it_is_back() {
    for backend in BACKENDS {
        let (server, client) = tls("127.0.0.1");
        let upstream = upstream_on(backend, &server, || router(&Notes::default()));
        let at = address(&upstream);
        let proxy = proxy_on(backend, &upstream, &client);
        assert_eq!(proxy.get("/").1, "HTTP/3.0");
        drop(upstream);
        for _ in 0..3 {
            let head = proxy.get("/").0;
            assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
        }
        let _again = upstream_at(at, backend, &server, || router(&Notes::default()));
        assert_eq!(proxy.get("/").1, "HTTP/3.0");
    }
}

#[test]
fn no_request_fails_while_one_of_two_upstreams_leaves() {
    for backend in BACKENDS {
        let (server, client) = tls("127.0.0.1");
        let start = || upstream_on(backend, &server, || router(&Notes::default()));
        let (first, second) = (start(), start());
        let builder = Upstreams::builder().server(url(&first)).server(url(&second)).tls(client);
        let proxy = proxy_of(backend, &builder.build().expect("upstreams"));
        let (at, sent) = (address(&proxy), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let (head, body) = get(at, "/");
                        assert_eq!((&head[..13], &*body), ("HTTP/1.1 200 ", "HTTP/3.0"), "{head}");
                        sent.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            while sent.load(Ordering::SeqCst) < 50 {
                thread::yield_now();
            }
            first.0.drain(Duration::from_secs(60));
        });
        drop((first, second));
    }
}

#[test]
fn health_checks_go_by_http3() {
    let (server, client) = tls("127.0.0.1");
    let checks = Notes::default();
    let own = checks.clone();
    let upstream = upstream_on(Backend::Epoll, &server, move || {
        let own = own.clone();
        Router::new().get("/health", move |request: Request| {
            own.lock().expect("no panic").push(format!("{:?}", request.version()));
            "well"
        })
    });
    let mut check = HealthCheck::default();
    check.path = "/health".into();
    let builder = Upstreams::builder().server(url(&upstream)).tls(client).health_check(check);
    let upstreams = builder.build().expect("upstreams");
    let _upkeep = upstreams.maintain_on_thread().expect("a thread");
    until(&checks, |checks| !checks.is_empty());
    assert_eq!(checks.lock().expect("no panic")[0], "HTTP/3.0");
}

#[test]
fn an_upstream_without_http3_or_with_another_certificate_is_a_bad_gateway() {
    let (server, client) = tls("sea.example");
    let other_name = upstream_on(Backend::Epoll, &server, || router(&Notes::default()));
    let head = proxy_on(Backend::Epoll, &other_name, &client).get("/").0;
    assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
    // TCP alone.
    let plain = Server::bind("127.0.0.1:0").expect("an address").loops(1).tls(server);
    let plain = Running(plain.start(|| router(&Notes::default())).expect("it starts"));
    let head = proxy_on(Backend::Epoll, &plain, &client).get("/").0;
    assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
}

#[test]
fn a_silent_port_is_a_timeout() {
    let (_, client) = tls("127.0.0.1");
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    let url = format!("https+h3://{}", silent.local_addr().expect("an address")).parse().expect("a URL");
    let mut limits = UpstreamLimits::default();
    limits.connect_timeout = Duration::from_millis(50);
    let upstreams = Upstreams::builder().server(url).tls(client).limits(limits).build().expect("upstreams");
    let head = proxy_of(Backend::Epoll, &upstreams).get("/").0;
    assert!(head.starts_with("HTTP/1.1 504 "), "{head}");
}

#[test]
fn connections_have_a_kind_of_their_own_in_the_metrics() {
    for backend in BACKENDS {
        let (server, client) = tls("127.0.0.1");
        let upstream = upstream_on(backend, &server, || Router::new().get("/", || "page"));
        let upstreams = Upstreams::builder().server(url(&upstream)).tls(client).build().expect("upstreams");
        let proxy = proxy_of(backend, &upstreams);
        assert_eq!(get(address(&proxy), "/").1, "page");
        let mut text = MetricsText::new(Format::Prometheus);
        Upstreams::write_metrics(&[("app", &upstreams)], &mut text);
        let text = text.finish();
        for (kind, count) in [("idle", 0), ("http2", 0), ("http3", 1)] {
            let line = format!("kind=\"{kind}\"}} {count}\n");
            let is_there = text
                .split_inclusive('\n')
                .any(|sample| sample.starts_with("tidegate_upstream_connections{") && sample.ends_with(&line));
            assert!(is_there, "{kind}: {text}");
        }
    }
}

#[test]
fn an_upstream_may_refuse_an_early_request() {
    for backend in BACKENDS {
        let (server, client) = tls("127.0.0.1");
        let upstream = upstream_on(backend, &server, || Router::new().get("/", || "page").with(EarlyData::refuse()));
        let proxy = proxy_on(backend, &upstream, &client);
        for (field, status) in [("Early-Data: 1\r\n", "425"), ("", "200")] {
            let mut stream = TcpStream::connect(address(&proxy)).expect("a connection");
            write!(stream, "GET / HTTP/1.1\r\nHost: a\r\n{field}Connection: close\r\n\r\n").expect("it reads");
            let mut response = String::new();
            stream.read_to_string(&mut response).expect("a response");
            assert_eq!(response.split(' ').nth(1), Some(status), "{response}");
        }
    }
}

#[test]
fn upstreams_get_no_early_data() {
    let url: UpstreamUrl = "https+h3://127.0.0.1".parse().expect("a URL");
    let mut http3 = Http3Config::default();
    http3.transport.early_data = true;
    let built = Upstreams::builder().server(url).tls(tls("a").1).http3(http3).build();
    assert_eq!(built.err(), Some(UpstreamsError::EarlyData));
}

#[test]
fn https_h3_needs_tls_of_version_1_3() {
    let url: UpstreamUrl = "https+h3://127.0.0.1".parse().expect("a URL");
    assert_eq!(Upstreams::builder().server(url.clone()).build().err(), Some(UpstreamsError::NoTls));
    let builder = Upstreams::builder().server(url).tls(tls("a").1).send_proxy_header();
    assert_eq!(builder.build().err(), Some(UpstreamsError::ProxyHeader));
}
