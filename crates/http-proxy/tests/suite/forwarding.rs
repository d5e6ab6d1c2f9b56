//! A proxy over real connections, between a client and upstreams that the test plays byte by byte.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use tidegate::ConnectionRate;
use tidegate::http::proxy::{Edit, HealthCheck, Proxy, RateLimit, UpstreamLimits, Upstreams};
use tidegate::http::{Limits, Next, RequestIds, Router, Server, StatusCode, TraceContexts};
use tidegate::proxy_protocol::{Builder, Header, Networks, Policy};
use tidegate_testkit::ClosedPort;

use crate::support::proxy_peers::{self, Upstream, accept_any, client, proxy_of, upstreams};
use crate::support::{Running, start, start_with};

#[test]
fn a_request_is_passed_on_as_it_was_understood() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    let mut client = client(&proxy);
    client.send(
        "GET /a%20b?c=%2F HTTP/1.1\r\nHOST: Sea.Example:81\r\nAccept:  */*  \r\nConnection: keep-alive, X-Secret\r\n\
         X-Secret: 1\r\nKeep-Alive: 5\r\nX-Forwarded-For: 9.9.9.9\r\nCookie: a=b\r\nCookie: c=d\r\n\r\n",
    );
    let mut server = upstream.accept();
    assert_eq!(
        server.head(),
        "GET /a%20b?c=%2F HTTP/1.1\r\nHost: Sea.Example:81\r\nAccept: */*\r\nCookie: a=b\r\nCookie: c=d\r\n\
         X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: Sea.Example:81\r\nVia: 1.1 gate\r\n\r\n"
    );
    server.send(
        "HTTP/1.1 203 Whatever\r\nServer: sea\r\nX-A: 1\r\nSet-Cookie: a\r\nSet-Cookie: b\r\nConnection: X-B\r\nX-B: 2\r\n\
         Keep-Alive: 9\r\nContent-Length: 4\r\n\r\nebbs",
    );
    let head = client.head();
    assert!(head.starts_with("HTTP/1.1 203 Non-Authoritative Information\r\n"), "{head}");
    assert!(head.contains("\r\nX-A: 1\r\nSet-Cookie: a\r\nSet-Cookie: b\r\nContent-Length: 4\r\n"), "{head}");
    assert!(!head.contains("X-B") && !head.contains("Keep-Alive"), "{head}");
    assert_eq!(client.until("ebbs"), "ebbs");
    // Both connections serve the next exchange.
    client.send("POST /next HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
    let head = server.head();
    assert!(head.starts_with("POST /next HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n"), "{head}");
    assert_eq!(server.until("abc"), "abc");
    server.send("HTTP/1.1 204 No Content\r\n\r\n");
    assert!(client.head().starts_with("HTTP/1.1 204 "));
}

#[test]
fn chunks_and_trailers_go_both_ways() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    let mut client = client(&proxy);
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n");
    let mut server = upstream.accept();
    let head = server.head();
    assert!(head.contains("\r\nTransfer-Encoding: chunked\r\n") && !head.contains("Content-Length"), "{head}");
    assert_eq!(server.until("3\r\nabc\r\n"), "3\r\nabc\r\n");
    // The first part of the response comes before the end of the request.
    server.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nup\r\n");
    let head = client.head();
    assert!(head.contains("Transfer-Encoding: chunked"), "{head}");
    assert_eq!(client.until("up\r\n"), "2\r\nup\r\n");
    client.send("1\r\nd\r\n0\r\nX-Sum: 1\r\n\r\n");
    assert_eq!(server.until("\r\n\r\n"), "1\r\nd\r\n0\r\nX-Sum: 1\r\n\r\n");
    server.send("0\r\nX-Length: 2\r\n\r\n");
    assert_eq!(client.until("\r\n\r\n"), "0\r\nX-Length: 2\r\n\r\n");
}

#[test]
fn an_expectation_is_passed_on_and_its_interim_responses_back() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    let mut client = client(&proxy);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    let mut server = upstream.accept();
    assert!(server.head().contains("\r\nExpect: 100-continue\r\n"));
    server.send("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(client.head(), "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
    assert_eq!(client.head(), "HTTP/1.1 100 Continue\r\n\r\n");
    client.send("abc");
    assert_eq!(server.until("abc"), "abc");
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert!(client.head().starts_with("HTTP/1.1 200 OK\r\n"));
}

