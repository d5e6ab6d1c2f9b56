//! Frames that a peer may not send: each closes with its code, and none makes memory grow.

use std::sync::Arc;
use std::time::Duration;

use tidegate_codec::{Blame, Codec, Fault};
use tidegate_testkit::CodecHarness;
use tidegate_testkit::contract::{Contract, Outcome};
use tidegate_websocket::{CloseCode, Error, Exceeded, Message, Violation, WebSocket};

use crate::support::{
    self, BINARY, CLOSE, CONTINUATION, FIN, PING, RSV1, TEXT, client, code, config, deflating, frames, masked, plain,
    server, without_takeover,
};

/// The error and the close code, which are the same in every split.
fn refused(make: impl Fn() -> WebSocket, wire: &[u8]) -> (String, Option<u16>) {
    let seen = Contract::new(make).replies(support::unmasked).check(wire);
    let Outcome::Failed { error, .. } = &seen.outcome else { panic!("it was not refused: {seen}") };
    let close = frames(&seen.replies).into_iter().find(|(first, _)| *first == FIN | CLOSE);
    (error.clone(), close.map(|(_, payload)| u16::from_be_bytes([payload[0], payload[1]])))
}

fn is(violation: Violation, code: u16) -> (String, Option<u16>) {
    (format!("{:?}", Error::Peer(violation)), Some(code))
}

fn exceeds(exceeded: Exceeded, code: u16) -> (String, Option<u16>) {
    (format!("{:?}", Error::Limit(exceeded)), Some(code))
}

#[test]
fn masks_on_the_wrong_side() {
    assert_eq!(refused(server, &plain(FIN | TEXT, b"ebb")), is(Violation::Unmasked, 1002));
    assert_eq!(refused(server, &plain(FIN | PING, b"")), is(Violation::Unmasked, 1002));
    assert_eq!(refused(client, &masked(FIN | TEXT, b"ebb")), is(Violation::Masked, 1002));
}

#[test]
fn reserved_bits_and_opcodes() {
    for bit in [0x40, 0x20, 0x10] {
        assert_eq!(refused(server, &masked(FIN | bit | TEXT, b"ebb")), is(Violation::ReservedBits, 1002));
    }
    for opcode in (3..8).chain(11..16) {
        assert_eq!(refused(server, &masked(FIN | opcode, b"")), is(Violation::Opcode(opcode), 1002));
    }
    // With compression the first bit has a meaning, on the first frame of a message only.
    let compressing = || WebSocket::server(Arc::new(deflating()), Some(without_takeover()));
    assert_eq!(refused(compressing, &masked(FIN | RSV1 | PING, b"")), is(Violation::ReservedBits, 1002));
    let continued = [masked(TEXT, b"a"), masked(FIN | RSV1 | CONTINUATION, b"b")].concat();
    assert_eq!(refused(compressing, &continued), is(Violation::ReservedBits, 1002));
}

#[test]
fn control_frames_that_are_long_or_fragmented() {
    assert_eq!(refused(server, &masked(FIN | PING, &[0; 126])), is(Violation::ControlTooLong, 1002));
    assert_eq!(refused(server, &masked(FIN | CLOSE, &[0; 70_000])), is(Violation::ControlTooLong, 1002));
    assert_eq!(refused(server, &masked(PING, b"")), is(Violation::ControlFragmented, 1002));
    assert_eq!(refused(server, &masked(CLOSE, b"")), is(Violation::ControlFragmented, 1002));
}

