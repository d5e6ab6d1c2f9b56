//! Messages that do not end: their memory counts as their connection's, and they have a deadline.

use std::sync::Arc;
use std::time::Duration;

use tidegate::{Context, Handler, Limits, Outcome};
use tidegate_codec::Codec;
use tidegate_compress::{Algorithm, Compressor};
use tidegate_testkit::{CodecHarness, Embedded};
use tidegate_websocket::{Error, Exceeded, Message, Parameters, WebSocket};

use crate::support::{
    self, BINARY, CLOSE, CONTINUATION, FIN, PING, PONG, RSV1, code, deflating, frames, masked, server, without_takeover,
};

struct Discard;

impl Handler<WebSocket> for Discard {
    type Post = ();

    fn message(&mut self, _: Message, _: &mut Context<'_, WebSocket>) -> Outcome<WebSocket> {
        Outcome::Continue
    }
}

fn compressing() -> WebSocket {
    WebSocket::server(Arc::new(deflating()), Some(without_takeover()))
}

/// The first frame of a compressed message: some 250 bytes that become 200 KiB.
fn begun_compressed() -> Vec<u8> {
    let (mut compressor, mut wire) = (Compressor::new(Algorithm::RawDeflate.into()), Vec::new());
    compressor.write(&[0; 200 * 1024], &mut wire).expect("it compresses");
    compressor.flush(&mut wire).expect("it compresses");
    wire.truncate(wire.len() - 4);
    assert!(wire.len() < 1024, "{} bytes", wire.len());
    masked(RSV1 | BINARY, &wire)
}

#[test]
fn a_connection_whose_message_does_not_end_is_shed_when_memory_is_used_up() {
    let limits = Limits { memory_max: 150 * 1024, ..Limits::default() };
    let fragments = masked(BINARY, &[7; 8 * 1024]);
    let fragments = [fragments, masked(CONTINUATION, &[7; 8 * 1024]).repeat(30)].concat();
    for (codec, wire) in [(server(), fragments), (compressing(), begun_compressed())] {
        let mut pipe = Embedded::with_limits(codec, Discard, limits.clone());
        pipe.receive(&wire);
        assert!(pipe.is_reset() && pipe.counts().closed_shed == 1, "{:?}", pipe.counts());
        // The loop's scratch is left.
        assert!(pipe.counts().memory_bytes < 100 * 1024, "{} bytes are in use", pipe.counts().memory_bytes);
    }
}

/// A context takes several times the bytes that the peer has sent.
#[test]
fn contexts_of_compression_are_in_the_ledger_while_they_are_kept() {
    let mut pipe = Embedded::new(compressing(), Discard);
    // The first bytes bring the loop's scratch.
    pipe.receive(&masked(FIN | BINARY, b"ebb"));
    let begun = pipe.counts().memory_bytes;
    pipe.receive(&masked(RSV1 | BINARY, &[0, 0, 0, 0xFF]));
    assert!(pipe.counts().memory_bytes > begun + 30 * 1024, "{}", pipe.counts().memory_bytes);
    pipe.receive(&masked(FIN | CONTINUATION, &[0xFF]));
    assert_eq!(pipe.counts().memory_bytes, begun, "without takeover the context ends with its message");

    let takeover = Parameters { client_no_context_takeover: false, ..without_takeover() };
    let mut pipe = Embedded::new(WebSocket::server(Arc::new(deflating()), Some(takeover)), Discard);
    pipe.receive(&masked(FIN | RSV1 | BINARY, &[0]));
    assert!(pipe.counts().memory_bytes > begun + 30 * 1024, "with takeover it stays");
    pipe.receive(&masked(FIN | CLOSE, &code(1000, "")));
    pipe.receive_fin();
    assert!(pipe.is_closed());
    assert!(pipe.counts().memory_bytes <= begun, "it is gone with its connection");
}

/// Sends something every 20 seconds, so that no ping is missed.
fn stays_alive(harness: &mut CodecHarness<WebSocket>, seconds: u64, bytes: &[u8]) -> Result<(), Error> {
    for _ in 0..seconds / 10 {
        harness.decode(bytes)?;
        harness.advance_time(Duration::from_secs(10))?;
    }
    Ok(())
}

#[test]
fn a_message_that_does_not_end_has_a_deadline() {
    let pong = masked(FIN | PONG, b"");
    for (make, begun) in [
        (server as fn() -> WebSocket, masked(BINARY, b"ebb")),
        (compressing, begun_compressed()),
        (compressing, masked(RSV1 | BINARY, b"")),
    ] {
        let mut harness = CodecHarness::new(make());
        assert_eq!(harness.decode(&begun).expect("it is valid").len(), 0);
        assert_eq!(stays_alive(&mut harness, 20, &pong), Ok(()));
        let error = stays_alive(&mut harness, 10, &pong).expect_err("30 seconds are over");
        assert_eq!(error, Error::Limit(Exceeded::MessageTimeout));
        harness.flush().expect("it writes");
        let sent = frames(&harness.take_sent());
        assert_eq!(sent.last(), Some(&(FIN | CLOSE, code(1008, ""))));
    }
}

/// A frame that has all of its message stays in the input; its peer can send no pong within it.
#[test]
fn so_does_a_frame_of_which_a_byte_comes_now_and_then() {
    let frame = masked(FIN | BINARY, &[7; 100_000]);
    let mut harness = CodecHarness::new(server());
    harness.decode(&frame[..1_000]).expect("it is valid");
    let error = stays_alive(&mut harness, 30, &frame[1_000..1_001]).expect_err("30 seconds are over");
    assert_eq!(error, Error::Limit(Exceeded::MessageTimeout));
}

#[test]
fn a_peer_that_sends_enough_gets_as_long_again() {
    // 240 bytes a second are 7,200 in 30 seconds.
    let mut harness = CodecHarness::new(server());
    harness.decode(&masked(BINARY, b"ebb")).expect("it is valid");
    assert_eq!(stays_alive(&mut harness, 300, &masked(CONTINUATION, &[7; 2_400])), Ok(()));
    let frame = masked(FIN | BINARY, &[7; 100_000]);
    let mut harness = CodecHarness::new(server());
    for piece in frame.chunks(2_500) {
        harness.decode(piece).expect("it is valid");
        harness.advance_time(Duration::from_secs(10)).expect("the peer sends enough");
    }
    assert!(harness.codec().kept_bytes() == 0 && !harness.codec().status().is_finished);
}

#[test]
fn nothing_is_kept_between_messages_and_pieces_have_no_deadline() {
    let mut harness = CodecHarness::new(server());
    harness.decode(&[masked(BINARY, b"ebb"), masked(FIN | CONTINUATION, b"flow")].concat()).expect("it is valid");
    assert_eq!(harness.codec().kept_bytes(), 0);
    assert_eq!(stays_alive(&mut harness, 120, &masked(FIN | PING, b"")), Ok(()));

    let mut config = support::config();
    config.pieces_after = Some(2);
    let mut harness = CodecHarness::new(WebSocket::server(Arc::new(config), None));
    harness.decode(&masked(BINARY, b"ebb")).expect("it is valid");
    assert_eq!(stays_alive(&mut harness, 120, &masked(FIN | PING, b"")), Ok(()));
}