#[test]
fn interim_responses_go_back_before_the_final_one_in_their_order() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    let mut client = client(&proxy);
    let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let hints = |number| format!("HTTP/1.1 103 Early Hints\r\nLink: </{number}>\r\nConnection: X\r\nX: 1\r\n\r\n");
    let last = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nebbs";
    let expect_hints = |client: &mut proxy_peers::Peer, number: u32| {
        let head = client.head();
        assert!(head.starts_with("HTTP/1.1 103 "), "{head}");
        assert!(head.contains(&format!("\r\nLink: </{number}>\r\n")) && !head.contains("X:"), "{head}");
    };
    client.send(request);
    let mut server = upstream.accept();
    server.head();
    // One by one, two at once, and with the final response.
    server.send(hints(1));
    expect_hints(&mut client, 1);
    server.send(hints(2) + &hints(3));
    expect_hints(&mut client, 2);
    expect_hints(&mut client, 3);
    server.send(hints(4) + last);
    expect_hints(&mut client, 4);
    assert!(client.head().starts_with("HTTP/1.1 200 "));
    assert_eq!(client.until("ebbs"), "ebbs");
    // The same for requests that are pipelined.
    client.send(request.repeat(3));
    for number in 5..8 {
        server.head();
        server.send(hints(number) + last);
        expect_hints(&mut client, number);
        assert!(client.head().starts_with("HTTP/1.1 200 "));
        assert_eq!(client.until("ebbs"), "ebbs");
    }
}

#[test]
fn a_refusal_in_the_place_of_100_continue_leaves_the_body_with_the_client() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    let mut client = client(&proxy);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    let mut server = upstream.accept();
    server.head();
    server.send("HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno");
    let head = client.head();
    assert!(head.starts_with("HTTP/1.1 401 ") && head.contains("Connection: close"), "{head}");
    assert_eq!(client.rest().0, b"no");
    assert_eq!(server.rest().0, b"", "no byte of the body");
}

#[test]
fn an_early_response_does_not_wait_for_the_request() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    let mut client = client(&proxy);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nabc");
    let mut server = upstream.accept();
    server.head();
    assert_eq!(server.until("abc"), "abc");
    server.send("HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno");
    let head = client.head();
    assert!(head.starts_with("HTTP/1.1 413 "), "{head}");
    assert_eq!(client.until("no"), "no");
}

#[test]
fn a_response_to_head_and_one_without_a_body_have_none() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    let mut client = client(&proxy);
    client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut server = upstream.accept();
    server.head();
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 4000\r\n\r\n");
    assert!(client.head().contains("\r\nContent-Length: 4000\r\n"));
    for status in ["204 No Content", "304 Not Modified"] {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        server.head();
        server.send(format!("HTTP/1.1 {status}\r\nETag: \"7\"\r\n\r\n"));
        let head = client.head();
        assert!(head.starts_with(&format!("HTTP/1.1 {status}\r\n")) && head.contains("ETag: \"7\""), "{head}");
    }
}

#[test]
fn a_response_that_breaks_off_is_not_taken_for_a_whole_one() {
    for (head, with_http_10) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", false),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\n", false),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n", true),
    ] {
        let upstream = Upstream::new();
        let proxy = proxy_of(&upstream);
        let mut client = client(&proxy);
        client.send(if with_http_10 {
            "GET / HTTP/1.0\r\nHost: a\r\n\r\n"
        } else {
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
        });
        let mut server = upstream.accept();
        server.head();
        server.send(head);
        server.send("some");
        client.head();
        drop(server);
        let (body, is_reset) = client.rest();
        // With HTTP/1.0 the end of the connection is that of the body, so it has to be a reset.
        assert!(is_reset || !with_http_10, "{head}");
        assert!(!body.ends_with(b"0\r\n\r\n") && body.len() < 1000, "{head}");
    }
}

#[test]
fn a_body_up_to_the_end_of_the_connection_is_whole() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    let mut client = client(&proxy);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut server = upstream.accept();
    server.head();
    server.send("HTTP/1.0 200 OK\r\n\r\nrising");
    drop(server);
    assert!(client.head().contains("Transfer-Encoding: chunked"));
    assert!(client.until("0\r\n\r\n").contains("rising"));
}

#[test]
fn a_client_that_leaves_ends_the_exchange_with_the_upstream() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    let mut client = client(&proxy);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nabc");
    let mut server = upstream.accept();
    server.until("abc");
    drop(client);
    let (rest, is_reset) = server.rest();
    assert!(rest.is_empty() && is_reset, "the upstream must not take the request for a whole one");
}