#[test]
fn lengths_are_refused_by_the_header_before_memory_is_taken() {
    let gib = b"\x82\xFF\0\0\0\0\x40\0\0\0";
    let seen = Contract::new(server)
        .refuses_before_allocating(gib.as_ref().iter().chain(&[0; 4]).copied().collect::<Vec<_>>().as_slice());
    assert_eq!(seen.error(), Some("Limit(MessageBytes)"));
    assert_eq!(frames(&seen.replies)[0].1, code(1009, ""));
    let top_bit = b"\x82\xFF\x80\0\0\0\0\0\0\0";
    assert_eq!(refused(server, top_bit), is(Violation::Length, 1002));
    let least = b"\x82\x7F\x7F\xFF\xFF\xFF\xFF\xFF\xFF\xFF";
    assert_eq!(refused(client, least), exceeds(Exceeded::MessageBytes, 1009));
    for long in [&b"\x82\xFE\0\x05"[..], b"\x82\xFF\0\0\0\0\0\0\0\x05", b"\x82\xFF\0\0\0\0\0\0\xFF\xFF"] {
        assert_eq!(refused(server, long), is(Violation::Length, 1002));
    }
    // Fragments that are too long together.
    let mut small = config();
    small.message_bytes_max = 10;
    let small = || WebSocket::server(Arc::new(small.clone()), None);
    let wire = [masked(BINARY, &[0; 6]), masked(CONTINUATION, &[0; 4]), masked(FIN | CONTINUATION, &[0; 1])].concat();
    assert_eq!(refused(small, &wire), exceeds(Exceeded::MessageBytes, 1009));
}

/// A message that is yielded whole has a limit in any configuration: an input cannot hold more.
#[test]
fn messages_that_no_input_holds_are_refused_by_the_header() {
    let mut unlimited = config();
    unlimited.message_bytes_max = u64::MAX;
    let make = |unlimited: &tidegate_websocket::Config| WebSocket::server(Arc::new(unlimited.clone()), None);
    let half_gib_and_one = b"\x82\xFF\0\0\0\0\x20\0\0\x01\0\0\0\0";
    assert_eq!(refused(|| make(&unlimited), half_gib_and_one), exceeds(Exceeded::MessageBytes, 1009));
    let wire = [masked(BINARY, b"ebb"), [b"\x80\xFF", &half_gib_and_one[2..]].concat()].concat();
    assert_eq!(refused(|| make(&unlimited), &wire), exceeds(Exceeded::MessageBytes, 1009), "fragments together");
    unlimited.pieces_after = Some(1_000);
    let mut harness = CodecHarness::new(make(&unlimited));
    assert_eq!(harness.decode(half_gib_and_one).unwrap().len(), 0, "pieces of it come as they arrive");
}

#[test]
fn text_that_is_not_utf8_is_refused_as_soon_as_it_is_known() {
    for text in [&b"\xFF"[..], b"ebb \xC0\xAF", b"\xED\xA0\x80", b"\xF4\x90\x80\x80", b"\xE2\x82"] {
        assert_eq!(refused(server, &masked(FIN | TEXT, text)), is(Violation::Utf8, 1007));
    }
    let across = [masked(TEXT, b"ebb \xF0\x9F"), masked(CONTINUATION, b""), masked(FIN | CONTINUATION, b"\x98x")];
    assert_eq!(refused(server, &across.concat()), is(Violation::Utf8, 1007));
    let unfinished = [masked(TEXT, b"ebb"), masked(FIN | CONTINUATION, b"\xF0\x9F\x98")].concat();
    assert_eq!(
        refused(client, &[plain(TEXT, b"ebb"), plain(FIN | CONTINUATION, b"\xF0\x9F\x98")].concat()),
        is(Violation::Utf8, 1007)
    );
    assert_eq!(refused(server, &unfinished), is(Violation::Utf8, 1007));
    // The rest of the frame does not have to come.
    let mut harness = CodecHarness::new(server());
    assert_eq!(
        harness.decode(&masked(FIN | TEXT, &[b"ebb\xFF", &[b'x'; 500][..]].concat())[..20]).unwrap_err(),
        Error::Peer(Violation::Utf8)
    );
}

#[test]
fn frames_out_of_order() {
    assert_eq!(refused(server, &masked(FIN | CONTINUATION, b"")), is(Violation::NothingToContinue, 1002));
    let after = [masked(FIN | TEXT, b"ebb"), masked(CONTINUATION, b"flow")].concat();
    assert_eq!(refused(server, &after), is(Violation::NothingToContinue, 1002));
    let within = [masked(TEXT, b"ebb"), masked(FIN | BINARY, b"flow")].concat();
    assert_eq!(refused(server, &within), is(Violation::MessageUnfinished, 1002));
}

