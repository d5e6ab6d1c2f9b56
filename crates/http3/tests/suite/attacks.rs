//! Limits: each has a test that exceeds it, and a twin that does not.

use std::time::{Duration, Instant};

use tidegate::http1::{self, Status};
use tidegate::http3::{Connection, Error, ErrorCode, Exceeded, Limits, StreamError};

use crate::support::{DATA, Failure, HEADERS, RESERVED, config, frame, frames, headers, request, requests, server};

/// The answer of a server to a request stream, and its code.
fn refusal(limits: Limits, wire: &[u8]) -> Option<(StreamError, String)> {
    let mut stream = server(limits);
    match requests(&mut stream, &[wire]) {
        Ok(_) => None,
        Err(Failure::Frames(error)) => Some((error, frames(&stream.take_sent()))),
        Err(other) => panic!("{other:?}"),
    }
}

const TOO_LARGE: &str = "[:status=431|content-length=0]";

#[test]
fn heads_have_a_number_of_fields_and_a_size() {
    let limits = || Limits { headers_max: 10, head_bytes_max: 1024, ..Limits::default() };
    let answered = Some((StreamError::HeadTooLarge { is_answered: true }, TOO_LARGE.to_owned()));
    let (value, long) = ("a".repeat(600), "a".repeat(900));
    for (fields, expected) in [
        (vec![("x", ""); 10], None),
        (vec![("x", ""); 11], answered.clone()),
        (vec![("x", &value[..])], None),
        (vec![("x", &long[..])], answered.clone()),
        // One byte each on the wire.
        (vec![("accept", "*/*"); 11], answered),
    ] {
        assert_eq!(refusal(limits(), &request("GET", &fields)), expected, "{}", fields.len());
    }
    assert_eq!(StreamError::HeadTooLarge { is_answered: true }.code(), ErrorCode::NO_ERROR);
}

#[test]
fn references_that_expand_are_cut_off() {
    // The longest entry of the static table, by two bytes each.
    let bomb = [&[0, 0, 0xd1, 0xd7, 0xc1][..], &[0xff, 22].repeat(15_000)].concat();
    let (error, answer) = refusal(Limits::default(), &frame(HEADERS, &bomb)).expect("it is refused");
    assert_eq!((error.code(), &*answer), (ErrorCode::NO_ERROR, TOO_LARGE));
}

#[test]
fn a_section_has_a_size_on_the_wire() {
    let limits = || Limits { field_section_bytes_max: 100, ..Limits::default() };
    let wire = request("GET", &[("x", &"{".repeat(90))]);
    assert!(refusal(limits(), &wire).is_some_and(|(_, answer)| answer == TOO_LARGE));
    assert_eq!(refusal(limits(), &request("GET", &[("x", &"{".repeat(60))])), None);
    // Its bytes are not awaited.
    let mut stream = server(limits());
    assert!(stream.decode(&[1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]).is_err());
    assert_eq!(frames(&stream.take_sent()), TOO_LARGE);
    assert!(stream.codec().filter().has_sent_end() && stream.codec().filter().reset_code().is_none());
}

#[test]
fn trailers_that_expand_reset_their_stream() {
    let limits = Limits { headers_max: 3, ..Limits::default() };
    let wire = |count: usize| [request("POST", &[]), headers(&vec![("x", "y"); count])].concat();
    assert_eq!(refusal(limits.clone(), &wire(3)), None);
    let (error, answer) = refusal(limits, &wire(4)).expect("it is refused");
    assert_eq!((error.code(), &*answer, error.connection()), (ErrorCode::EXCESSIVE_LOAD, "", None));
}

#[test]
fn bodies_have_a_size() {
    let limits = || Limits { body_bytes_max: 10, ..Limits::default() };
    let wire = |length: usize| [request("POST", &[]), frame(DATA, &vec![b'a'; length])].concat();
    assert!(requests(&mut server(limits()), &[&wire(10)]).is_ok());
    let too_long = requests(&mut server(limits()), &[&wire(11)]);
    let Err(Failure::Messages(error)) = too_long else { panic!("{too_long:?}") };
    assert_eq!(error, http1::Error::Limit(http1::Exceeded::Body));
    assert_eq!(error.status(), Some(Status::CONTENT_TOO_LARGE));
}