#[test]
fn an_upstream_that_cannot_be_used_is_a_bad_gateway() {
    let closed = ClosedPort::tcp();
    let nowhere = Upstreams::new([format!("http://{}", closed.address()).as_str()]).unwrap();
    let proxy = start(move || Router::new().fallback(Proxy::new(&nowhere)));
    assert!(proxy.get("/").0.starts_with("HTTP/1.1 502 Bad Gateway"));
    for response in [
        "SSH-2.0-OpenSSH\r\n",
        "HTTP/1.1 200 OK\nContent-Length: 0\n\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
        "",
    ] {
        let upstream = Upstream::new();
        let proxy = proxy_of(&upstream);
        let mut client = client(&proxy);
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
        let mut server = upstream.accept();
        server.head();
        server.send(response);
        drop(server);
        let head = client.head();
        assert!(head.starts_with("HTTP/1.1 502 Bad Gateway\r\n"), "{response} {head}");
    }
}

#[test]
fn an_upstream_that_says_nothing_is_a_gateway_timeout() {
    let upstream = Upstream::new();
    let upstreams = upstreams(&[&upstream]);
    let proxy =
        start(move || Router::new().fallback(Proxy::new(&upstreams).response_timeout(Duration::from_millis(100))));
    let mut client = client(&proxy);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut server = upstream.accept();
    server.head();
    assert!(client.head().starts_with("HTTP/1.1 504 Gateway Timeout\r\n"));
    assert!(server.rest().0.is_empty());
}

#[test]
fn another_upstream_gets_the_request_of_one_that_fails() {
    let (first, second) = (Upstream::new(), Upstream::new());
    let both = [&first, &second];
    let upstreams = upstreams(&both);
    let proxy = start(move || Router::new().fallback(Proxy::new(&upstreams)));
    let mut client = client(&proxy);
    client.send("GET /again HTTP/1.1\r\nHost: a\r\n\r\n");
    let (failed, mut server) = accept_any(&both);
    server.head();
    drop(server);
    let (answered, mut server) = accept_any(&both);
    assert_ne!(failed, answered);
    assert!(server.head().starts_with("GET /again "));
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
    client.until("ok");
    // A POST is not sent twice.
    client.send("POST /once HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    let (_, mut server) = accept_any(&both);
    server.head();
    drop(server);
    assert!(client.head().starts_with("HTTP/1.1 502 "));
}

#[test]
fn an_idle_connection_that_the_upstream_closes_is_not_used() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    let mut client = client(&proxy);
    for _ in 0..5 {
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
        let mut server = upstream.accept();
        server.head();
        server.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        client.until("ok");
        server.0.shutdown(Shutdown::Write).unwrap();
        // The proxy closes its end when it has noticed.
        assert_eq!(server.rest().0, b"");
    }
}

#[test]
fn bytes_behind_a_response_do_not_answer_the_next_request() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    let mut client = client(&proxy);
    client.send("GET /one HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut server = upstream.accept();
    server.head();
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\noneHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil");
    client.until("one");
    client.send("GET /two HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut server = upstream.accept();
    assert!(server.head().starts_with("GET /two "));
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\ntwo");
    assert!(!client.until("two").contains("evil"));
}

#[test]
fn requests_with_two_meanings_reach_no_upstream() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    for wire in [
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\na",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: 1\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n X: folded\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /../secret HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /a/%2e%2e/secret HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX\tY: 1\r\n\r\n",
        "TRACE / HTTP/1.1\r\nHost: a\r\n\r\n",
        "CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nVia: 1.1 other, 1.1 gate\r\n\r\n",
    ] {
        let answer = proxy.exchange(wire);
        let status: u16 = answer[9..12].parse().unwrap();
        assert!((400..=508).contains(&status), "{wire:?}: {answer}");
    }
    upstream.0.set_nonblocking(true).unwrap();
    let nothing = upstream.0.accept().map(drop).unwrap_err();
    assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
}

/// Behind a CONNECT, bytes of the tunnel may follow: they are no requests.
#[test]
fn a_connect_that_is_refused_closes_the_connection() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    let connect = "CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n";
    let answer = proxy.exchange(&[connect, "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"].concat());
    assert!(answer.starts_with("HTTP/1.1 405 ") && answer.contains("\r\nConnection: close\r\n"), "{answer}");
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
    upstream.0.set_nonblocking(true).unwrap();
    assert!(upstream.0.accept().is_err());
}

