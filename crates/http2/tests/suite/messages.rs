//! Requests and responses over one connection.

use std::time::Duration;

use tidegate::http2::{ErrorCode, Limits};

use crate::support::{
    self, ACK, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PADDED, PING, PREFACE, Peer, RST_STREAM, SETTINGS,
    WINDOW_UPDATE, frame,
};

#[test]
fn a_request_gets_its_response() {
    let mut peer = Peer::new(Limits::default());
    let get = peer.get(1, "/hello");
    peer.send(&get);
    let response = peer.received(1);
    assert_eq!((response.status(), &*response.body), ("200", &b"Hello, World!"[..]));
    assert_eq!((response.field("content-length"), response.field("server")), (Some("13"), Some("Tidegate")));
    assert!(response.has_ended && response.reset.is_none() && response.field("date").is_some());
}

#[test]
fn a_server_without_a_limit_of_fields_takes_requests() {
    let mut peer = Peer::new(Limits { headers_max: u32::MAX, ..Limits::default() });
    let get = peer.get(1, "/hello");
    peer.send(&get);
    assert_eq!(peer.received(1).status(), "200");
}

#[test]
fn every_split_of_the_wire_gives_the_same_responses() {
    let mut wire = PREFACE.to_vec();
    let mut peer = Peer::silent(Limits::default());
    wire.extend(frame(SETTINGS, 0, 0, &[]));
    wire.extend(peer.request(1, "POST", "/echo", &[], false));
    wire.extend(frame(DATA, PADDED, 1, b"\x03ebb and \0\0\0"));
    wire.extend(frame(DATA, END_STREAM, 1, b"flow"));
    wire.extend(peer.get(3, "/hello"));
    for split in 0..wire.len() {
        let mut peer = Peer::silent(Limits::default());
        peer.send(&wire[..split]);
        peer.send(&wire[split..]);
        assert_eq!(peer.received(3).body, b"Hello, World!", "split at {split}");
        assert_eq!(peer.received(1).body, b"ebb and flow", "split at {split}");
    }
    let mut peer = Peer::silent(Limits::default());
    peer.pipe.receive_bytewise(&wire);
    assert_eq!(peer.received(1).body, b"ebb and flow", "byte by byte");
}

#[test]
fn streams_are_served_beside_each_other() {
    let mut peer = Peer::new(Limits::default());
    let mut wire = Vec::new();
    for stream in (1..200).step_by(2) {
        wire.extend(peer.get(stream, if stream % 3 == 0 { "/never" } else { "/hello" }));
    }
    peer.send(&wire);
    for stream in (1..200).step_by(2) {
        assert_eq!(peer.received(stream).has_ended, stream % 3 != 0, "stream {stream}");
    }
}

/// Equal heads and trailers, on connections that take turns: their compression tables differ.
#[test]
fn equal_responses_are_right_on_every_connection() {
    let mut peers = [Peer::new(Limits::default()), Peer::new(Limits::default())];
    for (round, paths) in
        [["/hello", "/hello"], ["/stream", "/hello"], ["/hello", "/nothing"]].iter().cycle().take(60).enumerate()
    {
        for (number, (peer, path)) in peers.iter_mut().zip(paths).enumerate() {
            // Twice in a row.
            let ids = [1, 3].map(|id| id + 4 * round as u32);
            let wire = ids.map(|id| peer.get(id, path)).concat();
            peer.send(&wire);
            for id in ids {
                let response = peer.received(id);
                let context = format!("round {round}, connection {number}, {path}, stream {id}: {response:?}");
                let (status, body) = match *path {
                    "/hello" => ("200", &b"Hello, World!"[..]),
                    "/stream" => ("200", &b"piece by piece"[..]),
                    _ => ("204", &b""[..]),
                };
                assert_eq!((response.status(), &*response.body, response.has_ended), (status, body, true), "{context}");
                assert_eq!(response.field("server"), Some("Tidegate"), "{context}");
                assert_eq!(response.field("content-length"), (*path == "/hello").then_some("13"), "{context}");
                assert_eq!(response.field("tide"), (*path == "/stream").then_some("ebb"), "{context}");
            }
        }
        // The size of a table changes, which the next block has to announce; and so does the date.
        if round % 4 == 3 {
            let size = [0, 4096, 60][round % 3];
            let setting = [&[0, 1][..], &u32::to_be_bytes(size)].concat();
            peers[round / 4 % 2].send(&frame(SETTINGS, 0, 0, &setting));
            peers[0].pipe.advance(Duration::from_secs(1));
        }
    }
}

