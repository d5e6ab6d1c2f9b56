//! Peers that break the protocol, or keep it only to cost the server more than it costs them; and traffic that must not
//! trip a limit.

use std::time::Duration;

use tidegate::http2::hpack::{Encoder, Indexing};
use tidegate::http2::{ErrorCode, Limits};

use crate::support::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, PRIORITY, Peer, RST_STREAM, SETTINGS,
    WINDOW_UPDATE, frame,
};

const CALM: ErrorCode = ErrorCode::ENHANCE_YOUR_CALM;

/// Sends the same until the connection ends, and returns how often that was.
fn flood(peer: &mut Peer, mut next: impl FnMut(&mut Peer, u32) -> Vec<u8>) -> u32 {
    for round in 0..5_000 {
        let wire = next(peer, round);
        peer.send(&wire);
        if peer.pipe.is_write_closed() || peer.pipe.is_closed() {
            return round;
        }
    }
    panic!("the connection is still open");
}

#[test]
fn floods_of_control_frames_end_the_connection() {
    let frames = [
        frame(PING, 0, 0, b"flooding"),
        frame(SETTINGS, 0, 0, &[]),
        frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 1]),
        frame(WINDOW_UPDATE, 0, 1, &1_u32.to_be_bytes()),
        frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes()),
        frame(DATA, 0, 1, &[]),
        frame(200, 0, 0, b"unknown"),
    ];
    for wire in frames {
        let mut peer = Peer::new(Limits::default());
        let open = peer.request(1, "POST", "/echo", &[], false);
        peer.send(&open);
        let rounds = flood(&mut peer, |_, _| wire.clone());
        assert!((900..1_100).contains(&rounds), "{rounds} times {wire:?}");
        peer.assert_ended(CALM);
    }
}

#[test]
fn rapid_resets_end_the_connection() {
    let mut peer = Peer::new(Limits::default());
    let rounds = flood(&mut peer, |peer, round| {
        let stream = round * 2 + 1;
        [peer.get(stream, "/never"), frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())].concat()
    });
    assert!(rounds <= 1_000, "{rounds}");
    peer.assert_ended(CALM);
}

#[test]
fn requests_that_are_cancelled_after_a_while_are_no_abuse() {
    let mut peer = Peer::new(Limits::default());
    for batch in 0..50 {
        let streams = (batch * 100..(batch + 1) * 100).map(|index| index * 2 + 1);
        let requests: Vec<_> = streams.clone().flat_map(|stream| peer.get(stream, "/never")).collect();
        peer.send(&requests);
        peer.pipe.advance(Duration::from_millis(100));
        peer.send(&streams.flat_map(|stream| frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())).collect::<Vec<_>>());
    }
    peer.assert_open();
}

/// Cancels requests at once, on the streams from `first` on, until GOAWAY comes; returns the last stream of it.
fn cancel_until_goaway(peer: &mut Peer, first: u32) -> (u32, u32) {
    for index in 0..2_000 {
        let stream = first + 2 * index;
        let get = peer.get(stream, "/never");
        peer.send(&[get, frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())].concat());
        let frames = peer.frames();
        if let Some(goaway) = frames.iter().find(|frame| frame.kind == GOAWAY) {
            let numbers = goaway.content.chunks_exact(4).map(|bytes| u32::from_be_bytes(bytes.try_into().unwrap()));
            let numbers: Vec<_> = numbers.collect();
            assert_eq!(ErrorCode(numbers[1]), CALM);
            return (numbers[0], stream);
        }
        peer.unseen.extend(frames);
    }
    panic!("no GOAWAY")
}

#[test]
fn a_peer_that_cancels_too_many_requests_still_gets_the_responses_to_the_others() {
    let mut peer = Peer::new(Limits::default());
    let request = peer.request(1, "POST", "/echo", &[], false);
    peer.send(&request);
    let (last, stream) = cancel_until_goaway(&mut peer, 3);
    assert_eq!(last, stream, "the last stream that was processed");
    assert!((1_900..2_100).contains(&last), "{last}");
    // Requests that were on their way have no effect.
    let get = peer.get(stream + 2, "/hello");
    peer.send(&get);
    peer.send(&frame(DATA, END_STREAM, 1, b"ebb"));
    let received = peer.received(1);
    assert!(received.has_ended && received.body == b"ebb");
    assert!(peer.received(stream + 2).heads.is_empty());
    assert!(peer.pipe.is_write_closed() || peer.pipe.is_closed(), "no stream is left");
}

