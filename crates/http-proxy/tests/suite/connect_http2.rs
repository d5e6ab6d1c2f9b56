//! CONNECT by an HTTP/2 client through a proxy: the stream is joined to an HTTP/1.1 connection.

use std::net::TcpStream;

use tidegate::http::Router;
use tidegate::http::proxy::Proxy;

use crate::support::http2_peer::{Peer, RST_STREAM};
use crate::support::proxy_peers::{self, Upstream, upstreams};
use crate::support::tunnel;
use crate::support::{Running, start};

fn proxy_of(upstream: &Upstream, connect: bool) -> Running {
    let upstreams = upstreams(&[upstream]);
    start(move || {
        let proxy = Proxy::new(&upstreams);
        Router::new().fallback(if connect { proxy.pass_connect() } else { proxy })
    })
}

fn connect(client: &mut Peer<TcpStream>, stream: u32) {
    client.headers(stream, &[(":method", "CONNECT"), (":authority", "sea.example:443")], false);
}

/// A client whose stream 1 asked for a tunnel, and the connection of the proxy for it, which has the request.
fn begin(proxy: &Running, upstream: &Upstream) -> (Peer<TcpStream>, proxy_peers::Peer) {
    let mut client = Peer::new(proxy.connect());
    connect(&mut client, 1);
    let mut server = upstream.accept();
    assert!(server.head().starts_with("CONNECT sea.example:443 HTTP/1.1\r\nHost: sea.example:443\r\n"));
    (client, server)
}

#[test]
fn bytes_go_both_ways_and_each_end_is_passed_on() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream, true);
    let (mut client, mut server) = begin(&proxy, &upstream);
    client.data(1, b"early ");
    server.send("HTTP/1.1 200 OK\r\n\r\nhello");
    client.read_until(|client| client.stream(1).body == b"hello");
    assert_eq!(client.stream(1).status(), "200");
    tunnel::both_ways(&mut client, &mut server);
    // Other streams of the connection are served.
    client.request(3, "GET", "/", &[], true);
    let mut server = upstream.accept();
    server.head();
    server.send("HTTP/1.1 204 No Content\r\n\r\n");
    client.read_until(|client| client.is_over(3));
    assert_eq!(client.stream(3).status(), "204");
}

#[test]
fn a_reset_of_either_side_ends_the_other() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream, true);
    let (mut client, mut server) = begin(&proxy, &upstream);
    server.send("HTTP/1.1 200 OK\r\n\r\nhello");
    client.read_until(|client| client.stream(1).body == b"hello");
    client.frame(RST_STREAM, 0, 1, &8_u32.to_be_bytes());
    assert_eq!(server.rest().0, b"");
    let (mut client, mut server) = begin(&proxy, &upstream);
    server.send("HTTP/1.1 200 OK\r\n\r\nhello");
    client.read_until(|client| client.stream(1).body == b"hello");
    rustix::net::sockopt::set_socket_linger(&server.0, Some(std::time::Duration::ZERO)).expect("a socket");
    drop(server);
    client.read_until(|client| client.is_over(1));
    assert!(client.stream(1).reset.is_some(), "{:?}", client.stream(1));
}

#[test]
fn a_tunnel_that_is_refused_or_not_allowed_has_a_response() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream, true);
    let (mut client, mut server) = begin(&proxy, &upstream);
    server.send("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno");
    client.read_until(|client| client.is_over(1));
    assert_eq!((client.stream(1).status(), client.stream(1).body), ("403", b"no".to_vec()));
    drop(proxy);
    let proxy = proxy_of(&upstream, false);
    let mut client = Peer::new(proxy.connect());
    connect(&mut client, 1);
    client.read_until(|client| client.is_over(1));
    assert_eq!(client.stream(1).status(), "405");
}