#[test]
fn a_response_in_pieces_ends_with_its_trailers() {
    let mut peer = Peer::new(Limits::default());
    let get = peer.get(1, "/stream");
    peer.send(&get);
    let response = peer.received(1);
    assert_eq!((response.status(), &*response.body), ("200", &b"piece by piece"[..]));
    assert_eq!((response.heads.len(), response.field("tide"), response.has_ended), (2, Some("ebb"), true));
}

#[test]
fn trailers_of_a_request_come_after_its_body() {
    let mut peer = Peer::new(Limits::default());
    let mut wire = peer.request(1, "POST", "/echo", &[], false);
    wire.extend(frame(DATA, 0, 1, b"ebb"));
    let block = peer.block(&[("tide", "rising")]);
    wire.extend(frame(HEADERS, END_HEADERS | END_STREAM, 1, &block));
    peer.send(&wire);
    let response = peer.received(1);
    assert_eq!((&*response.body, response.field("trailer-tide")), (&b"ebb"[..], Some("rising")));
}

#[test]
fn a_body_goes_out_as_far_as_the_windows_allow() {
    let mut peer = Peer::new(Limits::default());
    let get = peer.get(1, "/big");
    peer.send(&get);
    let mut body = peer.received(1).body.len();
    assert_eq!(body, 65_535, "the initial window of the connection");
    peer.send(&frame(WINDOW_UPDATE, 0, 1, &(1_u32 << 20).to_be_bytes()));
    assert_eq!(peer.received(1).body.len(), 0, "the connection has no window");
    for _ in 0..100 {
        peer.send(&frame(WINDOW_UPDATE, 0, 0, &10_000_u32.to_be_bytes()));
        let received = peer.received(1);
        body += received.body.len();
        if received.has_ended {
            break;
        }
        assert_eq!(received.body.len(), 10_000);
    }
    assert_eq!(body, 1024 * 1024);
}

#[test]
fn a_stream_without_a_window_stops_no_other() {
    let mut peer = Peer::new(Limits::default());
    peer.send(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]));
    let mut wire = peer.get(1, "/big");
    wire.extend(peer.get(3, "/nothing"));
    peer.send(&wire);
    assert_eq!((peer.received(1).body.len(), peer.received(3).has_ended), (0, true));
    // The setting moves the windows of streams that are open (RFC 9113 §6.9.2).
    peer.send(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 100]));
    assert_eq!(peer.received(1).body.len(), 100);
}

#[test]
fn credit_comes_back_and_windows_grow_with_a_reader_that_keeps_up() {
    let mut peer = Peer::new(Limits { body_bytes_max: 64 * 1024 * 1024, ..Limits::default() });
    let request = peer.request(1, "POST", "/echo", &[], false);
    peer.send(&request);
    let (mut window, mut connection, mut largest) = (65_536_i64, 1024 * 1024_i64, 0);
    for _ in 0..1000 {
        let length = window.min(connection).min(16_384);
        assert!(length > 0, "the peer waits for credit that never comes");
        peer.send(&frame(DATA, 0, 1, &vec![0; length as usize]));
        (window, connection) = (window - length, connection - length);
        for frame in peer.frames().iter().filter(|frame| frame.kind == WINDOW_UPDATE) {
            let bytes = i64::from(u32::from_be_bytes(frame.content[..].try_into().expect("four bytes")));
            if frame.stream == 0 { connection += bytes } else { window += bytes }
        }
        largest = largest.max(window);
    }
    assert!((8 * 1024 * 1024..=16 * 1024 * 1024).contains(&largest), "{largest}");
}

