//! Messages of all shapes, in every split, in both roles.

use std::sync::Arc;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use tidegate_codec::framing::Payload;
use tidegate_codec::{Codec, Lifecycle};
use tidegate_testkit::CodecHarness;
use tidegate_testkit::contract::{Contract, Outcome, Transcript};
use tidegate_websocket::{Close, CloseCode, Config, Error, Kind, Message, Misuse, Piece, WebSocket};

use crate::support::{
    BINARY, CLOSE, CONTINUATION, FIN, PING, PONG, TEXT, client, code, config, echo, frame, frames, masked, plain,
    server, unmasked,
};

/// The results of both roles for the frames, which must agree; messages come as text.
fn seen(config: &Config, frames: &[(u8, &[u8])]) -> Transcript {
    let config = Arc::new(config.clone());
    let wire =
        |is_masked| frames.iter().flat_map(|(first, payload)| frame(*first, payload, is_masked)).collect::<Vec<_>>();
    let served = Contract::rendered(|| WebSocket::server(config.clone(), None), render).answer(echo).check(&wire(true));
    let asked = Contract::rendered(|| WebSocket::client(config.clone(), None), render);
    let asked = asked.answer(echo).replies(unmasked).check(&wire(false));
    assert_eq!(served, asked, "both roles");
    served
}

fn render(message: &Message) -> String {
    let shown = |payload: &Payload| payload.as_ref().escape_ascii().to_string();
    match message {
        Message::Text(text) => format!("text {text}"),
        Message::Binary(payload) => format!("binary {}", shown(payload)),
        Message::Piece(piece) => format!("{:?} {} {}", piece.kind, shown(&piece.bytes), piece.is_last),
        Message::Ping(payload) => format!("ping {}", shown(payload)),
        Message::Pong(payload) => format!("pong {}", shown(payload)),
        Message::Close(close) => format!("close {close:?}"),
        other => format!("{other:?}"),
    }
}

#[test]
fn whole_messages_are_echoed() {
    let long = "tide ".repeat(1_000);
    let seen = seen(
        &config(),
        &[(FIN | TEXT, b"ebb"), (FIN | BINARY, b"\0\xFF"), (FIN | TEXT, b""), (FIN | TEXT, long.as_bytes())],
    );
    assert_eq!(seen.messages[..3], ["text ebb", "binary \\x00\\xff", "text "]);
    assert_eq!(seen.messages[3], format!("text {long}"));
    let sent = [
        plain(FIN | TEXT, b"ebb"),
        plain(FIN | BINARY, b"\0\xFF"),
        plain(FIN | TEXT, b""),
        plain(FIN | TEXT, long.as_bytes()),
    ];
    assert_eq!(seen.replies, sent.concat());
    assert_eq!(seen.outcome, Outcome::Ended);
}

#[test]
fn fragments_become_a_message_and_control_frames_may_lie_between() {
    let seen = seen(
        &config(),
        &[
            (TEXT, "ebb \u{20ac}".as_bytes()),
            (FIN | PING, b"are you there?"),
            (CONTINUATION, b""),
            (CONTINUATION, b"\xF0\x9F"),
            (FIN | PONG, b""),
            (FIN | CONTINUATION, b"\x98\x80"),
            (FIN | BINARY, b"x"),
        ],
    );
    assert_eq!(seen.messages, ["text ebb \u{20ac}\u{1F600}", "binary x"]);
    let replies = frames(&seen.replies);
    assert_eq!(replies[0], (FIN | PONG, b"are you there?".to_vec()));
    assert_eq!(replies[1], (FIN | TEXT, "ebb \u{20ac}\u{1F600}".into()));
}

#[test]
fn control_frames_are_yielded_where_the_application_wants_them() {
    let mut config = config();
    config.yields_control = true;
    let seen = seen(&config, &[(FIN | PING, b"1"), (FIN | PONG, b"2")]);
    assert_eq!(seen.messages, ["ping 1", "pong 2"]);
    assert_eq!(seen.replies, plain(FIN | PONG, b"1"));
}

#[test]
fn a_close_frame_is_answered_and_nothing_follows_it() {
    let mut yielding = config();
    yielding.yields_control = true;
    let closed = |payload: &[u8]| seen(&yielding, &around_close(payload));
    let with_code = closed(&code(1001, "the tide turns"));
    assert_eq!(with_code.messages.len(), 2);
    assert!(with_code.messages[1].contains("1001"), "{:?}", with_code.messages);
    assert_eq!(with_code.replies, [plain(FIN | TEXT, b"ebb"), plain(FIN | CLOSE, &code(1001, ""))].concat());
    let empty = closed(b"");
    assert_eq!(empty.messages[1], "close None");
    assert_eq!(empty.replies, [plain(FIN | TEXT, b"ebb"), plain(FIN | CLOSE, b"")].concat());
    for valid in [1000, 1001, 1002, 1003, 1007, 1011, 1014, 3000, 4999] {
        assert_eq!(closed(&code(valid, "")).replies[5..], plain(FIN | CLOSE, &code(valid, "")));
    }
    // Without the option the messages end with the close frame.
    let ended = seen(&config(), &around_close(&code(1001, "the tide turns")));
    assert_eq!(ended.messages, ["text ebb"]);
    assert_eq!((ended.replies, ended.outcome), (with_code.replies, with_code.outcome));
}

