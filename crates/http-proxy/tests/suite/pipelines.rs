//! Pipelined requests through a proxy, between a client and upstreams that the test plays byte by byte.

use std::io::ErrorKind;
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use tidegate::http::proxy::{Proxy, UpstreamLimits, Upstreams};
use tidegate::http::{IntoResponse, Limits, Middleware, Request, RequestInfo, Response, Router, Server, StatusCode};
use tidegate::metrics::HttpMetrics;

use crate::support::proxy_peers::{self, Peer, Upstream, client, proxy_of, upstreams};
use crate::support::{Running, start, start_with};

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// Receives a request, and checks its path.
fn expect(server: &mut Peer, path: &str) {
    let head = server.head();
    assert!(head.split(' ').nth(1) == Some(path), "{head}");
}

/// Receives a response with a length, and checks it.
fn expect_ok(client: &mut Peer, body: &str) {
    let head = client.head();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert_eq!(client.until(body), body);
}

/// Receives a response with a length.
fn expect_status(client: &mut Peer, status: u16) {
    let head = client.head();
    assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    std::io::Read::read_exact(&mut client.0, &mut body).unwrap();
}

/// Nothing comes for a while.
fn expect_silence(peer: &mut Peer) {
    peer.0.set_read_timeout(Some(Duration::from_millis(60))).unwrap();
    let mut byte = [0];
    let error = std::io::Read::read(&mut peer.0, &mut byte).expect_err("nothing may come");
    assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
    peer.0.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
}

/// A client, and a connection to the upstream that has answered a request already.
fn warm(proxy: &Running, upstream: &Upstream) -> (Peer, Peer) {
    let mut client = client(proxy);
    client.send(get("/warm"));
    let mut server = upstream.accept();
    expect(&mut server, "/warm");
    server.send(ok("warm"));
    expect_ok(&mut client, "warm");
    (client, server)
}

#[test]
fn pipelined_requests_stay_pipelined_and_their_responses_go_back_one_by_one() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    let (mut client, mut server) = warm(&proxy, &upstream);
    client.send(get("/1") + &get("/2") + "HEAD /3 HTTP/1.1\r\nHost: a\r\n\r\n" + &get("/4") + &get("/5"));
    for path in ["/1", "/2", "/3", "/4", "/5"] {
        expect(&mut server, path);
    }
    // A response that has come does not wait for the next one.
    server.send(ok("one"));
    expect_ok(&mut client, "one");
    server.send(ok("two") + "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n");
    expect_ok(&mut client, "two");
    assert!(client.head().contains("\r\nContent-Length: 9\r\n"));
    assert!(client.head().starts_with("HTTP/1.1 204 "));
    server.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nfive\r\n0\r\n\r\n");
    assert!(client.head().contains("chunked"));
    assert_eq!(client.until("0\r\n\r\n"), "4\r\nfive\r\n0\r\n\r\n");
    // The connection is idle again, for another pipeline of this client.
    client.send("POST /6 HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx");
    let mut other = upstream.accept();
    expect(&mut other, "/6");
    other.send(ok("six"));
    expect_ok(&mut client, "six");
    client.send(get("/7") + &get("/8"));
    expect(&mut server, "/7");
    expect(&mut server, "/8");
}

#[test]
fn responses_of_a_pipeline_are_paired_at_every_split() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    let (mut client, mut server) = warm(&proxy, &upstream);
    let responses = ok("one")
        + "HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n"
        + "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\ntwo\r\n0\r\n\r\n"
        + "HTTP/1.1 304 Not Modified\r\n\r\n"
        + &ok("four");
    for split in 1..responses.len() {
        client.send(get("/1") + &get("/2") + &get("/3") + &get("/4"));
        for path in ["/1", "/2", "/3", "/4"] {
            expect(&mut server, path);
        }
        server.send(&responses[..split]);
        if split % 3 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        server.send(&responses[split..]);
        expect_ok(&mut client, "one");
        assert!(client.head().starts_with("HTTP/1.1 103 "));
        assert!(client.head().contains("chunked"));
        // Its chunks are those in which it has come.
        let chunks = client.until("0\r\n\r\n");
        assert_eq!(chunks.lines().skip(1).step_by(2).collect::<String>(), "two", "{split}");
        assert!(client.head().starts_with("HTTP/1.1 304 "));
        expect_ok(&mut client, "four");
    }
}

