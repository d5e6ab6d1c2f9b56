//! Requests that are answered within the batch of frames in which they come, and heads that come again.

use tidegate::http2::hpack::{Decoder, Encoder, Indexing};
use tidegate::http2::{ErrorCode, Limits};

use crate::support::{
    DATA, END_HEADERS, END_STREAM, HEADERS, PING, PRIORITY, Peer, RST_STREAM, SETTINGS, WINDOW_UPDATE, error_code,
    frame,
};

const FIELDS: [(&str, &str); 5] =
    [(":method", "GET"), (":scheme", "http"), (":path", "/hello"), (":authority", "sea"), ("tide", "ebb")];

/// A field block; all fields but the path enter the table.
fn block(encoder: &mut Encoder, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    encoder.begin(&mut block);
    for (name, value) in fields {
        let indexing = if *name == ":path" { Indexing::Omitted } else { Indexing::Allowed };
        encoder.encode(name.as_bytes(), value.as_bytes(), indexing, &mut block);
    }
    block
}

fn head(stream: u32, ends: bool, block: &[u8]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | u8::from(ends), stream, block)
}

#[test]
fn a_head_that_comes_again_is_the_same_request() {
    let mut peer = Peer::new(Limits::default());
    let mut encoder = Encoder::new(4096);
    for batch in 0..3 {
        let wire: Vec<_> =
            (0..20).flat_map(|count| head(1 + 2 * (20 * batch + count), true, &block(&mut encoder, &FIELDS))).collect();
        peer.send(&wire);
        for count in 0..20 {
            let response = peer.received(1 + 2 * (20 * batch + count));
            assert_eq!((response.status(), &*response.body), ("200", &b"Hello, World!"[..]));
            assert!(response.has_ended && response.reset.is_none());
        }
    }
    peer.assert_open();
}

/// `GET`, `http` and the authority `sea`, of which nothing enters the table.
const START: &[u8] = b"\x82\x86\x01\x03sea";

/// A path that enters the table.
fn indexed_path(path: &str) -> Vec<u8> {
    [&[0x44, path.len() as u8], path.as_bytes()].concat()
}

/// The newest field of the table.
const NEWEST: &[u8] = &[0xbe];

/// The same bytes are another head once the table has changed.
#[test]
fn the_same_block_is_another_head_after_the_table_has_changed() {
    let mut peer = Peer::new(Limits::default());
    for (stream, path, status) in [(1, "/hello", "200"), (11, "/nothing", "204"), (21, "/hello", "200")] {
        let wire = [
            head(stream, true, &[START, &indexed_path(path)].concat()),
            head(stream + 2, true, &[START, NEWEST].concat()),
            head(stream + 4, true, &[START, NEWEST].concat()),
        ];
        peer.send(&wire.concat());
        for stream in [stream, stream + 2, stream + 4] {
            assert_eq!(peer.received(stream).status(), status, "stream {stream}");
        }
    }
    peer.assert_open();
}

/// The same block with a body and without one.
#[test]
fn the_same_block_has_a_body_or_none() {
    let mut peer = Peer::new(Limits::default());
    let fields = [(":method", "POST"), (":scheme", "http"), (":path", "/echo"), (":authority", "sea")];
    // The first one begins with the size of the table.
    let [first, post] = [peer.block(&fields), peer.block(&fields)];
    let wire = [
        head(1, true, &first),
        head(3, true, &post),
        head(5, false, &post),
        frame(DATA, END_STREAM, 5, b"flow"),
        head(7, true, &post),
    ];
    peer.send(&wire.concat());
    assert_eq!([1, 3, 5, 7].map(|stream| peer.received(stream).body), [&b""[..], b"", b"flow", b""]);
    peer.assert_open();
}

/// Two connections of one thread take turns with equal blocks, which mean different things.
#[test]
fn equal_blocks_of_two_connections_are_their_own() {
    let mut peers = [Peer::new(Limits::default()), Peer::new(Limits::default())];
    for (peer, path) in peers.iter_mut().zip(["/hello", "/nothing"]) {
        peer.send(&head(1, true, &[START, &indexed_path(path)].concat()));
        peer.received(1);
    }
    for stream in [3, 5, 7] {
        for (peer, status) in peers.iter_mut().zip(["200", "204"]) {
            peer.send(&head(stream, true, &[START, NEWEST].concat()));
            assert_eq!(peer.received(stream).status(), status);
        }
    }
}