#[test]
fn a_peer_that_goes_on_after_goaway_is_cut_off_although_a_stream_is_open() {
    let mut peer = Peer::new(Limits::default());
    let request = peer.request(1, "POST", "/echo", &[], false);
    peer.send(&request);
    let (_, stream) = cancel_until_goaway(&mut peer, 3);
    let rounds = flood(&mut peer, |peer, round| {
        let stream = stream + 2 + round * 2;
        [peer.get(stream, "/never"), frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())].concat()
    });
    assert!((400..600).contains(&rounds), "{rounds}");
    peer.assert_ended(CALM);
}

#[test]
fn streams_that_the_peer_makes_us_reset_count_like_those_it_resets() {
    let ways: [fn(u32) -> Vec<u8>; 6] = [
        |stream| frame(WINDOW_UPDATE, 0, stream, &0_u32.to_be_bytes()),
        |stream| frame(PRIORITY, 0, stream, &[0, 0, 0, 0]),
        |stream| frame(PRIORITY, 0, stream, &[&stream.to_be_bytes()[..], &[1]].concat()),
        |stream| {
            let most = frame(WINDOW_UPDATE, 0, stream, &0x7fff_ffff_u32.to_be_bytes());
            [most.clone(), most].concat()
        },
        |stream| frame(HEADERS, END_HEADERS | END_STREAM, stream, &[]),
        |stream| frame(DATA, 0, stream, b"after the end"),
    ];
    for (way, provoke) in ways.into_iter().enumerate() {
        let mut peer = Peer::new(Limits::default());
        let rounds = flood(&mut peer, |peer, round| {
            let stream = round * 2 + 1;
            [peer.get(stream, "/never"), provoke(stream)].concat()
        });
        assert!(rounds <= 1_000, "way {way}: {rounds}");
        peer.assert_ended(CALM);
    }
}

#[test]
fn continuation_without_end_ends_the_connection() {
    for content in [&[][..], &[0x82; 1000]] {
        let mut peer = Peer::new(Limits::default());
        peer.send(&frame(HEADERS, 0, 1, &[0x82]));
        let rounds = flood(&mut peer, |_, _| frame(CONTINUATION, 0, 1, content));
        assert!(rounds <= 1_000, "{rounds}");
        peer.assert_ended(CALM);
    }
}

#[test]
fn a_bomb_of_references_is_answered_with_431_and_keeps_the_connection() {
    let mut peer = Peer::new(Limits::default());
    let mut encoder = Encoder::new(4096);
    let mut block = Vec::new();
    for (name, value) in [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "sea"), ("x", "y")] {
        encoder.encode(name.as_bytes(), value.as_bytes(), Indexing::Allowed, &mut block);
    }
    // The field that was just added, ten thousand times.
    block.extend([0xbe; 10_000]);
    let charged = peer.pipe.pool().ledger().used();
    peer.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &block));
    let growth = peer.pipe.pool().ledger().used().saturating_sub(charged);
    assert!(growth < 64 * 1024, "{growth} bytes");
    assert_eq!(peer.received(1).status(), "431");
    peer.assert_open();
}

#[test]
fn crumbs_of_a_cookie_are_one_field_and_count_by_their_bytes() {
    for (count, status) in [(180, "200"), (500, "431")] {
        let mut peer = Peer::new(Limits::default());
        let request = peer.request(1, "GET", "/", &vec![("cookie", "a=b"); count], true);
        peer.send(&request);
        assert_eq!(peer.received(1).status(), status, "{count} crumbs");
        peer.assert_open();
    }
}

#[test]
fn streams_beyond_the_limit_are_refused_so_that_they_may_be_tried_again() {
    let mut peer = Peer::new(Limits { streams_max: 3, ..Limits::default() });
    let wire: Vec<_> = [1, 3, 5, 7].into_iter().flat_map(|stream| peer.get(stream, "/never")).collect();
    peer.send(&wire);
    assert_eq!((peer.received(5).reset, peer.received(7).reset), (None, Some(ErrorCode::REFUSED_STREAM)));
    peer.assert_open();
}