#[test]
fn the_host_of_the_target_is_that_of_the_request() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    let mut client = client(&proxy);
    client.send("GET http://inner.example/a?b HTTP/1.1\r\nHost: other.example\r\n\r\n");
    let head = upstream.accept().head();
    assert!(head.starts_with("GET /a?b HTTP/1.1\r\nHost: inner.example\r\n"), "{head}");
    assert!(!head.contains("other.example"), "{head}");
}

#[test]
fn a_chunked_request_is_framed_anew() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    let mut client = client(&proxy);
    // A smuggled request in a chunk stays in a chunk, and its odd framing does not reach the upstream.
    client.send(
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: CHUNKED\r\n\r\n\
         00000016;a=\"b\"\r\nGET /evil HTTP/1.1\r\n\r\n\r\n0\r\n\r\n",
    );
    let mut server = upstream.accept();
    let head = server.head();
    assert!(head.contains("\r\nTransfer-Encoding: chunked\r\n"), "{head}");
    assert_eq!(server.until("0\r\n\r\n"), "16\r\nGET /evil HTTP/1.1\r\n\r\n\r\n0\r\n\r\n");
}

#[test]
fn an_upgrade_becomes_a_tunnel() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    let mut client = client(&proxy);
    client.send(
        "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: 7\r\n\r\n",
    );
    let mut server = upstream.accept();
    let head = server.head();
    assert!(head.contains("\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"), "{head}");
    assert!(head.contains("\r\nSec-WebSocket-Key: 7\r\n"), "{head}");
    server.send(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: 8\r\n\r\nfirst",
    );
    let head = client.head();
    assert!(head.starts_with("HTTP/1.1 101 ") && head.contains("Upgrade: websocket"), "{head}");
    assert!(head.contains("Sec-WebSocket-Accept: 8"), "{head}");
    assert_eq!(client.until("first"), "first");
    client.send("\x00ping");
    assert_eq!(server.until("\x00ping"), "\x00ping");
    server.send("pong");
    assert_eq!(client.until("pong"), "pong");
    // Each direction ends on its own.
    client.0.shutdown(Shutdown::Write).unwrap();
    assert_eq!(server.rest(), (vec![], false));
    server.send("last");
    drop(server);
    assert_eq!(client.rest(), (b"last".to_vec(), false));
}

#[test]
fn an_upgrade_that_is_refused_is_a_response() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    let mut client = client(&proxy);
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n");
    let mut server = upstream.accept();
    server.head();
    server.send("HTTP/1.1 426 Upgrade Required\r\nUpgrade: other\r\nConnection: upgrade\r\nContent-Length: 0\r\n\r\n");
    let head = client.head();
    assert!(head.starts_with("HTTP/1.1 426 ") && head.contains("\r\nUpgrade: other\r\n"), "{head}");
    // An upgrade to HTTP/2 would be a way around the proxy's rules.
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n\r\n");
    let head = server.head().to_ascii_lowercase();
    assert!(!head.contains("upgrade") && !head.contains("settings"), "{head}");
}

#[test]
fn connect_is_tunnelled_if_it_is_passed_on() {
    let upstream = Upstream::new();
    let upstreams = upstreams(&[&upstream]);
    let proxy = start(move || Router::new().fallback(Proxy::new(&upstreams).pass_connect()));
    let mut client = client(&proxy);
    client.send("CONNECT sea.example:443 HTTP/1.1\r\nHost: sea.example:443\r\n\r\nhello");
    let mut server = upstream.accept();
    assert!(server.head().starts_with("CONNECT sea.example:443 HTTP/1.1\r\nHost: sea.example:443\r\n"));
    server.send("HTTP/1.1 200 Connected\r\n\r\n");
    let head = client.head();
    assert!(head.starts_with("HTTP/1.1 200 ") && !head.contains("Content-Length"), "{head}");
    assert_eq!(server.until("hello"), "hello");
    server.send("world");
    assert_eq!(client.until("world"), "world");
}