#[test]
fn bodies_have_a_rate() {
    let mut stream = server(Limits { body_timeout: Duration::from_secs(30), ..Limits::default() });
    stream.decode(&request("POST", &[])).expect("a head");
    assert!(stream.advance_time(Duration::from_secs(29)).is_ok());
    assert!(stream.advance_time(Duration::from_secs(2)).is_err());
    let mut stream = server(Limits { body_timeout: Duration::from_secs(30), ..Limits::default() });
    stream.decode(&request("POST", &[])).expect("a head");
    for _ in 0..100 {
        stream.advance_time(Duration::from_secs(1)).expect("it is fast enough");
        stream.decode(&frame(DATA, &[b'a'; 240])).expect("a piece");
    }
}

#[test]
fn reserved_frames_of_a_stream_have_a_bound() {
    let limits = || Limits { reserved_bytes_max: 100, ..Limits::default() };
    let exceeded = StreamError::Connection(Exceeded::ReservedBytes.into());
    let with = |more: Vec<u8>| [request("POST", &[]), more].concat();
    for (wire, is_refused) in [
        (with(frame(RESERVED, &[0; 98])), true),
        (with(frame(RESERVED, &[0; 60]).repeat(2)), true),
        (with(frame(DATA, &[]).repeat(51)), true),
        (with(vec![0x21, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]), true),
        (with(frame(RESERVED, &[0; 97])), false),
        (with(frame(DATA, &[]).repeat(50)), false),
        // DATA in small frames is no abuse.
        (with(frame(DATA, &[0]).repeat(1_000)), false),
    ] {
        let refused = refusal(limits(), &wire);
        assert_eq!(refused.map(|(error, _)| error), is_refused.then_some(exceeded), "{} bytes", wire.len());
    }
    assert_eq!(exceeded.code(), ErrorCode::EXCESSIVE_LOAD);
}

fn control(limits: Limits, frames: &[u8]) -> Result<(), Error> {
    Connection::server(config(limits)).handle_uni(2, &[&[0][..], frames].concat(), Instant::now())
}

#[test]
fn settings_have_a_bound() {
    let settings = |count: u8| {
        let payload: Vec<_> = (0..count).flat_map(|number| [0x40, 64 + number, 0]).collect();
        frame(4, &payload)
    };
    let limits = || Limits { settings_max: 20, ..Limits::default() };
    assert_eq!(control(limits(), &settings(20)), Ok(()));
    assert_eq!(control(limits(), &settings(21)), Err(Exceeded::Settings.into()));
    assert_eq!(control(limits(), &[4, 0x80, 1, 0, 0]), Err(Exceeded::ControlFrame.into()), "a huge frame");
}

#[test]
fn frames_of_a_control_stream_have_a_bound() {
    let limits = || Limits { control_frame_bytes_max: 64, ..Limits::default() };
    let update = |length: usize| [frame(4, &[]), frame(0xf_0700, &vec![0; length])].concat();
    assert_eq!(control(limits(), &update(64)), Ok(()));
    assert_eq!(control(limits(), &update(65)), Err(Exceeded::ControlFrame.into()));
}

#[test]
fn floods_of_frames_and_instructions_are_abuse() {
    let limits = || Limits { abuse_max: 10, ..Limits::default() };
    let frames = |count: usize| [frame(4, &[]), frame(RESERVED, &[]).repeat(count)].concat();
    assert_eq!(control(limits(), &frames(10)), Ok(()));
    assert_eq!(control(limits(), &frames(11)), Err(Exceeded::Abuse.into()));
    for (kind, instruction) in [(2, 0x20), (3, 0x44)] {
        for (count, expected) in [(10, Ok(())), (11, Err(Error::from(Exceeded::Abuse)))] {
            let mut connection = Connection::server(config(limits()));
            let wire = [&[kind][..], &vec![instruction; count]].concat();
            assert_eq!(connection.handle_uni(2, &wire, Instant::now()), expected, "{kind} {count}");
        }
    }
}