/// Sends DATA on stream 1 until the peer has no credit, and returns how many bytes that was. `window` is the credit that the
/// peer has already.
fn send_all_that_is_granted(peer: &mut Peer, window: &mut i64) -> usize {
    let mut sent = 0;
    loop {
        let frames = peer.frames();
        let updates = frames.iter().filter(|frame| (frame.kind, frame.stream) == (WINDOW_UPDATE, 1));
        *window +=
            updates.map(|frame| i64::from(u32::from_be_bytes(frame.content[..].try_into().unwrap()))).sum::<i64>();
        peer.unseen.extend(frames.into_iter().filter(|frame| frame.kind == DATA));
        if *window == 0 {
            return sent;
        }
        let length = (*window).min(16_384);
        peer.send(&frame(DATA, 0, 1, &vec![b'x'; length as usize]));
        (*window, sent) = (*window - length, sent + length as usize);
    }
}

#[test]
fn bytes_that_waited_for_a_slow_reader_are_granted_again_when_they_have_been_read() {
    let mut peer = Peer::new(Limits { body_bytes_max: 64 * 1024 * 1024, ..Limits::default() });
    let request = peer.request(1, "POST", "/mirror", &[], false);
    peer.send(&request);
    let mut window = 65_536;
    let mut sent = send_all_that_is_granted(&mut peer, &mut window);
    assert!((65_536..1024 * 1024).contains(&sent), "the peer reads nothing of {sent} bytes");
    // The peer reads the waiting bytes little by little, and sends nothing meanwhile.
    for _ in 0..4 {
        for _ in 0..sent.div_ceil(10_000) {
            for stream in [0, 1] {
                peer.send(&frame(WINDOW_UPDATE, 0, stream, &10_000_u32.to_be_bytes()));
            }
        }
        let more = send_all_that_is_granted(&mut peer, &mut window);
        assert!(more > 0, "all {sent} bytes have been read, and none is granted again");
        sent += more;
    }
    let grants = sent as u32;
    for stream in [0, 1] {
        peer.send(&frame(WINDOW_UPDATE, 0, stream, &grants.to_be_bytes()));
    }
    peer.send(&frame(DATA, END_STREAM, 1, &[]));
    let received = peer.received(1);
    assert_eq!((received.body.len(), received.has_ended), (sent, true));
}

/// As Node does: it grants the read bytes again once they are half of its windows.
#[test]
fn a_peer_that_reads_half_a_window_at_a_time_gets_all_of_an_echo() {
    let mut peer = Peer::new(Limits { body_bytes_max: 64 * 1024 * 1024, ..Limits::default() });
    let request = peer.request(1, "POST", "/mirror", &[], false);
    peer.send(&request);
    let (mut window, mut sent, mut read, mut granted) = (65_536, 0, 0, 0);
    while sent < 4_000_000 {
        sent += send_all_that_is_granted(&mut peer, &mut window);
        let before = read;
        read += peer.received(1).body.len();
        assert!(read > before, "of {sent} bytes {read} have come back, and nothing moves");
        while read - granted >= 32_767 {
            granted += 32_767;
            for stream in [1, 0] {
                peer.send(&frame(WINDOW_UPDATE, 0, stream, &32_767_u32.to_be_bytes()));
            }
        }
    }
}

#[test]
fn a_body_that_waited_for_its_handler_is_granted_again_when_it_goes_on() {
    let mut peer = Peer::new(Limits::default());
    let request = peer.request(1, "POST", "/late", &[], false);
    peer.send(&request);
    let mut window = 65_536;
    assert_eq!(send_all_that_is_granted(&mut peer, &mut window), 65_536, "nothing is granted while nothing is read");
    peer.pipe.advance(Duration::from_secs(20));
    assert!(send_all_that_is_granted(&mut peer, &mut window) > 0, "the handler reads on, and nothing is granted");
}