#[test]
fn a_slow_reader_stops_the_upstream() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    let mut client = client(&proxy);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut server = upstream.accept();
    server.head();
    let total = 64_usize << 20;
    server.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {total}\r\n\r\n"));
    client.head();
    server.0.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let piece = vec![b'x'; 1 << 16];
    let mut sent = 0;
    // While the client reads nothing, the kernel's buffers fill, and the proxy keeps little.
    let blocked = loop {
        match server.0.write(&piece[..piece.len().min(total - sent)]) {
            Ok(0) => break false,
            Ok(count) => sent += count,
            Err(_) => break true,
        }
    };
    assert!(blocked && sent < total, "{sent} bytes were taken");
    let reading = std::thread::spawn(move || {
        let mut body = vec![0; total];
        client.0.read_exact(&mut body).unwrap();
        assert!(body.iter().all(|byte| *byte == b'x'));
    });
    server.0.set_write_timeout(None).unwrap();
    while sent < total {
        sent += server.0.write(&piece[..piece.len().min(total - sent)]).unwrap();
    }
    reading.join().unwrap();
}

#[test]
fn paths_hosts_edits_and_rates_are_those_of_the_route() {
    let upstream = Upstream::new();
    let upstreams = upstreams(&[&upstream]);
    let limit = RateLimit::new(ConnectionRate::per_minute(2));
    let proxy = start(move || {
        let proxy = Proxy::new(&upstreams);
        let edited = proxy
            .clone()
            .strip_prefix("/api")
            .host("inner.example")
            .edit_request(Edit::set("X-Key", "7").unwrap())
            .edit_response(Edit::remove("X-Powered-By"))
            .rate_limit(&limit);
        Router::new().nest("/api", Router::new().fallback(edited)).host("b.example", Router::new().fallback(proxy))
    });
    let mut client = client(&proxy);
    client.send("GET /api/tides?now HTTP/1.1\r\nHost: a.example\r\nX-Key: 1\r\nX_Key: 2\r\n\r\n");
    let mut server = upstream.accept();
    let head = server.head();
    assert!(head.starts_with("GET /tides?now HTTP/1.1\r\nHost: inner.example\r\n"), "{head}");
    assert!(head.ends_with("X-Key: 7\r\n\r\n") && head.matches("Key").count() == 1, "{head}");
    server.send("HTTP/1.1 200 OK\r\nX-Powered-By: waves\r\nContent-Length: 2\r\n\r\nok");
    assert!(!client.until("ok").contains("waves"));
    client.send("GET /other HTTP/1.1\r\nHost: a.example\r\n\r\n");
    assert!(client.head().starts_with("HTTP/1.1 404 "));
    client.until("404 Not Found\n");
    client.send("GET /api HTTP/1.1\r\nHost: b.example\r\n\r\n");
    assert!(server.head().starts_with("GET /api HTTP/1.1\r\nHost: b.example\r\n"));
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    client.until("ok");
    client.send("GET /api/2 HTTP/1.1\r\nHost: a\r\n\r\n");
    server.head();
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    client.until("ok");
    client.send("GET /api/3 HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = client.head();
    assert!(head.starts_with("HTTP/1.1 429 ") && head.contains("\r\nRetry-After: "), "{head}");
}

#[test]
fn an_upstream_with_as_many_requests_as_it_may_have_gets_no_more() {
    let upstream = Upstream::new();
    let mut limits = UpstreamLimits::default();
    (limits.requests_max, limits.queued_requests_max) = (1, 0);
    let upstreams = Upstreams::builder().server(upstream.url().parse().unwrap()).limits(limits).build().unwrap();
    let proxy = start(move || Router::new().fallback(Proxy::new(&upstreams)));
    let mut first = client(&proxy);
    first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut server = upstream.accept();
    server.head();
    assert!(proxy.get("/").0.starts_with("HTTP/1.1 503 Service Unavailable"));
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    first.until("ok");
}

#[test]
fn a_proxy_header_names_the_client_and_the_address_that_it_has_connected_to() {
    let upstream = Upstream::new();
    let upstreams = Upstreams::builder().server(upstream.url().parse().unwrap()).send_proxy_header().build().unwrap();
    let proxy = start(move || Router::new().fallback(Proxy::new(&upstreams)));
    let mut client = client(&proxy);
    for _ in 0..2 {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let mut server = upstream.accept();
        let mut header = [0; 28];
        server.0.read_exact(&mut header).unwrap();
        assert_eq!(&header[..13], b"\r\n\r\n\0\r\nQUIT\n\x21");
        assert_eq!(header[16..24], [127, 0, 0, 1, 127, 0, 0, 1]);
        assert_eq!(header[24..26], client.0.local_addr().unwrap().port().to_be_bytes());
        assert_eq!(header[26..28], client.0.peer_addr().unwrap().port().to_be_bytes());
        assert!(server.head().starts_with("GET / "));
        server.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        client.until("ok");
    }
}

#[test]
fn a_connection_that_begins_with_a_proxy_header_becomes_a_tunnel() {
    let upstream = Upstream::new();
    let upstreams = Upstreams::builder().server(upstream.url().parse().unwrap()).send_proxy_header().build().unwrap();
    let proxy = start(move || Router::new().fallback(Proxy::new(&upstreams)));
    let mut client = client(&proxy);
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    let mut server = upstream.accept();
    server.0.read_exact(&mut [0; 28]).unwrap();
    assert!(server.head().starts_with("GET / "));
    server.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nfirst");
    assert!(client.head().starts_with("HTTP/1.1 101 "));
    assert_eq!(client.until("first"), "first");
    client.send("ping");
    client.0.shutdown(Shutdown::Write).unwrap();
    assert_eq!(server.rest(), (b"ping".to_vec(), false));
    server.send("last");
    drop(server);
    assert_eq!(client.rest(), (b"last".to_vec(), false));
}

#[test]
fn a_proxy_header_repeats_the_report_of_a_trusted_proxy() {
    let upstream = Upstream::new();
    let upstreams = Upstreams::builder().server(upstream.url().parse().unwrap()).send_proxy_header().build().unwrap();
    let server = Server::bind("127.0.0.1:0").unwrap().proxy_protocol(Policy::required(Networks::local())).loops(1);
    let proxy = Running(server.start(move || Router::new().fallback(Proxy::new(&upstreams))).unwrap());
    let (source, destination) = ("192.0.2.1:50000".parse().unwrap(), "198.51.100.1:443".parse().unwrap());
    for (sent, expected) in [
        (Builder::new(source, destination), [Some(source), Some(destination)]),
        // A check of the proxy in front is its own.
        (Builder::local(), [None, None]),
    ] {
        let mut client = client(&proxy);
        client.send(sent.build_v2().unwrap());
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let mut server = upstream.accept();
        let mut bytes = [0; 28];
        server.0.read_exact(&mut bytes).unwrap();
        let header = Header::parse(&bytes).unwrap();
        let own = [client.0.local_addr(), client.0.peer_addr()].map(Result::unwrap).map(Some);
        let expected = if expected[0].is_some() { expected } else { own };
        assert_eq!([header.source(), header.destination()], expected);
    }
}

#[test]
fn a_check_takes_an_upstream_out_and_in_again() {
    let (good, bad) = (Upstream::new(), Upstream::new());
    let mut check = HealthCheck::default();
    check.path = "/health".into();
    check.interval = Duration::from_millis(1);
    (check.failures, check.successes) = (1, 1);
    let upstreams = Upstreams::builder()
        .server(good.url().parse().unwrap())
        .server(bad.url().parse().unwrap())
        .health_check(check)
        .build()
        .unwrap();
    let maintenance = upstreams.maintain_on_thread().unwrap();
    let answer = |upstream: &Upstream, status: &str| {
        let mut server = upstream.accept();
        let head = server.head();
        assert!(head.starts_with("GET /health HTTP/1.1\r\n") && head.contains("Connection: close"), "{head}");
        server.send(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n"));
    };
    answer(&good, "200 OK");
    answer(&bad, "500 Oh");
    // The next round comes when the results of this one are known.
    answer(&good, "200 OK");
    drop(maintenance);
    let proxy = start(move || Router::new().fallback(Proxy::new(&upstreams)));
    let mut client = client(&proxy);
    for _ in 0..4 {
        client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\n\r\n");
        let mut server = good.accept();
        while server.head().contains("/health") {
            server = good.accept();
        }
        server.send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
        client.until("ok");
    }
}

#[test]
fn a_request_body_beyond_the_limit_is_refused() {
    let upstream = Upstream::new();
    let upstreams = upstreams(&[&upstream]);
    let mut limits = Limits::default();
    limits.body_bytes_max = 10;
    let proxy = start_with(limits, move || Router::new().fallback(Proxy::new(&upstreams)));
    let mut client = client(&proxy);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n");
    let mut server = upstream.accept();
    server.until("abcde\r\n");
    client.send("6\r\nfghijk\r\n0\r\n\r\n");
    assert!(client.head().starts_with("HTTP/1.1 413 "));
    assert!(!server.rest().0.ends_with(b"0\r\n\r\n"));
}

#[test]
fn the_id_of_a_request_goes_to_the_upstream_in_place_of_the_clients() {
    let upstream = Upstream::new();
    let address = upstream.url();
    let proxy = start(move || {
        let upstreams = Upstreams::new([&*address]).unwrap();
        Router::new().fallback(Proxy::new(&upstreams)).with(RequestIds::new().ignoring_peers())
    });
    let mut client = client(&proxy);
    client.send("GET / HTTP/1.1\r\nHost: a\r\nX-Request-Id: of-the-client\r\nX_Request_Id: other\r\n\r\n");
    let mut server = upstream.accept();
    let head = server.head();
    let ids: Vec<&str> = head.lines().filter_map(|line| line.strip_prefix("X-Request-Id: ")).collect();
    assert!(ids.len() == 1 && ids[0].len() == 32, "{head}");
    assert!(!head.contains("of-the-client") && !head.contains("other"), "{head}");
    server.send("HTTP/1.1 204 No Content\r\n\r\n");
    let response = client.head();
    assert!(response.contains(&format!("\r\nX-Request-Id: {}\r\n", ids[0])), "{response}");
}

#[test]
fn a_trace_goes_through_with_a_new_parent_or_begins_anew() {
    let upstream = Upstream::new();
    let address = upstream.url();
    let proxy = start(move || {
        let upstreams = Upstreams::new([&*address]).unwrap();
        Router::new().fallback(Proxy::new(&upstreams)).with(TraceContexts::new())
    });
    let (mut client, trace) = (client(&proxy), "4bf92f3577b34da6a3ce929d0e0e4736");
    let valid = format!("traceparent: 00-{trace}-00f067aa0ba902b7-01\r\n");
    let mut server = None;
    for (lines, goes_on, state) in [
        (format!("{valid}tracestate: a=1\r\nTraceState: b=2\r\n"), true, Some("a=1,b=2")),
        (format!("{valid}tracestate: A=1\r\n"), true, None),
        (format!("{valid}{valid}tracestate: a=1\r\n"), false, None),
        (format!("traceparent: 00-{trace}-0000000000000000-01\r\ntracestate: a=1\r\n"), false, None),
        (String::new(), false, None),
    ] {
        client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n"));
        let server = server.get_or_insert_with(|| upstream.accept());
        let head = server.head();
        let values = |name: &str| -> Vec<String> {
            let lines = head.lines().filter_map(|line| line.split_once(": "));
            lines.filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned()).collect()
        };
        let (parents, states) = (values("traceparent"), values("tracestate"));
        assert_eq!(parents.len(), 1, "{head}");
        assert_eq!(parents[0].contains(trace), goes_on, "{head}");
        assert!(!parents[0].contains("00f067aa0ba902b7") && parents[0].len() == 55, "{head}");
        assert_eq!(parents[0].ends_with("-01"), goes_on, "{head}");
        assert_eq!(states, state.into_iter().collect::<Vec<_>>(), "{head}");
        server.send("HTTP/1.1 204 No Content\r\n\r\n");
        assert!(client.head().starts_with("HTTP/1.1 204 "));
    }
}

#[test]
fn async_middleware_runs_before_a_request_is_passed_on() {
    let upstream = Upstream::new();
    let address = upstream.url();
    let proxy = start(move || {
        let upstreams = Upstreams::new([&*address]).unwrap();
        Router::new().fallback(Proxy::new(&upstreams)).wrap(async |request: tidegate::http::Request, next: Next| {
            tidegate::task::sleep(Duration::from_millis(1)).await;
            if request.header("authorization").is_none() {
                return Err(StatusCode::UNAUTHORIZED);
            }
            Ok(next.run(request).await)
        })
    });
    let mut client = client(&proxy);
    client.send("GET /refused HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.head().starts_with("HTTP/1.1 401 "));
    client.until("401 Unauthorized\n");
    client.send("POST /passed HTTP/1.1\r\nHost: a\r\nAuthorization: b\r\nContent-Length: 3\r\n\r\nebb");
    let mut server = upstream.accept();
    assert!(server.head().starts_with("POST /passed HTTP/1.1\r\n"));
    assert_eq!(server.until("ebb"), "ebb");
    server.send("HTTP/1.1 204 No Content\r\n\r\n");
    assert!(client.head().starts_with("HTTP/1.1 204 "));
}
