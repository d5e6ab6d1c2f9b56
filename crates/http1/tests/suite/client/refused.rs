//! Responses that a server may not send: each is an error of its own, and ends the connection.

use tidegate_http1::client::Limits;
use tidegate_http1::{Error, Exceeded, Violation};

use crate::client::support::{Talk, broken, get};

#[track_caller]
fn refused(wire: &str, violation: Violation) {
    let mut talk = Talk::asked();
    assert_eq!(talk.receive(wire), broken(violation), "{wire:?}");
    assert!(talk.is_finished(), "{wire:?}");
    assert_eq!(talk.sent(), "", "a client never answers a response");
}

#[track_caller]
fn refused_field(line: &str, violation: Violation) {
    refused(&format!("HTTP/1.1 200 OK\r\nA: b\r\n{line}\r\n\r\n"), violation);
    refused(&format!("HTTP/1.1 200 OK\r\n{line}\r\nA: b\r\n\r\n"), violation);
}

#[test]
fn status_lines_are_a_version_a_status_and_a_reason() {
    for line in ["HTTP/1.1  200 OK", "HTTP/1.1 20 OK", "HTTP/1.1 2000 OK", "HTTP/1.1 2x0 OK", "HTTP/1.1 099 OK"] {
        refused(&format!("{line}\r\n\r\n"), Violation::StatusLine);
    }
    for line in
        ["HTTP/1.1 600 OK", "HTTP/1.1\t200 OK", "HTTP/1.1 200\tOK", "http/1.1 200 OK", "ICY 200 OK", " HTTP/1.1 200"]
    {
        refused(&format!("{line}\r\n\r\n"), Violation::StatusLine);
    }
    refused("HTTP/1.1 200 O\0K\r\n\r\n", Violation::StatusLine);
    refused("HTTP/1.1 200 O\rK\r\n\r\n", Violation::StatusLine);
    // An empty line before a response is not an empty line before a request (RFC 9112 §2.2).
    refused("\r\nHTTP/1.1 200 OK\r\n\r\n", Violation::StatusLine);
}

#[test]
fn other_versions_are_not_spoken() {
    for version in ["2.0", "0.9", "2.1", "3.0"] {
        refused(&format!("HTTP/{version} 200 OK\r\n\r\n"), Violation::Version);
    }
}

#[test]
fn bare_line_feeds_are_refused_wherever_they_are() {
    refused("HTTP/1.1 200 OK\nA: b\r\n\r\n", Violation::BareLf);
    refused("HTTP/1.1 200\nA: b\r\n\r\n", Violation::BareLf);
    refused("HTTP/1.1 200 OK\r\nA: b\nC: d\r\n\r\n", Violation::BareLf);
    refused("HTTP/1.1 200 OK\r\nA: b\r\n\n", Violation::BareLf);
}

#[test]
fn malformed_fields_are_refused() {
    refused_field("Content-Length : 5", Violation::FieldName);
    refused_field("Content-Length 5", Violation::FieldName);
    refused_field(": 5", Violation::FieldName);
    refused_field("A\u{e4}: 5", Violation::FieldName);
    refused_field("A: b\r\n c", Violation::FoldedLine);
    refused_field("A: b\rContent-Length: 5", Violation::FieldValue);
    for control in ["\0", "\x01", "\x0b", "\x0c", "\x1f", "\x7f"] {
        refused_field(&format!("A{control}: 5"), Violation::FieldName);
        refused_field(&format!("A: 5{control}"), Violation::FieldValue);
    }
}

#[test]
fn white_space_behind_the_status_line_is_refused() {
    for line in [" A: b", "\tA: b", " ", " : ", "  Content-Length: 5"] {
        refused(&format!("HTTP/1.1 200 OK\r\n{line}\r\nC: d\r\n\r\n"), Violation::FoldedLine);
    }
}

#[test]
fn content_length_is_one_plain_number() {
    for value in ["+5", "-5", "0x5", "5;5", "5,+5", "5 5", "", "5a", "18446744073709551617"] {
        refused_field(&format!("Content-Length: {value}"), Violation::ContentLengthInvalid);
    }
    refused_field("Content-Length: 5\r\nContent-Length: 6", Violation::ContentLengthRepeated);
    refused_field("Content-Length: 5, 6", Violation::ContentLengthRepeated);
    refused_field("Content-Length: 5,", Violation::ContentLengthInvalid);
}

#[test]
fn length_and_encoding_together_are_refused() {
    refused_field("Content-Length: 5\r\nTransfer-Encoding: chunked", Violation::LengthAndEncoding);
    refused_field("Transfer-Encoding: chunked\r\nContent-Length: 0", Violation::LengthAndEncoding);
}

