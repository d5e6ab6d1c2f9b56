//! The life of a connection: order, persistence, unread bodies, time-outs, and the end.

use std::time::Duration;

use tidegate_codec::{Lifecycle, Over, Step};
use tidegate_http1::client::{Client, Request};
use tidegate_http1::{
    Config, Error, Exceeded, Incoming, Limits, Misuse, Outgoing, Response, Server, Status, StreamedResponse, Violation,
};
use tidegate_testkit::CodecHarness;
use tidegate_testkit::filters::ToyTls;

use crate::support::{GET, Talk};

const POST: &[u8] = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n";

fn ok(talk: &mut Talk) -> String {
    talk.say(Response::text("ok")).expect("a response is owed");
    talk.sent()
}

#[test]
fn pipelined_requests_are_yielded_one_by_one_as_responses_complete() {
    let mut talk = Talk::new();
    let wire = b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(talk.receive(wire), Ok(vec!["GET /1".into()]));
    assert_eq!(talk.decode_more(), Ok(vec![]));
    talk.say(Outgoing::Head(StreamedResponse::new(Status::OK))).expect("a response is owed");
    assert_eq!(talk.decode_more(), Ok(vec![]), "its body is still under way");
    talk.say(Outgoing::End).expect("a response is under way");
    assert_eq!(talk.decode_more(), Ok(vec!["GET /2".into()]));
    ok(&mut talk);
    assert!(!talk.is_finished());
}

#[test]
fn persistence_is_as_both_sides_want_it() {
    let cases = [
        ("HTTP/1.1", "", false, None),
        ("HTTP/1.1", "Connection: close\r\n", true, Some("close")),
        ("HTTP/1.1", "Connection: a, CLOSE ,b\r\n", true, Some("close")),
        ("HTTP/1.1", "Connection: keep-alive\r\nConnection: close\r\n", true, Some("close")),
        ("HTTP/1.1", "Connection: ,, close ,\r\n", true, Some("close")),
        ("HTTP/1.1", "Connection: closed\r\n", false, None),
        ("HTTP/1.0", "", true, Some("close")),
        ("HTTP/1.0", "Connection: Keep-Alive\r\n", false, Some("keep-alive")),
        ("HTTP/1.0", "Connection: keep-alive, close\r\n", true, Some("close")),
    ];
    for (version, field, finished, said) in cases {
        let mut talk = Talk::new();
        talk.receive(format!("GET / {version}\r\nHost: a\r\n{field}\r\n").as_bytes()).expect("the request is good");
        let sent = ok(&mut talk);
        let found = sent.split("\r\n").find_map(|line| line.strip_prefix("Connection: "));
        assert_eq!((found, talk.is_finished()), (said, finished), "{version} {field:?}");
        if finished {
            assert_eq!(talk.receive(GET), Ok(vec!["end of connection".into()]));
        }
    }
}

#[test]
fn an_application_may_close() {
    let mut talk = Talk::new();
    talk.receive(GET).expect("the request is good");
    talk.say(Response::text("bye").close()).expect("a response is owed");
    assert!(talk.sent().contains("\r\nConnection: close\r\n"));
    assert!(talk.is_finished());
}

#[test]
fn a_body_is_yielded_as_it_arrives() {
    let mut talk = Talk::new();
    assert_eq!(talk.receive(POST), Ok(vec!["POST /".into()]));
    assert_eq!(talk.receive(b"hel"), Ok(vec!["data hel".into()]));
    assert_eq!(talk.receive(&[b"lo", GET].concat()), Ok(vec!["data lo".into(), "end".into()]));
    ok(&mut talk);
    assert_eq!(talk.decode_more(), Ok(vec!["GET /".into()]));
}

#[test]
fn a_body_of_length_zero_is_none() {
    let mut talk = Talk::new();
    let wire = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(talk.receive(wire), Ok(vec!["POST /".into()]));
    ok(&mut talk);
    assert_eq!(talk.receive(GET), Ok(vec!["GET /".into()]));
}

#[test]
fn a_short_rest_of_a_body_is_skipped_once_its_response_is_complete() {
    for wire in [POST, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"] {
        let mut talk = Talk::new();
        talk.receive(wire).expect("the request is good");
        assert!(!ok(&mut talk).contains("Connection: close"));
        let rest: &[u8] = if wire == POST { b"hello" } else { b"5\r\nhello\r\n0\r\n\r\n" };
        assert_eq!(talk.receive(&rest[..3]), Ok(vec![]));
        assert_eq!(talk.receive(&[&rest[3..], GET].concat()), Ok(vec!["GET /".into()]));
    }
}