#[test]
fn close_frames_with_bad_payloads() {
    assert_eq!(refused(server, &masked(FIN | CLOSE, b"\x03")), is(Violation::CloseLength, 1002));
    for bad in [0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65_535] {
        assert_eq!(refused(server, &masked(FIN | CLOSE, &code(bad, ""))), is(Violation::CloseCode(bad), 1002));
    }
    let reason = [&1000_u16.to_be_bytes()[..], b"\xE2\x82"].concat();
    assert_eq!(refused(server, &masked(FIN | CLOSE, &reason)), is(Violation::Utf8, 1007));
}

#[test]
fn a_message_of_a_million_empty_fragments_takes_no_memory_and_ends() {
    let mut harness = CodecHarness::new(server());
    assert!(harness.decode(&masked(TEXT, b"")).unwrap().is_empty());
    let empty = masked(CONTINUATION, b"");
    let mut count = 1;
    let error = loop {
        match harness.decode(&empty) {
            Ok(messages) => assert!(messages.is_empty() && count < 1_000_000),
            Err(error) => break error,
        }
        count += 1;
    };
    assert_eq!((error, count), (Error::Limit(Exceeded::EmptyFrames), 64));
    assert_eq!(error.close_code(), Some(CloseCode::POLICY_VIOLATION));
}

#[test]
fn a_flood_of_pings_ends_and_pings_in_time_do_not() {
    let ping = masked(FIN | PING, b"");
    let mut harness = CodecHarness::new(server());
    for _ in 0..3 {
        for _ in 0..100 {
            harness.decode(&ping).unwrap();
        }
        harness.advance_time(Duration::from_secs(1)).unwrap();
    }
    let flood: Vec<u8> = ping.iter().copied().cycle().take(ping.len() * 101).collect();
    assert_eq!(refused(server, &flood), exceeds(Exceeded::ControlFrames, 1008));
}

#[test]
fn a_stream_that_ends_within_a_message_is_an_error_and_gets_no_code() {
    for wire in [&masked(FIN | TEXT, b"ebb")[..7], &masked(TEXT, b"ebb"), &masked(FIN | TEXT, b"ebb")[..1]] {
        assert_eq!(refused(server, wire), (format!("{:?}", Error::Peer(Violation::Truncated)), None));
    }
    let seen = Contract::new(server).check(&masked(FIN | TEXT, b"ebb"));
    assert_eq!((seen.messages.len(), seen.outcome), (1, Outcome::Ended));
}

#[test]
fn half_a_closing_handshake_has_a_deadline() {
    let mut harness = CodecHarness::new(server());
    harness.encode(Message::Close(None)).unwrap();
    harness.flush().unwrap();
    assert_eq!(harness.take_sent(), plain(FIN | CLOSE, b""));
    harness.advance_time(Duration::from_secs(4)).unwrap();
    let error = harness.advance_time(Duration::from_secs(1)).unwrap_err();
    assert_eq!((error, error.blame()), (Error::Limit(Exceeded::CloseTimeout), Blame::Limit));
    // The peer ends the stream without its close frame.
    let mut harness = CodecHarness::new(server());
    harness.encode(Message::Close(None)).unwrap();
    assert!(matches!(harness.decode_eof(), Ok(tidegate_codec::Step::End)));
    assert!(harness.codec().status().is_finished);
}