#[test]
fn head_and_statuses_without_a_body_have_none() {
    let mut peer = Peer::new(Limits::default());
    let mut wire = peer.request(1, "HEAD", "/hello", &[], true);
    wire.extend(peer.get(3, "/nothing"));
    peer.send(&wire);
    let head = peer.received(1);
    assert_eq!((head.field("content-length"), head.body.len(), head.has_ended), (Some("13"), 0, true));
    let nothing = peer.received(3);
    assert_eq!((nothing.status(), nothing.field("content-length"), nothing.has_ended), ("204", None, true));
}

#[test]
fn fields_of_a_connection_are_left_out_of_responses() {
    let mut peer = Peer::new(Limits::default());
    let get = peer.get(1, "/upgrade");
    peer.send(&get);
    let response = peer.received(1);
    assert_eq!((response.field("upgrade"), response.field("keep-alive")), (None, None));
    assert_eq!(response.field("tide"), Some("ebb"));
}

/// A request without an end, whose response comes at once.
fn early(peer: &mut Peer, stream: u32, fields: &[(&str, &str)]) {
    let request = peer.request(stream, "POST", "/early", fields, false);
    peer.send(&request);
    let response = peer.received(stream);
    assert_eq!((response.status(), response.has_ended), ("200", true));
    assert_eq!(response.reset, None, "the rest of the request may be on its way");
}

#[test]
fn a_request_that_goes_on_after_its_response_is_reset_without_an_error() {
    let mut peer = Peer::new(Limits::default());
    early(&mut peer, 1, &[]);
    peer.send(&frame(DATA, 0, 1, b"more"));
    assert_eq!(peer.received(1).reset, Some(ErrorCode::NO_ERROR), "the peer need not send the rest (RFC 9113 §8.1)");
    // Frames that were on their way are no error.
    peer.send(&frame(DATA, END_STREAM, 1, b"late"));
    peer.assert_open();
}

#[test]
fn a_silent_request_is_reset_some_time_after_its_response() {
    let mut peer = Peer::new(Limits::default());
    for stream in [1, 3] {
        early(&mut peer, stream, &[]);
    }
    peer.pipe.advance(Duration::from_millis(1_100));
    for stream in [1, 3] {
        assert_eq!(peer.received(stream).reset, Some(ErrorCode::NO_ERROR), "{stream}");
    }
    peer.assert_open();
}

#[test]
fn a_drain_resets_the_requests_that_have_their_response() {
    let mut peer = Peer::new(Limits::default());
    early(&mut peer, 1, &[]);
    peer.pipe.drain(Duration::from_secs(60));
    assert_eq!(peer.received(1).reset, Some(ErrorCode::NO_ERROR));
}

#[test]
fn a_request_that_ends_after_its_response_is_not_reset() {
    let mut peer = Peer::new(Limits::default());
    early(&mut peer, 1, &[]);
    peer.send(&frame(DATA, END_STREAM, 1, b"late"));
    early(&mut peer, 3, &[]);
    let trailers = peer.block(&[("tide", "ebb")]);
    peer.send(&frame(HEADERS, END_HEADERS | END_STREAM, 3, &trailers));
    peer.pipe.advance(Duration::from_secs(1));
    assert_eq!((peer.received(1).reset, peer.received(3).reset), (None, None));
    peer.assert_open();
    // The stream is closed on both sides (RFC 9113 §5.1).
    peer.send(&frame(DATA, END_STREAM, 1, b"again"));
    assert_eq!(peer.received(1).reset, Some(ErrorCode::STREAM_CLOSED));
}

#[test]
fn as_many_requests_as_may_be_open_can_end_after_their_responses() {
    let limits = Limits::default();
    let streams = (0..limits.streams_max).map(|number| 2 * number + 1);
    let mut peer = Peer::new(limits);
    for stream in streams.clone() {
        let request = peer.request(stream, "POST", "/early", &[], false);
        peer.send(&request);
    }
    peer.pipe.advance(Duration::from_secs(1));
    for stream in streams.clone() {
        assert_eq!(peer.received(stream).reset, Some(ErrorCode::NO_ERROR), "{stream}");
    }
    for stream in streams {
        let trailers = peer.block(&[("tide", "ebb")]);
        peer.send(&frame(HEADERS, END_HEADERS | END_STREAM, stream, &trailers));
        peer.assert_open();
    }
}