/// A text, a close frame, and a text behind it.
fn around_close(payload: &[u8]) -> [(u8, &[u8]); 3] {
    [(FIN | TEXT, b"ebb"), (FIN | CLOSE, payload), (FIN | TEXT, b"late")]
}

#[test]
fn large_messages_come_in_pieces_where_they_are_configured() {
    let mut config = config();
    config.pieces_after = Some(8);
    let text = "\u{20ac}".repeat(5);
    let seen = |frames: &[(u8, &[u8])]| {
        // The pieces depend on how the bytes came, so they are joined.
        let config = Arc::new(config.clone());
        let mut harness = CodecHarness::new(WebSocket::server(config, None));
        let mut joined = vec![(None, Vec::new(), false)];
        for byte in frames.iter().flat_map(|(first, payload)| masked(*first, payload)) {
            for message in harness.decode(&[byte]).unwrap() {
                let last = joined.last_mut().unwrap();
                match message {
                    Message::Piece(Piece { kind, bytes, is_last }) => {
                        assert!(*last.0.get_or_insert(kind) == kind, "one kind for all pieces");
                        last.1.extend_from_slice(bytes.as_ref());
                        last.2 = is_last;
                    }
                    Message::Text(text) => *last = (None, text.as_bytes().to_vec(), true),
                    other => panic!("{other:?}"),
                }
                if joined.last().unwrap().2 {
                    joined.push((None, Vec::new(), false));
                }
            }
        }
        joined.pop();
        joined
    };
    let one = seen(&[(FIN | TEXT, text.as_bytes()), (FIN | TEXT, b"short")]);
    assert_eq!(one, [(Some(Kind::Text), text.clone().into_bytes(), true), (None, b"short".to_vec(), true)]);
    let many = seen(&[(TEXT, b"ebb"), (CONTINUATION, b" and flow"), (CONTINUATION, b""), (FIN | CONTINUATION, b"")]);
    assert_eq!(many, [(Some(Kind::Text), b"ebb and flow".to_vec(), true)]);
}

#[test]
fn messages_are_sent_in_pieces() {
    let piece = |kind, bytes: &'static [u8], is_last| Message::Piece(Piece { kind, bytes: bytes.into(), is_last });
    let mut harness = CodecHarness::new(server());
    harness.encode(piece(Kind::Text, b"\xE2\x82", false)).unwrap();
    let unfinished = Error::Caller(Misuse::MessageUnfinished);
    assert_eq!(harness.encode(Message::from("whole")).unwrap_err(), unfinished);
    assert_eq!(harness.encode(piece(Kind::Binary, b"", true)).unwrap_err(), unfinished);
    let utf8 = Error::Caller(Misuse::Utf8);
    assert_eq!(harness.encode(piece(Kind::Text, b"\xFF", false)).unwrap_err(), utf8);
    assert_eq!(harness.encode(piece(Kind::Text, b"", true)).unwrap_err(), utf8);
    harness.encode(Message::Ping(b"".into())).unwrap();
    harness.encode(piece(Kind::Text, b"\xAC", true)).unwrap();
    harness.encode(Message::from("whole")).unwrap();
    harness.flush().unwrap();
    let sent = [
        plain(TEXT, b"\xE2\x82"),
        plain(FIN | PING, b""),
        plain(FIN | CONTINUATION, b"\xAC"),
        plain(FIN | TEXT, b"whole"),
    ];
    assert_eq!(harness.take_sent(), sent.concat());
}

#[test]
fn an_invalid_message_is_refused_and_writes_nothing() {
    let mut harness = CodecHarness::new(server());
    let long: Payload = vec![0; 126].into();
    for (message, misuse) in [
        (Message::Ping(long.clone()), Misuse::ControlTooLong),
        (Message::Pong(long), Misuse::ControlTooLong),
        (Close::new(CloseCode(1005), "").into(), Misuse::CloseCode(1005)),
        (Close::new(CloseCode::NORMAL, "x".repeat(124)).into(), Misuse::CloseReason),
    ] {
        assert_eq!(harness.encode(message).unwrap_err(), Error::Caller(misuse));
    }
    harness.encode(Close::new(CloseCode::NORMAL, "x".repeat(123)).into()).unwrap();
    assert_eq!(harness.encode(Message::from("late")).unwrap_err(), Error::Caller(Misuse::Closed));
    harness.flush().unwrap();
    assert_eq!(frames(&harness.take_sent()).len(), 1);
}