#[test]
fn a_stream_whose_window_stays_empty_or_is_dripped_is_cut_off() {
    for drip in [0, 1] {
        let mut peer = Peer::new(Limits::default());
        peer.send(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]));
        let get = peer.get(1, "/big");
        peer.send(&get);
        for _ in 0..60 {
            peer.pipe.advance(Duration::from_secs(5));
            if drip > 0 {
                peer.send(&frame(WINDOW_UPDATE, 0, 1, &20_u32.to_be_bytes()));
            }
        }
        let received = peer.received(1);
        assert!(received.reset.is_some() || peer.pipe.is_closed(), "20 bytes in 5 seconds: {received:?}");
    }
}

#[test]
fn windows_are_kept() {
    let mut peer = Peer::new(Limits::default());
    let request = peer.request(1, "POST", "/never", &[("content-length", "9000000")], false);
    peer.send(&request);
    peer.send(&frame(WINDOW_UPDATE, 0, 0, &0x7fff_ffff_u32.to_be_bytes()));
    peer.assert_ended(ErrorCode::FLOW_CONTROL_ERROR);

    let mut peer = Peer::new(Limits::default());
    peer.send(&frame(SETTINGS, 0, 0, &[0, 4, 0x80, 0, 0, 0]));
    peer.assert_ended(ErrorCode::FLOW_CONTROL_ERROR);
}

#[test]
fn malformed_requests_reset_their_stream_and_no_other() {
    let mut peer = Peer::new(Limits::default());
    let waiting = peer.request(1, "POST", "/echo", &[], false);
    peer.send(&waiting);
    let start = [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "sea")];
    let malformed: Vec<Vec<(&str, &str)>> = vec![
        [&start[..], &[("Upper", "case")]].concat(),
        [&start[..], &[("connection", "close")]].concat(),
        [&start[..], &[("transfer-encoding", "chunked")]].concat(),
        [&start[..], &[("te", "gzip")]].concat(),
        [&start[..], &[(":path", "/")]].concat(),
        [&start[..], &[("x", "a\r\nb: c")]].concat(),
        [&start[..], &[("x", "nul\0")]].concat(),
        [&start[..], &[("content-length", "1")]].concat(),
        [&start[..], &[("host", "land")]].concat(),
        start[1..].to_vec(),
        vec![(":method", "GET"), (":scheme", "http"), (":path", "/\r\nx: y"), (":authority", "sea")],
        vec![(":method", "GET /\r\n"), (":scheme", "http"), (":path", "/"), (":authority", "sea")],
    ];
    for (index, fields) in malformed.iter().enumerate() {
        let stream = index as u32 * 2 + 3;
        let block = peer.block(fields);
        peer.send(&frame(HEADERS, END_HEADERS | END_STREAM, stream, &block));
        assert_eq!(peer.received(stream).reset, Some(ErrorCode::PROTOCOL_ERROR), "{fields:?}");
    }
    peer.send(&frame(DATA, END_STREAM, 1, b"ebb"));
    assert_eq!(peer.received(1).body, b"ebb");
}

#[test]
fn a_content_length_that_lies_resets_the_stream() {
    for (length, pieces) in [("3", &[&b"four"[..]][..]), ("5", &[b"four"]), ("7", &[b"four", b"four"])] {
        let mut peer = Peer::new(Limits::default());
        let mut wire = peer.request(1, "POST", "/echo", &[("content-length", length)], false);
        for (index, piece) in pieces.iter().enumerate() {
            wire.extend(frame(DATA, u8::from(index + 1 == pieces.len()), 1, piece));
        }
        peer.send(&wire);
        assert_eq!(peer.received(1).reset, Some(ErrorCode::PROTOCOL_ERROR), "{length}");
        peer.assert_open();
    }
}

