//! Early data (RFC 8470) from a client through a gateway: the upstream sees the mark, and may ask for the request again.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tidegate::http::client::Http3Config;
use tidegate::http::proxy::{Proxy, Upstreams};
use tidegate::http::{Client, Config, IntoResponse, Request, Response, Router, StatusCode};
use tidegate::quic::TransportLimits;
use tidegate::tls::ClientConfig;
use tidegate::{Backend, EventLoop, Listener, Server};

use crate::support::{Running, start};
use crate::upstream_http3::{address, tls};

/// The requests that the upstream has seen: the method, the path, and the mark of early ones.
type Notes = Arc<Mutex<Vec<String>>>;

/// An upstream over HTTP/1.1.
fn upstream(notes: &Notes) -> Running {
    let notes = notes.clone();
    start(move || {
        let note = |notes: &Notes| {
            let notes = notes.clone();
            move |request: Request| -> Response {
                let mark = request.header_str("early-data").unwrap_or("-");
                let line = format!("{} {} {mark}", request.method(), request.path());
                notes.lock().expect("no panic").push(line);
                let is_refused = request.path() == "/careful" && mark == "1";
                if is_refused { StatusCode::TOO_EARLY.into_response() } else { "done".into_response() }
            }
        };
        Router::new().get("/", note(&notes)).post("/", note(&notes)).get("/careful", note(&notes))
    })
}

/// A gateway that accepts early data, and the trust in it, with the sessions of its clients.
fn gateway(upstream: &Running) -> (Running, ClientConfig) {
    let (tls, trust) = tls("127.0.0.1");
    let upstreams = Upstreams::new([&*format!("http://{}", address(upstream))]).expect("upstreams");
    let limits = TransportLimits { early_data: true, ..TransportLimits::default() };
    let config = Config::new().tls(tls).http3_with(limits).expect("QUIC");
    let listener = Listener::bind("127.0.0.1:0").expect("an address");
    let https = config.serve(listener, move || Router::new().fallback(Proxy::new(&upstreams)));
    (Running(Server::new().loops(1).listener(https).run().expect("it starts")), trust)
}

/// Sends a request on a connection of its own, as early data if the client has a session.
fn send(gateway: SocketAddr, trust: &ClientConfig, method: &str, path: &str) -> u16 {
    let defaults = Http3Config::default();
    let transport = TransportLimits { early_data: true, ..defaults.transport };
    let config = Http3Config { transport, ..defaults };
    let (trust, uri) = (trust.clone(), format!("https://{gateway}{path}"));
    let is_post = method == "POST";
    let exchange = async move {
        let client = Client::builder().tls(trust).http3_prior_knowledge(config).build();
        let request = if is_post { client.post(uri).body("ebb") } else { client.get(uri) };
        let response = request.send().await.expect("a response");
        let status = response.status().as_u16();
        response.text().await.expect("a body");
        status
    };
    EventLoop::on(Backend::Epoll).expect("a loop").block_on(exchange).expect("it runs")
}

/// Sends requests until the upstream has seen one of them early: on a path without latency, the handshake may be complete before.
fn send_until_early(gateway: &(Running, ClientConfig), notes: &Notes, path: &str) -> Vec<String> {
    for _ in 0..ATTEMPTS_MAX {
        notes.lock().expect("no panic").clear();
        assert_eq!(send(address(&gateway.0), &gateway.1, "GET", path), 200, "{path}");
        let seen = notes.lock().expect("no panic").clone();
        if seen[0].ends_with(" 1") {
            return seen;
        }
    }
    panic!("no request was early");
}

#[test]
fn an_upstream_sees_which_requests_were_early_and_gets_refused_ones_again() {
    let notes = Notes::default();
    let upstream = upstream(&notes);
    let gateway = gateway(&upstream);
    assert_eq!(send(address(&gateway.0), &gateway.1, "GET", "/"), 200);
    assert_eq!(notes.lock().expect("no panic").split_off(0), ["GET / -"], "a client without a session");
    assert_eq!(send_until_early(&gateway, &notes, "/"), ["GET / 1"]);
    let careful = send_until_early(&gateway, &notes, "/careful");
    assert_eq!(careful, ["GET /careful 1", "GET /careful -"], "425, and again behind the handshake");
    notes.lock().expect("no panic").clear();
    assert_eq!(send(address(&gateway.0), &gateway.1, "POST", "/"), 200);
    assert_eq!(notes.lock().expect("no panic").split_off(0), ["POST / -"], "it waits for the handshake");
}

const ATTEMPTS_MAX: usize = 1_000;