#[test]
fn the_only_transfer_coding_is_chunked_and_it_comes_last_and_once() {
    let unknown = ["identity", "xchunked", "chunke", "chunked;a=b", "\"chunked\"", "chun ked"];
    for value in ["chunked, gzip", "chunked, chunked", "chunked,identity"].into_iter().chain(unknown) {
        refused_field(&format!("Transfer-Encoding: {value}"), Violation::ChunkedNotLast);
    }
    for value in ["", "chunked,", ",chunked"] {
        refused_field(&format!("Transfer-Encoding: {value}"), Violation::TransferEncoding);
    }
    refused_field("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", Violation::TransferEncoding);
    refused_field("Transfer-Encoding: gzip, chunked", Violation::CodingUnknown);
    refused("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", Violation::TransferEncoding);
}

#[test]
fn chunks_are_as_strict_as_those_of_requests() {
    let chunked = |rest: &str| format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{rest}");
    for size in ["+5", "-5", "0x5", " 5", "5 ", "", "g", "00000000000000005", "5;\0", "5;a\rb"] {
        refused(&chunked(&format!("{size}\r\nhello\r\n0\r\n\r\n")), Violation::ChunkSize);
    }
    refused(&chunked("5\nhello\r\n0\r\n\r\n"), Violation::BareLf);
    refused(&chunked("5\r\nhello0\r\n\r\n"), Violation::ChunkEnd);
    refused(&chunked("0\r\n a: b\r\n\r\n"), Violation::Trailer);
    refused(&chunked("0\r\na : b\r\n\r\n"), Violation::Trailer);
    refused(&chunked("0\r\na: b\n\r\n"), Violation::BareLf);
}

#[test]
fn trailers_that_belong_before_the_body_are_refused() {
    for name in
        ["Content-Length", "transfer-encoding", "Host", "Set-Cookie", "AUTHORIZATION", "Content-Type", "Trailer"]
    {
        let wire = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n{name}: 1\r\n\r\n");
        refused(&wire, Violation::TrailerForbidden);
    }
}

#[test]
fn an_unrequested_response_is_refused() {
    let mut talk = Talk::new();
    assert_eq!(talk.receive("HTTP/1.1 200 OK\r\n\r\n"), broken(Violation::UnsolicitedResponse));
    let mut talk = Talk::new();
    assert_eq!(talk.receive("H"), broken(Violation::UnsolicitedResponse));
    refused("HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", Violation::UnsolicitedResponse);
    // A body in answer to HEAD is such a response.
    let mut talk = Talk::new();
    talk.say(tidegate_http1::Request::new(tidegate_http1::Method::Head, "/").unwrap()).unwrap();
    let seen = talk.receive("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(seen, broken(Violation::UnsolicitedResponse));
}

#[test]
fn an_unsolicited_switch_is_refused() {
    refused("HTTP/1.1 101 Switching Protocols\r\nUpgrade: tide\r\n\r\n", Violation::SwitchUnasked);
    let mut talk = Talk::new();
    talk.say(get("/").upgrade("tide")).unwrap();
    assert_eq!(talk.receive("HTTP/1.1 101 Switching Protocols\r\n\r\n"), broken(Violation::SwitchUnasked));
}

#[test]
fn floods_end_at_a_limit() {
    let flood = |limits: Limits, wire: String| {
        let mut talk = Talk::limited(limits);
        talk.say(get("/")).unwrap();
        talk.receive(&wire)
    };
    let exceeded = |exceeded| Err(Error::Limit(exceeded));
    let interim = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(17);
    assert_eq!(flood(Limits::default(), interim), exceeded(Exceeded::Interim));
    let many = Limits { interim_max: 255, ..Limits::default() };
    assert_eq!(flood(many, "HTTP/1.1 103 A\r\n\r\n".repeat(256)), exceeded(Exceeded::Interim));
    let endless = format!("HTTP/1.1 200 OK\r\nA: {}", "a".repeat(1 << 20));
    assert_eq!(flood(Limits::default(), endless), exceeded(Exceeded::Head));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(101));
    assert_eq!(flood(Limits::default(), many), exceeded(Exceeded::Headers));
    let long = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", (1_u64 << 30) + 1);
    assert_eq!(flood(Limits::default(), long), exceeded(Exceeded::Body));
    let short = Limits { body_bytes_max: 10, ..Limits::default() };
    assert_eq!(flood(short, "HTTP/1.1 200 OK\r\n\r\nmore than ten".into()), exceeded(Exceeded::Body));
    let trailer = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n{}", "A: b\r\n".repeat(1000));
    assert_eq!(flood(Limits::default(), trailer), exceeded(Exceeded::Trailer));
    let extension = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;{}", "a".repeat(1000));
    assert_eq!(flood(Limits::default(), extension), exceeded(Exceeded::ChunkExtension));
}

#[test]
#[should_panic(expected = "pipeline_max is 1 to 32")]
fn a_pipeline_has_room_for_one_at_least() {
    drop(Talk::limited(Limits { pipeline_max: 0, ..Limits::default() }));
}
