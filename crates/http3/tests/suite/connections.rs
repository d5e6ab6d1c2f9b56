//! The unidirectional streams of a connection, GOAWAY, priorities.

use std::time::{Duration, Instant};

use tidegate::http3::{Admission, Connection, Error, ErrorCode, Event, Limits, Priority, Settings, Violation, varint};

use crate::support::{config, frame};

const SETTINGS: u64 = 4;
const GOAWAY: u64 = 7;

fn server() -> Connection {
    Connection::server(config(Limits::default()))
}

fn client() -> Connection {
    Connection::client(config(Limits::default()))
}

/// A control stream with SETTINGS and more frames.
fn control(frames: &[Vec<u8>]) -> Vec<u8> {
    [&[0][..], &frame(SETTINGS, &[]), &frames.concat()].concat()
}

fn read(mut connection: Connection, bytes: &[u8]) -> Result<Connection, Error> {
    connection.handle_uni(3, bytes, Instant::now())?;
    Ok(connection)
}

fn error(connection: Connection, bytes: &[u8]) -> Option<ErrorCode> {
    read(connection, bytes).err().map(Error::code)
}

fn events(connection: &mut Connection) -> Vec<Event> {
    std::iter::from_fn(|| connection.poll_event()).collect()
}

#[test]
fn a_control_stream_begins_with_its_type_and_settings() {
    let mut connection = server();
    let wire = connection.poll_control().expect("the first bytes");
    assert_eq!(wire[..2], [0, 4]);
    assert_eq!(connection.poll_control(), None);
    for split in 0..=wire.len() {
        let mut peer = client();
        peer.handle_uni(3, &wire[..split], Instant::now()).expect("a part");
        peer.handle_uni(3, &wire[split..], Instant::now()).expect("the rest");
        let settings = *peer.peer_settings().expect("they have come");
        let expected =
            Settings { field_section_bytes_max: Some(16 * 1024), extended_connect: true, ..Settings::default() };
        assert_eq!((settings, events(&mut peer)), (expected, vec![Event::Settings(expected)]), "{split}");
    }
}

#[test]
fn types_of_streams_may_come_in_pieces() {
    // The control stream, with a type in eight bytes.
    let wire = [&[0xc0, 0, 0, 0, 0, 0, 0, 0][..], &control(&[])[1..]].concat();
    for size in 1..wire.len() {
        let mut connection = server();
        for piece in wire.chunks(size) {
            connection.handle_uni(2, piece, Instant::now()).expect("a piece");
        }
        assert!(connection.peer_settings().is_some(), "{size}");
    }
    let mut connection = server();
    connection.handle_uni(2, &[0xc0], Instant::now()).expect("a part of a type");
    assert_eq!(connection.handle_uni_end(2), Ok(()), "a stream without a type may end");
}

#[test]
fn settings_come_first_and_once() {
    assert_eq!(error(server(), &[0, 7, 1, 0]), Some(ErrorCode::MISSING_SETTINGS));
    assert_eq!(error(server(), &[&[0][..], &frame(0x21, b"")].concat()), Some(ErrorCode::MISSING_SETTINGS));
    assert_eq!(error(server(), &control(&[frame(SETTINGS, &[])])), Some(ErrorCode::FRAME_UNEXPECTED));
    for number in [0, 2, 3, 4, 5] {
        let wire = [&[0][..], &frame(SETTINGS, &[number, 1])].concat();
        assert_eq!(error(server(), &wire), Some(ErrorCode::SETTINGS_ERROR), "{number}");
    }
}

#[test]
fn frames_of_requests_and_of_http2_are_not_for_control_streams() {
    for kind in [0, 1, 2, 5, 6, 8, 9] {
        let wire = control(&[frame(kind, &[0])]);
        assert_eq!(error(server(), &wire), Some(ErrorCode::FRAME_UNEXPECTED), "{kind}");
    }
    assert_eq!(error(server(), &control(&[frame(0x21, b"x"), frame(0x1f * 9 + 0x21, b"")])), None, "reserved ones are");
}

