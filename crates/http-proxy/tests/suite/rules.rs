//! Rules that a proxy keeps between a client and an upstream, which the test plays byte by byte.

use std::io::Write;
use std::thread::JoinHandle;

use tidegate::http::proxy::{Proxy, Upstreams};
use tidegate::http::{Router, Server};
use tidegate::{Backend, EventLoop};

use crate::support::proxy_peers::{Peer, Upstream, accept_any, client, proxy_of, upstreams};
use crate::support::{Running, http2_upstream, start};

#[test]
fn an_upstream_whose_responses_are_503_is_ejected() {
    let both = [Upstream::new(), Upstream::new()];
    let both = [&both[0], &both[1]];
    let upstreams = upstreams(&both);
    let proxy = start(move || Router::new().fallback(Proxy::new(&upstreams)));
    let mut client = client(&proxy);
    let mut servers = [None, None];
    let mut last = Vec::new();
    for number in 0..40 {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        // A new connection first, then the upstreams in turn, until one is ejected.
        let place = if servers.iter().all(Option::is_some) {
            readable(&mut servers)
        } else {
            let (place, peer) = accept_any(&both);
            servers[place] = Some(peer);
            place
        };
        let server = servers[place].as_mut().unwrap();
        server.head();
        server.send(if place == 0 {
            "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\nno"
        } else {
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
        });
        client.head();
        client.until(if place == 0 { "no" } else { "ok" });
        if number >= 20 {
            last.push(place);
        }
    }
    assert!(last.iter().all(|place| *place == 1), "{last:?}");
}

/// The place of the connection that has bytes to read.
fn readable(servers: &mut [Option<Peer>; 2]) -> usize {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(120);
    loop {
        for (place, server) in servers.iter_mut().enumerate() {
            let stream = &server.as_mut().unwrap().0;
            stream.set_nonblocking(true).unwrap();
            let is_readable = stream.peek(&mut [0]).is_ok();
            stream.set_nonblocking(false).unwrap();
            if is_readable {
                return place;
            }
        }
        assert!(std::time::Instant::now() < until, "no upstream gets the request");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn a_response_to_head_claims_no_length_that_the_upstream_did_not() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    let mut client = client(&proxy);
    client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut server = upstream.accept();
    server.head();
    server.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    let head = client.head();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && !head.contains("Content-Length"), "{head}");
    for (sent, status, length) in [
        ("HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", "304", None),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "200", Some("0")),
        ("HTTP/1.1 204 No Content\r\n\r\n", "204", None),
    ] {
        client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
        server.head();
        server.send(sent);
        let head = client.head();
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{sent} {head}");
        assert_eq!(head.split("\r\nContent-Length: ").nth(1).and_then(|rest| rest.lines().next()), length, "{head}");
        assert!(!head.contains("Transfer-Encoding"), "{head}");
    }
}

#[test]
fn an_upstream_that_ignores_an_expectation_gets_the_body() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    let mut client = client(&proxy);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    let mut server = upstream.accept();
    server.head();
    // The upstream waits for the body, and the client for the interim response.
    assert_eq!(client.head(), "HTTP/1.1 100 Continue\r\n\r\n");
    client.send("abc");
    assert_eq!(server.until("abc"), "abc");
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert!(client.head().starts_with("HTTP/1.1 200 OK\r\n"));
}

#[test]
fn a_trailer_claims_nothing_about_the_client() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    let mut client = client(&proxy);
    client.send(
        "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Forwarded-For: 9.9.9.9\r\n\
         X_Real_IP: 9.9.9.9\r\nForwarded: for=9.9.9.9\r\nVia: 1.1 gate\r\nX-Sum: 1\r\n\r\n",
    );
    let mut server = upstream.accept();
    server.head();
    assert_eq!(server.until("\r\n\r\n"), "0\r\nX-Sum: 1\r\n\r\n");
}

#[test]
fn an_encoded_slash_hides_no_dot_segment() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    for path in ["/open/..%2fclosed", "/open%2f..%2Fclosed", "/open/%2e%2e%5cclosed", "/open%5C.."] {
        let mut client = client(&proxy);
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert!(client.head().starts_with("HTTP/1.1 400 "), "{path}");
    }
}

#[test]
fn a_prefix_is_removed_from_whole_segments_only() {
    let upstream = Upstream::new();
    let upstreams = upstreams(&[&upstream]);
    let proxy = start(move || Router::new().fallback(Proxy::new(&upstreams).strip_prefix("/api")));
    assert!(proxy.get("/apis/a").0.starts_with("HTTP/1.1 404 "));
}