/// An upstream that is made to send two responses to one request owes another one: it must not be that of another client.
#[test]
fn a_connection_that_has_carried_a_pipeline_is_for_its_client_alone() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    let (mut one, mut server) = warm(&proxy, &upstream);
    one.send(get("/1") + &get("/slow"));
    expect(&mut server, "/1");
    expect(&mut server, "/slow");
    server.send(ok("one") + &ok("one too many"));
    expect_ok(&mut one, "one");
    expect_ok(&mut one, "one too many");
    let mut other = client(&proxy);
    other.send(get("/other"));
    let mut fresh = upstream.accept();
    expect(&mut fresh, "/other");
    server.send(ok("slow"));
    fresh.send(ok("other"));
    expect_ok(&mut other, "other");
}

#[test]
fn the_next_pipeline_of_a_client_has_the_connection_of_the_last_one() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    let (mut one, mut server) = warm(&proxy, &upstream);
    for _ in 0..3 {
        one.send(get("/1") + &get("/2"));
        expect(&mut server, "/1");
        expect(&mut server, "/2");
        server.send(ok("one") + &ok("two"));
        expect_ok(&mut one, "one");
        expect_ok(&mut one, "two");
    }
}

#[test]
fn a_new_connection_gets_no_pipeline_before_it_has_answered() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    let mut client = client(&proxy);
    client.send(get("/1") + &get("/2") + &get("/3"));
    let mut server = upstream.accept();
    expect(&mut server, "/1");
    expect_silence(&mut server);
    server.send(ok("one"));
    expect(&mut server, "/2");
    expect(&mut server, "/3");
    server.send(ok("two") + &ok("three"));
    for body in ["one", "two", "three"] {
        expect_ok(&mut client, body);
    }
}

#[test]
fn requests_that_a_closing_connection_has_not_answered_are_sent_again() {
    for closing in ["HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\none".to_owned(), ok("one")] {
        let upstream = Upstream::new();
        let proxy = proxy_of(&upstream);
        let (mut client, mut server) = warm(&proxy, &upstream);
        client.send((1..=16).map(|number| get(&format!("/{number}"))).collect::<String>());
        for number in 1..=16 {
            expect(&mut server, &format!("/{number}"));
        }
        server.send(closing);
        drop(server);
        expect_ok(&mut client, "one");
        // More than the budget of retries has: these are none. They are not sent all at once.
        let mut server = upstream.accept();
        for number in 2..=16 {
            expect(&mut server, &format!("/{number}"));
            server.send(ok(&format!("is {number}.")));
            expect_ok(&mut client, &format!("is {number}."));
        }
        client.send(get("/17"));
        expect(&mut server, "/17");
    }
}

#[test]
fn requests_that_a_reset_connection_has_not_answered_are_sent_again() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    let (mut client, mut server) = warm(&proxy, &upstream);
    client.send((1..=16).map(|number| get(&format!("/{number}"))).collect::<String>());
    for number in 1..=8 {
        expect(&mut server, &format!("/{number}"));
    }
    for number in 1..=4 {
        server.send(ok(&format!("is {number}.")));
        expect_ok(&mut client, &format!("is {number}."));
    }
    // The kernel of an upstream that is killed resets its connections, since it has not read all requests.
    while server.0.peek(&mut [0; 1000]).unwrap() < get("/9").len() {
        std::thread::yield_now();
    }
    drop(server);
    let mut server = upstream.accept();
    for number in 5..=16 {
        expect(&mut server, &format!("/{number}"));
        server.send(ok(&format!("is {number}.")));
        expect_ok(&mut client, &format!("is {number}."));
    }
    client.send(get("/17"));
    expect(&mut server, "/17");
}