#[test]
fn critical_streams_are_opened_once_and_never_closed() {
    for kind in [0, 2, 3] {
        let mut connection = server();
        connection.handle_uni(2, &[kind], Instant::now()).expect("the first one");
        let second = connection.handle_uni(6, &[kind], Instant::now());
        assert_eq!(second.map_err(Error::code), Err(ErrorCode::STREAM_CREATION_ERROR), "{kind}");

        let mut connection = server();
        connection.handle_uni(2, &[kind], Instant::now()).expect("the first one");
        let ended = connection.handle_uni_end(2);
        assert_eq!(ended.map_err(Error::code), Err(ErrorCode::CLOSED_CRITICAL_STREAM), "{kind}");
        let again = connection.handle_uni(6, &[kind], Instant::now());
        assert_eq!(again.map_err(Error::code), Err(ErrorCode::STREAM_CREATION_ERROR), "{kind} once more");
    }
    assert_eq!(server().handle_control_stopped().map_err(Error::code), Err(ErrorCode::CLOSED_CRITICAL_STREAM));
}

#[test]
fn streams_of_qpack_allow_little() {
    assert_eq!(error(server(), &[2, 0x20]), None);
    for wire in [&[2, 0x21][..], &[2, 0x3f, 0xe1, 0x1f], &[2, 0x80], &[2, 0x40], &[2, 0x00]] {
        assert_eq!(error(server(), wire), Some(ErrorCode::QPACK_ENCODER_STREAM_ERROR), "{wire:?}");
    }
    assert_eq!(error(server(), &[3, 0x44]), None);
    for wire in [&[3, 0x80][..], &[3, 0x00], &[3, 0x01], &[3, 0x7f, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255]] {
        assert_eq!(error(server(), wire), Some(ErrorCode::QPACK_DECODER_STREAM_ERROR), "{wire:?}");
    }
}

#[test]
fn nothing_is_pushed() {
    assert_eq!(error(server(), &[1]), Some(ErrorCode::STREAM_CREATION_ERROR), "a client pushes nothing");
    assert_eq!(error(client(), &[1]), Some(ErrorCode::ID_ERROR), "this client has permitted none");
    for (connection, role) in [(server(), "server"), (client(), "client")] {
        assert_eq!(
            error(connection, &control(&[frame(3, &[0])])),
            Some(ErrorCode::ID_ERROR),
            "CANCEL_PUSH to a {role}"
        );
    }
    assert_eq!(error(server(), &control(&[frame(3, &[])])), Some(ErrorCode::FRAME_ERROR));
    assert_eq!(error(client(), &control(&[frame(0xd, &[0])])), Some(ErrorCode::FRAME_UNEXPECTED), "MAX_PUSH_ID");
    assert_eq!(error(server(), &control(&[frame(0xd, &[4]), frame(0xd, &[4])])), None);
    assert_eq!(error(server(), &control(&[frame(0xd, &[4]), frame(0xd, &[3])])), Some(ErrorCode::ID_ERROR));
    let mut connection = client();
    let opened = connection.handle_request(1, Instant::now());
    assert_eq!(opened.map_err(Error::code), Err(ErrorCode::STREAM_CREATION_ERROR), "a server opens no request");
}

#[test]
fn unknown_streams_are_discarded_and_then_stopped() {
    let mut connection = server();
    let now = Instant::now();
    connection.handle_uni(2, &[0x21], now).expect("a reserved type");
    connection.handle_uni(2, &[0; 1024], now).expect("as many as are discarded");
    assert_eq!(events(&mut connection), []);
    connection.handle_uni(2, &[0], now).expect("one more");
    connection.handle_uni(2, &[0; 9], now).expect("bytes on their way");
    let stop = Event::StopUni { stream: 2, code: ErrorCode::STREAM_CREATION_ERROR };
    assert_eq!(events(&mut connection), [stop], "once");
    assert_eq!(connection.handle_uni_end(2), Ok(()));
}

#[test]
fn stopped_streams_have_no_place_among_the_open_ones() {
    let (mut connection, now) = (server(), Instant::now());
    let count = u64::from(connection.config().limits().uni_streams_max) + 80;
    for number in 0..count {
        // Abuse leaks away between them.
        let now = now + Duration::from_secs(60 * number);
        connection.handle_uni(2 + 4 * number, &[0x21; 2000], now).expect("it is stopped");
        connection.handle_uni(2 + 4 * number, &[0; 9], now).expect("bytes on their way");
    }
    assert_eq!(events(&mut connection).len() as u64, count);
    assert_eq!(error(connection, &control(&[])), None, "the control stream has a place");
}

