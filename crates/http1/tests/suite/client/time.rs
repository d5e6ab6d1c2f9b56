//! The time-outs of a client.

use std::sync::Arc;
use std::time::Duration;

use tidegate_codec::{Over, OverError, Stages};
use tidegate_http1::client::{Limits, Outgoing};
use tidegate_http1::{Client, Error, Exceeded, Method, StreamedRequest};
use tidegate_testkit::CodecHarness;
use tidegate_testkit::filters::StripPrefix;

use crate::client::support::{Talk, config, get};

fn too_long(exceeded: Exceeded) -> Result<(), Error> {
    Err(Error::Limit(exceeded))
}

#[test]
fn a_response_has_a_minute_to_begin() {
    let mut talk = Talk::asked();
    talk.wait(59).unwrap();
    // Single bytes now and then do not extend the time-out of a head.
    talk.receive("HTTP").unwrap();
    assert_eq!(talk.wait(2), too_long(Exceeded::HeadTime));
    assert!(talk.is_finished());
}

#[test]
fn an_interim_response_is_a_sign_of_life() {
    let mut talk = Talk::asked();
    talk.wait(59).unwrap();
    talk.receive("HTTP/1.1 102 Processing\r\n\r\n").unwrap();
    talk.wait(59).unwrap();
    assert_eq!(talk.wait(2), too_long(Exceeded::HeadTime));
}

#[test]
fn a_body_has_half_a_minute_for_each_piece() {
    let mut talk = Talk::asked();
    talk.receive("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n").unwrap();
    for _ in 0..5 {
        talk.wait(29).unwrap();
        talk.receive("a").unwrap();
    }
    talk.wait(29).unwrap();
    assert_eq!(talk.wait(2), too_long(Exceeded::BodyTime));
}

#[test]
fn an_idle_connection_is_closed_without_an_error() {
    let mut talk = Talk::new();
    talk.receive("").unwrap();
    talk.wait(61).unwrap();
    assert!(talk.is_finished());
    let mut talk = Talk::asked();
    talk.receive("HTTP/1.1 204 No Content\r\n\r\n").unwrap();
    talk.wait(59).unwrap();
    assert!(!talk.is_finished());
    talk.wait(2).unwrap();
    assert!(talk.is_finished());
}

/// A request that the peer gets when it closes is lost.
#[test]
fn an_idle_connection_is_closed_before_the_time_that_the_peer_announces() {
    for (value, seconds) in [
        ("timeout=5", 4),
        ("max=100, Timeout=20", 19),
        ("timeout=2", 1),
        ("timeout=61", 60),
        ("timeout=99999999999999999999", 60),
        ("timeout=", 60),
        ("timeout=5s", 60),
        ("max=5", 60),
        ("", 60),
    ] {
        let mut talk = Talk::asked();
        talk.receive(format!("HTTP/1.1 200 OK\r\nKeep-Alive: {value}\r\nContent-Length: 0\r\n\r\n")).unwrap();
        assert!(!talk.is_finished(), "{value}");
        talk.wait(seconds - 1).unwrap();
        assert!(!talk.is_finished(), "{value}");
        talk.wait(1).unwrap();
        assert!(talk.is_finished(), "{value}");
    }
    let mut talk = Talk::asked();
    talk.receive("HTTP/1.1 200 OK\r\nKeep-Alive: timeout=0\r\nContent-Length: 0\r\n\r\n").unwrap();
    assert!(talk.is_finished(), "it carries no other request");
}

#[test]
fn time_counts_from_the_end_of_the_request() {
    let mut talk = Talk::new();
    talk.say(StreamedRequest::new(Method::Put, "/").unwrap()).unwrap();
    for _ in 0..5 {
        talk.wait(59).unwrap();
        talk.say(Outgoing::Data("a".into())).unwrap();
    }
    talk.say(Outgoing::End).unwrap();
    talk.sent();
    talk.wait(59).unwrap();
    assert_eq!(talk.wait(2), too_long(Exceeded::HeadTime));
}

#[test]
fn the_wait_for_100_continue_has_a_deadline() {
    let mut talk = Talk::new();
    talk.say(StreamedRequest::new(Method::Put, "/").unwrap().expect_continue()).unwrap();
    talk.sent();
    talk.wait(59).unwrap();
    assert_eq!(talk.wait(2), too_long(Exceeded::HeadTime));
    // A client that does not wait for 100 has no deadline of its own.
    let mut talk = Talk::new();
    talk.say(StreamedRequest::new(Method::Put, "/").unwrap().expect_continue()).unwrap();
    talk.say(Outgoing::Data("a".into())).unwrap();
    talk.wait(600).unwrap();
    assert!(!talk.is_finished());
}