#[test]
fn a_pipelined_request_without_an_answer_is_sent_again_alone_and_no_pipeline_follows() {
    let upstream = Upstream::new();
    let mut limits = UpstreamLimits::default();
    // A quarter of it is the patience with a pipeline.
    limits.response_timeout = Duration::from_secs(4);
    let url = upstream.url().parse().unwrap();
    let upstreams = Upstreams::builder().server(url).limits(limits).build().unwrap();
    let proxy = start(move || Router::new().fallback(Proxy::new(&upstreams)));
    let (mut client, mut server) = warm(&proxy, &upstream);
    client.send(get("/1") + &get("/2") + &get("/3"));
    for path in ["/1", "/2", "/3"] {
        expect(&mut server, path);
    }
    // An upstream that knows no pipelines answers the first request, and waits for the next one.
    server.send(ok("one"));
    expect_ok(&mut client, "one");
    assert!(server.rest().0.is_empty());
    let mut server = upstream.accept();
    expect(&mut server, "/2");
    expect_silence(&mut server);
    server.send(ok("two"));
    expect_ok(&mut client, "two");
    expect(&mut server, "/3");
    server.send(ok("three"));
    expect_ok(&mut client, "three");
    client.send(get("/4") + &get("/5"));
    expect(&mut server, "/4");
    expect_silence(&mut server);
    server.send(ok("four"));
    expect(&mut server, "/5");
    server.send(ok("five"));
    expect_ok(&mut client, "four");
    expect_ok(&mut client, "five");
}

#[test]
fn connections_that_carried_pipelines_close_with_their_client() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    let (mut client, mut server) = warm(&proxy, &upstream);
    for _ in 0..2 {
        // The connection stays for the next pipeline of this client.
        client.send(get("/1") + &get("/2"));
        ["/1", "/2"].iter().for_each(|path| expect(&mut server, path));
        server.send(ok("one") + &ok("two"));
        expect_ok(&mut client, "one");
        expect_ok(&mut client, "two");
    }
    drop(client);
    assert!(server.rest().0.is_empty());
}

#[test]
fn a_request_that_is_not_safe_waits_and_so_do_those_behind_it() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    let (mut client, mut server) = warm(&proxy, &upstream);
    let upgrade = "GET /3 HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    client.send(get("/1") + "POST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx" + upgrade + &get("/4"));
    expect(&mut server, "/1");
    expect_silence(&mut server);
    server.send(ok("one"));
    expect_ok(&mut client, "one");
    expect(&mut server, "/2");
    assert_eq!(server.until("x"), "x");
    expect_silence(&mut server);
    server.send(ok("two"));
    expect_ok(&mut client, "two");
    expect(&mut server, "/3");
    expect_silence(&mut server);
    server.send(ok("three"));
    expect_ok(&mut client, "three");
    expect(&mut server, "/4");
    server.send(ok("four"));
    expect_ok(&mut client, "four");
}

#[test]
fn a_request_that_closes_is_the_last_one() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    let (mut client, mut server) = warm(&proxy, &upstream);
    client.send(get("/1") + "GET /2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" + &get("/3"));
    expect(&mut server, "/1");
    server.send(ok("one"));
    expect_ok(&mut client, "one");
    expect(&mut server, "/2");
    server.send(ok("two"));
    let (rest, _) = client.rest();
    assert!(rest.ends_with(b"two"));
    expect_silence(&mut server);
}

#[test]
fn without_pipelines_requests_are_passed_on_one_after_the_other() {
    for (requests_max, of_upstream) in [(1, 16), (16, 1)] {
        let upstream = Upstream::new();
        let mut limits = UpstreamLimits::default();
        limits.pipelined_requests_max = of_upstream;
        let url = upstream.url().parse().unwrap();
        let upstreams = Upstreams::builder().server(url).limits(limits).build().unwrap();
        let mut limits = Limits::default();
        limits.pipelined_requests_max = requests_max;
        let proxy = start_with(limits, move || Router::new().fallback(Proxy::new(&upstreams)));
        let (mut client, mut server) = warm(&proxy, &upstream);
        client.send(get("/1") + &get("/2"));
        expect(&mut server, "/1");
        expect_silence(&mut server);
        server.send(ok("one"));
        expect(&mut server, "/2");
        server.send(ok("two"));
        expect_ok(&mut client, "one");
        expect_ok(&mut client, "two");
    }
}