#[test]
fn an_error_after_an_early_response_is_the_one_that_is_reported() {
    let mut peer = Peer::new(Limits::default());
    early(&mut peer, 1, &[]);
    let most = 0x7fff_ffff_u32.to_be_bytes();
    peer.send(&[frame(WINDOW_UPDATE, 0, 1, &most), frame(WINDOW_UPDATE, 0, 1, &most)].concat());
    assert_eq!(peer.received(1).reset, Some(ErrorCode::FLOW_CONTROL_ERROR));
    early(&mut peer, 3, &[("content-length", "3")]);
    peer.send(&frame(DATA, END_STREAM, 3, b"four"));
    assert_eq!(peer.received(3).reset, Some(ErrorCode::PROTOCOL_ERROR));
    early(&mut peer, 5, &[]);
    let trailers = peer.block(&[(":path", "/")]);
    peer.send(&frame(HEADERS, END_HEADERS | END_STREAM, 5, &trailers));
    assert_eq!(peer.received(5).reset, Some(ErrorCode::PROTOCOL_ERROR));
    peer.assert_open();
}

#[test]
fn streams_that_nothing_reads_do_not_stop_others() {
    let mut peer = Peer::new(Limits::default());
    let mut credit = 1024 * 1024_i64;
    let mut send = |peer: &mut Peer, stream: u32, path: &str, bytes: usize| {
        let request = peer.request(stream, "POST", path, &[], false);
        peer.send(&request);
        for frames in (0..bytes).step_by(8 * 1024).map(|_| frame(DATA, 0, stream, &[b'x'; 8 * 1024])) {
            credit -= 8 * 1024;
            assert!(credit >= 0, "the connection has no window for stream {stream}");
            peer.send(&frames);
            let updates = peer.frames().into_iter().filter(|frame| (frame.kind, frame.stream) == (WINDOW_UPDATE, 0));
            credit += updates
                .map(|frame| i64::from(u32::from_be_bytes(*frame.content.first_chunk().expect("four bytes"))))
                .sum::<i64>();
        }
        peer.send(&frame(DATA, END_STREAM, stream, &[]));
    };
    for held in 0..100 {
        send(&mut peer, held * 2 + 1, "/held", 64 * 1024);
    }
    send(&mut peer, 201, "/echo", 64 * 1024);
    assert_eq!(peer.received(201).status(), "200");
}

#[test]
fn a_stream_with_a_large_window_that_nothing_reads_any_more_does_not_stop_others() {
    let mut peer = Peer::new(Limits { body_bytes_max: u64::MAX, ..Limits::default() });
    let request = peer.request(1, "POST", "/stops", &[], false);
    peer.send(&request);
    let (mut window, mut connection) = (64 * 1024_i64, 1024 * 1024_i64);
    let mut sent = 0;
    loop {
        let length = window.min(16_384);
        if length == 0 {
            break;
        }
        assert!(connection >= length, "stream 1 has a window, and the connection has none");
        peer.send(&frame(DATA, 0, 1, &vec![0; length as usize]));
        (window, connection, sent) = (window - length, connection - length, sent + length);
        for frame in peer.frames().iter().filter(|frame| frame.kind == WINDOW_UPDATE) {
            let bytes = i64::from(u32::from_be_bytes(frame.content[..].try_into().expect("four bytes")));
            if frame.stream == 0 { connection += bytes } else { window += bytes }
        }
    }
    assert!(sent > 30_000_000, "the window was large: {sent}");
    assert!(connection >= 64 * 1024, "{connection} bytes are left for other streams");
    let mut other = peer.request(3, "POST", "/echo", &[], false);
    other.extend(frame(DATA, END_STREAM, 3, &[b'x'; 16_384]));
    peer.send(&other);
    assert_eq!(peer.received(3).body.len(), 16_384);
}