#[test]
fn the_peers_goaway_never_grows() {
    let goaway = |number: u8| frame(GOAWAY, &[number]);
    let mut connection = read(client(), &control(&[goaway(8), goaway(8), goaway(4)])).expect("it falls");
    let events = events(&mut connection);
    assert_eq!(events[1..], [8, 8, 4].map(|stream| Event::GoAway { stream }));
    assert!(connection.may_be_processed(0) && !connection.may_be_processed(4) && !connection.may_request());
    assert_eq!(error(client(), &control(&[goaway(4), goaway(8)])), Some(ErrorCode::ID_ERROR));
    for number in [1, 2, 3] {
        assert_eq!(error(client(), &control(&[goaway(number)])), Some(ErrorCode::ID_ERROR), "{number} is no request");
    }
    assert_eq!(error(server(), &control(&[goaway(5)])), None, "a client names a push");
    assert_eq!(error(server(), &control(&[goaway(5), goaway(6)])), Some(ErrorCode::ID_ERROR));
    for payload in [&[][..], &[0x40], &[0, 0]] {
        assert_eq!(error(server(), &control(&[frame(GOAWAY, payload)])), Some(ErrorCode::FRAME_ERROR), "{payload:?}");
    }
}

#[test]
fn our_goaway_never_grows_and_rejects_what_comes_later() {
    let (mut connection, now) = (server(), Instant::now());
    connection.poll_control();
    assert_eq!(connection.handle_request(4, now), Ok(Admission::Accepted(None)));
    connection.drain();
    assert_eq!(connection.handle_request(8, now), Ok(Admission::Accepted(None)), "it was on its way");
    connection.end_drain();
    connection.drain();
    connection.end_drain();
    let mut expected = vec![7, 8];
    varint::write((1 << 62) - 4, &mut expected);
    expected.extend([7, 1, 12]);
    assert_eq!(connection.poll_control(), Some(expected));
    assert_eq!(connection.handle_request(12, now), Ok(Admission::Rejected));
    assert_eq!(connection.handle_request(0, now), Ok(Admission::Accepted(None)), "QUIC may deliver out of order");
}

#[test]
fn priorities_reach_their_requests() {
    let now = Instant::now();
    let (mut client, mut server) = (client(), server());
    for (stream, urgency) in [(0, 1), (4, 5), (4, 6)] {
        client.update_priority(stream, Priority { urgency, is_incremental: urgency == 6 });
    }
    server.handle_request(0, now).expect("a request");
    server.handle_uni(2, &client.poll_control().expect("frames"), now).expect("priorities");
    let expected = Event::Priority { stream: 0, priority: Priority { urgency: 1, is_incremental: false } };
    assert_eq!(events(&mut server)[1..], [expected]);
    let latest = Priority { urgency: 6, is_incremental: true };
    assert_eq!(server.handle_request(4, now), Ok(Admission::Accepted(Some(latest))));
    assert_eq!(server.handle_request(8, now), Ok(Admission::Accepted(None)));
}

#[test]
fn priorities_of_wrong_streams_end_the_connection() {
    let update = |stream: u8| control(&[frame(0xf_0700, &[stream, b'u', b'=', b'1'])]);
    for stream in 1..4 {
        assert_eq!(error(server(), &update(stream)), Some(ErrorCode::ID_ERROR), "{stream}");
    }
    let mut limited = server();
    limited.permit_requests(8);
    assert_eq!(error(limited, &update(8)), Some(ErrorCode::ID_ERROR), "beyond the limit of streams");
    let mut limited = server();
    limited.permit_requests(8);
    assert_eq!(error(limited, &update(4)), None);
    assert_eq!(error(server(), &control(&[frame(0xf_0700, &[])])), Some(ErrorCode::FRAME_ERROR));
    assert_eq!(error(server(), &control(&[frame(0xf_0701, &[0])])), Some(ErrorCode::ID_ERROR), "of a push");
    assert_eq!(error(client(), &update(0)), Some(ErrorCode::FRAME_UNEXPECTED), "to a client");
}

#[test]
fn errors_have_names() {
    assert_eq!(Error::from(Violation::MissingSettings).code().to_string(), "H3_MISSING_SETTINGS");
    assert_eq!(ErrorCode(0x21).to_string(), "error 0x21");
}
