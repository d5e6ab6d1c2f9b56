use std::sync::Arc;
use std::time::{Instant, SystemTime};

use tidegate::codec::{Pool, Time};

use super::super::request::RequestTemplate;
use super::super::results::{Errors, HttpVersion};
use super::super::shared_stats::SharedStats;
use super::*;

/// The result of a connection: responses, good responses, the error that ended it, error counts, bytes read.
type Outcome = (u32, u32, Option<Error>, Errors, u64);

/// Sends `depth` requests, and receives these pieces.
fn receive(method: &str, depth: u32, pieces: &[&[u8]], ends: bool) -> Outcome {
    let url = "http://a/".parse().expect("a URL");
    let template = RequestTemplate {
        url,
        method: method.into(),
        headers: vec![],
        body: vec![],
        depth,
        version: HttpVersion::Http1,
    };
    let exchange = Exchange::new(WorkerStats::new(Arc::new(SharedStats::new(false, None))), 0);
    let mut codec = Pipeline::new(Rc::new(exchange), [template.encode().expect("it is good")].into());
    let (pool, time) = (Pool::new(), Time::new(Instant::now(), SystemTime::UNIX_EPOCH));
    let (mut queue, mut input) = (Outbound::new(&pool), Input::new());
    let mut out = Output::new(&mut queue, &pool, &time);
    codec.encode(Batch::Run(depth), &mut out).expect("it is sent");
    let (mut all, mut good, mut failure) = (0, 0, None);
    for piece in pieces {
        input.append(pool.copy(piece), &pool);
        while failure.is_none() {
            match codec.decode(&mut input, &mut out) {
                Ok(Step::Message(responses)) => (all, good) = (all + responses.all, good + responses.good),
                Ok(Step::NeedMore | Step::End) => break,
                Err(error) => failure = Some(error),
            }
        }
    }
    while ends && failure.is_none() {
        match codec.decode_eof(&mut input, &mut out) {
            Ok(Step::Message(responses)) => (all, good) = (all + responses.all, good + responses.good),
            Ok(Step::NeedMore | Step::End) => break,
            Err(error) => failure = Some(error),
        }
    }
    let stats = &codec.exchange.stats;
    (all, good, failure, stats.errors(), stats.bytes_read())
}

/// Receives the bytes whole, split at every position, and byte by byte, and asserts equal results.
fn receive_split(method: &str, depth: u32, bytes: &[u8], ends: bool) -> Outcome {
    let whole = receive(method, depth, &[bytes], ends);
    for at in 1..bytes.len() {
        let (first, second) = bytes.split_at(at);
        assert_eq!(receive(method, depth, &[first, second], ends), whole, "split at {at}");
    }
    assert_eq!(receive(method, depth, &bytes.chunks(1).collect::<Vec<_>>(), ends), whole, "byte by byte");
    whole
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nebbs";
const OTHER: &str = "HTTP/1.1 200 OK\r\nX: y\r\nContent-Length: 4\r\n\r\nrise";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\ne\r\n3\r\nbbs\r\n0\r\nA: b\r\n\r\n";
const LONGER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfloods"; // its last byte is one too many
const MISSING: &str = "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno";
const EARLY: &str = "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n";

#[test]
fn responses_are_counted_alike_at_every_split() {
    let text = [OK, OK, OTHER, OK, OK, EARLY, OK, CHUNKED, OK, MISSING, MISSING, OK].concat();
    let (all, good, failure, errors, bytes) = receive_split("GET", 11, text.as_bytes(), false);
    assert_eq!((all, good, failure), (11, 9, None));
    assert_eq!(errors, Errors { status: 2, ..Errors::default() });
    assert_eq!(bytes, text.len() as u64);
}

#[test]
fn a_response_of_another_length_counts_as_an_error() {
    let text = [OK, OK, &LONGER[..LONGER.len() - 1], OK, "HTTP/1.1 204 No Content\r\n\r\n", OK].concat();
    let (all, good, failure, errors, _) = receive_split("GET", 6, text.as_bytes(), false);
    assert_eq!((all, good, failure), (6, 4, None));
    assert_eq!(errors, Errors { length: 2, ..Errors::default() });
}

#[test]
fn a_response_without_a_request_is_an_error() {
    for text in [[OK, OK, OK].concat(), [OK, CHUNKED, "x"].concat()] {
        let (all, good, failure, errors, _) = receive("GET", 2, &[text.as_bytes()], false);
        assert_eq!((all, good), (2, 2));
        assert_eq!(failure, Some(Error::Peer(Violation::UnsolicitedResponse)));
        assert_eq!(errors, Errors { invalid: 1, ..Errors::default() });
    }
    // Body bytes beyond `Content-Length` are no valid response.
    let (all, _, failure, errors, _) = receive_split("GET", 3, [OK, LONGER, OK].concat().as_bytes(), false);
    assert_eq!((all, failure.is_some(), errors.invalid), (2, true, 1));
}

#[test]
fn end_of_input_is_an_error_only_with_responses_outstanding() {
    let closing = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\nebbs";
    let until_close = "HTTP/1.0 200 OK\r\n\r\nebbs";
    for (text, depth, responses, is_error) in [
        ([OK, OK].concat(), 2, 2, false),
        ([OK, closing].concat(), 5, 2, false),
        ([OK, until_close].concat(), 5, 2, false),
        (OK.to_owned(), 2, 1, true),
        ([OK, &OK[..20]].concat(), 2, 1, true),
        ([OK, &OK[..OK.len() - 1]].concat(), 2, 1, true),
        ([OK, &CHUNKED[..CHUNKED.len() - 1]].concat(), 2, 1, true),
    ] {
        let (all, good, failure, errors, _) = receive_split("GET", depth, text.as_bytes(), true);
        assert_eq!((all, good, failure.is_some()), (responses, responses, is_error), "{text:?}");
        assert_eq!(errors, Errors { closed: u64::from(is_error), ..Errors::default() }, "{text:?}");
    }
}

#[test]
fn responses_to_head_have_no_body() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 4000\r\n\r\n";
    let (all, good, failure, ..) = receive_split("HEAD", 3, head.repeat(3).as_bytes(), true);
    assert_eq!((all, good, failure), (3, 3, None));
}
