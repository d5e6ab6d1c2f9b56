//! permessage-deflate: the examples of the RFC, both roles, with takeover and without, and messages that a peer may not
//! send.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use tidegate_codec::{Blame, Broadcast, Codec, Encoded, Pool, Step};
use tidegate_testkit::CodecHarness;
use tidegate_testkit::allocations::Region;
use tidegate_testkit::contract::Contract;
use tidegate_websocket::{
    Close, CloseCode, Config, Error, Exceeded, Kind, Message, Parameters, Piece, Violation, WebSocket,
};

use crate::support::{
    self, BINARY, CLOSE, CONTINUATION, FIN, PING, RSV1, TEXT, code, config, deflating, echo, frames, masked, plain,
    without_takeover,
};

fn server_with(config: Config, agreed: Parameters) -> WebSocket {
    WebSocket::server(Arc::new(config), Some(agreed))
}

fn server() -> WebSocket {
    server_with(deflating(), without_takeover())
}

fn texts(wire: &[u8], agreed: Parameters) -> Vec<String> {
    Contract::new(|| server_with(deflating(), agreed)).check(wire).messages
}

const HELLO: &[u8] = b"\xF2\x48\xCD\xC9\xC9\x07\x00";

#[test]
fn the_examples_of_the_rfc() {
    let whole = masked(FIN | RSV1 | TEXT, HELLO);
    assert_eq!(texts(&whole, without_takeover()), [r#"Text("Hello")"#]);
    let fragments =
        [masked(RSV1 | TEXT, &HELLO[..3]), masked(FIN | PING, b""), masked(FIN | CONTINUATION, &HELLO[3..])];
    assert_eq!(texts(&fragments.concat(), without_takeover()), [r#"Text("Hello")"#]);
    // The second message refers to the first one.
    let shared = [whole.clone(), masked(FIN | RSV1 | TEXT, b"\xF2\x00\x11\x00\x00")].concat();
    assert_eq!(texts(&shared, Parameters::default()), [r#"Text("Hello")"#, r#"Text("Hello")"#]);
    let stored = masked(FIN | RSV1 | TEXT, b"\x00\x05\x00\xFA\xFF\x48\x65\x6C\x6C\x6F\x00");
    assert_eq!(texts(&stored, without_takeover()), [r#"Text("Hello")"#]);
    let last_block = masked(FIN | RSV1 | TEXT, b"\xF3\x48\xCD\xC9\xC9\x07\x00\x00");
    assert_eq!(texts(&last_block, without_takeover()), [r#"Text("Hello")"#]);
    let two_blocks = masked(FIN | RSV1 | TEXT, b"\xF2\x48\x05\x00\x00\x00\xFF\xFF\xCA\xC9\xC9\x07\x00");
    assert_eq!(texts(&two_blocks, without_takeover()), [r#"Text("Hello")"#]);
    let empty = masked(FIN | RSV1 | TEXT, b"\x00");
    assert_eq!(texts(&empty, without_takeover()), [r#"Text("")"#]);
}

/// A byte behind the last block of a stream begins another stream, in the same frame or in the next one.
#[test]
fn bytes_behind_the_last_block_have_the_same_result_however_they_are_split() {
    let stream = b"\xF3\x48\xCD\xC9\xC9\x07\x00";
    let text = |count: usize| Ok(vec![format!(r#"Text("{}")"#, "Hello".repeat(count))]);
    let expected = [
        (&b""[..], text(1)),
        (b"\x00", text(1)),
        (HELLO, text(2)),
        (&stream[..], text(2)),
        // No block has this type.
        (b"\x07", Err(Blame::Peer)),
    ];
    for agreed in [without_takeover(), Parameters::default()] {
        for (more, expected) in &expected {
            let payload = [&stream[..], more].concat();
            for split in 0..=payload.len() {
                let (first, second) = payload.split_at(split);
                let wire = [masked(RSV1 | TEXT, first), masked(FIN | CONTINUATION, second)].concat();
                let seen = Contract::new(|| server_with(deflating(), agreed)).check(&wire);
                let result = seen.blame().map_or(Ok(seen.messages), Err);
                assert_eq!(&result, expected, "{more:?}, split at {split}");
            }
        }
    }
}

#[test]
fn messages_without_compression_may_come_between() {
    let wire = [masked(FIN | TEXT, b"plain"), masked(FIN | RSV1 | TEXT, HELLO), masked(FIN | BINARY, b"x")].concat();
    let messages = texts(&wire, without_takeover());
    assert_eq!(messages[..2], [r#"Text("plain")"#, r#"Text("Hello")"#]);
    assert_eq!(messages.len(), 3);
}

#[test]
fn a_short_message_is_sent_uncompressed() {
    let mut config = deflating();
    config.deflate.as_mut().unwrap().compress_bytes_min = 6;
    let mut harness = CodecHarness::new(server_with(config, without_takeover()));
    harness.encode(Message::from("Hello")).unwrap();
    harness.encode(Message::from("Hello Hello")).unwrap();
    harness.flush().unwrap();
    let sent = frames(&harness.take_sent());
    assert_eq!(sent[0], (FIN | TEXT, b"Hello".to_vec()));
    assert_eq!(sent[1].0, FIN | RSV1 | TEXT);
}

#[test]
fn corrupt_and_truncated_streams_are_refused() {
    for payload in [&b"\xFF\xFF\xFF"[..], b"\x05\x05\x05\x05", b"\x00\x05\x00\x00\x00hello"] {
        let seen = Contract::new(server).check(&masked(FIN | RSV1 | TEXT, payload));
        assert_eq!(seen.error(), Some("Peer(Deflate)"), "{}", payload.escape_ascii());
        assert_eq!(frames(&seen.replies)[0].1, code(1007, ""));
    }
    let seen = Contract::new(server).check(&masked(FIN | RSV1 | TEXT, b"\x00\x01\x00\xFE\xFF\xFF\x00"));
    assert_eq!(seen.error(), Some("Peer(Utf8)"), "text is checked after decompression");
}

/// A message of zeros, compressed as a peer of ours does.
fn zeros(count: usize) -> Vec<u8> {
    let mut harness = CodecHarness::new(WebSocket::client(Arc::new(deflating()), Some(without_takeover())));
    harness.encode(Message::binary(vec![0; count])).unwrap();
    harness.flush().unwrap();
    harness.take_sent()
}

#[test]
fn bombs_end_at_the_limit_of_a_message_and_at_the_ratio() {
    let refused = |config: Config, wire: &[u8]| {
        let mut harness = CodecHarness::new(server_with(config, without_takeover()));
        let before = harness.pool().ledger().used();
        let error = harness.decode(wire).unwrap_err();
        let used = harness.pool().ledger().used().saturating_sub(before);
        assert!(used <= 2 * 1024 * 1024, "{used} bytes of memory");
        error
    };
    let bomb = zeros(64 * 1024 * 1024);
    assert!(bomb.len() < 100_000, "{} bytes", bomb.len());
    let mut large = deflating();
    large.message_bytes_max = 1 << 30;
    assert_eq!(refused(large, &bomb), Error::Limit(Exceeded::Ratio));
    let mut patient = deflating();
    patient.deflate.as_mut().unwrap().ratio_max = u32::MAX;
    assert_eq!(refused(patient, &bomb), Error::Limit(Exceeded::MessageBytes));
    // A short message may expand.
    let mut harness = CodecHarness::new(server());
    assert_eq!(harness.decode(&zeros(200 * 1024)).unwrap().len(), 1);
}

/// A receiver of messages in pieces, without bounds on a message.
fn in_pieces() -> CodecHarness<WebSocket> {
    let mut config = deflating();
    config.pieces_after = Some(1_000);
    config.message_bytes_max = 1 << 30;
    config.deflate.as_mut().unwrap().ratio_max = u32::MAX;
    CodecHarness::new(server_with(config, without_takeover()))
}

#[test]
fn pieces_of_a_compressed_message_wait_for_the_application() {
    let mut harness = in_pieces();
    let used = |harness: &CodecHarness<WebSocket>| harness.pool().ledger().used();
    let before = used(&harness);
    harness.receive(&zeros(10_000_000));
    let (mut total, mut pieces, mut ended) = (0, 0, false);
    loop {
        // The ledger has the memory of the codec and its pool, the allocator that of everything else.
        let region = Region::new();
        let Step::Message(message) = harness.step().unwrap() else { break };
        let allocated = region.change().bytes_allocated;
        assert!(allocated <= 128 * 1024, "{allocated} bytes were allocated for piece {pieces}");
        // The compressed bytes, a context, and this piece: a part that is not asked for is not decompressed.
        let bytes = used(&harness).saturating_sub(before);
        assert!(bytes <= 256 * 1024, "{bytes} bytes of memory with piece {pieces}");
        let Message::Piece(Piece { bytes, is_last, .. }) = message else { panic!("{message:?}") };
        assert!(bytes.as_ref().len() <= 16 * 1024 && !ended);
        total += bytes.as_ref().len();
        pieces += 1;
        ended = is_last;
    }
    assert!(ended && total == 10_000_000 && pieces > 600, "{total} bytes in {pieces} pieces");
}

/// A codec that decompressed a message before it yields the first piece would refuse this one at once.
#[test]
fn the_pieces_before_a_corrupt_block_are_yielded() {
    let mut sender = CodecHarness::new(server_with(deflating(), without_takeover()));
    sender.encode(Message::binary(vec![0; 1_000_000])).unwrap();
    sender.flush().unwrap();
    let (_, compressed) = frames(&sender.take_sent()).remove(0);
    // The empty block that the sender leaves out, and one of a type that does not exist.
    let payload = [&compressed[..], b"\x00\x00\xFF\xFF", b"\x07"].concat();
    let mut harness = in_pieces();
    harness.receive(&masked(FIN | RSV1 | BINARY, &payload));
    let mut pieces = 0;
    let error = loop {
        match harness.step() {
            Ok(Step::Message(Message::Piece(_))) => pieces += 1,
            Ok(other) => panic!("{other:?}"),
            Err(error) => break error,
        }
    };
    assert_eq!(error, Error::Peer(Violation::Deflate));
    assert!(pieces > 60, "{pieces} pieces");
}

fn side(is_server: bool, config: &Arc<Config>, agreed: Parameters) -> CodecHarness<WebSocket> {
    CodecHarness::new(if is_server {
        WebSocket::server(config.clone(), Some(agreed))
    } else {
        WebSocket::client(config.clone(), Some(agreed))
    })
}

proptest! {
    #[test]
    fn both_roles_understand_each_other_with_takeover_and_without(
        messages in vec((vec(0_u8..4, 0..5_000), any::<bool>()), 1..8),
        takeovers: (bool, bool),
        bits in 9_u8..16,
        from_client: bool,
        piece in 1_usize..3_000,
    ) {
        let agreed = Parameters {
            server_no_context_takeover: !takeovers.0,
            client_no_context_takeover: !takeovers.1,
            server_max_window_bits: bits,
            client_max_window_bits: bits,
        };
        let mut config = deflating();
        config.deflate.as_mut().unwrap().takeover = true;
        let config = Arc::new(config);
        let (mut sender, mut receiver) = (side(!from_client, &config, agreed), side(from_client, &config, agreed));
        let mut got = Vec::new();
        for (bytes, _) in &messages {
            sender.encode(Message::binary(bytes.clone())).unwrap();
        }
        sender.flush().unwrap();
        for part in sender.take_sent().chunks(piece) {
            got.extend(receiver.decode(part).unwrap());
        }
        prop_assert_eq!(got.len(), messages.len());
        for (message, (bytes, _)) in got.iter().zip(&messages) {
            let Message::Binary(payload) = message else { panic!("{message:?}") };
            prop_assert_eq!(payload.as_ref(), &bytes[..]);
        }
    }
}

#[test]
fn a_broadcast_is_compressed_once_and_each_connection_gets_the_form_that_it_reads() {
    let config = Arc::new(deflating());
    let message = "the tide turns, ".repeat(100);
    let news: Encoded<WebSocket> =
        Encoded::new(&mut WebSocket::server(config.clone(), None), Message::from(message.clone())).unwrap();
    let pool = Pool::new();
    let shared = pool.copy(news.bytes());
    let sent = |codec: WebSocket| {
        let mut harness = CodecHarness::new(codec);
        let (codec, mut out) = harness.parts();
        Broadcast::write_encoded(codec, shared.clone(), &mut out).unwrap();
        harness.flush().unwrap();
        harness.take_sent()
    };
    assert_eq!(sent(WebSocket::server(config.clone(), None)), plain(FIN | TEXT, message.as_bytes()));
    let compressed = sent(WebSocket::server(config.clone(), Some(without_takeover())));
    assert!(compressed[0] == FIN | RSV1 | TEXT && compressed.len() < 100, "{}", compressed.len());
    let mut receiver = side(false, &config, without_takeover());
    let got = receiver.decode(&compressed).unwrap();
    assert!(matches!(&got[..], [Message::Text(text)] if *text == *message));
    // A peer with a smaller window, and one whose context would miss the message, get the plain form.
    let narrow = Parameters { server_max_window_bits: 9, ..without_takeover() };
    assert_eq!(sent(WebSocket::server(config.clone(), Some(narrow)))[0], FIN | TEXT);
    let mut keeps = deflating();
    keeps.deflate.as_mut().unwrap().takeover = true;
    let keeps = WebSocket::server(Arc::new(keeps), Some(Parameters::default()));
    assert_eq!(sent(keeps)[0], FIN | TEXT);
}

#[test]
fn a_close_frame_for_many_connections_ends_what_each_of_them_sends() {
    let close = |code, reason: &str| Message::Close(Some(Close::new(CloseCode(code), reason)));
    let pool = Pool::new();
    let write = |codec: &mut CodecHarness<WebSocket>, message: Message| {
        let shared = Encoded::<WebSocket>::new(&mut support::server(), message).unwrap();
        let shared = pool.copy(shared.bytes());
        let (codec, mut out) = codec.parts();
        Broadcast::write_encoded(codec, shared, &mut out)
    };
    for (message, payload) in [(close(4001, "signed out"), code(4001, "signed out")), (Message::Close(None), vec![])] {
        let mut harness = CodecHarness::new(support::server());
        write(&mut harness, Message::from("ebb")).unwrap();
        // Also between the pieces of another message.
        let piece = Piece { kind: Kind::Text, bytes: "the ".into(), is_last: false };
        harness.encode(Message::Piece(piece)).unwrap();
        assert!(write(&mut harness, Message::from("flood")).is_err());
        write(&mut harness, message).unwrap();
        assert!(harness.parts().0.poll_timeout().is_some(), "the peer's close frame is awaited");
        assert!(write(&mut harness, Message::from("flood")).is_err(), "nothing follows it");
        assert!(harness.encode(Message::from("flood")).is_err());
        harness.flush().unwrap();
        let sent = harness.take_sent();
        assert_eq!(sent, [plain(FIN | TEXT, b"ebb"), plain(TEXT, b"the "), plain(FIN | CLOSE, &payload)].concat());
        // The peer's ends the connection, and is no message that is answered.
        harness.decode(&masked(FIN | CLOSE, &payload)).unwrap();
        harness.flush().unwrap();
        assert!(harness.take_sent().is_empty());
    }
    for message in [close(1005, ""), close(1000, &"x".repeat(124))] {
        assert!(Encoded::<WebSocket>::new(&mut support::server(), message).is_err());
    }
}

#[test]
fn bytes_that_are_no_broadcast_are_refused() {
    for bytes in [&b""[..], b"\0\0\0", b"\0\0\0\0", b"\0\0\0\x05\x81\x01x"] {
        let mut harness = CodecHarness::new(server());
        let slice = harness.pool().copy(bytes);
        let (codec, mut out) = harness.parts();
        assert!(Broadcast::write_encoded(codec, slice, &mut out).is_err(), "{}", bytes.escape_ascii());
    }
    let mut client = WebSocket::client(Arc::new(config()), None);
    assert!(Encoded::new(&mut client, Message::from("x")).is_err(), "a client masks");
}

#[test]
fn mutated_streams_neither_panic_nor_depend_on_their_pieces() {
    let wire = [
        masked(FIN | RSV1 | TEXT, HELLO),
        masked(RSV1 | TEXT, &HELLO[..3]),
        masked(FIN | PING, b""),
        masked(FIN | CONTINUATION, &HELLO[3..]),
        masked(FIN | BINARY, b"plain"),
        zeros(3_000),
    ]
    .concat();
    Contract::new(server).answer(echo).never_panics(&wire, 3_000);
    Contract::new(|| server_with(deflating(), Parameters::default())).never_panics(&wire, 1_000);
}

#[test]
fn a_configuration_without_compression_uses_the_defaults_for_the_agreed_extension() {
    let mut harness = CodecHarness::new(server_with(config(), without_takeover()));
    let messages = harness.decode(&masked(FIN | RSV1 | TEXT, HELLO)).unwrap();
    assert!(matches!(&messages[..], [Message::Text(text)] if *text == "Hello"));
}