#[test]
fn an_upstream_of_http_1_0_gets_requests_that_its_idle_connection_cannot_carry() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    let mut client = client(&proxy);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut server = upstream.accept();
    server.head();
    server.send("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok");
    client.head();
    client.until("ok");
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n");
    let mut server = upstream.accept();
    server.head();
    assert_eq!(server.until("0\r\n\r\n"), "1\r\na\r\n0\r\n\r\n");
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert!(client.head().starts_with("HTTP/1.1 200 OK\r\n"));
}

#[test]
fn the_date_of_a_request_is_passed_on() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    let mut client = client(&proxy);
    client.send("GET / HTTP/1.1\r\nHost: a\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\nAuthorization: AWS a:b\r\n\r\n");
    let mut server = upstream.accept();
    let head = server.head();
    assert!(head.contains("\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n"), "{head}");
    server.send("HTTP/1.1 204 No Content\r\n\r\n");
    assert_eq!(client.head().matches("\r\nDate: ").count(), 1);
}

/// RFC 9112 §3.2.
#[test]
fn a_request_without_a_host_is_passed_on_with_an_empty_one() {
    let upstream = Upstream::new();
    let upstreams = upstreams(&[&upstream]);
    let proxy = start(move || {
        let mut forwarding = tidegate::http::proxy::Forwarding::default();
        forwarding.forwarded = true;
        Router::new().fallback(Proxy::new(&upstreams).forwarding(forwarding))
    });
    for head in
        ["GET / HTTP/1.0\r\n\r\n", "GET / HTTP/1.1\r\nHost:\r\n\r\n", "GET / HTTP/1.1\r\nHost: \r\nX: y\r\n\r\n"]
    {
        let mut client = client(&proxy);
        client.send(head);
        let mut server = upstream.accept();
        let passed_on = server.head();
        assert!(passed_on.starts_with("GET / HTTP/1.1\r\nHost: \r\n"), "{passed_on}");
        assert!(!passed_on.contains("X-Forwarded-Host") && !passed_on.contains("host="), "{passed_on}");
        assert!(passed_on.contains("\r\nForwarded: for=127.0.0.1;proto=http\r\n"), "{passed_on}");
        server.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
        assert!(client.head().contains(" 200 OK\r\n"));
    }
}

/// RFC 9112 §6.3. The bytes behind it are no response to another request.
#[test]
fn a_status_without_a_body_is_passed_on_whatever_its_head_declares() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    for (status, fields, rest) in [
        ("204 No Content", "Content-Length: 5", "hello"),
        ("204 No Content", "Content-Length: 0", ""),
        ("204 No Content", "Transfer-Encoding: chunked", "0\r\n\r\n"),
        ("204 No Content", "Content-Length: 44", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong"),
        ("304 Not Modified", "Content-Length: 5\r\nETag: \"7\"", ""),
        ("304 Not Modified", "Transfer-Encoding: chunked", ""),
    ] {
        let mut client = client(&proxy);
        client.send("GET /first HTTP/1.1\r\nHost: a\r\n\r\n");
        let mut server = upstream.accept();
        assert!(server.head().starts_with("GET /first "));
        server.send(format!("HTTP/1.1 {status}\r\n{fields}\r\n\r\n{rest}"));
        let head = client.head();
        assert!(head.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{fields}: {head}");
        assert!(!head.contains("Transfer-Encoding") && !head.contains("\r\nContent-Length"), "{head}");
        client.send("GET /second HTTP/1.1\r\nHost: a\r\n\r\n");
        // A connection that may carry more is not used again.
        let may_stay = status.starts_with("304") || fields == "Content-Length: 0";
        let mut server = if may_stay { server } else { upstream.accept() };
        assert!(server.head().starts_with("GET /second "));
        server.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nright");
        client.head();
        assert_eq!(client.until("right"), "right");
    }
}

/// RFC 9112 §5.1, RFC 9110 §8.6.
#[test]
fn a_response_is_cleaned_of_white_space_before_colons_and_of_equal_lengths() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    for fields in [
        "Content-Length : 5\r\nX-A \t: b",
        "Content-Length: 5\r\nX-A: b\r\nContent-Length: 5",
        "X-A: b\r\nContent-Length: 5, 5",
    ] {
        let mut client = client(&proxy);
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let mut server = upstream.accept();
        server.head();
        server.send(format!("HTTP/1.1 200 OK\r\n{fields}\r\nConnection: close\r\n\r\nright"));
        let head = client.head();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("\r\nX-A: b\r\n"), "{fields}: {head}");
        assert_eq!(head.matches("Content-Length: 5\r\n").count(), 1, "{head}");
        assert_eq!(client.until("right"), "right");
    }
    for fields in ["Content-Length: 5\r\nContent-Length: 6", "Content-Length: 5, 6", "X Y: 1\r\nContent-Length: 5"] {
        let mut client = client(&proxy);
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
        let mut server = upstream.accept();
        server.head();
        server.send(format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\nwrong"));
        assert!(client.head().starts_with("HTTP/1.1 502 "), "{fields}");
    }
}