/// More than the peer may have open at a time, one behind the other: each is over before the next one comes.
#[test]
fn requests_that_are_answered_at_once_are_not_open() {
    let mut peer = Peer::new(Limits { streams_max: 3, ..Limits::default() });
    let wire: Vec<_> = (1..40).step_by(2).flat_map(|stream| peer.get(stream, "/hello")).collect();
    peer.send(&wire);
    for stream in (1..40).step_by(2) {
        assert!(peer.received(stream).has_ended, "stream {stream}");
    }
    peer.assert_open();
}

/// An answer that finds no window waits as any other.
#[test]
fn an_answer_without_a_window_waits() {
    let mut peer = Peer::new(Limits::default());
    peer.send(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 5]));
    let wire = [peer.get(1, "/hello"), peer.get(3, "/nothing"), peer.get(5, "/hello")].concat();
    peer.send(&wire);
    let (first, second) = (peer.received(1), peer.received(3));
    assert_eq!((&*first.body, first.has_ended, second.has_ended), (&b"Hello"[..], false, true));
    for stream in [1, 5] {
        peer.send(&frame(WINDOW_UPDATE, 0, stream, &100_u32.to_be_bytes()));
    }
    assert_eq!((&*peer.received(1).body, peer.received(5).has_ended), (&b", World!"[..], true));
}

/// Once the peer has asked for a stream to come first, streams that are less urgent come behind it, also short ones.
#[test]
fn short_answers_are_in_the_order_that_the_peer_asks_for() {
    let mut peer = Peer::new(Limits::default());
    let first = peer.request(1, "GET", "/hello", &[("priority", "u=1")], true);
    peer.send(&first);
    peer.frames();
    let mut wire = Vec::new();
    for (stream, priority) in [(3, "u=5"), (5, "u=2"), (7, "u=1"), (9, "u=0")] {
        wire.extend(peer.request(stream, "GET", "/hello", &[("priority", priority)], true));
    }
    peer.send(&wire);
    let order: Vec<_> = peer.frames().iter().filter(|frame| frame.kind == HEADERS).map(|frame| frame.stream).collect();
    assert_eq!(order, [9, 7, 5, 3]);
}

/// Requests are credited, but not those that the peer resets in the batch in which it sends them.
#[test]
fn requests_that_are_reset_in_their_batch_make_nothing_good() {
    let floods: [fn(u32) -> Vec<u8>; 3] = [
        |stream| frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()),
        |stream| frame(DATA, 0, stream, b"after the end"),
        |stream| frame(WINDOW_UPDATE, 0, stream, &0_u32.to_be_bytes()),
    ];
    for (way, disturb) in floods.into_iter().enumerate() {
        let mut peer = Peer::new(Limits::default());
        let mut rounds = 0;
        while rounds < 2_000 && !peer.pipe.is_write_closed() && !peer.pipe.is_closed() {
            let stream = 2 * rounds + 1;
            let wire = [peer.get(stream, "/hello"), disturb(stream)].concat();
            peer.send(&wire);
            rounds += 1;
        }
        assert!(rounds <= 1_100, "way {way}: {rounds}");
        peer.assert_ended(ErrorCode::ENHANCE_YOUR_CALM);
    }
    // The same, each in a batch of its own: the peer has its response.
    let mut peer = Peer::new(Limits::default());
    for round in 0..2_000 {
        let (get, stream) = (peer.get(2 * round + 1, "/hello"), 2 * round + 1);
        peer.send(&get);
        peer.send(&frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
        assert!(peer.frames().iter().all(|frame| frame.kind != RST_STREAM || error_code(frame).0 != 0));
    }
    peer.assert_open();
}

/// Nothing of a connection that is cut off in the middle of a batch stays in the memory of its thread.
#[test]
fn a_connection_that_is_cut_off_leaves_no_memory() {
    let mut idle = Peer::new(Limits::default());
    idle.pipe.reset();
    let limits = Limits { streams_max: 1_000_000, abuse_max: 1_000_000, ..Limits::default() };
    let mut peer = Peer::new(limits);
    peer.pipe.limit_peer_reads(0);
    let mut wire = Vec::new();
    for stream in (1..40_001).step_by(2) {
        wire.extend(frame(PING, 0, 0, b"eight by").repeat(10));
        wire.extend(peer.get(stream, "/never"));
    }
    peer.send(&wire);
    assert!(peer.pipe.is_reset(), "its replies are not read");
    assert_eq!(peer.pipe.pool().ledger().used(), idle.pipe.pool().ledger().used());
}

