//! Interim responses of many requests at once through a proxy: each reaches its own client, before the final response.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;

use tidegate::http::proxy::{Proxy, Upstreams};
use tidegate::http::{Edit, Router, Server};

use crate::support::Running;
use crate::support::http2_peer::{END_HEADERS, END_STREAM, HEADERS, Peer, frame};

/// How many interim responses a request gets, and the length of the body of its response.
fn expected(number: usize) -> (usize, usize) {
    (number % 5, if number % 4 == 3 { 100_000 } else { 10 })
}

/// An upstream that answers `/NUMBER`, until its test ends.
fn upstream() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { return };
            thread::spawn(move || answer(stream));
        }
    });
    format!("http://{address}")
}

fn answer(stream: TcpStream) -> Option<()> {
    let mut out = stream.try_clone().ok()?;
    let mut lines = BufReader::new(stream).lines();
    loop {
        let start = lines.next()?.ok()?;
        while !lines.next()?.ok()?.is_empty() {}
        let path = start.split(' ').nth(1)?;
        let (interims, length) = expected(path[1..].parse().ok()?);
        for index in 0..interims {
            // Each on its own, so that they come in polls of their own.
            out.write_all(format!("HTTP/1.1 103 Early Hints\r\nLink: <{path}-{index}>\r\n\r\n").as_bytes()).ok()?;
        }
        let body = "y".repeat(length);
        out.write_all(format!("HTTP/1.1 200 OK\r\nX: {path}\r\nContent-Length: {length}\r\n\r\n{body}").as_bytes())
            .ok()?;
    }
}

fn proxy() -> Running {
    proxy_with(&[])
}

fn proxy_with(edits: &'static [&'static str]) -> Running {
    let upstreams = Upstreams::builder().server(upstream().parse().expect("a URL")).build().expect("upstreams");
    // The clients below end their sides, and wait.
    let server = Server::bind("127.0.0.1:0").expect("an address").half_close(true).loops(1);
    let router = move || {
        let removed = edits.iter().map(|name| Edit::remove(*name));
        Router::new().fallback(removed.fold(Proxy::new(&upstreams), Proxy::edit_response))
    };
    Running(server.start(router).expect("the server starts"))
}

#[test]
fn a_field_that_responses_lose_is_in_no_interim_response() {
    for (edits, expected) in [(&[][..], 4), (&["Link"][..], 0)] {
        let proxy = proxy_with(edits);
        let response = proxy.exchange("GET /4 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert_eq!(response.matches("HTTP/1.1 103 ").count(), 4, "{response}");
        assert_eq!(response.matches("Link: ").count(), expected, "{response}");
    }
}

#[test]
fn interim_responses_of_many_streams_reach_their_own_and_stop_none() {
    let proxy = proxy();
    let mut peer = Peer::new(proxy.connect());
    for round in 0..10_u32 {
        let ids: Vec<_> = (0..60).map(|index| 1 + 2 * (60 * round + index)).collect();
        let mut wire = Vec::new();
        for id in &ids {
            let path = format!("/{id}");
            let fields = [(":method", "GET"), (":scheme", "http"), (":path", &*path), (":authority", "sea")];
            let block = peer.block(&fields);
            wire.extend(frame(HEADERS, END_HEADERS | END_STREAM, *id, &block));
        }
        peer.wire_send(&wire);
        for id in ids {
            peer.read_until(|peer| peer.is_over(id));
            let received = peer.stream(id);
            let (interims, length) = expected(id as usize);
            let links: Vec<_> =
                received.fields.iter().filter(|(name, _)| name == "link").map(|(_, value)| value).collect();
            assert_eq!(
                links,
                (0..interims).map(|index| format!("</{id}-{index}>")).collect::<Vec<_>>().iter().collect::<Vec<_>>()
            );
            assert_eq!((received.field("x"), received.body.len()), (Some(&*format!("/{id}")), length));
            assert!(received.has_ended && received.reset.is_none(), "stream {id}");
        }
    }
}

#[test]
fn interim_responses_of_pipelined_requests_come_in_their_order() {
    let proxy = proxy();
    let clients: Vec<_> = (0..8_usize)
        .map(|client| {
            let mut connection = proxy.connect();
            thread::spawn(move || {
                let numbers = 1000 * client..1000 * client + 100;
                let wire: String =
                    numbers.clone().map(|number| format!("GET /{number} HTTP/1.1\r\nHost: sea\r\n\r\n")).collect();
                let mut sending = connection.try_clone().expect("a socket");
                let sender = thread::spawn(move || {
                    sending.write_all(wire.as_bytes()).and_then(|()| sending.shutdown(Shutdown::Write))
                });
                let mut text = String::new();
                connection.read_to_string(&mut text).expect("the proxy ends the connection in order");
                sender.join().expect("no panic").expect("the proxy reads");
                let seen: Vec<_> =
                    text.lines().filter_map(|line| line.strip_prefix("Link: ").or(line.strip_prefix("X: "))).collect();
                let wanted = numbers.flat_map(|number| {
                    let links = (0..expected(number).0).map(move |index| format!("</{number}-{index}>"));
                    links.chain([format!("/{number}")])
                });
                assert_eq!(seen, wanted.collect::<Vec<_>>());
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().expect("all are answered"));
}