#[test]
fn a_long_rest_of_a_body_closes_the_connection() {
    let limits = Limits { skip_bytes_max: 10, ..Limits::default() };
    let mut talk = Talk::limited(limits.clone());
    talk.receive(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n").expect("the request is good");
    assert!(ok(&mut talk).contains("\r\nConnection: close\r\n"));
    assert!(talk.is_finished());

    let mut talk = Talk::limited(limits);
    talk.receive(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").expect("the request is good");
    ok(&mut talk);
    assert_eq!(talk.receive(b"9\r\n012345678\r\n"), Ok(vec![]));
    assert_eq!(talk.receive(b"9\r\n012345678\r\n"), Ok(vec!["end of connection".into()]));
    assert!(talk.is_finished());
}

#[test]
fn a_long_body_may_be_answered_while_it_comes_and_the_connection_stays() {
    let mut talk = Talk::limited(Limits { skip_bytes_max: 10, ..Limits::default() });
    talk.receive(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n").expect("the request is good");
    talk.say(Outgoing::Head(StreamedResponse::new(Status::OK).length(0))).expect("a response is owed");
    assert!(!talk.sent().contains("Connection: close"));
    assert_eq!(talk.receive(b"0123456789a"), Ok(vec!["data 0123456789a".into(), "end".into()]));
    talk.say(Outgoing::End).expect("a response is under way");
    assert_eq!(talk.receive(GET), Ok(vec!["GET /".into()]));
}

#[test]
fn continue_is_sent_at_once_unless_the_application_wants_to_decide() {
    let wire = b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\nContent-Length: 5\r\n\r\n";
    let mut talk = Talk::new();
    talk.receive(wire).expect("the request is good");
    assert_eq!(talk.sent(), "HTTP/1.1 100 Continue\r\n\r\n");

    let by_hand = || Talk::with(Config::default().continue_by_hand(true));
    let mut talk = by_hand();
    talk.receive(wire).expect("the request is good");
    assert_eq!(talk.sent(), "");
    talk.say(Outgoing::Continue).expect("the peer waits for it");
    assert_eq!(talk.say(Outgoing::Continue), Err(Error::Caller(Misuse::ContinueUnexpected)));
    assert_eq!(talk.sent(), "HTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(talk.receive(b"hello"), Ok(vec!["data hello".into(), "end".into()]));
    assert!(!ok(&mut talk).contains("Connection: close"));

    let mut talk = by_hand();
    talk.receive(wire).expect("the request is good");
    talk.say(Response::new(Status::CONTENT_TOO_LARGE)).expect("a response is owed");
    assert!(talk.sent().contains("\r\nConnection: close\r\n"), "the body was not asked for and may come or not");
    assert!(talk.is_finished());

    let mut talk = Talk::new();
    talk.receive(b"POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n").expect("the request is good");
    assert_eq!(talk.sent(), "", "HTTP/1.0 does not know interim responses");
}

#[test]
fn expectations_are_a_list() {
    let said = |value: &str| {
        let mut talk = Talk::new();
        let wire = format!("POST / HTTP/1.1\r\nHost: a\r\nExpect: {value}\r\nContent-Length: 5\r\n\r\n");
        let received = talk.receive(wire.as_bytes());
        (received.is_ok(), talk.sent())
    };
    for value in
        ["100-continue", ", 100-CONTINUE ,", "100-continue,100-continue", "100-continue\r\nExpect: 100-continue"]
    {
        assert_eq!(said(value), (true, "HTTP/1.1 100 Continue\r\n\r\n".into()), "{value}");
    }
    for value in ["", ",", " , ,"] {
        assert_eq!(said(value), (true, String::new()), "nothing is expected: {value:?}");
    }
    for value in ["a", "100-continue, a", "a, 100-continue", "100-continue=a", "100-continue;a", "\"100-continue\""] {
        let (is_heard, sent) = said(value);
        assert!(!is_heard && sent.starts_with("HTTP/1.1 417 "), "{value}: {sent}");
    }
}

#[test]
fn an_error_within_a_body_is_answered_unless_a_response_has_begun() {
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut talk = Talk::new();
    talk.receive(head).expect("the head is good");
    assert_eq!(talk.receive(b"x\r\n"), Err(Error::Peer(Violation::ChunkSize)));
    assert!(talk.sent().starts_with("HTTP/1.1 400 "));
    assert!(talk.is_finished());
    assert_eq!(talk.say(Response::text("late")), Err(Error::Caller(Misuse::NoRequest)));

    let mut talk = Talk::new();
    talk.receive(head).expect("the head is good");
    talk.say(Outgoing::Head(StreamedResponse::new(Status::OK))).expect("a response is owed");
    talk.sent();
    assert_eq!(talk.receive(b"x\r\n"), Err(Error::Peer(Violation::ChunkSize)));
    assert_eq!(talk.sent(), "", "it would be taken for a part of the body");
}

#[test]
fn an_idle_connection_is_closed_without_a_response() {
    let mut talk = Talk::new();
    talk.receive(b"").expect("nothing came");
    talk.wait(74).expect("there is time");
    assert!(!talk.is_finished());
    talk.wait(1).expect("it ends in good order");
    assert!(talk.is_finished());
    assert_eq!(talk.sent(), "");

    let mut talk = Talk::new();
    talk.receive(GET).expect("the request is good");
    assert_eq!(talk.harness.codec().config().limits().idle_timeout.as_secs(), 75);
    talk.wait(1_000).expect("a request that is being answered has no deadline");
    ok(&mut talk);
    talk.decode_more().expect("nothing came");
    talk.wait(74).expect("there is time");
    assert!(!talk.is_finished());
    talk.wait(1).expect("it ends in good order");
    assert!(talk.is_finished());
}

/// `body_timeout` is 30 seconds, and the minimum rate 240 bytes per second.
#[test]
fn a_body_at_the_minimum_rate_never_times_out_and_a_slower_one_does() {
    let lasts = |piece: usize| {
        let mut talk = Talk::new();
        talk.receive(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n").expect("the request is good");
        (0..1000)
            .take_while(|_| talk.wait(10).and_then(|()| talk.receive(&vec![b'a'; piece]).map(drop)).is_ok())
            .count()
    };
    assert_eq!(lasts(240 * 10), 1000, "all of it");
    assert_eq!(
        (lasts(240 * 5), lasts(1), lasts(240 * 5 + 1)),
        (4, 3, 5),
        "a slower one is late a little more with each piece"
    );
}

/// Bytes that arrive at once earn no credit for later.
#[test]
fn a_fast_start_earns_no_credit() {
    let mut talk = Talk::new();
    talk.receive(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n").expect("the request is good");
    talk.receive(&[b'a'; 60_000]).expect("fast");
    assert_eq!(talk.wait(30), Err(Error::Limit(Exceeded::BodyTime)));
    let limits = Limits { body_rate_min: 0, ..Limits::default() };
    let mut talk = Talk::limited(limits);
    talk.receive(POST).expect("the request is good");
    talk.wait(29).expect("there is time");
    talk.receive(b"h").expect("a piece");
    talk.wait(29).expect("one byte is as good as many here");
}

#[test]
fn a_suspension_between_two_pieces_does_not_reset_lateness() {
    let lasts = |piece: usize, pause: u64| {
        let mut talk = Talk::new();
        talk.receive(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n").expect("the request is good");
        let piece = vec![b'a'; piece];
        let comes = |_: &i32| {
            talk.harness.suspend(Duration::from_secs(pause)).expect("it has no error to report");
            talk.wait(10).and_then(|()| talk.receive(&piece)).is_ok()
        };
        (0..50).take_while(comes).count()
    };
    for pause in [0, 1, 3600] {
        assert_eq!((lasts(1, pause), lasts(240 * 5 + 1, pause)), (3, 5), "a byte is late whatever happens meanwhile");
        assert_eq!(lasts(240 * 10, pause), 50, "a peer at the rate is not late by our own pauses");
    }
}

#[test]
fn a_body_is_not_late_before_100_continue() {
    let mut talk = Talk::with(Config::default().continue_by_hand(true));
    talk.receive(b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
        .expect("it is good");
    talk.wait(29).expect("there is time");
    talk.say(Outgoing::Continue).expect("the peer waits for it");
    talk.wait(29).expect("it has waited for us");
    talk.receive(b"hell").expect("a piece");
    assert_eq!(talk.wait(2), Err(Error::Limit(Exceeded::BodyTime)));
}

#[test]
fn a_piece_that_has_arrived_is_not_late_however_late_it_is_decoded() {
    let mut talk = Talk::new();
    talk.receive(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").expect("the request is good");
    talk.harness.receive(&b"1\r\na\r\n".repeat(10));
    for _ in 0..10 {
        assert!(matches!(talk.harness.step(), Ok(Step::Message(Incoming::Data(_)))));
        // The application does not decode the next piece in this time.
        talk.wait(300).expect("only time in which the codec waits counts");
    }
    talk.decode_more().expect("nothing came");
    talk.wait(29).expect("now it is waited for");
    assert_eq!(talk.wait(1), Err(Error::Limit(Exceeded::BodyTime)));
}

#[test]
fn a_head_that_drips_has_a_deadline_from_its_first_byte() {
    let mut talk = Talk::new();
    talk.receive(b"").expect("nothing came");
    talk.wait(70).expect("there is time");
    talk.receive(b"GET").expect("incomplete");
    talk.wait(20).expect("there is time");
    talk.receive(b" /").expect("incomplete");
    talk.wait(9).expect("there is time");
    assert_eq!(talk.wait(1), Err(Error::Limit(Exceeded::HeadTime)));
    assert!(talk.sent().starts_with("HTTP/1.1 408 "));
    assert!(talk.is_finished());
}

#[test]
fn a_body_has_a_deadline_from_piece_to_piece() {
    let mut talk = Talk::new();
    talk.receive(POST).expect("the request is good");
    talk.wait(29).expect("there is time");
    // A byte does not restart the time-out: it earns the time that it takes at the minimum rate.
    talk.receive(b"h").expect("a piece");
    assert_eq!(talk.wait(2), Err(Error::Limit(Exceeded::BodyTime)));
    assert!(talk.sent().starts_with("HTTP/1.1 408 "));

    let mut talk = Talk::new();
    talk.receive(POST).expect("the request is good");
    ok(&mut talk);
    talk.decode_more().expect("nothing came");
    talk.wait(30).expect("its response was sent: it ends without a word");
    assert!(talk.is_finished());
    assert_eq!(talk.sent(), "");
}

fn drain(talk: &mut Talk) {
    talk.harness.notify(Lifecycle::Drain).expect("draining cannot fail");
}

/// Answers, and returns whether that was the last response.
fn is_last(talk: &mut Talk) -> bool {
    let last = ok(talk).contains("\r\nConnection: close\r\n");
    assert_eq!(talk.is_finished(), last);
    last
}

#[test]
fn a_drained_connection_waits_for_one_more_request_and_answers_it() {
    for busy in [false, true] {
        let mut talk = Talk::new();
        if busy {
            talk.receive(GET).expect("the request is good");
            ok(&mut talk);
            talk.wait(70).expect("there is time");
        }
        drain(&mut talk);
        assert_eq!(talk.decode_more(), Ok(vec![]));
        talk.wait(0).expect("there is a grace");
        assert!(!talk.is_finished());
        assert_eq!(talk.receive(GET), Ok(vec!["GET /".into()]));
        assert!(is_last(&mut talk));
        assert_eq!(talk.decode_more(), Ok(vec!["end of connection".into()]));
    }
}

#[test]
fn an_idle_drained_connection_is_closed_after_its_grace() {
    for busy in [false, true] {
        let mut talk = Talk::new();
        talk.decode_more().expect("nothing came");
        if busy {
            talk.receive(GET).expect("the request is good");
            ok(&mut talk);
        }
        talk.wait(70).expect("there is time");
        drain(&mut talk);
        talk.wait(1).expect("no error");
        assert_eq!(talk.sent(), "");
        assert!(talk.is_finished());
    }
}

#[test]
fn a_drained_connection_ends_with_the_last_response_to_arrived_requests() {
    let mut talk = Talk::new();
    talk.receive(&GET.repeat(3)).expect("the request is good");
    drain(&mut talk);
    for last in [false, false, true] {
        assert_eq!(is_last(&mut talk), last);
        talk.decode_more().expect("there may be more");
    }

    // The following bytes arrive while the response is owed.
    let mut talk = Talk::new();
    talk.receive(GET).expect("the request is good");
    drain(&mut talk);
    talk.receive(GET).expect("it waits");
    assert!(!is_last(&mut talk));
    assert_eq!(talk.decode_more(), Ok(vec!["GET /".into()]));
    assert!(is_last(&mut talk));

    let mut talk = Talk::new();
    talk.receive(&GET[..5]).expect("incomplete");
    drain(&mut talk);
    assert_eq!(talk.receive(&GET[5..]), Ok(vec!["GET /".into()]));
    assert!(is_last(&mut talk));
}

#[test]
fn a_body_is_not_taken_for_another_request_by_a_drain() {
    for (body, follows) in [("hello", false), ("hell", false), ("", false), ("helloGET", true)] {
        let mut talk = Talk::new();
        drain(&mut talk);
        talk.receive(&[b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n", body.as_bytes()].concat())
            .expect("the request is good");
        assert_eq!(ok(&mut talk).contains("\r\nConnection: close\r\n"), !follows, "{body}");
    }
    for follows in [false, true] {
        let mut talk = Talk::new();
        drain(&mut talk);
        let mut wire =
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n".to_vec();
        wire.extend(if follows { GET } else { b"" });
        talk.receive(&wire).expect("the request is good");
        assert_eq!(is_last(&mut talk), !follows);
    }
}

/// Batches that end within a head never end with a whole one: there must be a last one all the same.
#[test]
fn a_drained_peer_that_never_stops_sending_gets_a_last_response() {
    let mut talk = Talk::new();
    talk.receive(&GET[..5]).expect("incomplete");
    drain(&mut talk);
    let next = [&GET[5..], &GET[..5]].concat();
    let mut answers = 1;
    talk.receive(&next).expect("the request is good");
    while !is_last(&mut talk) {
        answers += 1;
        assert!(answers < 10);
        talk.decode_more().expect("incomplete");
        talk.receive(&next).expect("the request is good");
    }
    assert!(answers > 2, "{answers}");
}

#[test]
fn a_connection_drained_within_a_response_ends_with_the_next_or_its_grace() {
    for pipelined in [1, 2] {
        let mut talk = Talk::new();
        talk.receive(&GET.repeat(pipelined)).expect("the requests are good");
        talk.say(Outgoing::Head(StreamedResponse::new(Status::OK).length(0))).expect("a response is owed");
        drain(&mut talk);
        talk.say(Outgoing::End).expect("a response is under way");
        assert!(!talk.sent().contains("Connection: close"), "the head was sent before");
        if pipelined == 2 {
            assert_eq!(talk.decode_more(), Ok(vec!["GET /".into()]));
            assert!(ok(&mut talk).contains("\r\nConnection: close\r\n"));
        } else {
            assert_eq!(talk.decode_more(), Ok(vec![]));
            assert!(!talk.is_finished(), "the peer may have sent another request already");
            talk.wait(1).expect("no error");
        }
        assert_eq!(talk.decode_more(), Ok(vec!["end of connection".into()]));
        assert!(talk.is_finished());
    }
}

#[test]
fn an_application_that_fails_is_500_unless_something_was_said() {
    let fail = |talk: &mut Talk| {
        talk.harness.notify(Lifecycle::Fail).expect("the codec writes its reply");
        assert!(talk.is_finished());
        talk.sent()
    };
    assert_eq!(fail(&mut Talk::new()), "", "no request waits");

    let mut talk = Talk::new();
    talk.receive(GET).expect("the request is good");
    let sent = fail(&mut talk);
    assert!(sent.starts_with("HTTP/1.1 500 ") && sent.contains("\r\nConnection: close\r\n"), "{sent}");

    let mut talk = Talk::new();
    talk.receive(b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
        .expect("a good request");
    assert_eq!(talk.sent(), "HTTP/1.1 100 Continue\r\n\r\n");
    assert!(fail(&mut talk).starts_with("HTTP/1.1 500 "), "an interim response is not the only one");

    let mut talk = Talk::new();
    talk.receive(GET).expect("the request is good");
    talk.say(Outgoing::Head(StreamedResponse::new(Status::OK))).expect("a response is owed");
    talk.sent();
    assert_eq!(fail(&mut talk), "", "a second head would be taken for a part of the body");
}

/// Neither side waits for the end of a head that will never arrive.
#[test]
fn another_protocol_is_refused_at_its_first_bytes() {
    for wire in [&b"\x16\x03\x01"[..], b"SSH-2.0-OpenSSH_9.2\r", b"{\"", b" ", b"\r\r", b"GET\r", b"\0"] {
        let mut talk = Talk::new();
        assert_eq!(talk.receive(wire), Err(Error::Peer(Violation::RequestLine)), "{wire:?}");
        assert!(talk.sent().starts_with("HTTP/1.1 400 "));
    }
}

#[test]
fn after_the_peer_has_stopped_sending_complete_requests_still_get_through() {
    let mut talk = Talk::new();
    talk.harness.receive(&GET.repeat(2));
    assert_eq!(talk.receive_fin(), Ok(vec!["GET /".into()]));
    assert!(!ok(&mut talk).contains("Connection: close"));
    assert_eq!(talk.receive_fin(), Ok(vec!["GET /".into(), "end of connection".into()]));
    assert!(ok(&mut talk).contains("\r\nConnection: close\r\n"), "no further request can come");
    assert!(talk.is_finished());
    assert_eq!(talk.receive_fin(), Ok(vec!["end of connection".into()]));
}

/// Nothing is decoded behind the end, so the end of the response has to finish the connection.
#[test]
fn a_response_in_progress_when_the_peer_stops_sending_is_the_last_one() {
    for keeps in [false, true] {
        let mut talk = Talk::new();
        talk.receive(GET).expect("the request is good");
        talk.say(Outgoing::Head(StreamedResponse::new(Status::OK))).expect("a response is owed");
        assert!(!talk.sent().contains("Connection: close"));
        if keeps {
            talk.harness.codec_mut().keep_half_closed();
            assert_eq!(talk.receive_fin(), Ok(vec![]));
        } else {
            assert_eq!(talk.receive_fin(), Ok(vec!["end of connection".into()]));
        }
        talk.say(Outgoing::End).expect("the body may end");
        assert_eq!(talk.is_finished(), !keeps);
        assert_eq!(talk.receive_fin(), Ok(vec!["end of connection".into()]));
        assert!(talk.is_finished());
    }
}

#[test]
fn a_request_that_is_kept_half_closed_hides_the_end_of_the_peer_until_its_response_is_complete() {
    let mut talk = Talk::new();
    talk.harness.codec_mut().keep_half_closed();
    talk.receive(GET).expect("it is good");
    talk.harness.codec_mut().keep_half_closed();
    talk.harness.receive(&GET.repeat(2));
    ok(&mut talk);
    assert_eq!(talk.receive_fin(), Ok(vec!["GET /".into()]));
    ok(&mut talk);
    assert_eq!(talk.receive_fin(), Ok(vec!["GET /".into(), "end of connection".into()]), "each request has its own");
    talk.harness.codec_mut().keep_half_closed();
    assert_eq!(talk.receive_fin(), Ok(vec![]));
    assert!(ok(&mut talk).contains("\r\nConnection: close\r\n"), "no further request can come");
    assert_eq!(talk.receive_fin(), Ok(vec!["end of connection".into()]));
}

#[test]
fn a_request_that_was_cut_off_is_an_error_and_gets_no_answer() {
    for cut in [&GET[..1], &GET[..GET.len() - 1], POST] {
        let mut talk = Talk::new();
        talk.harness.receive(cut);
        assert_eq!(talk.receive_fin(), Err(Error::Peer(Violation::Truncated)));
        assert_eq!(talk.sent(), "");
        assert!(talk.is_finished());
    }
    let mut talk = Talk::new();
    assert_eq!(talk.receive_fin(), Ok(vec!["end of connection".into()]));
    assert!(talk.is_finished());
}

#[test]
fn after_101_the_input_is_left_to_another_protocol() {
    let mut talk = Talk::new();
    talk.receive(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: b\r\n\r\n\x01\x02")
        .expect("it is good");
    let switching = Response::new(Status::SWITCHING_PROTOCOLS).field("Upgrade", b"b").expect("a good field");
    talk.say(switching).expect("a response is owed");
    let sent = talk.sent();
    assert!(sent.contains("\r\nConnection: upgrade\r\nUpgrade: b\r\n\r\n"), "{sent}");
    assert_eq!(talk.decode_more(), Ok(vec![]));
    assert!(talk.harness.codec().is_switched() && !talk.is_finished());
    assert_eq!(talk.harness.input().bytes(), b"\x01\x02");
}

#[test]
fn a_tunnel_that_was_granted_is_another_protocol_too() {
    let mut talk = Talk::new();
    let wire = b"CONNECT b.example:443 HTTP/1.1\r\nHost: b.example:443\r\n\r\n\x16";
    assert_eq!(talk.receive(wire), Ok(vec!["CONNECT b.example:443".into()]));
    talk.say(Response::new(Status::OK)).expect("a response is owed");
    assert!(!talk.sent().contains("Content-Length"));
    assert!(talk.harness.codec().is_switched());
    let mut talk = Talk::new();
    talk.receive(wire).expect("it is good");
    talk.say(Response::new(Status::FORBIDDEN)).expect("a response is owed");
    assert!(!talk.harness.codec().is_switched());
}

/// The bytes of a tunnel that the client does not wait for are no requests, also if they look like some (RFC 9931).
#[test]
fn a_request_for_a_tunnel_that_is_refused_closes_the_connection() {
    let upgrade =
        |protocol: &str| format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: {protocol}\r\n\r\n");
    let connect = "CONNECT b.example:443 HTTP/1.1\r\nHost: b.example:443\r\n\r\n".to_owned();
    for head in [connect, upgrade("connect-udp"), upgrade("websocket, Connect-IP")] {
        for response in
            [Outgoing::from(Response::new(Status::FORBIDDEN)), StreamedResponse::new(Status::FORBIDDEN).into()]
        {
            let mut talk = Talk::new();
            let is_streamed = matches!(response, Outgoing::Head(_));
            let heads = talk.receive(&[head.as_bytes(), b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"].concat());
            assert_eq!(heads.map(|heads| heads.len()), Ok(1), "{head}");
            talk.say(response).expect("a response is owed");
            if is_streamed {
                talk.say(Outgoing::End).expect("a response is owed");
            }
            assert!(talk.sent().contains("\r\nConnection: close\r\n"), "{head}");
            assert_eq!(talk.decode_more(), Ok(vec!["end of connection".into()]), "{head}");
        }
    }
}

/// Regression: it stayed for ever, even after the peer had closed, since nothing is received meanwhile.
#[test]
fn an_idle_tunnel_is_closed_after_the_idle_timeout() {
    let mut talk = Talk::new();
    talk.receive(b"CONNECT b.example:443 HTTP/1.1\r\nHost: b.example:443\r\n\r\n").expect("it is good");
    talk.say(Response::text("yes, whatever it was")).expect("a response is owed");
    talk.wait(74).expect("there is time");
    assert!(!talk.is_finished());
    talk.wait(1).expect("it ends in good order");
    assert!(talk.is_finished());
}

/// The bytes of a peer over a filter, without the closing message of the filter.
fn cut_off(wire: &[u8]) -> &[u8] {
    wire.strip_suffix(&[0, 0]).expect("the filter's closing message")
}

#[test]
fn a_stream_that_is_cut_off_over_a_filter_is_an_error_only_within_a_request() {
    for (plain, responds, is_error) in [
        (&b""[..], false, false),
        (GET, true, false),
        (GET, false, true),
        (b"GET / HTTP/1.1\r\nHo", false, true),
        (&POST[..POST.len() - 2], false, true),
    ] {
        let mut server = CodecHarness::new(Over::new(ToyTls::server(7), Server::default()));
        server.decode(cut_off(&ToyTls::client_wire(7, plain, 1_000))).expect("well-formed");
        if responds {
            server.encode(Response::text("ok").into()).expect("a response is owed");
        }
        let end = server.decode_eof();
        assert_eq!(end.is_err(), is_error, "{:?}: {end:?}", plain.escape_ascii().to_string());
        assert!(is_error || matches!(end, Ok(Step::End)), "{end:?}");
    }
}

#[test]
fn a_response_that_is_cut_off_over_a_filter_is_an_error_and_an_idle_connection_is_none() {
    for (plain, is_error) in [
        (&b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"[..], false),
        (b"HTTP/1.1 200 OK\r\n\r\nok", true),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no", true),
        (b"", true),
    ] {
        let mut client = CodecHarness::new(Over::new(ToyTls::client(7), Client::default()));
        client.encode(Request::get("/").expect("a target").host("a").expect("a host").into()).expect("it is idle");
        client.decode(cut_off(&ToyTls::server_wire(7, plain, 1_000))).expect("well-formed");
        let end = client.decode_eof();
        assert_eq!(end.is_err(), is_error, "{:?}: {end:?}", plain.escape_ascii().to_string());
    }
}