/// A function that panics loses its own stream only, and the ones before and behind it have their answers.
#[test]
fn a_panic_within_the_dispatch_loses_one_stream() {
    let mut idle = Peer::new(Limits::default());
    idle.pipe.reset();
    let mut peer = Peer::new(Limits::default());
    let wire = [peer.get(1, "/hello"), peer.get(3, "/panic"), peer.get(5, "/hello"), peer.get(7, "/panic")].concat();
    peer.send(&wire);
    for stream in [1, 5] {
        assert_eq!(&*peer.received(stream).body, b"Hello, World!");
    }
    for stream in [3, 7] {
        assert!(peer.received(stream).reset.is_some());
    }
    peer.assert_open();
    assert_eq!(peer.pipe.counts().streams, 0);
    // Nothing of them is left.
    peer.pipe.reset();
    assert_eq!(peer.pipe.pool().ledger().used(), idle.pipe.pool().ledger().used());
    peer.pipe.drain(std::time::Duration::from_secs(1));
    assert!(peer.pipe.is_drained());
}

/// A stream that was answered is closed: a window, a priority and a reset for it have no effect, DATA is an error of the
/// stream (RFC 9113 §5.1).
#[test]
fn frames_behind_an_answered_stream_are_for_a_closed_one() {
    let mut peer = Peer::new(Limits::default());
    let wire = [
        peer.get(1, "/hello"),
        frame(WINDOW_UPDATE, 0, 1, &100_u32.to_be_bytes()),
        frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 1]),
        frame(RST_STREAM, 0, 1, &8_u32.to_be_bytes()),
        peer.get(3, "/hello"),
        frame(DATA, END_STREAM, 3, b"late"),
        peer.request(5, "HEAD", "/hello", &[], true),
        peer.get(7, "/nothing"),
        peer.get(9, "/stream"),
        peer.get(11, "/short"),
    ];
    peer.send(&wire.concat());
    let all = peer.frames();
    let ends =
        |stream| all.iter().filter(|f| f.stream == stream && f.kind <= HEADERS && f.flags & END_STREAM != 0).count();
    let resets =
        |stream| all.iter().filter(|f| f.stream == stream && f.kind == RST_STREAM).map(error_code).collect::<Vec<_>>();
    assert_eq!([1, 3, 5, 7, 9, 11].map(ends), [1, 1, 1, 1, 1, 0]);
    assert_eq!([1, 3, 5, 7, 9].map(|stream| resets(stream).len()), [0, 1, 0, 0, 0]);
    assert_eq!(resets(3), [ErrorCode::STREAM_CLOSED]);
    assert_eq!(resets(11), [ErrorCode::INTERNAL_ERROR]);
    peer.assert_open();
    assert_eq!(peer.pipe.counts().streams, 0);
}

/// Two connections of one thread send blocks that insert, refer, evict and change the size of the table, in any order, and
/// some again and again: each request is the one that a decoder without a memory reads.
#[test]
fn heads_are_those_of_a_decoder_without_memory() {
    const PATHS: [&str; 3] = ["/hello", "/nothing", "/echo"];
    let mut state = 7_u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let piece = |kind: u64, number: u64| -> Vec<u8> {
        let path = PATHS[number as usize % 3];
        let literal = |first: u8, value: &str| [&[first, value.len() as u8], value.as_bytes()].concat();
        match kind {
            0 => literal(0x44, path),
            1 => literal(0x04, path),
            2 => literal(0x14, path),
            // A path of the table, or its replacement.
            _ => vec![0xbe + number as u8 % 4],
        }
    };
    let mut requests = 0;
    for _ in 0..400 {
        let mut peers = [0, 1].map(|_| (Peer::new(Limits::default()), Decoder::new(4096)));
        let (mut stream, mut is_over, mut kept) = (1, false, Vec::new());
        while !is_over && stream < 200 {
            let (peer, decoder) = &mut peers[random(2) as usize];
            let mut wire = Vec::new();
            let mut expected = Vec::new();
            for _ in 0..=random(4) {
                if kept.is_empty() || random(3) == 0 {
                    kept = match random(12) {
                        0 => vec![0x20, 0x3f, 0xe1, 0x1f],
                        1 => vec![0x3f, 0x21],
                        _ => Vec::new(),
                    };
                    kept.extend(START);
                    kept.extend(piece(random(6), random(12)));
                    if random(4) == 0 {
                        // It evicts all but the newest entries.
                        let length = 110 + random(2) as u8;
                        kept.extend([&[0x40, 1, b'x', length][..], &vec![b'y'; length.into()]].concat());
                    }
                }
                let mut path = None;
                let decoded = decoder.decode(&kept, &mut Vec::new(), |name, value| {
                    if name == b":path" {
                        path = Some(String::from_utf8_lossy(value).into_owned());
                    }
                });
                if decoded.is_err() {
                    is_over = true;
                    break;
                }
                wire.extend(head(stream, true, &kept));
                expected.push((stream, path));
                stream += 2;
            }
            peer.send(&wire);
            for (stream, path) in expected {
                let received = peer.received(stream);
                match path.as_deref() {
                    None => assert_eq!(received.reset, Some(ErrorCode::PROTOCOL_ERROR)),
                    Some("/nothing") => assert_eq!(received.status(), "204"),
                    Some("/echo") => assert_eq!((received.status(), &*received.body), ("200", &b""[..])),
                    Some(_) => assert_eq!((received.status(), &*received.body), ("200", &b"Hello, World!"[..])),
                }
                requests += 1;
            }
        }
    }
    assert!(requests > 1_500, "{requests}");
}