#[test]
fn small_frames_that_come_together_are_one_piece() {
    let mut peer = Peer::new(Limits::default());
    let mut wire = peer.request(1, "POST", "/pieces", &[], false);
    (0..1_000).for_each(|_| wire.extend(frame(DATA, 0, 1, b"x")));
    wire.extend(frame(DATA, END_STREAM, 1, b"x"));
    peer.send(&wire);
    let pieces: u32 = String::from_utf8(peer.received(1).body).unwrap().parse().unwrap();
    assert!(pieces < 10, "{pieces} pieces");

    // Frames of two streams in turn, with padding, and with lengths that are kept and that lie.
    let mut wire = peer.request(3, "POST", "/echo", &[("content-length", "6")], false);
    wire.extend(peer.request(5, "POST", "/echo", &[("content-length", "3")], false));
    for (stream, flags, content) in [
        (3, 0, &b"e"[..]),
        (3, 0, b"b"),
        (5, 0, b"t"),
        (5, 0, b"i"),
        (3, PADDED, b"\x01b-"),
        (3, 0, b"f"),
        (3, 0, b"l"),
        (5, 0, b"d"),
        (5, 0, b"e"),
        (3, END_STREAM, b"o"),
    ] {
        wire.extend(frame(DATA, flags, stream, content));
    }
    peer.send(&wire);
    let kept = peer.received(3);
    assert_eq!((kept.status(), &*kept.body), ("200", &b"ebbflo"[..]));
    assert_eq!(peer.received(5).reset, Some(ErrorCode::PROTOCOL_ERROR));
    peer.assert_open();
}

#[test]
fn a_stream_that_nothing_reads_gets_no_credit_however_its_bytes_arrive() {
    let mut peer = Peer::new(Limits::default());
    let mut wire = peer.request(1, "POST", "/held", &[], false);
    (0..4).for_each(|_| wire.extend(frame(DATA, 0, 1, &[b'x'; 16 * 1024])));
    peer.send(&wire);
    let updates = peer.frames().into_iter().filter(|frame| (frame.kind, frame.stream) == (WINDOW_UPDATE, 1));
    assert_eq!(updates.count(), 0, "all that has arrived is unread");
}

#[test]
fn small_frames_beyond_a_window_are_an_error() {
    let mut peer = Peer::new(Limits::default());
    let mut wire = peer.request(1, "POST", "/held", &[], false);
    let piece = frame(DATA, 0, 1, &[b'x'; 100]);
    wire.extend(piece.repeat(64 * 1024 / 100));
    peer.send(&wire);
    peer.assert_open();
    peer.send(&piece.repeat(2));
    peer.assert_ended(ErrorCode::FLOW_CONTROL_ERROR);
}

#[test]
fn trailers_of_as_many_streams_as_are_open_may_come_after_early_responses() {
    let mut peer = Peer::new(Limits::default());
    let streams: Vec<_> = (0..128).map(|index| 2 * index + 1).collect();
    for stream in &streams {
        let request = peer.request(*stream, "POST", "/early", &[], false);
        peer.send(&request);
    }
    for stream in &streams {
        let block = peer.block(&[("tide", "ebb")]);
        peer.send(&frame(DATA, 0, *stream, b"late"));
        peer.send(&frame(HEADERS, END_HEADERS | END_STREAM, *stream, &block));
    }
    peer.assert_open();
}

#[test]
fn a_connection_whose_preface_comes_in_a_drain_drains() {
    let mut peer = Peer::silent(Limits::default());
    peer.send(&PREFACE[..10]);
    peer.pipe.drain(Duration::from_secs(60));
    peer.send(&PREFACE[10..]);
    peer.send(&frame(SETTINGS, 0, 0, &[]));
    let get = peer.get(1, "/hello");
    peer.send(&get);
    peer.pipe.advance(Duration::from_secs(2));
    let frames = peer.frames();
    assert!(frames.iter().any(|frame| frame.kind == GOAWAY && frame.content[..4] == [0, 0, 0, 1]), "{frames:?}");
    assert!(peer.pipe.is_write_closed() || peer.pipe.is_closed());
}