#[test]
fn no_more_requests_are_in_progress_than_the_limit_allows() {
    let upstream = Upstream::new();
    let upstreams = upstreams(&[&upstream]);
    let mut limits = Limits::default();
    limits.pipelined_requests_max = 3;
    let proxy = start_with(limits, move || Router::new().fallback(Proxy::new(&upstreams)));
    let (mut client, mut server) = warm(&proxy, &upstream);
    client.send((1..=6).map(|number| get(&format!("/{number}"))).collect::<String>());
    for number in 1..=3 {
        expect(&mut server, &format!("/{number}"));
    }
    expect_silence(&mut server);
    for number in 1..=6 {
        if number > 3 {
            expect(&mut server, &format!("/{number}"));
        }
        server.send(ok(&format!("is {number}.")));
        expect_ok(&mut client, &format!("is {number}."));
    }
}

/// A proxy of two upstreams in turn, with a connection to each that has answered.
fn two(upstreams_played: [&Upstream; 2]) -> (Running, Peer, [Peer; 2]) {
    let upstreams = upstreams(&upstreams_played);
    let proxy = start(move || Router::new().fallback(Proxy::new(&upstreams)));
    let (client, servers) = warm_two(&proxy, upstreams_played);
    (proxy, client, servers)
}

fn warm_two(proxy: &Running, upstreams_played: [&Upstream; 2]) -> (Peer, [Peer; 2]) {
    let mut client = client(proxy);
    let servers = upstreams_played.map(|_| {
        client.send(get("/warm"));
        let (_, mut server) = proxy_peers::accept_any(&upstreams_played);
        expect(&mut server, "/warm");
        server.send(ok("warm"));
        expect_ok(&mut client, "warm");
        server
    });
    (client, servers)
}

#[test]
fn a_response_that_comes_too_early_waits_for_those_before_it() {
    let (a, b) = (Upstream::new(), Upstream::new());
    let (_proxy, mut client, [mut first, mut second]) = two([&a, &b]);
    client.send(get("/1") + &get("/2") + &get("/3") + &get("/4"));
    // Both upstreams have a pipeline.
    for (server, paths) in [(&mut first, ["/1", "/3"]), (&mut second, ["/2", "/4"])] {
        paths.iter().for_each(|path| expect(server, path));
    }
    second.send("HTTP/1.1 103 Early Hints\r\nLink: <2>\r\n\r\n".to_owned() + &ok("two") + &ok("four"));
    expect_silence(&mut client);
    first.send(ok("one"));
    expect_ok(&mut client, "one");
    assert!(client.head().starts_with("HTTP/1.1 103 "));
    expect_ok(&mut client, "two");
    expect_silence(&mut client);
    first.send(ok("three"));
    expect_ok(&mut client, "three");
    expect_ok(&mut client, "four");
}

