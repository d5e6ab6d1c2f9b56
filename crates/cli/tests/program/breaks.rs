//! Resets and half-closes: at every position, and together with data.

use std::time::Duration;

use crate::support::peer::{Peer, assert_same, letters, pattern, post, post_chunked, request};
use crate::support::program::{Program, until};

/// The bytes that a peer sends before it resets the connection.
const BEFORE_A_RESET: [(&str, &str); 8] = [
    ("nothing", ""),
    ("a part of a request line", "GET /pla"),
    ("a part of a head", "GET /plaintext HTTP/1.1\r\nHost: loc"),
    ("a part of a body", "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n0123456789"),
    ("a part of a chunk", "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n64\r\n0123456789"),
    ("a request for more than it reads", "GET /bytes/50000000 HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("a request for a stream", "GET /stream/50000000 HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("a request", "GET /plaintext HTTP/1.1\r\nHost: a\r\n\r\n"),
];

#[test]
fn a_reset_at_any_point_affects_its_connection_only() {
    let program = Program::serve(&["--loops", "1"]);
    let mut witness = Peer::connect(&program);
    assert_eq!(witness.get("/plaintext").status, 200);
    let descriptors = program.descriptors();
    for (what, wire) in BEFORE_A_RESET {
        let lines = program.log().len();
        let mut peer = Peer::connect(&program);
        peer.send(wire);
        // The server has read all input before the connection breaks.
        for _ in 0..3 {
            assert_eq!(witness.get("/plaintext").status, 200);
        }
        peer.reset();
        until(&format!("a line about a reset after {what}"), || program.log().len() > lines);
        assert_eq!(witness.get("/bytes/100000").body.len(), 100_000);
        let log = program.log().split_off(lines);
        assert!(log.len() == 1 && log[0].contains("the connection broke"), "after {what}: {log:?}");
        until("the descriptor to be given back", || program.descriptors() <= descriptors);
    }
}

#[test]
fn a_reset_within_a_pipelined_batch_affects_its_connection_only() {
    let program = Program::serve(&["--loops", "1"]);
    let mut witness = Peer::connect(&program);
    witness.get("/plaintext");
    let descriptors = program.descriptors();
    for target in ["/plaintext", "/bytes/16384", "/stream/100000"] {
        for read in [0, 1, 20] {
            let mut peer = Peer::narrow(&program);
            peer.send(request("GET", target).repeat(256));
            for _ in 0..read {
                assert_eq!(peer.reply().status, 200);
            }
            peer.reset();
            assert_eq!(witness.get("/plaintext").status, 200);
        }
    }
    until("descriptors to be given back", || program.descriptors() <= descriptors);
}

#[test]
fn a_storm_of_resets_leaks_nothing() {
    let program = Program::serve(&["--loops", "2"]);
    let mut witness = Peer::connect(&program);
    witness.get("/plaintext");
    let descriptors = program.descriptors();
    let mut storm = || {
        for round in 0..60 {
            let mut peers: Vec<_> = (0..20).map(|_| Peer::connect(&program)).collect();
            for (number, peer) in peers.iter_mut().enumerate() {
                let (_, wire) = BEFORE_A_RESET[(round + number) % BEFORE_A_RESET.len()];
                // The server may have read none, some or all of the input when the connection breaks.
                peer.send(wire);
            }
            peers.into_iter().for_each(Peer::reset);
            assert_eq!(witness.get("/plaintext").status, 200);
        }
        until("descriptors to be given back", || program.descriptors() <= descriptors);
        program.resident()
    };
    let (first, second) = (storm(), storm());
    assert!(second <= first + (1 << 20), "{first} bytes were resident, and then {second}");
}

/// On an edge-triggered socket, a FIN that arrives together with data is reported once.
#[test]
fn a_request_with_fin_in_the_same_segment_is_answered() {
    let program = Program::serve(&["--loops", "1"]);
    let body = pattern(20_000);
    for round in 0..50 {
        for (wire, expected) in [
            (request("GET", "/plaintext").into_bytes(), b"Hello, World!".to_vec()),
            (request("GET", "/bytes/300000").into_bytes(), letters(300_000)),
            (request("GET", "/stream/300000").into_bytes(), letters(300_000)),
            (b"GET /bytes/5000 HTTP/1.0\r\n\r\n".to_vec(), letters(5_000)),
            (post("/echo", &body), body.clone()),
            (post_chunked("/echo", &body, 1_000), body.clone()),
        ] {
            let mut peer = Peer::connect(&program);
            if round % 2 == 0 {
                peer.send(&wire);
            } else {
                // The last byte arrives with the FIN, the bytes before it do not.
                peer.send(&wire[..wire.len() - 1]);
                peer.send(&wire[wire.len() - 1..]);
            }
            peer.finish();
            assert_same(&peer.reply().body, &expected);
            peer.expect_end();
        }
    }
    assert_eq!(program.log(), Vec::<String>::new());
}

#[test]
fn a_half_closed_peer_gets_its_whole_batch() {
    let program = Program::serve(&["--loops", "1"]);
    for target in ["/plaintext", "/bytes/30000", "/bytes/300000", "/stream/300000"] {
        let mut peer = Peer::connect(&program);
        peer.send(request("GET", target).repeat(50));
        peer.finish();
        let first = peer.reply();
        for _ in 1..50 {
            assert_same(&peer.reply().body, &first.body);
        }
        peer.expect_end();
    }
    let mut peer = Peer::connect(&program);
    peer.send([request("GET", "/stream/3000000"), request("HEAD", "/"), request("GET", "/json")].concat());
    peer.finish();
    assert_same(&peer.reply().body, &letters(3_000_000));
    assert_eq!(peer.reply_to("HEAD").status, 200);
    assert_eq!(peer.reply().field("content-type"), Some("application/json"));
    peer.expect_end();
    assert_eq!(program.log(), Vec::<String>::new());
}

#[test]
fn a_half_closed_slow_reader_gets_all_responses() {
    let program = Program::serve(&["--loops", "1"]);
    let mut peer = Peer::narrow(&program);
    peer.send(request("GET", "/bytes/5000000"));
    peer.finish();
    // The server has filled the socket before the first byte is read.
    assert_eq!(Peer::connect(&program).get("/plaintext").status, 200);
    assert_same(&peer.reply().body, &letters(5_000_000));
    peer.expect_end();
}

/// Neither side of such a connection sends anything for a long time. That must cost no CPU time.
#[test]
fn half_closed_connections_cost_no_cpu_time() {
    let program = Program::serve(&["--loops", "1"]);
    let mut peers: Vec<_> = (0..40).map(|_| Peer::narrow(&program)).collect();
    for (number, peer) in peers.iter_mut().enumerate() {
        peer.send(request("GET", "/bytes/50000000").repeat(1 + number % 3));
        if number % 2 == 0 {
            peer.finish();
        }
        peer.head();
    }
    let watched = |what: &str| {
        let before = program.ticks();
        std::thread::sleep(Duration::from_secs(1));
        let used = program.ticks() - before;
        assert!(used < 20, "{used} ticks were spent on {what}");
    };
    watched("peers that do not read");
    let left = peers.split_off(20);
    peers.into_iter().for_each(Peer::reset);
    watched("peers that were reset");
    drop(left);
    watched("peers that are gone");
    assert_eq!(Peer::connect(&program).get("/plaintext").status, 200);
}

#[test]
fn a_truncated_body_ends_its_echo() {
    let program = Program::serve(&["--loops", "1"]);
    let body = pattern(10_000);
    for wire in [post("/echo", &body), post_chunked("/echo", &body, 1_000)] {
        let mut peer = Peer::connect(&program);
        peer.send(&wire[..wire.len() - 100]);
        peer.finish();
        let answer = peer.rest().expect("a clean end");
        assert!(answer.starts_with(b"HTTP/1.1 200 ") && !answer.ends_with(b"0\r\n\r\n"));
        program.until_logged("stopped sending within a request", 1);
    }
    program.until_logged("stopped sending within a request", 2);
}