#[test]
fn the_last_stream_of_goaway_never_increases() {
    let mut peer = Peer::new(Limits::default());
    let open = peer.request(1, "POST", "/echo", &[], false);
    peer.send(&open);
    peer.pipe.drain(Duration::from_secs(60));
    peer.pipe.advance(Duration::from_secs(2));
    let late = peer.get(3, "/hello");
    peer.send(&late);
    peer.send(&frame(DATA, 0, 0, b"an error"));
    let frames = peer.frames();
    let last = frames.iter().filter(|frame| frame.kind == GOAWAY).map(|frame| frame.content[3]);
    assert_eq!(last.collect::<Vec<_>>(), [255, 1, 1]);
}

#[test]
fn a_stream_with_an_early_response_closes_at_once() {
    let mut peer = Peer::new(Limits::default());
    for round in 0..1_000 {
        let request = peer.request(round * 2 + 1, "POST", "/early", &[], false);
        peer.send(&request);
    }
    assert_eq!(peer.pipe.counts().streams, 0, "streams that have ended for the peer do not count against the limit");
    peer.assert_open();
}

#[test]
fn a_response_that_its_application_cuts_off_is_reset() {
    let mut peer = Peer::new(Limits::default());
    let get = peer.get(1, "/short");
    peer.send(&get);
    let response = peer.received(1);
    assert!(!response.has_ended, "half a body must not look like a whole one");
    assert_eq!(response.reset, Some(ErrorCode::INTERNAL_ERROR));
    peer.assert_open();
}

#[test]
fn a_peer_that_expects_100_continue_gets_it() {
    let mut peer = Peer::new(Limits::default());
    let request = peer.request(1, "POST", "/echo", &[("expect", "100-continue")], false);
    peer.send(&request);
    assert_eq!(peer.received(1).status(), "100");
    peer.send(&frame(DATA, END_STREAM, 1, b"ebb"));
    let response = peer.received(1);
    assert_eq!((response.status(), &*response.body), ("200", &b"ebb"[..]));
}

#[test]
fn a_body_that_is_too_long_or_too_slow_gets_its_status() {
    let mut peer = Peer::new(Limits { body_bytes_max: 5, ..Limits::default() });
    let mut wire = peer.request(1, "POST", "/echo", &[], false);
    wire.extend(frame(DATA, 0, 1, b"sixsix"));
    wire.extend(peer.request(3, "POST", "/echo", &[("content-length", "6")], false));
    wire.extend(peer.request(5, "POST", "/echo", &[], false));
    peer.send(&wire);
    assert_eq!((peer.received(1).status(), peer.received(3).status()), ("413", "413"));
    peer.pipe.advance(Duration::from_secs(31));
    assert_eq!(peer.received(5).status(), "408");
    peer.assert_open();
}

#[test]
fn a_drain_ends_in_two_steps_with_the_exact_last_stream() {
    let mut peer = Peer::new(Limits::default());
    let request = peer.request(1, "POST", "/echo", &[], false);
    peer.send(&request);
    peer.pipe.drain(Duration::from_secs(60));
    let frames = peer.frames();
    let last = |frame: &support::Frame| u32::from_be_bytes(frame.content[..4].try_into().expect("four bytes"));
    let goaway: Vec<_> = frames.iter().filter(|frame| frame.kind == GOAWAY).map(last).collect();
    assert_eq!(goaway, [0x7fff_ffff]);
    // A request that was on its way is served.
    let mut wire = peer.get(3, "/hello");
    let ping = frames.iter().find(|frame| frame.kind == PING).expect("a PING comes with it");
    wire.extend(frame(PING, ACK, 0, &ping.content));
    peer.send(&wire);
    assert_eq!(peer.received(3).body, b"Hello, World!");
    let goaway: Vec<_> = peer.frames().iter().filter(|frame| frame.kind == GOAWAY).map(last).collect();
    assert_eq!(goaway, [3]);
    let late = peer.get(5, "/hello");
    peer.send(&late);
    peer.send(&frame(DATA, END_STREAM, 1, b"ebb"));
    assert_eq!((peer.received(1).body, peer.received(5).heads.len()), (b"ebb".to_vec(), 0));
    assert!(peer.pipe.is_write_closed(), "the connection ends behind its last stream");
}

