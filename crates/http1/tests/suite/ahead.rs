//! Requests that the application processes ahead of the responses to those before them (RFC 9112 §9.3.2).

use tidegate_codec::Lifecycle;
use tidegate_http1::{Error, Misuse, Outgoing, Response, Status, StreamedResponse};

use crate::support::Talk;

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

fn request(line: &str, fields: &str) -> String {
    format!("{line} HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
}

/// A connection whose application reads ahead.
struct Reading(Talk);

impl Reading {
    fn new() -> Self {
        Self(Talk::new())
    }

    fn read_ahead(&mut self) -> bool {
        self.0.harness.parts().0.read_ahead()
    }

    /// Receives bytes, and reads ahead behind each request.
    fn receive_ahead(&mut self, bytes: impl AsRef<[u8]>) -> Vec<String> {
        let mut all = self.0.receive(bytes.as_ref()).expect("nothing is wrong");
        loop {
            self.read_ahead();
            let more = self.0.decode_more().expect("nothing is wrong");
            if more.is_empty() {
                return all;
            }
            all.extend(more);
        }
    }

    fn respond(&mut self, text: &'static str) -> String {
        self.0.say(Response::text(text)).expect("a response is owed");
        self.0.sent()
    }

    fn requests_ahead(&self) -> usize {
        self.0.harness.codec().requests_ahead()
    }
}

fn wire() -> String {
    request("GET /1", "") + &request("HEAD /2", "") + &request("OPTIONS /3", "X: y\r\n") + &request("GET /4", "")
}

#[test]
fn safe_requests_are_yielded_ahead_and_answered_in_their_order_at_every_split() {
    let wire = wire();
    for split in 0..=wire.len() {
        let mut talk = Reading::new();
        let mut all = talk.receive_ahead(&wire.as_bytes()[..split]);
        all.extend(talk.receive_ahead(&wire.as_bytes()[split..]));
        let mut bodies = Vec::new();
        for number in 1..=4 {
            if number > all.len() {
                // The head that arrived in two parts had to wait.
                all.extend(talk.receive_ahead(b""));
            }
            let response = talk.respond("ok");
            bodies.push(response.ends_with("\r\n\r\nok"));
            assert!(response.contains("\r\nContent-Length: 2\r\n") && !response.contains("Connection"), "{response}");
        }
        all.extend(talk.receive_ahead(b""));
        assert_eq!(all, ["GET /1", "HEAD /2", "OPTIONS /3", "GET /4"], "{split}");
        assert_eq!(bodies, [true, false, true, true], "{split}");
        assert!(!talk.0.is_finished());
        assert_eq!(talk.0.receive(GET.as_bytes()), Ok(vec!["GET /".into()]));
    }
}

#[test]
fn nothing_is_yielded_ahead_unless_the_application_asks() {
    let mut talk = Reading::new();
    assert_eq!(talk.0.receive(wire().as_bytes()), Ok(vec!["GET /1".into()]));
    assert!(talk.read_ahead(), "more has arrived");
    assert_eq!(talk.0.decode_more(), Ok(vec!["HEAD /2".into()]), "one for each time that it asks");
    assert_eq!(talk.0.decode_more(), Ok(vec![]));
    assert_eq!(talk.requests_ahead(), 1);
}

#[test]
fn a_request_that_is_not_safe_waits_for_its_turn() {
    for second in [
        request("POST /2", "Content-Length: 2\r\n") + "ab",
        request("POST /2", ""),
        request("GET /2", "Content-Length: 2\r\n") + "ab",
        request("GET /2", "Transfer-Encoding: chunked\r\n") + "0\r\n\r\n",
        request("GET /2", "Connection: close\r\n"),
        request("PURGE /2", ""),
        request("DELETE /2", ""),
        "GET /2 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".into(),
        "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n".into(),
        "\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n".into(),
    ] {
        let mut talk = Reading::new();
        let wire = request("GET /1", "") + &second;
        assert_eq!(talk.receive_ahead(wire.as_bytes()), ["GET /1"], "{second}");
        talk.respond("ok");
        let next = talk.0.decode_more().expect("it is good");
        assert!(next[0].ends_with("/2") || next[0] == "CONNECT a:1", "{next:?}");
    }
}

#[test]
fn nothing_is_read_behind_a_request_that_may_be_the_last() {
    for first in [
        request("GET /1", "Connection: close\r\n"),
        "GET /1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".into(),
        "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n".into(),
        request("GET /1", "Content-Length: 2\r\n"),
        request("GET /1", "Content-Length: 2\r\nExpect: 100-continue\r\n"),
    ] {
        let mut talk = Reading::new();
        let messages = talk.receive_ahead((first + GET).as_bytes());
        assert!(!messages.contains(&"GET /".into()), "{messages:?}");
    }
}

#[test]
fn an_error_is_that_of_its_own_request() {
    let mut talk = Reading::new();
    let wire = request("GET /1", "") + &request("GET /2", "") + "GET bad\r\n\r\n";
    assert_eq!(talk.receive_ahead(wire.as_bytes()), ["GET /1", "GET /2"]);
    talk.respond("one");
    talk.read_ahead();
    assert_eq!(talk.0.decode_more(), Ok(vec![]));
    assert!(talk.respond("two").ends_with("two"));
    assert!(talk.0.decode_more().is_err());
    assert!(talk.0.sent().starts_with("HTTP/1.1 400 "));
}

#[test]
fn no_request_is_yielded_within_a_response() {
    let mut talk = Reading::new();
    assert_eq!(talk.0.receive((request("GET /1", "")).as_bytes()), Ok(vec!["GET /1".into()]));
    talk.read_ahead();
    talk.0.say(Outgoing::Head(StreamedResponse::new(Status::OK))).expect("a response is owed");
    assert_eq!(talk.0.receive(GET.as_bytes()), Ok(vec![]));
    assert!(!talk.read_ahead());
    talk.0.say(Outgoing::End).expect("a response is under way");
    assert_eq!(talk.0.decode_more(), Ok(vec!["GET /".into()]));
}

#[test]
fn a_response_that_closes_leaves_the_requests_behind_it() {
    let mut talk = Reading::new();
    talk.receive_ahead(wire().as_bytes());
    talk.respond("ok");
    talk.0.say(Response::text("ok").close()).expect("a response is owed");
    assert!(talk.0.sent().contains("\r\nConnection: close\r\n"));
    assert!(talk.0.is_finished());
    assert_eq!(talk.0.say(Response::text("ok")), Err(Error::Caller(Misuse::NoRequest)));
}

#[test]
fn at_the_end_of_the_peer_and_at_a_drain_the_last_response_alone_announces_the_close() {
    for drains in [false, true] {
        let mut talk = Reading::new();
        assert_eq!(talk.receive_ahead(wire().as_bytes()).len(), 4);
        if drains {
            talk.0.harness.notify(Lifecycle::Drain).expect("nothing is wrong");
        } else {
            assert_eq!(talk.0.receive_fin(), Ok(vec!["end of connection".into()]));
        }
        for number in 1..=4 {
            let response = talk.respond("ok");
            assert_eq!(response.contains("\r\nConnection: close\r\n"), number == 4, "{response}");
        }
        assert!(talk.0.is_finished());
    }
}

#[test]
fn at_a_drain_a_request_that_has_arrived_behind_those_in_progress_is_answered() {
    let mut talk = Reading::new();
    let wire = request("GET /1", "") + &request("GET /2", "") + &request("POST /3", "Content-Length: 0\r\n");
    assert_eq!(talk.receive_ahead(wire.as_bytes()), ["GET /1", "GET /2"]);
    talk.0.harness.notify(Lifecycle::Drain).expect("nothing is wrong");
    for last in [false, false, true] {
        assert_eq!(talk.respond("ok").contains("\r\nConnection: close\r\n"), last);
        talk.0.decode_more().expect("nothing is wrong");
    }
    assert!(talk.0.is_finished());
}

#[test]
fn a_failure_answers_the_request_in_turn_and_closes() {
    let mut talk = Reading::new();
    talk.receive_ahead(wire().as_bytes());
    talk.0.harness.notify(Lifecycle::Fail).expect("nothing is wrong");
    let sent = talk.0.sent();
    assert!(sent.starts_with("HTTP/1.1 500 ") && sent.matches("HTTP/1.1").count() == 1, "{sent}");
    assert!(talk.0.is_finished());
}

#[test]
fn no_more_is_yielded_than_the_codec_can_count() {
    let mut talk = Reading::new();
    assert_eq!(talk.receive_ahead(GET.repeat(50).as_bytes()).len(), 33);
    assert_eq!(talk.requests_ahead(), 32);
    for _ in 0..33 {
        assert!(!talk.respond("ok").contains("close"));
    }
    let mut rest = talk.receive_ahead(b"").len();
    while rest < 17 {
        talk.respond("ok");
        rest += talk.receive_ahead(b"").len();
    }
    assert_eq!(rest, 17);
}
