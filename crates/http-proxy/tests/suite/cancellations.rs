//! Clients of a proxy that cancel many requests, and clients that read nothing: the requests that reach the upstream,
//! and those of others on the same connection to it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use tidegate::http::Router;
use tidegate::http::proxy::{Proxy, UpstreamLimits, Upstreams};

use crate::support::http2_peer::{Peer, RST_STREAM, SETTINGS, WINDOW_UPDATE};
use crate::support::http2_upstream::{self, DATA, END_HEADERS, HEADERS, Session, Upstream};
use crate::support::{Running, start};

const CANCEL: [u8; 4] = 8_u32.to_be_bytes();

fn proxy_to(url: &str, limits: UpstreamLimits) -> Running {
    let upstreams = Upstreams::builder().server(url.parse().expect("a URL")).limits(limits).build().expect("upstreams");
    start(move || Router::new().fallback(Proxy::new(&upstreams)))
}

/// Waits until the proxy has handled all that the client has sent.
fn settle(client: &mut Peer<TcpStream>) {
    let before = client.pongs;
    client.ping();
    client.read_until(|client| client.pongs > before);
}

/// The frames of a session up to the request that is complete next, its own included.
fn frames_to_request(session: &mut Session) -> Vec<http2_upstream::Frame> {
    let mut frames = Vec::new();
    loop {
        let frame = session.receive().expect("a request");
        let is_request = frame.kind == HEADERS;
        frames.push(frame);
        if is_request {
            return frames;
        }
    }
}

#[test]
fn a_client_that_cancels_nearly_all_requests_has_few_connections_made_to_an_upstream() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = connections.clone();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            counted.fetch_add(1, Ordering::SeqCst);
            thread::spawn(move || {
                let (mut head, mut byte) = (Vec::new(), [0]);
                while stream.read(&mut byte).is_ok_and(|count| count > 0) {
                    head.push(byte[0]);
                    if head.ends_with(b"\r\n\r\n") {
                        if head.starts_with(b"GET /now") {
                            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
                        }
                        head.clear();
                    }
                }
            });
        }
    });
    let mut limits = UpstreamLimits::default();
    (limits.cancellations_max, limits.cancellations_per_second) = (20, 10);
    let proxy = proxy_to(&url, limits);
    let began = Instant::now();
    let mut client = Peer::new(proxy.connect());
    let (mut cancelled, mut stream) = (0, 1);
    while cancelled < 210 {
        let never: Vec<_> = (0..7).map(|index| stream + 2 * index).collect();
        never.iter().for_each(|stream| client.request(*stream, "GET", "/never", &[], true));
        settle(&mut client);
        never.iter().for_each(|stream| client.frame(RST_STREAM, 0, *stream, &CANCEL));
        let last = stream + 14;
        client.request(last, "GET", "/now", &[], true);
        client.read_until(|client| client.is_over(last));
        assert_eq!(client.stream(last).status(), "200");
        (cancelled, stream) = (cancelled + 7, stream + 16);
    }
    // The budget, the returns by time and completed requests, and the connections of those.
    let seconds = began.elapsed().as_secs() as usize + 1;
    let most = 20 + 10 * seconds + cancelled / 7 / 8 + 8;
    let connections = connections.load(Ordering::SeqCst);
    assert!(connections <= most, "{connections} connections, {most} expected, in {seconds} s for {cancelled}");
}

#[test]
fn clients_that_cancel_requests_break_none_of_another_one_on_the_same_connection() {
    let upstream = Upstream::new();
    // Many clients have as large a budget together.
    let mut limits = UpstreamLimits::default();
    limits.cancellations_max = 1_000_000;
    let proxy = proxy_to(&upstream.url(), limits);
    let began = Instant::now();
    let mut innocent = Peer::new(proxy.connect());
    innocent.request(1, "GET", "/", &[], true);
    let mut first = upstream.accept();
    let asked = first.request();
    let mut answering = first.other();
    let resets_to_the_end = |mut session: Session| {
        std::iter::from_fn(move || session.receive()).filter(|frame| frame.kind == RST_STREAM).count()
    };
    let resets = thread::spawn(move || resets_to_the_end(first));
    thread::spawn(move || {
        // Those that are made once the first one has too many streams that wait for their reset.
        loop {
            let session = upstream.accept();
            thread::spawn(move || resets_to_the_end(session));
        }
    });
    let mut clients: Vec<_> = (0..4).map(|_| Peer::new(proxy.connect())).collect();
    for round in 0..4 {
        for client in &mut clients {
            let streams: Vec<_> = (0..25).map(|index| 2 * (25 * round + index) + 1).collect();
            streams.iter().for_each(|stream| client.request(*stream, "GET", "/", &[], true));
            settle(client);
            streams.iter().for_each(|stream| client.frame(RST_STREAM, 0, *stream, &CANCEL));
            settle(client);
        }
    }
    answering.answer(asked, "whole");
    innocent.read_until(|innocent| innocent.is_over(1));
    assert_eq!(innocent.stream(1).body, b"whole");
    drop((innocent, clients, proxy));
    let (resets, seconds) = (resets.join().expect("it is good"), began.elapsed().as_secs() as usize + 1);
    // 64 of them at its end, when no other stream is left.
    assert!(resets <= 100 + 64 + 20 * seconds, "{resets} resets in {seconds} s");
}

#[test]
fn a_client_that_reads_nothing_has_an_upstream_send_one_window() {
    let upstream = Upstream::new();
    let proxy = proxy_to(&upstream.url(), UpstreamLimits::default());
    let mut client = Peer::new(proxy.connect());
    // SETTINGS_INITIAL_WINDOW_SIZE.
    client.frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    client.request(1, "GET", "/", &[], true);
    let mut session = upstream.accept();
    let stream = session.request();
    let length = (10 * 1024 * 1024).to_string();
    let head = [&[0x88, 0x0f, 0x0d, length.len() as u8], length.as_bytes()].concat();
    session.send(HEADERS, END_HEADERS, stream, &head);
    for _ in 0..4 {
        session.send(DATA, 0, stream, &[b'x'; 16 * 1024]);
    }
    client.read_until(|client| client.stream(1).status() == "200");
    // The proxy has received all of it once it answers these, one after the other.
    for other in [3, 5, 7] {
        client.request(other, "HEAD", "/", &[], true);
        let frames = frames_to_request(&mut session);
        let granted = frames.iter().find(|frame| frame.kind == WINDOW_UPDATE && frame.stream == stream);
        assert!(granted.is_none(), "{granted:?}");
        let asked = frames.last().expect("a request").stream;
        session.send(HEADERS, END_HEADERS | http2_upstream::END_STREAM, asked, &[0x88]);
        client.read_until(|client| client.is_over(other));
    }
    // As the client reads, the upstream sends on.
    client.frame(WINDOW_UPDATE, 0, 1, &(10_u32 * 1024 * 1024).to_be_bytes());
    client.read_until(|client| client.stream(1).body.len() == 64 * 1024);
    let granted = loop {
        let frame = session.receive().expect("a frame");
        if frame.kind == WINDOW_UPDATE && frame.stream == stream {
            break u32::from_be_bytes(frame.content.try_into().expect("four bytes"));
        }
    };
    assert!(granted >= 32 * 1024, "{granted}");
}