#[test]
fn the_closing_handshake_ends_when_both_sides_have_closed() {
    let mut harness = CodecHarness::new(server());
    harness.encode(Message::Close(None)).unwrap();
    assert!(!harness.codec().status().is_finished);
    // Messages of the peer that were on their way are yielded.
    let messages = harness.decode(&masked(FIN | TEXT, b"on its way")).unwrap();
    assert!(matches!(&messages[..], [Message::Text(text)] if *text == "on its way"));
    let messages = harness.decode(&masked(FIN | CLOSE, b"")).unwrap();
    assert!(messages.is_empty(), "{messages:?}");
    assert!(harness.codec().status().is_finished);
    harness.flush().unwrap();
    assert_eq!(harness.take_sent(), plain(FIN | CLOSE, b""));
}

#[test]
fn the_life_of_a_connection_has_its_codes() {
    for (event, expected) in [(Lifecycle::Drain, 1001), (Lifecycle::Fail, 1011), (Lifecycle::Close, 1000)] {
        let mut harness = CodecHarness::new(client());
        harness.notify(event).unwrap();
        harness.notify(Lifecycle::Close).unwrap();
        harness.flush().unwrap();
        assert_eq!(frames(&harness.take_sent()), [(FIN | CLOSE, code(expected, ""))], "once");
    }
}

proptest! {
    #[test]
    fn each_role_yields_the_messages_of_the_other(
        messages in vec((any::<bool>(), vec(any::<u8>(), 0..3_000), 1_usize..5), 1..6),
        from_client: bool,
        piece in 1_usize..2_000,
    ) {
        let (mut sender, mut receiver) = if from_client {
            (CodecHarness::new(client()), CodecHarness::new(server()))
        } else {
            (CodecHarness::new(server()), CodecHarness::new(client()))
        };
        let mut expected = Vec::new();
        for (is_text, bytes, parts) in messages {
            let (kind, bytes) = if is_text {
                (Kind::Text, String::from_utf8_lossy(&bytes).into_owned().into_bytes())
            } else {
                (Kind::Binary, bytes)
            };
            for (number, part) in bytes.chunks(bytes.len() / parts + 1).enumerate() {
                let is_last = (number + 1) * (bytes.len() / parts + 1) >= bytes.len();
                sender.encode(Message::Piece(Piece { kind, bytes: part.to_vec().into(), is_last })).unwrap();
            }
            if bytes.is_empty() {
                sender.encode(Message::Piece(Piece { kind, bytes: bytes.clone().into(), is_last: true })).unwrap();
            }
            expected.push((kind, bytes));
        }
        sender.flush().unwrap();
        let wire = sender.take_sent();
        let mut got = Vec::new();
        for part in wire.chunks(piece) {
            for message in receiver.decode(part).unwrap() {
                got.push(match message {
                    Message::Text(text) => (Kind::Text, text.as_bytes().to_vec()),
                    Message::Binary(bytes) => (Kind::Binary, bytes.as_ref().to_vec()),
                    other => panic!("{other:?}"),
                });
            }
        }
        prop_assert_eq!(got, expected);
    }
}

#[test]
fn mutated_frames_neither_panic_nor_depend_on_their_pieces() {
    let wire = |is_masked| {
        let parts: [(u8, &[u8]); 6] = [
            (TEXT, "ebb \u{20ac}".as_bytes()),
            (FIN | PING, b"ping"),
            (FIN | CONTINUATION, b" flow"),
            (FIN | BINARY, &[7; 300]),
            (FIN | TEXT, b"tide"),
            (FIN | CLOSE, b"\x03\xE8done"),
        ];
        parts.iter().flat_map(|(first, payload)| frame(*first, payload, is_masked)).collect::<Vec<_>>()
    };
    Contract::new(server).answer(echo).never_panics(&wire(true), 3_000);
    Contract::new(client).answer(echo).never_panics(&wire(false), 3_000);
}

#[test]
fn a_drain_that_is_spread_closes_each_connection_within_its_time() {
    let mut config = Config::default();
    config.drain_spread = Some(Duration::from_secs(10));
    let config = Arc::new(config);
    let mut closed = [0; 10];
    for _ in 0..200 {
        let mut harness = CodecHarness::new(WebSocket::server(config.clone(), None));
        harness.notify(Lifecycle::Drain).unwrap();
        harness.notify(Lifecycle::Drain).unwrap();
        let second = (0..10).find(|_| {
            harness.advance_time(Duration::from_secs(1)).unwrap();
            harness.flush().unwrap();
            harness.take_sent() == [0x88, 2, 0x03, 0xF4]
        });
        closed[second.expect("it closes")] += 1;
    }
    // Ten connections a second would take 20 of them, on average.
    assert!(closed.iter().all(|count| (1..80).contains(count)), "{closed:?}");
}
