//! WebSocket: any split of any bytes gives the same messages, replies and errors, in both roles, with compression and
//! without; and the other role yields every message that one role sends.
//!
//! The first byte is the seed of the split, the second one chooses the role and its options; the rest is the wire, or
//! messages.

use std::sync::Arc;
use std::time::Duration;

use tidegate_codec::{Codec, Output};
use tidegate_testkit::CodecHarness;
use tidegate_testkit::contract::Contract;
use tidegate_websocket::{Config, Deflate, Kind, Message, Parameters, Piece, WebSocket};

use crate::choices::Choices;

/// The frames of a connection, or the messages of one.
pub fn websocket(data: &[u8]) {
    let mut choices = Choices::new(data);
    let (seed, options) = (choices.byte(), choices.byte());
    if options & ROUND_TRIP == 0 {
        frames(seed, options, choices.take(WIRE_BYTES_MAX));
    } else {
        round_trip(seed, options, choices.take(WIRE_BYTES_MAX));
    }
}

fn config(options: u8) -> Arc<Config> {
    let mut deflate = Deflate::default();
    (deflate.compress_bytes_min, deflate.takeover) = (2, options & TAKEOVER != 0);
    let mut config = Config::default();
    config.message_bytes_max = 64 * 1024;
    config.yields_control = true;
    config.empty_frames_max = 3;
    config.deflate = Some(deflate);
    Arc::new(config)
}

fn codec(is_client: bool, options: u8) -> WebSocket {
    let forgets = options & TAKEOVER == 0;
    let agreed = (options & DEFLATE != 0).then_some(Parameters {
        server_no_context_takeover: forgets,
        client_no_context_takeover: forgets,
        ..Parameters::default()
    });
    let config = config(options);
    if is_client { WebSocket::client(config, agreed) } else { WebSocket::server(config, agreed) }
}

fn frames(seed: u8, options: u8, wire: &[u8]) {
    let is_client = options & CLIENT != 0;
    let echo = |message: Message, codec: &mut WebSocket, out: &mut Output<'_>| {
        // The masks of a client are random, and so would the replies be.
        if !is_client && !matches!(message, Message::Ping(_) | Message::Close(_)) {
            codec.encode(message, out).expect("a received message may be sent");
        }
    };
    let contract = Contract::new(|| codec(is_client, options)).answer(echo).seed(seed.into());
    let contract = contract.replies(|replies| match (is_client, options & DEFLATE != 0) {
        (true, _) => vec![replies.len() as u8],
        // A context that was in use before may find other matches than a new one.
        (false, true) => messages(codec(true, options), replies).into_bytes(),
        (false, false) => replies.to_vec(),
    });
    let contract = if options & STAYS_OPEN == 0 { contract } else { contract.stays_open() };
    let seen = contract.check_once(wire);
    drop(seen);
    lives(seed, codec(is_client, options), wire);
}

/// Time passes between pieces: a message that does not end fails, and all that the codec keeps has a bound.
fn lives(seed: u8, codec: WebSocket, wire: &[u8]) {
    let mut harness = CodecHarness::new(codec);
    for piece in wire.chunks(1 + usize::from(seed)) {
        if harness.decode(piece).and_then(|_| harness.advance_time(Duration::from_secs(seed.into()))).is_err() {
            return;
        }
        assert!(harness.codec().kept_bytes() <= KEPT_BYTES_MAX, "it keeps {} bytes", harness.codec().kept_bytes());
    }
}

/// The messages that the peer decodes.
fn messages(peer: WebSocket, wire: &[u8]) -> String {
    format!("{:?}", CodecHarness::new(peer).decode(wire).expect("the replies are well-formed"))
}

/// Messages whose lengths and kinds the bytes choose.
fn round_trip(seed: u8, options: u8, data: &[u8]) {
    let is_client = options & CLIENT != 0;
    let mut sender = CodecHarness::new(codec(is_client, options));
    let mut receiver = CodecHarness::new(codec(!is_client, options));
    let mut choices = Choices::new(data);
    let mut sent = Vec::new();
    for _ in 0..MESSAGES_MAX {
        let (length, parts) = (usize::from(choices.byte()) * 3, usize::from(choices.byte() % 4));
        let bytes = choices.take(length).to_vec();
        match bytes.len().checked_div(parts) {
            None => {
                sender.encode(Message::binary(bytes.clone())).expect("it may be sent");
            }
            Some(quotient) => {
                let length = quotient + 1;
                for (number, part) in bytes.chunks(length).chain([&[][..]]).enumerate() {
                    let is_last = number > bytes.len() / length || part.is_empty();
                    let piece = Piece { kind: Kind::Binary, bytes: part.to_vec().into(), is_last };
                    sender.encode(piece.into()).expect("it may be sent");
                    if is_last {
                        break;
                    }
                }
            }
        }
        sent.push(bytes);
    }
    sender.flush().expect("there is no filter");
    let mut received = Vec::new();
    for part in sender.take_sent().chunks(usize::from(seed) + 1) {
        received.extend(receiver.decode(part).expect("one role understands the other"));
    }
    assert_eq!(received.len(), sent.len(), "as many messages as were sent");
    for (message, bytes) in received.iter().zip(&sent) {
        let Message::Binary(payload) = message else { panic!("{message:?}") };
        assert_eq!(payload.as_ref(), &bytes[..]);
    }
}

const CLIENT: u8 = 1;
const DEFLATE: u8 = 2;
const TAKEOVER: u8 = 4;
const STAYS_OPEN: u8 = 8;
const ROUND_TRIP: u8 = 16;

/// A message of the largest length, in a buffer that has doubled, and two contexts.
const KEPT_BYTES_MAX: usize = 1024 * 1024;

const WIRE_BYTES_MAX: usize = 2048;
const MESSAGES_MAX: usize = 4;