/// Whatever a batch contains, an immediate answer equals the one that waits.
#[test]
fn an_answer_at_once_is_the_one_that_waits() {
    const PATHS: [&str; 9] =
        ["/hello", "/nothing", "/stream", "/short", "/big", "/echo", "/switch", "/upgrade", "/early"];
    for seed in 0..40_u64 {
        let mut state = seed;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut peers = [0, 1].map(|_| Peer::new(Limits { abuse_max: 100_000, ..Limits::default() }));
        // After a stream that comes first, all others wait for their turn.
        for (peer, priority) in peers.iter_mut().zip([&[][..], &[("priority", "u=0")]]) {
            let first = peer.request(1, "GET", "/nothing", priority, true);
            peer.send(&first);
        }
        let mut stream = 3;
        for _ in 0..12 {
            let mut wires = [Vec::new(), Vec::new()];
            for _ in 0..=random(8) {
                let kind = random(12);
                let path = PATHS[random(9) as usize];
                let value = random(100_000) as u32 + 1;
                let target = (3 + 2 * random(u64::from(stream) / 2 + 1) as u32).min(stream);
                for (peer, wire) in peers.iter_mut().zip(&mut wires) {
                    match kind {
                        0 => wire.extend(frame(SETTINGS, 0, 0, &[&[0, 4][..], &value.to_be_bytes()].concat())),
                        1 => wire.extend(frame(WINDOW_UPDATE, 0, 0, &(value * 10).to_be_bytes())),
                        2 if target >= stream => {}
                        2 => wire.extend(frame(WINDOW_UPDATE, 0, target, &value.to_be_bytes())),
                        3 => wire.extend(peer.request(stream, "HEAD", path, &[], true)),
                        4 => {
                            wire.extend(peer.request(stream, "POST", path, &[], false));
                            wire.extend(frame(DATA, END_STREAM, stream, &vec![b'z'; value as usize % 9_000]));
                        }
                        5 => wire.extend(peer.request(stream, "POST", path, &[("content-length", "0")], true)),
                        _ => wire.extend(peer.get(stream, path)),
                    }
                }
                stream += 2 * u32::from(kind >= 3);
            }
            for (peer, wire) in peers.iter_mut().zip(&wires) {
                peer.send(wire);
            }
        }
        for peer in &mut peers {
            peer.send(&frame(SETTINGS, 0, 0, &[0, 4, 0x3f, 0xff, 0xff, 0xff]));
            peer.send(&frame(WINDOW_UPDATE, 0, 0, &0x3fff_ffff_u32.to_be_bytes()));
        }
        let [at_once, waits] = &mut peers;
        let used = [&*at_once, &*waits].map(|peer| peer.pipe.counts().streams);
        assert_eq!(used[0], used[1], "seed {seed}");
        for id in (3..stream).step_by(2) {
            assert_eq!(at_once.received(id), waits.received(id), "seed {seed}, stream {id}");
        }
        at_once.assert_open();
        waits.assert_open();
    }
}
