//! Bad input: the right status, a clean close, one line in the log, and no effect on other connections.

use std::io::ErrorKind;

use crate::support::peer::{Peer, assert_same, letters, request, status};
use crate::support::program::{Program, until};

/// A server, and a witness: a connection that must stay open and be served whatever other connections do.
struct Stage {
    program: Program,
    witness: Peer,
    descriptors: usize,
}

impl Stage {
    fn new() -> Self {
        let program = Program::serve(&["--loops", "1"]);
        let mut witness = Peer::connect(&program);
        assert_eq!(witness.get("/plaintext").status, 200);
        let descriptors = program.descriptors();
        Self { program, witness, descriptors }
    }

    /// Asserts that `wire` gets `expected` and nothing more, sent whole or in pieces; that the connection closes in
    /// good order; that one log line gives the reason; and that the witness is served as before.
    fn refuses(&mut self, wire: impl AsRef<[u8]>, expected: u16) {
        let wire = wire.as_ref();
        for piece in [wire.len(), wire.len().div_ceil(3)] {
            let lines = self.program.log().len();
            let mut peer = Peer::connect(&self.program);
            peer.socket.set_tcp_nodelay(true).unwrap();
            // The server may refuse the request before all of it was sent.
            let _ = wire.chunks(piece).try_for_each(|piece| peer.try_send(piece));
            let reply = peer.reply();
            let shown = String::from_utf8_lossy(&wire[..wire.len().min(200)]);
            assert_eq!(reply.status, expected, "{shown:?}: {}", reply.head);
            assert_eq!(reply.field("connection"), Some("close"), "{shown:?}: {}", reply.head);
            assert!(reply.field("date").is_some() && reply.field("server").is_some());
            peer.expect_end();
            drop(peer);
            self.expect_log_line_since(lines, &shown);
            assert_eq!(self.witness.get("/plaintext").text(), "Hello, World!");
        }
    }

    fn expect_log_line_since(&self, lines: usize, shown: &str) {
        until(&format!("a line about {shown:?}"), || self.program.log().len() > lines);
        let log = self.program.log().split_off(lines);
        assert_eq!(log.len(), 1, "{shown:?}: {log:?}");
        let is_complete =
            log[0].contains("connection closed") && log[0].contains("127.0.0.1:") && log[0].contains("reason=");
        assert!(is_complete, "{shown:?}: {log:?}");
    }

    /// Asserts that only the witness's connection is left.
    fn ends(mut self) {
        until("descriptors to be given back", || self.program.descriptors() <= self.descriptors);
        assert_same(&self.witness.get("/bytes/200000").body, &letters(200_000));
        assert!(self.program.is_running());
    }
}

#[test]
fn malformed_requests_are_400() {
    let mut stage = Stage::new();
    for wire in [
        "nonsense\r\n\r\n",
        "GET\r\n\r\n",
        "GET /\r\n\r\n",
        "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1 \r\nHost: a\r\n\r\n",
        "GET / http/1.1\r\nHost: a\r\n\r\n",
        "G<T / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET plaintext HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\nHost: a\n\n",
        "GET / HTTP/1.1\r\nHost: a\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n: no name\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nA: b\rc\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nA: \0\r\n\r\n",
        "GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n",
        "\r\n\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        stage.refuses(wire, 400);
    }
    stage.ends();
}

#[test]
fn invalid_content_lengths_are_400() {
    let mut stage = Stage::new();
    for length in ["-1", "+1", "0x10", "1e3", "1 1", "1,1", "", "a", "18446744073709551616", &"9".repeat(1000)] {
        stage.refuses(format!("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n0123456789"), 400);
    }
    for size in ["-1", "+1", "0x1", "g", "", " 1", "1 ", "11111111111111111"] {
        let head = "POST /plaintext HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        refuses_within_a_body(&mut stage, &format!("{head}{size}\r\n0\r\n0\r\n\r\n"));
    }
    stage.ends();
}

/// The head was valid, so the response precedes the error in the body, which is logged.
fn refuses_within_a_body(stage: &mut Stage, wire: &str) {
    let lines = stage.program.log().len();
    let mut peer = Peer::connect(&stage.program);
    peer.send(wire);
    let reply = peer.reply();
    assert!(matches!(reply.status, 400 | 405), "{wire:?}: {}", reply.head);
    peer.expect_end();
    drop(peer);
    stage.expect_log_line_since(lines, wire);
    assert_eq!(stage.witness.get("/plaintext").status, 200);
}