#[test]
fn a_long_response_out_of_turn_is_not_read() {
    let (a, b) = (Upstream::new(), Upstream::new());
    let (_proxy, mut client, [mut first, mut second]) = two([&a, &b]);
    client.send(get("/1") + &get("/2"));
    expect(&mut first, "/1");
    expect(&mut second, "/2");
    const LENGTH: usize = 64 << 20;
    second.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n"));
    second.0.set_nonblocking(true).unwrap();
    // It stalls, since nothing reads it.
    let (mut sent, mut stalls) = (0, 0);
    while stalls < 20 {
        match std::io::Write::write(&mut second.0, &[b'x'; 65536][..(LENGTH - sent).min(65536)]) {
            Ok(count) => (sent, stalls) = (sent + count, 0),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                stalls += 1;
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        assert!(sent < LENGTH);
    }
    second.0.set_nonblocking(false).unwrap();
    let rest = std::thread::spawn(move || {
        let bytes = vec![b'x'; LENGTH - sent];
        second.send(bytes);
        second
    });
    first.send(ok("one"));
    expect_ok(&mut client, "one");
    assert!(client.head().contains(&format!("\r\nContent-Length: {LENGTH}\r\n")));
    let mut read = 0;
    let mut bytes = vec![0; 65536];
    while read < LENGTH {
        read += std::io::Read::read(&mut client.0, &mut bytes).unwrap();
    }
    assert_eq!(read, LENGTH);
    let mut second = rest.join().unwrap();
    client.send(get("/3") + &get("/4"));
    expect(&mut first, "/3");
    expect(&mut second, "/4");
    second.send(ok("four"));
    first.send(ok("three"));
    expect_ok(&mut client, "three");
    expect_ok(&mut client, "four");
}

#[test]
fn a_failure_is_that_of_its_own_request() {
    let (a, b) = (Upstream::new(), Upstream::new());
    let (_proxy, mut client, [mut first, mut second]) = two([&a, &b]);
    client.send(get("/1") + &get("/2") + &get("/3"));
    expect(&mut first, "/1");
    expect(&mut second, "/2");
    expect(&mut first, "/3");
    second.send("this is not HTTP\r\n\r\n");
    first.send(ok("one"));
    expect_ok(&mut client, "one");
    first.send(ok("three"));
    // It is sent again as often as any other.
    for _ in 0..2 {
        expect(&mut proxy_peers::accept_any(&[&a, &b]).1, "/2");
    }
    expect_status(&mut client, 502);
    expect_ok(&mut client, "three");
}

#[test]
fn functions_of_the_application_and_refusals_have_their_places() {
    let upstream = Upstream::new();
    let upstreams = upstreams(&[&upstream]);
    let proxy = start(move || Router::new().get("/own", || "own").fallback(Proxy::new(&upstreams)));
    let (mut client, mut server) = warm(&proxy, &upstream);
    client.send(
        get("/1") + &get("/own") + &get("/2") + "TRACE /3 HTTP/1.1\r\nHost: a\r\n\r\n" + &get("/%2e/4") + &get("/5"),
    );
    expect(&mut server, "/1");
    server.send(ok("one"));
    expect(&mut server, "/2");
    server.send(ok("two"));
    expect_ok(&mut client, "one");
    expect_ok(&mut client, "own");
    expect_ok(&mut client, "two");
    expect_status(&mut client, 405);
    expect_status(&mut client, 400);
    expect(&mut server, "/5");
    server.send(ok("five"));
    expect_ok(&mut client, "five");
}

#[test]
fn a_client_that_leaves_takes_its_requests_along() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    let (mut client, mut server) = warm(&proxy, &upstream);
    client.send(get("/1") + &get("/2"));
    expect(&mut server, "/1");
    expect(&mut server, "/2");
    server.send(ok("one"));
    // One of its bytes stays unread, so that closing resets.
    client.until("on");
    drop(client);
    assert_eq!(server.rest().0, b"");
}

#[test]
fn with_half_close_a_client_that_ends_its_side_gets_its_responses() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    let (mut client, mut server) = warm(&proxy, &upstream);
    client.send(get("/1") + &get("/2"));
    client.0.shutdown(Shutdown::Write).unwrap();
    expect(&mut server, "/1");
    expect(&mut server, "/2");
    // The loop has the end of the client before the request of another one, which came to the kernel later.
    let mut other = proxy_peers::client(&proxy);
    other.send(get("/other"));
    expect(&mut upstream.accept(), "/other");
    server.send(ok("one") + &ok("two"));
    let head = client.head();
    assert!(!head.contains("Connection: close"), "{head}");
    assert_eq!(client.until("one"), "one");
    let head = client.head();
    assert!(head.contains("\r\nConnection: close\r\n"), "{head}");
    assert_eq!(client.rest(), (b"two".to_vec(), false));
}

#[test]
fn a_drain_answers_a_pipeline() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    let (mut client, mut server) = warm(&proxy, &upstream);
    client.send(get("/1") + &get("/2") + &get("/3"));
    for path in ["/1", "/2", "/3"] {
        expect(&mut server, path);
    }
    std::thread::scope(|scope| {
        scope.spawn(|| proxy.0.drain(Duration::from_secs(60)));
        // The drain has begun when the listener is closed.
        while TcpStream::connect(proxy.0.address().ip().unwrap()).is_ok() {
            std::thread::sleep(Duration::from_millis(1));
        }
        server.send(ok("one") + &ok("two") + &ok("three"));
        expect_ok(&mut client, "one");
        expect_ok(&mut client, "two");
        assert!(client.head().contains("\r\nConnection: close\r\n"));
        assert_eq!(client.rest(), (b"three".to_vec(), false));
    });
}