#[test]
fn an_idle_connection_ends_with_goaway() {
    let mut peer = Peer::new(Limits::default());
    peer.pipe.advance(Duration::from_secs(76));
    peer.assert_ended(ErrorCode::NO_ERROR);
}

#[test]
fn a_connection_is_idle_from_the_end_of_its_last_response() {
    let mut peer = Peer::new(Limits::default());
    let get = peer.get(1, "/slow");
    peer.send(&get);
    peer.pipe.advance(Duration::from_secs(70));
    assert_eq!(peer.received(1).body, b"slow");
    peer.pipe.advance(Duration::from_secs(70));
    peer.assert_open();
}

#[test]
fn a_peer_that_stops_within_the_preface_or_a_field_block_is_cut_off() {
    let mut peer = Peer::new(Limits::default());
    let block = peer.block(&[(":method", "GET")]);
    peer.send(&frame(HEADERS, 0, 1, &block));
    peer.pipe.advance(Duration::from_secs(31));
    peer.assert_ended(ErrorCode::ENHANCE_YOUR_CALM);
    let mut peer = Peer::silent(Limits::default());
    peer.send(PREFACE);
    peer.pipe.advance(Duration::from_secs(31));
    peer.assert_ended(ErrorCode::SETTINGS_TIMEOUT);
}

#[test]
fn the_version_of_a_port_is_that_of_the_peer() {
    let mut peer = Peer::silent(Limits::default());
    peer.send(b"GET / HTTP/1.1\r\nHost: sea\r\n\r\n");
    assert!(peer.pipe.take_written().starts_with(b"HTTP/1.1 200 "));
    // A preface after an HTTP/1.1 request is no request.
    peer.send(PREFACE);
    assert!(peer.pipe.take_written().starts_with(b"HTTP/1.1 505 "));
    // Neither is one after an empty line, which HTTP/1.1 alone permits (RFC 9112 §2.2).
    let mut peer = Peer::silent(Limits::default());
    peer.send(b"\r\n");
    peer.send(PREFACE);
    assert!(peer.pipe.take_written().starts_with(b"HTTP/1.1 505 "));
    let mut peer = Peer::silent(Limits::default());
    peer.send(b"INVALID CONNECTION PREFACE\r\n\r\n");
    assert_eq!(peer.pipe.take_written(), b"", "neither version");
    assert!(peer.pipe.is_write_closed());
}

#[test]
fn switching_protocols_is_an_error() {
    let mut peer = Peer::new(Limits::default());
    let get = peer.get(1, "/switch");
    peer.send(&get);
    let response = peer.received(1);
    assert!(response.heads.is_empty() && response.reset.is_some(), "HTTP/2 has no 101 (RFC 9113 §8.6): {response:?}");
    peer.assert_open();
}

#[test]
fn urgent_streams_come_first_and_others_in_order() {
    let mut peer = Peer::new(Limits::default());
    let mut wire = Vec::new();
    for (stream, priority) in [(1, "u=5"), (3, "u=2"), (5, "u=2"), (7, "u=7, i")] {
        wire.extend(peer.request(stream, "GET", "/big", &[("priority", priority)], true));
        wire.extend(frame(WINDOW_UPDATE, 0, stream, &(1_u32 << 21).to_be_bytes()));
    }
    wire.extend(frame(WINDOW_UPDATE, 0, 0, &(1_u32 << 24).to_be_bytes()));
    peer.send(&wire);
    let frames = peer.frames();
    let ends: Vec<_> =
        frames.iter().filter(|frame| frame.kind == DATA && frame.flags & END_STREAM != 0).map(|f| f.stream).collect();
    assert_eq!(ends, [3, 5, 1, 7]);
    assert!(frames.iter().all(|frame| frame.kind != RST_STREAM));
}
