//! The contract of all codecs, kept by the server: whatever the pieces, the same requests, errors and responses.

use tidegate_http1::{Config, Limits};

use crate::support::contract;

const GOOD: &[&[u8]] = &[
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\nX-Empty:\r\nTab:\ta\tb \t\r\n\r\n",
    b"\r\nPOST /a?b HTTP/1.1\r\nHost: a.example:80\r\nContent-Length: 5\r\n\r\nhelloGET / HTTP/1.0\r\n\r\n",
    b"POST / HTTP/1.1\r\nhost: [::1]:8080\r\ntransfer-encoding: Chunked\r\n\r\n5;a=\"b;c\"\r\nhello\r\n00A\r\n0123456789\r\n0\r\n\
      Digest: 1\r\nOther:\r\n\r\nHEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET /never HTTP/1.1\r\n",
    b"PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
    b"OPTIONS * HTTP/1.1\r\nHost:\r\n\r\nGET http://b.example/x?y HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n",
    b"X-Y!1 /a HTTP/1.1\r\nHost: a\r\nConnection: upgrade, CLOSE\r\n\r\n",
    b"GET /%41/%e2%82%ac?a=%00 HTTP/1.9\r\nHost: a\r\n\r\nGET /%7e HTTP/1.1\r\nHost: a\r\n\r\n",
];

const BAD: &[&[u8]] = &[
    b"GET / HTTP/1.1\r\nHost: a\r\nBad header: 1\r\n\r\n",
    b"GET / HTTP/1.1\nHost: a\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloX\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nbad trailer\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\r\nHEAD / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
    b"\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel",
    b"GET / HT",
    b"GET /%4g#a HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /%41%00 HTTP/1.1\r\nHost: a\r\n\r\n",
];

#[test]
fn good_requests_mean_the_same_in_whatever_pieces() {
    for wire in GOOD {
        let seen = contract(Config::default()).check(wire);
        assert!(!seen.has_failed(), "{seen}");
    }
}

#[test]
fn bad_requests_are_the_same_error_in_whatever_pieces() {
    for wire in BAD {
        let seen = contract(Config::default()).check(wire);
        assert!(seen.has_failed(), "{seen}");
    }
}

#[test]
fn limits_are_the_same_error_in_whatever_pieces() {
    let limits = Limits {
        request_line_bytes_max: 40,
        head_bytes_max: 100,
        headers_max: 3,
        body_bytes_max: 20,
        chunk_extension_bytes_max: 10,
        trailer_bytes_max: 20,
        ..Limits::default()
    };
    let wires: &[&[u8]] = &[
        b"GET /0123456789012345678901234567890123456789 HTTP/1.1\r\nHost: a\r\n\r\n",
        b"M01234567890123456789012345678901 / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nB: 01234567890123456789012345678901234567890123456789012345678901234567890\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nB: 1\r\nC: 2\r\nD: 3\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 21\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0A\r\n0123456789\r\nb\r\n01234567890\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;234567890123\r\n0\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: 1234567\r\nB: 1234567\r\n\r\n",
    ];
    for wire in wires {
        let seen = contract(Config::new(limits.clone())).check(wire);
        assert_eq!(seen.blame(), Some(tidegate_codec::Blame::Limit), "{seen}");
    }
}

#[test]
fn nothing_is_allocated_because_a_peer_declared_it() {
    let wires: &[&[u8]] = &[
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999999999999999\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
    ];
    for wire in wires {
        contract(Config::default()).refuses_before_allocating(wire);
    }
    let endless = [b"GET / HTTP/1.1\r\nA: ".as_slice(), &[b'a'; 20_000]].concat();
    contract(Config::default()).refuses_before_allocating(&endless);
}

#[test]
fn no_bytes_make_it_panic() {
    for wire in GOOD {
        contract(Config::default()).never_panics(wire, 400);
    }
}