#[test]
fn requests_side_by_side_are_counted_and_seen_by_middleware_once() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    struct Seen(Arc<[AtomicU32; 2]>);

    impl Middleware for Seen {
        fn before(&self, request: &mut Request) -> Result<(), Response> {
            self.0[0].fetch_add(1, Ordering::SeqCst);
            if request.target() == "/no" { Err(StatusCode::FORBIDDEN.into_response()) } else { Ok(()) }
        }

        fn after(&self, _: &RequestInfo, _: &mut Response) {
            self.0[1].fetch_add(1, Ordering::SeqCst);
        }
    }

    let (upstream, metrics, seen) = (Upstream::new(), HttpMetrics::new(), Arc::<[AtomicU32; 2]>::default());
    let (upstreams, of_router) = (upstreams(&[&upstream]), seen.clone());
    let server = Server::bind("127.0.0.1:0").unwrap().loops(1).metrics(&metrics);
    let router = move || Router::new().fallback(Proxy::new(&upstreams)).with(Seen(of_router.clone()));
    let proxy = Running(server.start(router).unwrap());
    let (mut client, mut server) = warm(&proxy, &upstream);
    client.send(get("/1") + &get("/no") + &get("/2") + &get("/no"));
    expect(&mut server, "/1");
    expect(&mut server, "/2");
    server.send(ok("one") + "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno");
    expect_ok(&mut client, "one");
    for status in [403, 404, 403] {
        expect_status(&mut client, status);
    }
    // Middleware that refuses a request itself does not see the response.
    assert_eq!(seen.each_ref().map(|count| count.load(Ordering::SeqCst)), [5, 3]);
    let all = metrics.snapshot();
    let statuses = all.iter().fold([0; 5], |mut sum, series| {
        sum.iter_mut().zip(series.statuses).for_each(|(sum, count)| *sum += count);
        sum
    });
    assert_eq!(statuses, [0, 2, 0, 3, 0], "{all:?}");
}

#[test]
fn refusals_behind_one_another_wait_for_a_client_that_does_not_read() {
    struct Refuse;

    impl Middleware for Refuse {
        fn before(&self, request: &mut Request) -> Result<(), Response> {
            static BODY: [u8; 4 << 20] = [b'x'; 4 << 20];
            if request.target() == "/no" { Err((StatusCode::FORBIDDEN, &BODY[..]).into_response()) } else { Ok(()) }
        }
    }

    let upstream = Upstream::new();
    let upstreams = upstreams(&[&upstream]);
    let proxy = start(move || Router::new().fallback(Proxy::new(&upstreams)).with(Refuse));
    let (mut client, mut server) = warm(&proxy, &upstream);
    client.send(get("/1") + &get("/no").repeat(6) + &get("/2") + &get("/no").repeat(6) + &get("/own"));
    expect(&mut server, "/1");
    expect(&mut server, "/2");
    expect(&mut server, "/own");
    server.send(ok("one"));
    // Meanwhile the proxy fills the buffers of the kernel. Nothing outside of it shows that they are full.
    std::thread::sleep(Duration::from_millis(100));
    expect_ok(&mut client, "one");
    (0..6).for_each(|_| expect_status(&mut client, 403));
    server.send(ok("two") + &ok("own"));
    std::thread::sleep(Duration::from_millis(100));
    expect_ok(&mut client, "two");
    (0..6).for_each(|_| expect_status(&mut client, 403));
    expect_ok(&mut client, "own");
}

#[test]
fn a_request_that_cannot_be_passed_on_leaves_its_pipeline_alone() {
    let upstream = Upstream::new();
    let upstreams = upstreams(&[&upstream]);
    let proxy = start(move || Router::new().fallback(Proxy::new(&upstreams).strip_prefix("/api")));
    let mut client = client(&proxy);
    client.send(get("/api/warm"));
    let mut server = upstream.accept();
    expect(&mut server, "/warm");
    server.send(ok("warm"));
    expect_ok(&mut client, "warm");
    client.send(get("/api/1") + &get("/other") + &get("/api/2") + &get("/other"));
    expect(&mut server, "/1");
    expect(&mut server, "/2");
    server.send(ok("one") + &ok("two"));
    expect_ok(&mut client, "one");
    expect_status(&mut client, 404);
    expect_ok(&mut client, "two");
    expect_status(&mut client, 404);
    client.send(get("/api/3") + &get("/api/4"));
    expect(&mut server, "/3");
    expect(&mut server, "/4");
}
