//! Pipelined requests, RFC 9112 §9: they are answered in their order, and requests after the last one are not
//! processed.

use tidegate_http1::{Response, Status};

use crate::support::{GET, Talk, seen};

const LAST: &[u8] = b"GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

fn end() -> Result<Vec<String>, tidegate_http1::Error> {
    Ok(vec!["end of connection".into()])
}

#[test]
fn requests_behind_one_that_closes_are_not_processed() {
    for arrives_before in [false, true] {
        let mut talk = Talk::new();
        let wire = if arrives_before { [LAST, GET].concat() } else { LAST.to_vec() };
        assert_eq!(talk.receive(&wire), Ok(vec!["GET /last".into()]));
        talk.say(Response::text("bye")).expect("a response is owed");
        assert!(talk.is_finished(), "the response is all that was to be sent");
        assert_eq!(talk.receive(if arrives_before { b"" } else { GET }), end());
        assert_eq!(talk.receive(GET), end());
        assert_eq!(talk.sent().matches("HTTP/1.1 ").count(), 1);
    }
    let old = seen(&[b"GET / HTTP/1.0\r\n\r\n", GET].concat());
    assert_eq!((old.requests.len(), old.finished), (1, true), "{old:?}");
}

#[test]
fn requests_behind_a_response_that_closes_are_not_processed() {
    for arrives_before in [false, true] {
        let mut talk = Talk::new();
        let wire = if arrives_before { GET.repeat(2) } else { GET.to_vec() };
        assert_eq!(talk.receive(&wire), Ok(vec!["GET /".into()]));
        talk.say(Response::new(Status::NOT_FOUND).close()).expect("a response is owed");
        assert!(talk.is_finished(), "the response is all that was to be sent");
        assert_eq!(talk.receive(if arrives_before { b"" } else { GET }), end());
        let sent = talk.sent();
        assert!(sent.contains("\r\nConnection: close\r\n"), "{sent}");
        assert_eq!(sent.matches("HTTP/1.1 ").count(), 1, "{sent}");
    }
}

#[test]
fn requests_behind_a_refused_one_are_not_processed() {
    let seen = seen(&[b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", GET].concat());
    assert!(seen.requests.is_empty() && seen.finished, "{seen:?}");
    assert!(seen.sent.contains("\r\nConnection: close\r\n"), "{}", seen.sent);
    assert_eq!(seen.sent.matches("HTTP/1.1 ").count(), 1, "{}", seen.sent);
}

#[test]
fn a_body_in_front_of_the_end_is_still_read() {
    let mut talk = Talk::new();
    let wire = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhelloGET";
    assert_eq!(talk.receive(wire), Ok(vec!["POST /".into(), "data hello".into(), "end".into()]));
    talk.say(Response::text("bye")).expect("a response is owed");
    assert_eq!(talk.decode_more(), end());
}

#[test]
fn pipelined_requests_are_answered_in_their_order() {
    let mut talk = Talk::new();
    let targets = ["/1", "/2", "/3", "/4"];
    let wire = targets.map(|target| format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n")).concat();
    let mut received = talk.receive(wire.as_bytes()).expect("the requests are good");
    for target in targets {
        assert_eq!(received, [format!("GET {target}")], "the next one waits for this one's response");
        talk.say(Response::text(target)).expect("a response is owed");
        assert!(talk.sent().ends_with(&format!("\r\n\r\n{target}")));
        received = talk.decode_more().expect("the requests are good");
    }
    assert!(received.is_empty() && !talk.is_finished());
}
