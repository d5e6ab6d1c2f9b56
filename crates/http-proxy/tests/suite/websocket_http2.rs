//! WebSockets of HTTP/2 clients (RFC 8441) through a proxy, on both backends.

use std::net::TcpStream;

use tidegate::Backend;
use tidegate::http::proxy::{Edit, Proxy, Upstreams};
use tidegate::http::{Router, Server};
use tidegate::websocket::handshake::accept_value;

use crate::support::Running;
use crate::support::http2_peer::{Peer, RST_STREAM};
use crate::support::proxy_peers::{self, Upstream, upstreams};
use crate::support::tunnel;

const OFFER: [(&str, &str); 3] = [
    ("sec-websocket-version", "13"),
    ("sec-websocket-protocol", "tide, ebb"),
    ("sec-websocket-extensions", "permessage-deflate"),
];

fn proxy_on(backend: Backend, proxy: impl Fn() -> Proxy + Send + Sync + 'static) -> Running {
    let router = move || Router::new().fallback(proxy());
    let server = Server::bind("127.0.0.1:0").expect("an address").backend(backend).loops(1);
    Running(server.start(router).expect("the server starts"))
}

fn on_both_backends(
    proxy: impl Fn(&Upstreams) -> Proxy + Copy + Send + Sync + 'static,
    test: impl Fn(&Running, &Upstream),
) {
    for backend in [Backend::Epoll, Backend::Auto] {
        let upstream = Upstream::new();
        let upstreams = upstreams(&[&upstream]);
        test(&proxy_on(backend, move || proxy(&upstreams)), &upstream);
    }
}

/// A client whose stream 1 asks for a WebSocket, the connection of the proxy for it, and the head of its request.
fn begin(proxy: &Running, upstream: &Upstream) -> (Peer<TcpStream>, proxy_peers::Peer, String) {
    let mut client = Peer::new(proxy.connect());
    client.extended_connect(1, "websocket", "/chat?room=1", &OFFER);
    let mut server = upstream.accept();
    let head = server.head();
    (client, server, head)
}

fn value<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

fn accepted(head: &str) -> String {
    let accept = accept_value(value(head, "sec-websocket-key").expect("a key").as_bytes());
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: tide\r\n\r\n"
    )
}

#[test]
fn an_upstream_of_http1_gets_the_handshake_of_its_version() {
    on_both_backends(Proxy::new, |proxy, upstream| {
        let (mut client, mut server, head) = begin(proxy, upstream);
        assert!(head.starts_with("GET /chat?room=1 HTTP/1.1\r\n"), "{head}");
        for (name, expected) in OFFER.into_iter().chain([("upgrade", "websocket")]) {
            assert_eq!(value(&head, name), Some(expected), "{head}");
        }
        assert!(value(&head, "connection").is_some_and(|value| value.eq_ignore_ascii_case("upgrade")), "{head}");
        assert!(value(&head, "host").is_some_and(|host| !host.is_empty()), "{head}");
        assert_eq!(value(&head, "sec-websocket-key").map(str::len), Some(24), "{head}");
        assert!(!head.contains("\r\n:"), "{head}");
        client.data(1, b"early ");
        server.send(accepted(&head) + "hello");
        client.read_until(|client| client.stream(1).body == b"hello");
        let received = client.stream(1);
        assert_eq!((received.status(), received.field("sec-websocket-protocol")), ("200", Some("tide")));
        for gone in ["upgrade", "connection", "sec-websocket-accept", "content-length"] {
            assert_eq!(received.field(gone), None, "{received:?}");
        }
        tunnel::both_ways(&mut client, &mut server);
    });
}

#[test]
fn each_handshake_has_a_key_of_its_own_and_that_of_a_client_is_dropped() {
    on_both_backends(Proxy::new, |proxy, upstream| {
        let mut client = Peer::new(proxy.connect());
        let theirs = "dGhlIHNhbXBsZSBub25jZQ==";
        let mut keys = Vec::new();
        for stream in [1, 3] {
            let more = [("sec-websocket-version", "13"), ("sec-websocket-key", theirs)];
            client.extended_connect(stream, "websocket", "/", &more);
            let mut server = upstream.accept();
            let head = server.head();
            assert_eq!(head.to_ascii_lowercase().matches("sec-websocket-key").count(), 1, "{head}");
            keys.push(value(&head, "sec-websocket-key").expect("a key").to_owned());
            server.send(accepted(&head));
            client.read_until(|client| !client.stream(stream).fields.is_empty());
        }
        assert!(keys[0] != keys[1] && keys.iter().all(|key| key != theirs), "{keys:?}");
    });
}

