//! The cost of long messages: memory for received bytes, and one copy of a message that comes in parts.

use std::sync::Arc;

use tidegate::{Context, Handler, Outcome};
use tidegate_codec::Codec;
use tidegate_testkit::{CodecHarness, Embedded};
use tidegate_websocket::{Message, WebSocket};

use crate::support::{BINARY, FIN, config, masked, plain};

struct Echo;

impl Handler<WebSocket> for Echo {
    type Post = ();

    fn message(&mut self, message: Message, cx: &mut Context<'_, WebSocket>) -> Outcome<WebSocket> {
        cx.send(message).into()
    }
}

fn echo() -> Embedded<()> {
    Embedded::new(WebSocket::server(Arc::new(config()), None), Echo)
}

#[test]
fn a_connection_has_memory_for_bytes_that_came_not_for_those_that_are_announced() {
    for length in [70_000, 128 * 1024, 1024 * 1024] {
        let frame = masked(FIN | BINARY, &vec![7; length]);
        let mut pipe = echo();
        // The scratch is there from the first receive on.
        pipe.receive(&masked(FIN | BINARY, b"ebb"));
        let before = pipe.pool().ledger().used();
        let mut came = 0;
        for part in frame.chunks(1_000) {
            pipe.receive(part);
            came += part.len();
            let used = pipe.pool().ledger().used().saturating_sub(before);
            let is_whole = came == frame.len();
            assert!(is_whole || used <= 2 * came + came / 4 + 1_024, "{used} bytes for {came} of {length}");
        }
        assert!(pipe.take_written().ends_with(&vec![7; length]));
    }
}

#[test]
fn the_parts_of_a_message_are_copied_once() {
    let payload = vec![7; 60_000];
    let frame = masked(FIN | BINARY, &payload);
    let mut pipe = echo();
    pipe.receive(&frame);
    let begun = pipe.pool().ledger().copied_bytes().expect("tests count copies");
    for part in frame.chunks(frame.len() / 2 + 100) {
        pipe.receive(part);
    }
    let copied = pipe.pool().ledger().copied_bytes().expect("tests count copies") - begun;
    assert!(copied <= payload.len() as u64 + 1_000, "{copied} bytes are copied");
    let echo = plain(FIN | BINARY, &payload);
    assert_eq!(pipe.take_written(), [&echo[..], &echo].concat());
}

#[test]
fn a_receive_brings_the_rest_of_a_frame_or_a_frame_as_long_as_the_last() {
    let mut harness = CodecHarness::new(WebSocket::server(Arc::new(config()), None));
    let mut hint = |bytes: &[u8]| {
        harness.decode(bytes).expect("the frames are right");
        harness.codec().receive_hint().map(|hint| hint.receive_bytes(2_048))
    };
    let frame = masked(FIN | BINARY, &vec![7; 70_000]);
    assert_eq!(hint(b""), None, "nothing is known");
    assert_eq!(hint(&masked(FIN | BINARY, &[7; 5_000])), None, "usual receives bring these whole");
    let (first, rest) = frame.split_at(1_000);
    let expected = rest.len()..rest.len() + 1_024;
    assert!(hint(first).is_some_and(|bytes| expected.contains(&bytes)));
    let (second, third) = rest.split_at(60_000);
    let expected = third.len()..third.len() + 1_024;
    assert!(hint(second).is_some_and(|bytes| expected.contains(&bytes)));
    let expected = frame.len() + 1..frame.len() + 1_100;
    assert!(hint(third).is_some_and(|bytes| expected.contains(&bytes)), "the next one is probably as long");
    assert_eq!(hint(&masked(FIN | BINARY, b"ebb")), None);
    let much = masked(FIN | BINARY, &vec![7; 1 << 20]);
    assert_eq!(hint(&much[..100]), Some(128 * 1024), "no receive is longer");
}
