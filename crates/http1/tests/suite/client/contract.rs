//! The contract of all codecs, kept by the client: whatever the pieces, the same responses and errors.

use tidegate_codec::Blame;
use tidegate_http1::client::Limits;

use crate::client::support::contract;

/// Requests, and the bytes that came back.
const GOOD: &[(&[&str], &[u8])] = &[
    (&["GET /"], b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"),
    (&["GET /"], b"HTTP/1.1 200 OK\r\n\r\nup to the end"),
    (&["GET /"], b"HTTP/1.0 404\r\nX-Empty:\r\nTab:\ta\tb \t\r\n\r\n"),
    (&["HEAD /"], b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n"),
    (
        &["GET /1", "HEAD /2", "PUT /3"],
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n\
          5;a=\"b;c\"\r\nhello\r\n00A\r\n0123456789\r\n0\r\nDigest: 1\r\nOther:\r\n\r\nHTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\
          \r\nHTTP/1.1 204 \r\nConnection: close\r\n\r\n",
    ),
    (&["UPGRADE /"], b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: tide\r\nConnection: upgrade\r\n\r\nebb"),
    (&["UPGRADE /"], b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno"),
    (&["CONNECT a:1"], b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nthe tunnel"),
    (&["CONNECT a:1"], b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno"),
];

const BAD: &[(&[&str], &[u8])] = &[
    (&["GET /"], b"HTTP/1.1 200 OK\nContent-Length: 5\r\n\r\nhello"),
    (&["GET /"], b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    (&["GET /"], b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello!"),
    (&["HEAD /"], b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"),
    (&["GET /"], b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell"),
    (&["GET /"], b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nHost: a\r\n\r\n"),
    (&["GET /"], b"HTTP/2.0 200 OK\r\n\r\n"),
    (&["GET /"], b"SSH-2.0-harbour\r\n"),
    (&["GET /"], b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: tide\r\n\r\n"),
    (&["GET /"], b""),
    (&["GET /", "GET /"], b"HTTP/1.1 204 No Content\r\n\r\n"),
    (&[], b"HTTP/1.1 408 Request Timeout\r\n\r\n"),
];

#[test]
fn good_responses_mean_the_same_in_whatever_pieces() {
    for (requests, wire) in GOOD {
        let seen = contract(&Limits::default(), requests).check(wire);
        assert!(!seen.has_failed() && seen.messages.len() == requests.len(), "{seen}");
    }
}

#[test]
fn bad_responses_are_the_same_error_in_whatever_pieces() {
    for (requests, wire) in BAD {
        let seen = contract(&Limits::default(), requests).check(wire);
        assert_eq!(seen.blame(), Some(Blame::Peer), "{seen}");
    }
}

#[test]
fn limits_are_the_same_error_in_whatever_pieces() {
    let limits = Limits {
        head_bytes_max: 100,
        headers_max: 3,
        body_bytes_max: 20,
        chunk_extension_bytes_max: 10,
        trailer_bytes_max: 20,
        interim_max: 2,
        ..Limits::default()
    };
    let wires: &[&[u8]] = &[
        b"HTTP/1.1 200 OK\r\nA: 01234567890123456789012345678901234567890123456789012345678901234567890123456789\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: 1\r\nB: 2\r\nC: 3\r\nD: 4\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 21\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n012345678901234567890",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0A\r\n0123456789\r\nb\r\n01234567890\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;234567890123\r\n0\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: 1234567\r\nB: 1234567\r\n\r\n",
        b"HTTP/1.1 100 A\r\n\r\nHTTP/1.1 102 B\r\n\r\nHTTP/1.1 103 C\r\n\r\n",
    ];
    for wire in wires {
        let seen = contract(&limits, &["GET /"]).check(wire);
        assert_eq!(seen.blame(), Some(Blame::Limit), "{seen}");
    }
}

#[test]
fn nothing_is_allocated_because_a_peer_declared_it() {
    let wires: &[&[u8]] = &[
        b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
    ];
    for wire in wires {
        contract(&Limits::default(), &["GET /"]).refuses_before_allocating(wire);
    }
    let endless = [b"HTTP/1.1 200 OK\r\nA: ".as_slice(), &[b'a'; 40_000]].concat();
    contract(&Limits::default(), &["GET /"]).refuses_before_allocating(&endless);
}

#[test]
fn no_bytes_make_it_panic() {
    for (requests, wire) in GOOD {
        contract(&Limits::default(), requests).never_panics(wire, 400);
    }
}
