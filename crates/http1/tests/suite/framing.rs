//! The end of a request's body, RFC 9112 §6 to §8.

use tidegate_codec::Step;
use tidegate_http1::{BodyLength, Config, Error, Incoming, Limits, Violation};

use crate::support::{GET, Seen, Talk, seen, seen_with};

fn chunked(body: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}")
}

/// An error in the framing is 400, and the connection ends: following bytes cannot be distinguished from a body.
fn faulty(wire: &str, violation: Violation) {
    let seen = seen(&[wire.as_bytes(), GET].concat());
    assert_eq!(seen.error, Some(Error::Peer(violation)), "{wire:?}: {seen:?}");
    assert!(seen.sent.starts_with("HTTP/1.1 400 ") && seen.finished, "{wire:?}: {}", seen.sent);
    assert_eq!(seen.sent.matches("HTTP/1.1 ").count(), 1, "{wire:?}: {}", seen.sent);
    assert!(seen.requests.is_empty(), "{wire:?}: {seen:?}");
}

fn bodies(seen: &Seen) -> Vec<&str> {
    assert_eq!(seen.error, None, "{seen:?}");
    seen.requests.iter().map(|request| request.body.as_str()).collect()
}

#[test]
fn a_chunked_body_is_read_whatever_its_chunks() {
    let cases = [
        ("5\r\nhello\r\n0\r\n\r\n", "hello"),
        ("1\r\nh\r\n4\r\nello\r\n0\r\n\r\n", "hello"),
        ("0000000000000005\r\nhello\r\n0000\r\n\r\n", "hello"),
        ("a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n\r\n", "01234567890123456789"),
        ("5;a;b=c;d=\"e\"\r\nhello\r\n0;z\r\n\r\n", "hello"),
        ("5\r\nhello\r\n0\r\nA: b\r\nC:\r\n\r\n", "hello"),
        ("0\r\n\r\n", ""),
    ];
    for (body, expected) in cases {
        let wire = [chunked(body).as_bytes(), GET].concat();
        assert_eq!(bodies(&seen(&wire)), [expected, ""], "{body:?}");
    }
    // An apparent end is data where it is within a chunk.
    let wire = [chunked("9\r\n0\r\n\r\nGET \r\n0\r\n\r\n").as_bytes(), GET].concat();
    assert_eq!(bodies(&seen(&wire)), ["0\r\n\r\nGET ", ""]);
    for name in ["chunked", "Chunked", "CHUNKED"] {
        let wire = format!("POST / HTTP/1.1\r\nHost: a\r\nTRANSFER-encoding:\t{name} \r\n\r\n1\r\nx\r\n0\r\n\r\n");
        assert_eq!(bodies(&seen(wire.as_bytes())), ["x"], "{name}");
    }
}

#[test]
fn large_chunk_sizes_lose_none_of_their_digits() {
    let limits = Limits { body_bytes_max: u64::MAX, ..Limits::default() };
    for size in ["100000005", "8000000000000005", "1000000000000005", "fffffffffffffff5"] {
        let mut talk = Talk::limited(limits.clone());
        talk.receive(chunked("").as_bytes()).expect("the head is good");
        let data = "hello\r\n0\r\n\r\n";
        let received = talk.receive(format!("{size}\r\n{data}").as_bytes());
        assert_eq!(received, Ok(vec![format!("data {data}")]), "{size}");
    }
    for size in ["10000000000000005", "00000000000000005", "ffffffffffffffff5"] {
        let wire = chunked(&format!("{size}\r\nhello\r\n0\r\n\r\n"));
        let seen = seen_with(Config::new(limits.clone()), wire.as_bytes());
        assert_eq!(seen.error, Some(Error::Peer(Violation::ChunkSize)), "{size}");
    }
}

#[test]
fn bare_carriage_returns_within_a_chunked_body_are_refused() {
    for (body, violation) in [
        ("5\rhello\r\n0\r\n\r\n", Violation::ChunkSize),
        ("5\r\r\nhello\r\n0\r\n\r\n", Violation::ChunkSize),
        ("5;a\rb\r\nhello\r\n0\r\n\r\n", Violation::ChunkSize),
        ("5;a=\"\r\"\r\nhello\r\n0\r\n\r\n", Violation::ChunkSize),
        ("5\r\nhello\r0\r\n\r\n", Violation::ChunkEnd),
        ("5\r\nhello\r\r\n0\r\n\r\n", Violation::ChunkEnd),
        ("0\r\nA: b\rc\r\n\r\n", Violation::Trailer),
        ("0\r\nA\r: b\r\n\r\n", Violation::Trailer),
        ("0\r\n\rA: b\r\n\r\n", Violation::Trailer),
    ] {
        faulty(&chunked(body), violation);
    }
}

