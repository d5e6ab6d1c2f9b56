//! Single frames: the required and the forbidden effects of each.

use tidegate::http2::{ErrorCode, Limits};

use crate::support::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PADDED, PING, PRIORITY, Peer, RST_STREAM, SETTINGS,
    WINDOW_UPDATE, error_code, frame,
};

/// A connection on which stream 1 waits for its body.
fn open() -> Peer {
    let mut peer = Peer::new(Limits::default());
    let request = peer.request(1, "POST", "/echo", &[], false);
    peer.send(&request);
    peer
}

#[test]
fn the_reserved_bit_has_no_meaning() {
    let mut peer = open();
    peer.send(&frame(DATA, END_STREAM, 0x8000_0001, b"ebb"));
    assert_eq!(peer.received(1).body, b"ebb");
}

/// The response may have ended the stream before the frame arrived.
#[test]
fn errors_of_an_open_stream_are_errors_of_one_that_the_response_has_ended() {
    type Wrong = fn(&mut Peer) -> Vec<u8>;
    let pseudo_field = |peer: &mut Peer| {
        let block = peer.block(&[(":method", "GET")]);
        frame(HEADERS, END_HEADERS | END_STREAM, 1, &block)
    };
    let second_head = |peer: &mut Peer| {
        let block = peer.block(&[("ebb", "flow")]);
        frame(HEADERS, END_HEADERS, 1, &block)
    };
    let cases: [(ErrorCode, Wrong); 7] = [
        (ErrorCode::PROTOCOL_ERROR, |_| frame(DATA, END_STREAM, 1, b"too long")),
        (ErrorCode::PROTOCOL_ERROR, |_| frame(DATA, END_STREAM, 1, b"-")),
        (ErrorCode::FLOW_CONTROL_ERROR, |_| frame(WINDOW_UPDATE, 0, 1, &0x7fff_ffff_u32.to_be_bytes())),
        (ErrorCode::FRAME_SIZE_ERROR, |_| frame(PRIORITY, 0, 1, &[0, 0, 0, 1])),
        (ErrorCode::PROTOCOL_ERROR, |_| frame(WINDOW_UPDATE, 0, 1, &[0; 4])),
        (ErrorCode::PROTOCOL_ERROR, pseudo_field),
        (ErrorCode::PROTOCOL_ERROR, second_head),
    ];
    for (number, (code, wrong)) in cases.into_iter().enumerate() {
        let mut peer = Peer::new(Limits::default());
        let request = peer.request(1, "POST", "/early", &[("content-length", "3")], false);
        peer.send(&request);
        assert!(peer.received(1).has_ended);
        let wrong = wrong(&mut peer);
        peer.send(&wrong);
        let frames = peer.frames();
        let [reset] = &frames[..] else { panic!("{number}: {frames:?}") };
        assert_eq!((reset.kind, reset.stream, error_code(reset)), (RST_STREAM, 1, code), "{number}");
        peer.assert_open();
    }
}

/// RFC 9113 §5.1: a stream that the peer has reset is closed, also if the response had ended it before.
#[test]
fn data_behind_a_reset_by_the_peer_is_an_error_though_the_response_has_ended() {
    let mut peer = Peer::new(Limits::default());
    let request = peer.request(1, "POST", "/early", &[], false);
    peer.send(&request);
    assert!(peer.received(1).has_ended);
    peer.send(&frame(RST_STREAM, 0, 1, &8_u32.to_be_bytes()));
    peer.send(&frame(DATA, END_STREAM, 1, b"late"));
    let frames = peer.frames();
    let [reset] = &frames[..] else { panic!("{frames:?}") };
    assert_eq!((reset.kind, error_code(reset)), (RST_STREAM, ErrorCode::STREAM_CLOSED));
    peer.assert_open();
}

#[test]
fn an_undecodable_block_ends_the_connection() {
    let mut peer = open();
    peer.send(&frame(HEADERS, END_HEADERS | END_STREAM, 3, &[0xff, 0xff]));
    peer.assert_ended(ErrorCode::COMPRESSION_ERROR);
}

#[test]
fn nothing_comes_within_a_field_block() {
    for (kind, stream) in [(PING, 0), (DATA, 1), (HEADERS, 5), (CONTINUATION, 5), (200, 0)] {
        let mut peer = open();
        let block = peer.block(&[(":method", "GET")]);
        peer.send(&frame(HEADERS, END_STREAM, 3, &block));
        peer.send(&frame(kind, 0, stream, &[0; 8]));
        peer.assert_ended(ErrorCode::PROTOCOL_ERROR);
    }
    let mut peer = open();
    peer.send(&frame(CONTINUATION, END_HEADERS, 1, &[]));
    peer.assert_ended(ErrorCode::PROTOCOL_ERROR);
}

