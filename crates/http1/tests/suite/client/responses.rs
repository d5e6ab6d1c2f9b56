//! Decoded responses.

use std::sync::Arc;

use tidegate_codec::{Codec, Step};
use tidegate_http1::client::{Client, Config, Incoming, Limits, Outgoing};
use tidegate_http1::{BodyLength, Error, Method, Misuse, Request, ResponseHead, StreamedRequest, Version, Violation};
use tidegate_testkit::CodecHarness;

use crate::client::support::{Talk, broken, get, misuse};

fn asked(method: Method) -> Talk {
    let target = if method == Method::Connect { "a:1" } else { "/" };
    let mut talk = Talk::new();
    talk.say(Request::new(method, target).expect("it is a target")).expect("it is ready");
    talk
}

/// The head of the response with these lines to a GET.
fn head_of(lines: &str) -> ResponseHead {
    let mut talk = Talk::asked();
    talk.harness.receive(lines.as_bytes());
    match talk.harness.step() {
        Ok(Step::Message(Incoming::Head(head))) => head.detach(),
        other => panic!("{lines:?}: {other:?}"),
    }
}

#[test]
fn a_head_has_the_sent_parts() {
    let head = head_of("HTTP/1.1 404 Not  Found \u{e4}\r\nA: 1\r\nb:\t2 \r\na: 3\r\nContent-Length: 0\r\n\r\n");
    assert_eq!((head.status().code(), head.version()), (404, Version::Http11));
    assert_eq!(head.reason(), "Not  Found \u{e4}".as_bytes());
    assert_eq!((head.header("a"), head.header("B"), head.header("c")), (Some(&b"1"[..]), Some(&b"2"[..]), None));
    assert_eq!(head.headers().count(), 4);
    assert_eq!((head.body(), head.has_body(), head.keeps_alive()), (BodyLength::None, false, true));
    assert!(head.bytes().ends_with(b"\r\n\r\n"));
}

/// RFC 9110 §2.5.
#[test]
fn a_higher_minor_version_is_read_as_http_1_1() {
    for version in ["HTTP/1.2", "HTTP/1.9"] {
        let head = head_of(&format!("{version} 200 OK\r\nContent-Length: 0\r\n\r\n"));
        assert_eq!(
            (head.version(), head.reason(), head.keeps_alive()),
            (Version::Http11, &b"OK"[..], true),
            "{version}"
        );
        let mut talk = Talk::asked();
        let wire = format!("{version} 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nebb\r\n0\r\n\r\n");
        talk.receive(wire).expect("a whole response");
        talk.say(StreamedRequest::new(Method::Put, "/").unwrap()).expect("the peer reads chunks");
    }
}

#[test]
fn a_reason_may_be_missing() {
    for line in ["HTTP/1.1 200", "HTTP/1.1 200 "] {
        let head = head_of(&format!("{line}\r\nA: 1\r\n\r\n"));
        assert_eq!((head.reason(), head.header("a")), (&b""[..], Some(&b"1"[..])), "{line:?}");
    }
}

#[test]
fn obs_text_in_values_is_kept() {
    let mut talk = Talk::asked();
    talk.harness.receive(b"HTTP/1.1 200 \xe4\r\nA: \xff\x80\r\n\r\n");
    let Ok(Step::Message(Incoming::Head(head))) = talk.harness.step() else { panic!("it is complete") };
    assert_eq!((head.header("a"), head.reason()), (Some(&b"\xff\x80"[..]), &b"\xe4"[..]));
}

#[test]
fn a_body_is_framed_in_one_of_four_ways() {
    for (lines, body) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", BodyLength::Known(5)),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", BodyLength::Chunked),
        ("HTTP/1.1 200 OK\r\n\r\n", BodyLength::UntilClose),
        ("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n", BodyLength::UntilClose),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", BodyLength::None),
    ] {
        assert_eq!(head_of(lines).body(), body, "{lines}");
    }
}