#[test]
fn requests_and_time_forgive_abuse() {
    let limits =
        || Limits { abuse_max: 10, abuse_credit_per_request: 4, abuse_leak_per_second: 1, ..Limits::default() };
    let (mut connection, now) = (Connection::server(config(limits())), Instant::now());
    for _ in 0..10 {
        assert_eq!(connection.count_abuse(now), Ok(()));
    }
    connection.credit_request();
    for _ in 0..4 {
        assert_eq!(connection.count_abuse(now), Ok(()));
    }
    assert_eq!(connection.count_abuse(now), Err(Exceeded::Abuse.into()));
    assert_eq!(connection.count_abuse(now + Duration::from_secs(2)), Ok(()));
}

/// CVE-2023-44487.
#[test]
fn rapid_resets_are_abuse_and_late_ones_are_not() {
    let limits = || Limits { abuse_max: 10, ..Limits::default() };
    for (age, expected) in [(99, Err(Error::from(Exceeded::Abuse))), (100, Ok(()))] {
        let (mut connection, now) = (Connection::server(config(limits())), Instant::now());
        let reset = |connection: &mut Connection| connection.handle_request_reset(Duration::from_millis(age), now);
        for _ in 0..10 {
            assert_eq!(reset(&mut connection), Ok(()));
        }
        assert_eq!(reset(&mut connection), expected, "{age} milliseconds");
    }
}

#[test]
fn unidirectional_streams_have_a_number() {
    let mut connection = Connection::server(config(Limits { uni_streams_max: 4, ..Limits::default() }));
    for stream in 0..4 {
        assert_eq!(connection.handle_uni(2 + 4 * stream, &[0xc0], Instant::now()), Ok(()));
    }
    assert_eq!(connection.handle_uni(18, &[0xc0], Instant::now()), Err(Exceeded::UniStreams.into()));
    let mut connection = Connection::server(config(Limits { uni_streams_max: 4, ..Limits::default() }));
    for stream in 0..100 {
        assert_eq!(connection.handle_uni(2 + 4 * stream, &[0x21], Instant::now()), Ok(()));
        assert_eq!(connection.handle_uni_end(2 + 4 * stream), Ok(()), "one after the other");
    }
}

#[test]
fn waiting_priorities_have_a_bound() {
    let now = Instant::now();
    let mut connection = Connection::server(config(Limits { waiting_priorities_max: 2, ..Limits::default() }));
    let updates: Vec<_> = [0, 4, 8].iter().flat_map(|stream| frame(0xf_0700, &[*stream, b'u', b'=', b'1'])).collect();
    connection.handle_uni(2, &[&[0, 4, 0][..], &updates].concat(), now).expect("priorities");
    let has = [0, 4, 8].map(|stream| {
        let admission = connection.handle_request(stream, now).expect("a request");
        matches!(admission, tidegate::http3::Admission::Accepted(Some(_)))
    });
    assert_eq!(has, [false, true, true], "the oldest gives way");
}

/// The bytes that a control stream may discard are granted anew with each request.
#[test]
fn a_long_connection_may_send_reserved_frames() {
    let mut connection = Connection::server(config(Limits { reserved_bytes_max: 50, ..Limits::default() }));
    let now = Instant::now();
    connection.handle_uni(2, &[0, 4, 0], now).expect("settings");
    for _ in 0..100 {
        assert_eq!(connection.handle_uni(2, &frame(RESERVED, &[0; 40]), now), Ok(()));
        connection.credit_request();
    }
    connection.handle_uni(2, &frame(RESERVED, &[0; 40]), now).expect("within the bound");
    assert_eq!(connection.handle_uni(2, &frame(RESERVED, &[0; 40]), now), Err(Exceeded::ReservedBytes.into()));
}