/// A test's change of a response.
type Change = fn(String) -> String;

#[test]
fn a_wrong_answer_to_the_key_opens_no_tunnel() {
    on_both_backends(Proxy::new, |proxy, upstream| {
        let wrong: [(&str, Change); 3] = [
            ("another answer", |head| head.replace("Accept: ", "Accept: A")),
            ("no answer", |head| head.replace("Sec-WebSocket-Accept", "X-Accept")),
            ("another protocol", |head| head.replace("Upgrade: websocket", "Upgrade: tide")),
        ];
        for (what, change) in wrong {
            let (mut client, mut server, head) = begin(proxy, upstream);
            server.send(change(accepted(&head)));
            client.read_until(|client| client.is_over(1));
            assert_eq!(client.stream(1).status(), "502", "{what}");
        }
    });
}

#[test]
fn a_refusal_is_passed_on_and_a_success_that_is_no_switch_is_none() {
    on_both_backends(Proxy::new, |proxy, upstream| {
        for (response, status, body) in [
            ("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno", "403", "no"),
            ("HTTP/1.1 426 Upgrade Required\r\nSec-WebSocket-Version: 8\r\nContent-Length: 0\r\n\r\n", "426", ""),
        ] {
            let (mut client, mut server, _) = begin(proxy, upstream);
            server.send(response);
            client.read_until(|client| client.is_over(1));
            assert_eq!((client.stream(1).status(), client.stream(1).body), (status, body.as_bytes().to_vec()));
        }
        let (mut client, mut server, _) = begin(proxy, upstream);
        server.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        client.read_until(|client| client.is_over(1));
        assert_eq!(client.stream(1).status(), "501");
    });
}

#[test]
fn a_reset_of_either_side_ends_the_other() {
    on_both_backends(Proxy::new, |proxy, upstream| {
        let (mut client, mut server, head) = begin(proxy, upstream);
        server.send(accepted(&head) + "hello");
        client.read_until(|client| client.stream(1).body == b"hello");
        client.frame(RST_STREAM, 0, 1, &8_u32.to_be_bytes());
        assert_eq!(server.rest().0, b"");
        let (mut client, mut server, head) = begin(proxy, upstream);
        server.send(accepted(&head) + "hello");
        client.read_until(|client| client.stream(1).body == b"hello");
        rustix::net::sockopt::set_socket_linger(&server.0, Some(std::time::Duration::ZERO)).expect("a socket");
        drop(server);
        client.read_until(|client| client.is_over(1));
        assert!(client.stream(1).reset.is_some(), "{:?}", client.stream(1));
    });
}

#[test]
fn protocols_that_are_not_passed_on_are_refused() {
    on_both_backends(Proxy::new, |proxy, _| {
        let mut client = Peer::new(proxy.connect());
        client.extended_connect(1, "connect-udp", "/", &[]);
        client.read_until(|client| client.is_over(1));
        assert_eq!(client.stream(1).status(), "501");
    });
    on_both_backends(
        |upstreams| Proxy::new(upstreams).upgrades([]),
        |proxy, _| {
            let mut client = Peer::new(proxy.connect());
            client.extended_connect(1, "websocket", "/", &OFFER);
            client.read_until(|client| client.is_over(1));
            assert_eq!(client.stream(1).status(), "501");
        },
    );
}

#[test]
fn routes_and_edits_count_as_for_a_get() {
    let stripped = |upstreams: &Upstreams| {
        Proxy::new(upstreams).strip_prefix("/chat").edit_request(Edit::set("X-Gate", "tide").expect("a field"))
    };
    on_both_backends(stripped, |proxy, upstream| {
        let (_client, _server, head) = begin(proxy, upstream);
        assert!(head.starts_with("GET /?room=1 HTTP/1.1\r\n"), "{head}");
        assert_eq!(value(&head, "x-gate"), Some("tide"));
    });
}