/// Request smuggling: framing that two servers could interpret in two ways is refused.
#[test]
fn ambiguous_framing_is_400() {
    let mut stage = Stage::new();
    let smuggled = "0\r\n\r\nGET /json HTTP/1.1\r\nHost: a\r\n\r\n";
    for fields in [
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "Transfer-Encoding:\x0bchunked",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding\r\n : chunked",
        "Content-Length: 5\r\n\tContent-Length: 6",
    ] {
        stage.refuses(format!("POST /echo HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n{smuggled}"), 400);
    }
    stage.refuses(format!("POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n{smuggled}"), 400);
    stage.ends();
}

#[test]
fn parts_over_a_limit_get_the_matching_status() {
    let mut stage = Stage::new();
    let megabyte = "a".repeat(1024 * 1024);
    stage.refuses(format!("GET / HTTP/1.1\r\nHost: a\r\nA: {megabyte}\r\n\r\n"), 431);
    stage.refuses(format!("GET / HTTP/1.1\r\nHost: a\r\n{megabyte}: a\r\n\r\n"), 431);
    stage.refuses(format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "A: b\r\n".repeat(10_000)), 431);
    stage.refuses(format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "A: b\r\n".repeat(200)), 431);
    stage.refuses(format!("GET /{megabyte} HTTP/1.1\r\nHost: a\r\n\r\n"), 414);
    stage.refuses(format!("GET /?{} HTTP/1.1\r\nHost: a\r\n\r\n", &megabyte[..10_000]), 414);
    stage.refuses(format!("{megabyte} / HTTP/1.1\r\nHost: a\r\n\r\n"), 501);
    stage.refuses("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9223372036854775807\r\n\r\n", 413);
    stage.refuses("POST /plaintext HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000000\r\n\r\n", 413);
    stage.ends();
}

/// A megabyte without a line end or any other delimiter.
#[test]
fn a_megabyte_without_a_line_end_is_refused() {
    let mut stage = Stage::new();
    for byte in *b"aA \r\n\0\xff:" {
        let mut peer = Peer::connect(&stage.program);
        let _ = peer.try_send(vec![byte; 1024 * 1024]);
        let code = status(&peer.head());
        assert!(matches!(code, 400 | 414 | 431 | 501), "{byte:?}: {code}");
        assert_eq!(stage.witness.get("/plaintext").status, 200);
    }
    stage.ends();
}