#[test]
fn a_silent_peer_gets_a_ping_and_then_is_given_up() {
    let mut harness = CodecHarness::new(server());
    let sent = |harness: &mut CodecHarness<WebSocket>| {
        harness.flush().unwrap();
        harness.take_sent()
    };
    harness.advance_time(Duration::from_secs(29)).unwrap();
    assert!(sent(&mut harness).is_empty());
    harness.advance_time(Duration::from_secs(1)).unwrap();
    assert_eq!(sent(&mut harness), plain(FIN | PING, b""));
    // Any byte counts as a sign of life, so no pong has to be the answer.
    harness.decode(&masked(FIN | TEXT, b"ebb")).unwrap();
    harness.advance_time(Duration::from_secs(20)).unwrap();
    harness.advance_time(Duration::from_secs(30)).unwrap();
    assert_eq!(sent(&mut harness), plain(FIN | PING, b""));
    harness.advance_time(Duration::from_secs(19)).unwrap();
    assert_eq!(harness.advance_time(Duration::from_secs(1)).unwrap_err(), Error::Limit(Exceeded::PongTimeout));
}

/// A peer that takes the bytes before a ping or a close frame slowly has not received that frame.
#[test]
fn a_peer_has_the_time_for_its_answer_once_the_bytes_before_are_sent() {
    let message = || Message::Binary(vec![0; 200 * 1024].into());
    let (pong, close) = (Duration::from_secs(20), Duration::from_secs(5));
    let mut harness = CodecHarness::new(server());
    harness.encode(message()).unwrap();
    harness.flush().unwrap();
    harness.advance_time(Duration::from_secs(30)).unwrap();
    harness.take_sent_up_to(100 * 1024);
    harness.advance_time(pong).unwrap();
    harness.advance_time(pong).unwrap();
    harness.flush().unwrap();
    assert!(harness.take_sent().ends_with(&plain(FIN | PING, b"")), "one ping, behind the message");
    harness.advance_time(pong).unwrap();
    assert_eq!(harness.advance_time(pong).unwrap_err(), Error::Limit(Exceeded::PongTimeout));

    // The queue has become empty just before the time is up.
    let mut harness = CodecHarness::new(server());
    harness.encode(message()).unwrap();
    harness.encode(Message::Close(None)).unwrap();
    harness.flush().unwrap();
    harness.take_sent();
    harness.advance_time(close).unwrap();
    assert_eq!(harness.advance_time(close).unwrap_err(), Error::Limit(Exceeded::CloseTimeout));
}

/// Blocks without content take input and bring no output: the bytes on the wire have a limit of their own.
#[test]
fn compressed_bytes_have_a_limit_that_their_output_does_not_reach() {
    let mut small = deflating();
    small.message_bytes_max = 8_000;
    let make = || WebSocket::server(Arc::new(small.clone()), Some(without_takeover()));
    // A header is enough: an eighth and 1 KiB more than a message may have, and one byte.
    let long = [&[FIN | RSV1 | BINARY, 0xFE][..], &10_025_u16.to_be_bytes(), &[0; 4]].concat();
    assert_eq!(refused(make, &long), exceeds(Exceeded::MessageBytes, 1009));
    // So are many frames together. Each has a hundred empty stored blocks.
    let blocks = [0, 0, 0, 0xFF, 0xFF].repeat(100);
    let mut wire = masked(RSV1 | BINARY, &blocks);
    for _ in 0..19 {
        wire.extend(masked(CONTINUATION, &blocks));
    }
    let mut harness = CodecHarness::new(make());
    assert_eq!(harness.decode(&wire).unwrap().len(), 0, "10,000 bytes are within the limit");
    wire.extend(masked(CONTINUATION, &blocks));
    assert_eq!(CodecHarness::new(make()).decode(&wire).unwrap_err(), Error::Limit(Exceeded::MessageBytes));
    // A message that does not compress fits, in blocks that are stored.
    let bytes: Vec<u8> = (0..8_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut stored = Vec::new();
    for block in bytes.chunks(100) {
        let length = block.len() as u16;
        stored.extend([&[0][..], &length.to_le_bytes(), &(!length).to_le_bytes(), block].concat());
    }
    stored.push(0);
    let decoded = CodecHarness::new(make()).decode(&masked(FIN | RSV1 | BINARY, &stored)).unwrap();
    assert!(matches!(&decoded[..], [Message::Binary(decoded)] if decoded.as_ref() == bytes));
}