#[test]
fn a_request_whose_last_coding_is_not_chunked_is_400() {
    for value in ["gzip", "identity", "xchunked", "chunked, gzip", "gzip, deflate", "chunked;q=1", "x-chunked"] {
        faulty(&format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: {value}\r\n\r\n"), Violation::ChunkedNotLast);
    }
}

#[test]
fn a_coding_in_http_1_0_is_faulty_framing_whatever_else_is_there() {
    for fields in ["", "Connection: keep-alive\r\n", "Host: a\r\nConnection: keep-alive\r\n"] {
        let wire = format!("POST / HTTP/1.0\r\n{fields}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
        faulty(&wire, Violation::TransferEncoding);
        let wire = format!("POST / HTTP/1.0\r\n{fields}Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n");
        faulty(&wire, Violation::LengthAndEncoding);
    }
}

#[test]
fn length_and_coding_together_end_the_connection_behind_the_400() {
    for fields in ["Content-Length: 5\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nContent-Length: 0"]
    {
        for connection in ["", "Connection: keep-alive\r\n"] {
            let wire = format!("POST / HTTP/1.1\r\nHost: a\r\n{connection}{fields}\r\n\r\n0\r\n\r\n");
            faulty(&wire, Violation::LengthAndEncoding);
        }
    }
}

#[test]
fn a_body_that_stops_anywhere_before_its_end_is_incomplete_and_ends_the_connection() {
    let known = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello".to_owned();
    for wire in [known, chunked("5;a=b\r\nhello\r\n0\r\nA: b\r\n\r\n")] {
        for cut in 1..wire.len() {
            let mut talk = Talk::new();
            talk.harness.receive(&wire.as_bytes()[..cut]);
            let mut complete = false;
            let error = loop {
                match talk.harness.decode_eof() {
                    Ok(Step::Message(message)) => complete |= matches!(message, Incoming::End),
                    Ok(step) => panic!("{cut} of {wire:?}: {step:?}"),
                    Err(error) => break error,
                }
            };
            assert_eq!((error, complete), (Error::Peer(Violation::Truncated), false), "{cut} of {wire:?}");
            assert!(talk.is_finished(), "{cut} of {wire:?}");
        }
        assert_eq!(bodies(&seen(wire.as_bytes())), ["hello"]);
    }
}

#[test]
fn a_request_without_length_and_coding_has_no_body() {
    for method in ["GET", "POST", "PUT", "DELETE", "PURGE"] {
        for version in ["HTTP/1.1", "HTTP/1.0"] {
            let wire = format!("{method} / {version}\r\nHost: a\r\nConnection: keep-alive\r\n\r\n");
            assert_eq!(bodies(&seen(&[wire.as_bytes(), GET].concat())), ["", ""], "{method} {version}");
        }
    }
}

/// A body belongs to a request by its fields alone, whatever the method.
#[test]
fn a_body_is_read_with_every_method() {
    for method in ["GET", "HEAD", "DELETE", "OPTIONS", "PURGE"] {
        let wire = format!("{method} / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
        assert_eq!(bodies(&seen(&[wire.as_bytes(), GET].concat())), ["hello", ""], "{method}");
    }
}

#[test]
fn trailer_fields_never_become_fields_of_the_head() {
    let wire = chunked("5\r\nhello\r\n0\r\nX-Late: 1\r\nX-Later:\r\n\r\n");
    let seen = seen(&[wire.as_bytes(), GET].concat());
    assert_eq!(bodies(&seen), ["hello", ""]);
    let names: Vec<_> = seen.requests[0].headers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["Host", "Transfer-Encoding"]);
    let names: Vec<_> = seen.requests[1].headers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["Host"], "nor of the next");
}

#[test]
fn large_lengths_lose_none_of_their_digits() {
    let limits = Limits { body_bytes_max: u64::MAX, ..Limits::default() };
    for length in ["4294967301", "9223372036854775813", "9999999999999999999"] {
        let mut talk = Talk::limited(limits.clone());
        talk.harness.receive(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n").as_bytes());
        let Ok(Step::Message(Incoming::Head(head))) = talk.harness.step() else { panic!("it is complete") };
        assert_eq!(head.body(), BodyLength::Known(length.parse().expect("a number")));
    }
    for length in ["10000000000000000000", "18446744073709551615", "18446744073709551621"] {
        let wire = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\nhello");
        let seen = seen_with(Config::new(limits.clone()), wire.as_bytes());
        assert_eq!(seen.error, Some(Error::Peer(Violation::ContentLengthInvalid)), "{length}");
    }
}