#[test]
fn invalid_request_targets_are_400() {
    let mut stage = Stage::new();
    for target in ["/%00", "/a#b", "/a\tb", "/a\x7Fb", "/?a=\x01"] {
        stage.refuses(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
    }
    stage.refuses("TIDE * HTTP/1.1\r\nHost: a\r\n\r\n", 400);
    stage.ends();
}

/// Browsers and other user agents send these, and servers of the field take them.
#[test]
fn targets_with_bytes_that_no_uri_has_are_400_only_by_choice() {
    let targets = ["/%", "/%zz", "/a%0", "/?a=%", "/a\\b", "/<a>", "/\"a\"", "/{a}", "/a|b", "/?a=^", "/`", "/\u{e9}"];
    for (flags, status) in [(&[][..], 404), (&["--strict-targets"], 400)] {
        let program = Program::serve(&[&["--loops", "1"], flags].concat());
        for target in targets {
            let mut peer = Peer::connect(&program);
            peer.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
            let expected = if target.starts_with("/?") && status == 404 { 200 } else { status };
            assert_eq!(peer.reply().status, expected, "{target} with {flags:?}");
        }
    }
}

#[test]
fn unsupported_protocol_features_get_the_matching_status() {
    let mut stage = Stage::new();
    for version in ["HTTP/2.0", "HTTP/0.9", "HTTP/2.1", "HTTP/3.0"] {
        stage.refuses(format!("GET / {version}\r\nHost: a\r\n\r\n"), 505);
    }
    // If the final coding is not chunked, the length of the request is unknown (RFC 9112 §6.3).
    for (coding, status) in [("gzip, chunked", 501), ("gzip", 400), ("identity", 400), ("xchunked", 400)] {
        let fields = format!("Host: a\r\nTransfer-Encoding: {coding}");
        stage.refuses(format!("POST /echo HTTP/1.1\r\n{fields}\r\n\r\n0\r\n\r\n"), status);
    }
    stage.refuses("POST /echo HTTP/1.1\r\nHost: a\r\nExpect: tea\r\nContent-Length: 1\r\n\r\n1", 417);
    stage.ends();
}

/// The first bytes of a TLS client, of SSH, of a Redis client, and of an old probe.
#[test]
fn other_protocols_are_refused() {
    let mut stage = Stage::new();
    let tls = b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03\x5a\x1b";
    for wire in [&tls[..], b"SSH-2.0-OpenSSH_9.2\r\n", b"*1\r\n$4\r\nPING\r\n", b"\x80\x2e\x01\x03\x01"] {
        stage.refuses(wire, 400);
    }
    stage.ends();
}

/// Requests before the bad one are answered, requests after it are not.
#[test]
fn a_bad_request_ends_its_pipelined_batch() {
    let mut stage = Stage::new();
    let mut peer = Peer::connect(&stage.program);
    let good = request("GET", "/bytes/100000");
    peer.send([&*good.repeat(20), "GET / HTTP/1.1\r\nHost : a\r\n\r\n", &*good.repeat(20)].concat());
    for _ in 0..20 {
        assert_same(&peer.reply().body, &letters(100_000));
    }
    assert_eq!(peer.reply().status, 400);
    peer.expect_end();
    drop(peer);
    stage.expect_log_line_since(0, "a batch");
    assert_eq!(stage.witness.get("/plaintext").status, 200);
    stage.ends();
}

#[test]
fn random_bytes_are_refused_or_incomplete() {
    let mut stage = Stage::new();
    let mut random = Random(0x7469_6465);
    for round in 0..300 {
        let mut wire = random.bytes(1 + round * 7 % 3000);
        if round % 3 == 0 {
            // A valid prefix gets further into the parser.
            wire.splice(0..0, request("GET", "/plaintext").into_bytes());
            let place = random.below(wire.len().min(60));
            wire[place] = random.below(256) as u8;
        }
        let mut peer = Peer::connect(&stage.program);
        peer.send(&wire);
        peer.finish();
        // Whatever the verdict: the connection closes in good order, and any output is HTTP.
        let answer = peer.rest().unwrap_or_else(|error| panic!("{error} in round {round}, seed 0x74696465"));
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 "), "round {round}, seed 0x74696465");
        if round % 20 == 0 {
            assert_eq!(stage.witness.get("/plaintext").status, 200);
        }
    }
    stage.ends();
}

#[test]
fn end_of_input_within_a_request_closes_cleanly() {
    let mut stage = Stage::new();
    let wire = b"POST /plaintext HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    for end in 1..wire.len() - 1 {
        let mut peer = Peer::connect(&stage.program);
        peer.send(&wire[..end]);
        peer.finish();
        let answer = peer.rest().expect("a clean end");
        let answer = String::from_utf8(answer).unwrap();
        // Once the head is complete, the request is answered; the missing rest of the body does not matter.
        let is_answered = end >= wire.len() - b"5\r\nhello\r\n0\r\n\r\n".len();
        assert_eq!(answer.starts_with("HTTP/1.1 405 "), is_answered, "after {end} bytes: {answer:?}");
    }
    stage.program.until_logged("stopped sending within a request", 1);
    assert_eq!(stage.witness.get("/plaintext").status, 200);
    stage.ends();
}

#[test]
fn incomplete_requests_do_not_delay_other_connections() {
    let mut stage = Stage::new();
    let mut halves: Vec<_> = (0..100).map(|_| Peer::connect(&stage.program)).collect();
    for (number, half) in halves.iter_mut().enumerate() {
        half.send(&request("GET", "/plaintext")[..1 + number % 30]);
    }
    for _ in 0..10 {
        assert_eq!(stage.witness.get("/plaintext").status, 200);
        assert_eq!(Peer::connect(&stage.program).get("/json").status, 200);
    }
    for (number, half) in halves.iter_mut().enumerate() {
        half.send(&request("GET", "/plaintext")[1 + number % 30..]);
        assert_eq!(half.reply().text(), "Hello, World!");
    }
    drop(halves);
    stage.ends();
}

#[test]
fn a_connection_without_bytes_is_not_logged() {
    let stage = Stage::new();
    for _ in 0..100 {
        drop(Peer::connect(&stage.program));
        let mut peer = Peer::connect(&stage.program);
        peer.finish();
        peer.expect_end();
    }
    assert_eq!(stage.program.log(), Vec::<String>::new());
    stage.ends();
}

/// A peer that keeps sending after the refusal still reads the response.
#[test]
fn a_peer_that_keeps_sending_still_reads_the_refusal() {
    let mut stage = Stage::new();
    for _ in 0..20 {
        let mut peer = Peer::connect(&stage.program);
        peer.send("GET / HTTP/9.9\r\n\r\n");
        let sent = (0..50).try_for_each(|_| peer.try_send([b'x'; 10_000]));
        assert!(sent.is_ok() || sent.is_err_and(|error| error.kind() == ErrorKind::BrokenPipe));
        assert_eq!(peer.reply().status, 505);
        peer.expect_end();
    }
    assert_eq!(stage.witness.get("/plaintext").status, 200);
    stage.ends();
}

/// SplitMix64, so that every run is the same.
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.bits() % bound as u64) as usize
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.bits() as u8).collect()
    }
}