#[test]
fn a_hundred_thousand_short_requests_trip_nothing_whether_or_not_every_tenth_is_cancelled() {
    for cancels in [false, true] {
        let mut peer = Peer::new(Limits::default());
        for batch in 0..2_000 {
            let mut wire = Vec::new();
            for round in batch * 50..(batch + 1) * 50 {
                let (stream, is_cancelled) = (round * 2 + 1, cancels && round % 10 == 0);
                wire.extend(peer.get(stream, if is_cancelled { "/never" } else { "/hello" }));
                if is_cancelled {
                    wire.extend(frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
                } else {
                    wire.extend(frame(WINDOW_UPDATE, 0, 0, &13_u32.to_be_bytes()));
                }
            }
            peer.send(&wire);
            assert!(peer.received(batch * 100 + 99).has_ended, "{batch}");
            peer.unseen.clear();
        }
        peer.assert_open();
    }
}

#[test]
fn many_cancelled_requests_trip_nothing_if_time_passes_between_them() {
    let mut peer = Peer::new(Limits::default());
    for round in 0..2_000 {
        let stream = round * 2 + 1;
        let get = peer.get(stream, "/never");
        peer.send(&[get, frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())].concat());
        peer.pipe.advance(Duration::from_secs(1));
    }
    peer.assert_open();
}

#[test]
fn a_frame_that_is_sent_slowly_ends_the_connection() {
    for (kind, stream) in [(HEADERS, 3), (200, 0), (DATA, 1)] {
        let mut peer = Peer::new(Limits::default());
        let get = peer.get(1, "/hello");
        peer.send(&get);
        let wire = frame(kind, END_HEADERS, stream, &[0x82; 100]);
        let sent = wire.iter().take(100).take_while(|byte| {
            peer.send(&[**byte]);
            peer.pipe.advance(Duration::from_secs(1));
            !peer.pipe.is_write_closed() && !peer.pipe.is_closed()
        });
        let sent = sent.count();
        assert!((25..35).contains(&sent), "{sent} bytes, one a second, of a frame of type {kind}");
        peer.assert_ended(CALM);
    }
}

#[test]
fn a_body_of_many_small_frames_trips_nothing() {
    let mut peer = Peer::new(Limits::default());
    let request = peer.request(1, "POST", "/echo", &[], false);
    peer.send(&request);
    for _ in 0..100 {
        peer.send(&frame(DATA, 0, 1, &[b'x'; 60]).repeat(100));
    }
    peer.send(&frame(DATA, END_STREAM, 1, b"end"));
    assert_eq!(peer.received(1).status(), "200");
}

#[test]
fn a_thousand_streams_of_small_messages_that_are_read_late_trip_nothing_and_take_little_memory() {
    let mut peer = Peer::new(Limits { streams_max: 1_000, ..Limits::default() });
    let streams = || (0..1_000).map(|index| 2 * index + 1);
    for stream in streams() {
        let request = peer.request(stream, "POST", "/late", &[], false);
        peer.send(&request);
    }
    let before = peer.pipe.counts().memory_bytes;
    // Each message comes by itself, so nothing is merged.
    for _ in 0..10 {
        streams().for_each(|stream| peer.send(&frame(DATA, 0, stream, &[b'x'; 60])));
    }
    let growth = peer.pipe.counts().memory_bytes.saturating_sub(before);
    assert!(growth < 8 * 1024 * 1024, "{growth} bytes for 600,000");
    streams().for_each(|stream| peer.send(&frame(DATA, END_STREAM, stream, &[b'x'; 60])));
    peer.pipe.advance(Duration::from_secs(21));
    for stream in streams() {
        assert_eq!(peer.received(stream).body, b"660", "{stream}");
    }
    peer.assert_open();
}

#[test]
fn a_window_of_single_bytes_takes_little_memory_however_they_arrive() {
    let mut peer = Peer::new(Limits::default());
    let request = peer.request(1, "POST", "/late", &[], false);
    peer.send(&request);
    let before = peer.pipe.counts().memory_bytes;
    let count = 64 * 1024 - 1;
    (0..count).for_each(|_| peer.send(&frame(DATA, 0, 1, b"x")));
    let growth = peer.pipe.counts().memory_bytes.saturating_sub(before);
    assert!(growth < 4 * 1024 * 1024, "{growth} bytes for 64 KiB");
    peer.send(&frame(DATA, END_STREAM, 1, b"x"));
    peer.pipe.advance(Duration::from_secs(21));
    assert_eq!(peer.received(1).body, b"65536");
    peer.assert_open();
}