#[test]
fn the_time_of_the_next_request_begins_with_it() {
    let mut talk = Talk::asked();
    talk.receive("HTTP/1.1 204 No Content\r\n\r\n").unwrap();
    talk.wait(50).unwrap();
    talk.say(get("/")).unwrap();
    talk.sent();
    talk.wait(59).unwrap();
    assert!(!talk.is_finished());
    assert_eq!(talk.wait(2), too_long(Exceeded::HeadTime));
}

#[test]
fn an_unlimited_timeout_gives_no_deadline() {
    let forever = Duration::MAX;
    let limits = Limits { head_timeout: forever, body_timeout: forever, idle_timeout: forever, ..Limits::default() };
    let mut talk = Talk::limited(limits);
    talk.wait(1 << 20).unwrap();
    talk.say(get("/")).unwrap();
    talk.wait(1 << 20).unwrap();
    talk.receive("HTTP/1.1 200 OK\r\n\r\na").unwrap();
    talk.wait(1 << 20).unwrap();
    assert!(!talk.is_finished());
}

/// A connection that has sent a GET, with a minimum rate of 240 bytes per second.
fn asked_in_a_hurry() -> Talk {
    let mut talk = Talk::limited(Limits { body_rate_min: 240, ..Limits::default() });
    talk.say(get("/")).unwrap();
    talk.sent();
    talk
}

/// Rare events, for as long as the peer sends them.
#[test]
fn a_client_has_no_minimum_rate_by_default() {
    let mut talk = Talk::asked();
    talk.receive("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
    for _ in 0..1000 {
        talk.wait(25).unwrap();
        talk.receive("2\r\n:\n\r\n").unwrap();
    }
}

#[test]
fn a_body_below_the_minimum_rate_times_out() {
    let mut talk = asked_in_a_hurry();
    talk.receive("HTTP/1.1 200 OK\r\n\r\n").unwrap();
    for _ in 0..20 {
        talk.wait(10).unwrap();
        talk.receive("a".repeat(2400)).unwrap();
    }
    for _ in 0..2 {
        talk.wait(10).unwrap();
        talk.receive("a").unwrap();
    }
    assert_eq!(talk.wait(11), too_long(Exceeded::BodyTime));
}

#[test]
fn a_suspension_between_two_pieces_does_not_reset_lateness() {
    let lasts = |piece: usize, pause: u64| {
        let mut talk = asked_in_a_hurry();
        talk.receive("HTTP/1.1 200 OK\r\n\r\n").unwrap();
        let piece = "a".repeat(piece);
        let comes = |_: &i32| {
            talk.harness.suspend(Duration::from_secs(pause)).expect("it has no error to report");
            talk.wait(10).and_then(|()| talk.receive(&piece)).is_ok()
        };
        (0..50).take_while(comes).count()
    };
    for pause in [0, 1, 3600] {
        assert_eq!((lasts(1, pause), lasts(240 * 10, pause)), (3, 50));
    }
}

#[test]
fn a_response_is_not_late_before_its_request_has_left() {
    let mut talk = Talk::new();
    talk.say(get("/")).unwrap();
    talk.harness.flush().unwrap();
    talk.wait(600).unwrap();
    talk.sent();
    talk.wait(59).unwrap();
    assert!(!talk.is_finished());
    assert_eq!(talk.wait(61), too_long(Exceeded::HeadTime));
}

#[test]
fn a_request_that_waits_below_a_filter_has_not_left_either() {
    let client = Client::new(Arc::new(config(Limits::default())));
    let mut harness = CodecHarness::new(Over::new(StripPrefix::new(b""), client));
    harness.encode(get("/").into()).unwrap();
    harness.flush().unwrap();
    harness.advance_time(Duration::from_secs(600)).unwrap();
    assert!(!harness.codec().status().is_finished);
    harness.take_sent();
    harness.advance_time(Duration::from_secs(59)).unwrap();
    let late = harness.advance_time(Duration::from_secs(61));
    assert!(matches!(late, Err(OverError::Codec(Error::Limit(Exceeded::HeadTime)))), "{late:?}");
}