#[test]
fn a_block_in_many_frames_is_one_request() {
    let mut peer = open();
    let whole = peer.get(3, "/hello");
    let block = &whole[9..];
    peer.send(&frame(HEADERS, END_STREAM, 3, &block[..1]));
    for byte in &block[1..block.len() - 1] {
        peer.send(&frame(CONTINUATION, 0, 3, &[*byte]));
    }
    peer.send(&frame(CONTINUATION, END_HEADERS, 3, &block[block.len() - 1..]));
    assert_eq!(peer.received(3).body, b"Hello, World!");
}

#[test]
fn idle_streams_receive_heads_only() {
    for (kind, content) in [(DATA, &[0; 4][..]), (RST_STREAM, &[0; 4]), (WINDOW_UPDATE, &[0, 0, 0, 1])] {
        let mut peer = open();
        peer.send(&frame(kind, 0, 3, content));
        peer.assert_ended(ErrorCode::PROTOCOL_ERROR);
    }
}

#[test]
fn late_bytes_count_for_the_connection() {
    let mut peer = open();
    peer.send(&frame(RST_STREAM, 0, 1, &8_u32.to_be_bytes()));
    let mut granted = 0;
    for _ in 0..100 {
        peer.send(&frame(DATA, 0, 1, &vec![0; 16_384]));
        let updates = peer.frames().into_iter().filter(|frame| (frame.kind, frame.stream) == (WINDOW_UPDATE, 0));
        granted += updates.map(|f| u32::from_be_bytes(f.content[..].try_into().expect("four bytes"))).sum::<u32>();
    }
    assert!(granted > 1024 * 1024, "the connection's window is granted again: {granted}");
    peer.assert_open();
}

#[test]
fn numbers_of_streams_increase() {
    for stream in [2, 3] {
        let mut peer = open();
        let later = peer.get(5, "/hello");
        peer.send(&later);
        let request = peer.get(stream, "/hello");
        peer.send(&request);
        peer.assert_ended(ErrorCode::PROTOCOL_ERROR);
    }
    let mut peer = open();
    let get = peer.get(3, "/hello");
    peer.send(&get);
    peer.send(&get);
    peer.assert_ended(ErrorCode::STREAM_CLOSED);
}

#[test]
fn a_reset_is_not_answered() {
    let mut peer = open();
    peer.send(&frame(RST_STREAM, 0, 1, &8_u32.to_be_bytes()));
    peer.send(&frame(RST_STREAM, 0, 1, &8_u32.to_be_bytes()));
    assert!(peer.frames().iter().all(|frame| frame.kind != RST_STREAM));
    peer.assert_open();
}

#[test]
fn padding_counts_for_windows() {
    let mut peer = open();
    let padded = [&[200][..], b"x", &[0; 200]].concat();
    let mut granted = 0;
    for _ in 0..1000 {
        peer.send(&frame(DATA, PADDED, 1, &padded));
        let updates = peer.frames().into_iter().filter(|frame| (frame.kind, frame.stream) == (WINDOW_UPDATE, 1));
        granted += updates.map(|f| u32::from_be_bytes(f.content[..].try_into().expect("four bytes"))).sum::<u32>();
    }
    // 65,536 bytes at first, and 202,000 came.
    assert!(granted >= 202_000 - 65_536, "{granted}");
    peer.send(&frame(DATA, END_STREAM, 1, &[]));
    assert_eq!(peer.received(1).body, [b'x'; 1000]);
}

#[test]
fn settings_have_valid_values() {
    for (id, value) in [(2_u8, 2_u32), (5, 16_383), (5, 1 << 24), (8, 2)] {
        let mut peer = open();
        peer.send(&frame(SETTINGS, 0, 0, &[&[0, id][..], &value.to_be_bytes()].concat()));
        peer.assert_ended(ErrorCode::PROTOCOL_ERROR);
    }
}

#[test]
fn unknown_settings_are_ignored() {
    let mut peer = open();
    peer.send(&frame(SETTINGS, 0, 0, &[0xf0, 0, 0, 0, 0, 1]));
    peer.assert_open();
}

#[test]
fn trailers_end_their_stream() {
    let mut peer = open();
    let block = peer.block(&[("tide", "rising")]);
    peer.send(&frame(HEADERS, END_HEADERS, 1, &block));
    assert_eq!(peer.received(1).reset, Some(ErrorCode::PROTOCOL_ERROR));
    peer.assert_open();
}

#[test]
fn a_peer_that_stops_within_a_frame_is_reported() {
    let mut peer = open();
    peer.send(&frame(PING, 0, 0, b"complete")[..12]);
    peer.pipe.receive_fin();
    assert!(peer.pipe.is_write_closed());
}

#[test]
fn goaway_of_a_client_ends_nothing_that_is_open() {
    let mut peer = open();
    peer.send(&frame(GOAWAY, 0, 0, &[0; 8]));
    peer.send(&frame(DATA, END_STREAM, 1, b"ebb"));
    assert_eq!(peer.received(1).body, b"ebb");
    peer.send(&frame(GOAWAY, 0, 0, &[0, 0, 0, 9, 0, 0, 0, 0]));
    peer.assert_ended(ErrorCode::PROTOCOL_ERROR);
}