#[test]
fn a_body_of_known_length_ends_after_so_many_bytes() {
    let mut talk = Talk::asked();
    assert_eq!(talk.receive("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nebb").unwrap(), ["200", "data ebb"]);
    assert_eq!(talk.receive("ing").unwrap(), ["data ing", "end"]);
    assert!(talk.is_ready());
}

#[test]
fn a_chunked_body_ends_with_its_last_chunk_and_trailers() {
    let mut talk = Talk::asked();
    let seen = talk
        .receive("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nebb\r\n0\r\nDigest: 7\r\nX:\r\n\r\n");
    assert_eq!(seen.unwrap(), ["200", "data ebb", "Trailers(\"Digest: 7\\r\\nX:\\r\\n\")", "end"]);
    assert!(talk.is_ready());
}

#[test]
fn trailers_are_looked_up_like_fields() {
    let mut talk = Talk::asked();
    talk.harness.receive(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nDigest: 7 \r\nX:\r\n\r\n");
    let trailers = loop {
        match talk.harness.step() {
            Ok(Step::Message(Incoming::Trailers(trailers))) => break trailers.detach(),
            Ok(Step::Message(_)) => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((trailers.get("digest"), trailers.get("x"), trailers.get("y")), (Some(&b"7"[..]), Some(&b""[..]), None));
    assert_eq!((&trailers).into_iter().count(), 2);
}

#[test]
fn trailer_fields_never_become_fields_of_the_head() {
    let mut talk = Talk::asked();
    talk.harness.receive(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nDigest: 7\r\n\r\n");
    let Ok(Step::Message(Incoming::Head(head))) = talk.harness.step() else { panic!("it is complete") };
    let Ok(Step::Message(Incoming::Trailers(trailers))) = talk.harness.step() else { panic!("they are complete") };
    assert_eq!((head.header("digest"), head.headers().count()), (None, 1));
    assert_eq!((trailers.get("transfer-encoding"), trailers.iter().count()), (None, 1));
}

#[test]
fn large_lengths_lose_none_of_their_digits() {
    for length in ["4294967301", "9223372036854775813", "9999999999999999999"] {
        let mut talk = Talk::limited(Limits { body_bytes_max: u64::MAX, ..Limits::default() });
        talk.say(get("/")).unwrap();
        talk.harness.receive(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").as_bytes());
        let Ok(Step::Message(Incoming::Head(head))) = talk.harness.step() else { panic!("it is complete") };
        assert_eq!(head.body(), BodyLength::Known(length.parse().unwrap()));
    }
}

#[test]
fn a_body_without_a_length_ends_with_the_connection() {
    let mut talk = Talk::asked();
    assert_eq!(talk.receive("HTTP/1.1 200 OK\r\n\r\nebb").unwrap(), ["200", "data ebb"]);
    assert_eq!(talk.receive("HTTP/1.1 ").unwrap(), ["data HTTP/1.1 "]);
    assert_eq!(talk.receive_fin().unwrap(), ["end", "end of connection"]);
    assert!(talk.is_finished());
}

#[test]
fn some_responses_have_no_body_whatever_their_fields_say() {
    for (method, status) in [
        (Method::Head, "200 OK\r\nContent-Length: 5"),
        (Method::Head, "200 OK\r\nTransfer-Encoding: chunked"),
        (Method::Head, "200 OK"),
        (Method::Get, "304 Not Modified\r\nContent-Length: 5"),
        (Method::Get, "204 No Content"),
        (Method::Get, "204 No Content\r\nContent-Length: 0"),
    ] {
        let mut talk = asked(method);
        let seen = talk.receive(format!("HTTP/1.1 {status}\r\n\r\n")).unwrap();
        assert_eq!(seen, [&status[..3]], "{status}");
        assert!(talk.is_ready(), "{status}");
    }
}

#[test]
fn interim_responses_come_before_the_final_one() {
    let mut talk = Talk::asked();
    let seen =
        talk.receive("HTTP/1.1 102 Wait\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 204 No\r\n\r\n");
    assert_eq!(seen.unwrap(), ["interim 102", "interim 103", "204"]);
    // This status is not registered, but its class is known.
    let mut talk = Talk::asked();
    assert_eq!(talk.receive("HTTP/1.1 199 \r\n\r\nHTTP/1.1 204 No\r\n\r\n").unwrap(), ["interim 199", "204"]);
}

#[test]
fn no_request_follows_a_response_that_closes_even_while_that_comes() {
    for lines in ["HTTP/1.1 200 OK\r\nConnection: close", "HTTP/1.0 200 OK"] {
        let mut talk = Talk::limited(Limits { pipeline_max: 3, ..Limits::default() });
        talk.say(get("/")).unwrap();
        talk.receive(format!("{lines}\r\nContent-Length: 2\r\n\r\na")).unwrap();
        assert_eq!(talk.say(get("/")), misuse(Misuse::NoMoreRequests), "{lines}");
        assert!(!talk.is_finished(), "{lines}");
        assert_eq!(talk.receive("b").unwrap(), ["data b", "end", "end of connection"], "{lines}");
        assert!(talk.is_finished(), "{lines}");
    }
}

#[test]
fn an_interim_response_may_say_that_the_final_one_closes() {
    let mut talk = Talk::limited(Limits { pipeline_max: 3, ..Limits::default() });
    talk.say(get("/")).unwrap();
    talk.receive("HTTP/1.1 103 Early Hints\r\nConnection: close\r\n\r\n").unwrap();
    assert_eq!(talk.say(get("/")), misuse(Misuse::NoMoreRequests));
    let seen = talk.receive("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
    assert_eq!(seen, ["200", "data ok", "end", "end of connection"]);
    assert!(talk.is_finished());
}

#[test]
fn pipelined_responses_belong_to_their_requests_in_order() {
    let mut talk = Talk::limited(Limits { pipeline_max: 3, ..Limits::default() });
    for method in [Method::Get, Method::Head, Method::Post] {
        talk.say(Request::new(method, "/").unwrap()).unwrap();
    }
    let two = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n";
    assert_eq!(talk.receive(two).unwrap(), ["200", "data a", "end", "200"]);
    assert_eq!(talk.harness.codec().unanswered(), 1);
    assert_eq!(talk.receive("HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n").unwrap(), ["201"]);
    assert_eq!(talk.harness.codec().unanswered(), 0);
}

#[test]
fn requests_unanswered_at_the_close_are_reported() {
    let mut talk = Talk::limited(Limits { pipeline_max: 3, ..Limits::default() });
    for _ in 0..3 {
        talk.say(get("/")).unwrap();
    }
    let seen = talk.receive("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n");
    assert_eq!(seen.unwrap(), ["200", "end of connection"]);
    assert_eq!(talk.harness.codec().unanswered(), 2);
    assert!(talk.is_finished());
}

#[test]
fn a_connection_stays_if_both_want_it_to() {
    for (fields, stays) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 0", true),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: a, Close", false),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: ,, close ,", false),
        ("HTTP/1.0 200 OK\r\nContent-Length: 0", false),
        ("HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: Keep-Alive", true),
        ("HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive, close", false),
    ] {
        let mut talk = Talk::asked();
        talk.receive(format!("{fields}\r\n\r\n")).unwrap();
        assert_eq!((talk.is_ready(), talk.is_finished()), (stays, !stays), "{fields}");
    }
}

#[test]
fn bytes_behind_a_switch_are_left_for_the_other_protocol() {
    let mut talk = Talk::new();
    talk.say(get("/").upgrade("tide")).unwrap();
    let seen =
        talk.receive("HTTP/1.1 101 Switching Protocols\r\nUpgrade: tide\r\nConnection: upgrade\r\n\r\nebb").unwrap();
    assert_eq!(seen, ["101"]);
    assert!(talk.harness.codec().is_switched());
    assert_eq!(talk.harness.input().bytes(), b"ebb");
    let mut talk = asked(Method::Connect);
    // Lengths mean nothing in a tunnel (RFC 9110 §8.6, RFC 9112 §6.1).
    assert_eq!(talk.receive("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nebb").unwrap(), ["200"]);
    assert!(talk.harness.codec().is_switched());
    assert_eq!(talk.harness.input().bytes(), b"ebb");
}

#[test]
fn a_connect_that_fails_is_a_response_like_others() {
    let mut talk = asked(Method::Connect);
    assert_eq!(talk.receive("HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno").unwrap(), ["403", "data no", "end"]);
    assert!(talk.is_ready() && !talk.harness.codec().is_switched());
}

#[test]
fn a_response_may_come_before_the_request_is_whole() {
    let mut talk = Talk::new();
    talk.say(StreamedRequest::new(Method::Put, "/").unwrap()).unwrap();
    assert_eq!(talk.receive("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap(), ["200", "data ok", "end"]);
    assert!(!talk.is_finished() && !talk.is_ready());
    talk.say(Outgoing::Data("ebb".into())).expect("the rest may follow");
    talk.say(Outgoing::End).unwrap();
    assert!(talk.is_ready());
}

#[test]
fn an_end_within_a_response_is_an_error() {
    for wire in [
        "HTTP/1.1 200",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    ] {
        let mut talk = Talk::asked();
        talk.receive(wire).unwrap();
        assert_eq!(talk.receive_fin(), broken(Violation::ResponseTruncated), "{wire}");
        assert!(talk.is_finished());
    }
    let mut talk = Talk::asked();
    assert_eq!(talk.receive_fin(), broken(Violation::Unanswered));
    assert_eq!(talk.harness.codec().unanswered(), 1);
    let mut idle = Talk::new();
    assert_eq!(idle.receive_fin().unwrap(), ["end of connection"]);
}

#[test]
fn a_million_empty_chunks_are_one_end() {
    let mut talk = Talk::asked();
    let mut wire = String::from("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    wire.push_str(&"0\r\n\r\n".repeat(1_000_000));
    // The first of them is the last chunk, and no request waits for the bytes after it.
    assert_eq!(talk.receive(&wire), broken(Violation::UnsolicitedResponse));
    let mut talk = Talk::asked();
    let wire = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{}", "1\r\na\r\n".repeat(100_000));
    assert_eq!(talk.receive(&wire).map(|seen| seen.len()), Ok::<_, Error>(100_001));
}

/// Lengths and codings mean nothing there, however malformed they are (RFC 9112 §6.3).
#[test]
fn a_tunnel_begins_behind_the_head_whatever_its_fields_say() {
    for fields in [
        "Content-Length: 9\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked",
        "Transfer-Encoding: gzip",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Content-Length: 1\r\nContent-Length: 2",
        "Content-Length: x",
    ] {
        for line in ["HTTP/1.1 200 OK", "HTTP/1.1 204 No Content", "HTTP/1.0 299 Yes"] {
            let mut talk = asked(Method::Connect);
            let seen = talk.receive(format!("{line}\r\n{fields}\r\n\r\nebb"));
            assert_eq!(seen, Ok(vec![line[9..12].to_owned()]), "{line} {fields}");
            assert!(talk.harness.codec().is_switched(), "{line} {fields}");
            assert_eq!(talk.harness.input().bytes(), b"ebb", "{line} {fields}");
        }
        let mut talk = asked(Method::Connect);
        let refused = talk.receive(format!("HTTP/1.1 403 No\r\n{fields}\r\n\r\n"));
        assert_eq!(refused.is_err(), fields != "Transfer-Encoding: chunked", "{fields}");
    }
}

#[test]
fn large_chunk_sizes_lose_none_of_their_digits() {
    for size in ["100000005", "8000000000000005", "fffffffffffffff5"] {
        let mut talk = Talk::limited(Limits { body_bytes_max: u64::MAX, ..Limits::default() });
        talk.say(get("/")).unwrap();
        talk.receive("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
        let data = "hello\r\n0\r\n\r\n";
        assert_eq!(talk.receive(format!("{size}\r\n{data}")).unwrap(), [format!("data {data}")], "{size}");
    }
}

/// Bytes that arrived before a request was sent are no response to it (RFC 9112 §9.2).
#[test]
fn bytes_before_a_request_are_not_its_response() {
    for (first, messages) in [
        ("Content-Length: 0\r\n\r\n", 1),
        ("Content-Length: 1\r\n\r\na", 3),
        ("Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 2),
    ] {
        let mut talk = Talk::asked();
        talk.harness
            .receive(format!("HTTP/1.1 200 OK\r\n{first}HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil").as_bytes());
        for _ in 0..messages {
            assert!(matches!(talk.harness.step(), Ok(Step::Message(_))), "{first}");
        }
        // The application has not decoded further, and sends another request.
        assert!(!talk.is_ready(), "{first}");
        assert_eq!(talk.say(get("/")), misuse(Misuse::NoMoreRequests), "{first}");
        assert_eq!(talk.receive(""), broken(Violation::UnsolicitedResponse), "{first}");
    }
}

#[test]
fn the_rest_of_a_body_is_discarded_once_the_peer_has_closed() {
    let mut talk = Talk::new();
    talk.say(StreamedRequest::new(Method::Put, "/").unwrap()).unwrap();
    talk.receive("HTTP/1.1 413 No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").unwrap();
    assert!(talk.is_finished());
    talk.sent();
    talk.say(Outgoing::Data("ebb".into())).expect("the close is not decoded yet");
    talk.say(Outgoing::End).expect("nor here");
    assert_eq!(talk.sent(), "");
    assert_eq!(talk.say(Outgoing::End), misuse(Misuse::NoRequestUnderWay));
    assert_eq!(talk.say(get("/")), misuse(Misuse::NoMoreRequests));
}

#[test]
fn a_request_may_be_sent_again_by_a_clone() {
    let request = Request::new(Method::Put, "/").unwrap().body("ebb");
    let mut talk = Talk::new();
    talk.say(request.clone()).unwrap();
    assert_eq!(talk.receive_fin(), broken(Violation::Unanswered));
    let mut again = Talk::new();
    again.say(request).unwrap();
    assert_eq!(talk.sent(), again.sent());
}

/// RFC 9112 §6.3. A body that follows would be read as the response to the next request.
#[test]
fn a_status_without_a_body_ends_with_its_head_and_so_does_the_connection_if_one_is_declared() {
    for (head, ends) in [
        ("204 No Content\r\nContent-Length: 5", true),
        ("204 No Content\r\nTransfer-Encoding: chunked", true),
        ("204 No Content\r\nContent-Length: 0", false),
        ("304 Not Modified\r\nContent-Length: 5", false),
        ("304 Not Modified\r\nTransfer-Encoding: chunked", false),
        ("304 Not Modified\r\nTransfer-Encoding: chunked\r\nContent-Length: 5", false),
    ] {
        let head = head_of(&format!("HTTP/1.1 {head}\r\n\r\n"));
        assert_eq!((head.body(), head.keeps_alive()), (BodyLength::None, !ends), "{head:?}");
    }
    let limits = Limits { pipeline_max: 2, ..Limits::default() };
    for rest in ["", "hello", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"] {
        let mut talk = Talk::limited(limits.clone());
        talk.say(get("/")).unwrap();
        talk.say(get("/")).unwrap();
        let seen = talk.receive(format!("HTTP/1.1 204 A\r\nContent-Length: 5\r\n\r\n{rest}")).unwrap();
        assert_eq!(seen.last().map(String::as_str), Some("end of connection"), "{rest}: {seen:?}");
        assert!(seen.len() == 2 && talk.is_finished(), "{rest}: {seen:?}");
        assert_eq!(misuse(Misuse::NoMoreRequests), talk.say(get("/")), "{rest}");
    }
    // The final response is still read.
    let mut talk = Talk::asked();
    let wire = "HTTP/1.1 103 A\r\nContent-Length: 5\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(talk.receive(wire).unwrap().len(), 3);
    assert!(talk.is_finished());
}

#[test]
fn equal_lengths_of_a_response_are_one() {
    for lines in
        ["Content-Length: 5\r\ncontent-length: 5", "Content-Length: 5, 5", "Content-Length: 5,5\r\nContent-Length: 05"]
    {
        assert_eq!(head_of(&format!("HTTP/1.1 200 OK\r\n{lines}\r\n\r\n")).body(), BodyLength::Known(5), "{lines}");
    }
}

#[test]
fn receives_are_short_while_a_response_begins_by_choice() {
    let bytes_max = |harness: &CodecHarness<Client>| harness.codec().receive_hint().map(|hint| hint.bytes_max);
    for (first, expected) in [(None, [None; 5]), (Some(16_384), [None, Some(16_384), Some(16_384), None, None])] {
        let mut config = Config::default().host("a").unwrap();
        if let Some(first) = first {
            config = config.first_receive_bytes_max(first);
        }
        let mut harness = CodecHarness::new(Client::new(Arc::new(config)));
        let mut found = vec![bytes_max(&harness)];
        harness.encode(get("/").into()).unwrap();
        found.push(bytes_max(&harness));
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 70000\r\n\r\n";
        for bytes in [&[&head[..], &[b'x'; 60_000]].concat(), &[b'x'; 6_000][..], &[b'x'; 4_000]] {
            harness.receive(bytes);
            while let Step::Message(_) = harness.step().unwrap() {}
            harness.compact();
            found.push(bytes_max(&harness));
        }
        assert_eq!(found, expected);
    }
}

/// RFC 9112 §5.1.
#[test]
fn white_space_before_a_colon_is_removed_by_choice() {
    let wire = b"HTTP/1.1 200 OK A : b\r\nX \t: y : z\r\nTransfer-Encoding : chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    for split in 1..wire.len() {
        let config = Config::default().host("a").unwrap().trim_field_names(true);
        let mut harness = CodecHarness::new(Client::new(Arc::new(config)));
        harness.encode(get("/").into()).unwrap();
        harness.receive(&wire[..split]);
        let mut messages = Vec::new();
        while let Step::Message(message) = harness.step().unwrap() {
            messages.push(format!("{message:?}"));
        }
        harness.compact();
        harness.receive(&wire[split..]);
        while let Step::Message(message) = harness.step().unwrap() {
            if let Incoming::Head(head) = &message {
                assert_eq!(
                    head.bytes().as_ref(),
                    b"HTTP/1.1 200 OK A : b\r\nX: y : z\r\nTransfer-Encoding: chunked\r\n\r\n"
                );
                assert_eq!((head.header("x"), head.body()), (Some(&b"y : z"[..]), BodyLength::Chunked));
            }
            messages.push(format!("{message:?}"));
        }
        assert!(messages.len() >= 3, "{split}: {messages:?}");
    }
    for line in [" : b", "A b: c", "A @: b", " A : b", "A :\0"] {
        let config = Config::default().host("a").unwrap().trim_field_names(true);
        let mut harness = CodecHarness::new(Client::new(Arc::new(config)));
        harness.encode(get("/").into()).unwrap();
        harness.receive(format!("HTTP/1.1 200 OK\r\n{line}\r\n\r\n").as_bytes());
        assert!(harness.step().is_err(), "{line:?}");
    }
}