/// `Age` and `Expires` refer to it (RFC 9111 §4.2.3).
#[test]
fn a_response_keeps_the_date_of_its_upstream() {
    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    let mut client = client(&proxy);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut server = upstream.accept();
    server.head();
    server.send(format!("HTTP/1.1 200 OK\r\nAge: 7\r\ndate: {DATE}\r\nServer: sea\r\nContent-Length: 2\r\n\r\nok"));
    let head = client.head();
    assert!(head.contains(&format!("\r\nDate: {DATE}\r\n")) && head.contains("\r\nAge: 7\r\n"), "{head}");
    assert_eq!(head.to_ascii_lowercase().matches("\r\ndate:").count(), 1, "{head}");
    assert!(!head.contains("Server: sea"), "{head}");
    client.until("ok");
    // Without one the proxy adds its own (RFC 9110 §6.6.1).
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    server.head();
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let head = client.head();
    assert!(head.contains("\r\nDate: ") && !head.contains(DATE), "{head}");
}

#[test]
fn an_early_response_of_an_upstream_that_closes_reaches_the_client() {
    // The kernel resets the connection with the upstream's close, since the upstream has not read the body. Whether the proxy
    // finds the reset while it sends, receives or does neither differs from round to round.
    for backend in [Backend::Epoll, Backend::Uring] {
        if EventLoop::on(backend).is_err() {
            continue;
        }
        let upstream = Upstream::new();
        let set = upstreams(&[&upstream]);
        let router = move || Router::new().fallback(Proxy::new(&set));
        let server = Server::bind("127.0.0.1:0").unwrap().backend(backend).loops(1);
        let proxy = Running(server.start(router).expect("the server starts"));
        for round in 0..rounds() {
            let mut client = client(&proxy);
            let sender = send_upload(&client);
            let mut server = upstream.accept();
            server.head();
            server.send("HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 4\r\n\r\nmuch");
            drop(server);
            let head = client.head();
            assert!(head.starts_with("HTTP/1.1 413 "), "{backend:?}, round {round}: {head}");
            client.until("much");
            drop(client);
            sender.join().unwrap();
        }
    }
}

#[test]
fn an_early_response_of_an_http2_upstream_that_closes_reaches_the_client() {
    for backend in [Backend::Epoll, Backend::Uring] {
        if EventLoop::on(backend).is_err() {
            continue;
        }
        let upstream = http2_upstream::Upstream::new();
        let set = Upstreams::new([&*upstream.url()]).unwrap();
        for round in 0..rounds() {
            // Each proxy has no session but the new one.
            let set = set.clone();
            let router = move || Router::new().fallback(Proxy::new(&set));
            let server = Server::bind("127.0.0.1:0").unwrap().backend(backend).loops(1);
            let proxy = Running(server.start(router).expect("the server starts"));
            let mut client = client(&proxy);
            let sender = send_upload(&client);
            let mut session = upstream.accept();
            let stream = session.head();
            // `:status: 413` as a literal with the name of the static table.
            let head = b"\x08\x03413";
            session.send_at_once(&[
                (http2_upstream::HEADERS, http2_upstream::END_HEADERS, stream, head),
                (http2_upstream::DATA, http2_upstream::END_STREAM, stream, b"much"),
            ]);
            drop(session);
            let head = client.head();
            assert!(head.starts_with("HTTP/1.1 413 "), "{backend:?}, round {round}: {head}");
            client.until("much");
            drop(client);
            sender.join().unwrap();
        }
    }
}

/// How many times the tests of early responses try: `TIDEGATE_ROUNDS`, or a few.
fn rounds() -> usize {
    std::env::var("TIDEGATE_ROUNDS").map_or(20, |rounds| rounds.parse().expect("a number"))
}

/// Sends a request with a body from a thread. The proxy may close before it has read all.
fn send_upload(client: &Peer) -> JoinHandle<()> {
    const LENGTH: usize = 1_000_000;
    let mut sending = client.0.try_clone().unwrap();
    std::thread::spawn(move || {
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {LENGTH}\r\n\r\n");
        let _ = sending.write_all(head.as_bytes()).and_then(|()| sending.write_all(&vec![b'x'; LENGTH]));
    })
}
