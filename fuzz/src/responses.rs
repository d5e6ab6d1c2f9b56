//! The client's side of HTTP/1.1: any split of any bytes gives the same responses and errors, and what is accepted another
//! parser accepts as well.
//!
//! The first byte is a seed of pieces, the second one chooses the limits, and the third one what was asked; the rest is
//! what a peer sends.

#[path = "../../crates/http1/tests/client/stage.rs"]
mod stage;

use tidegate_codec::{Codec, Step};
use tidegate_http1::client::{Incoming, Limits};
use tidegate_http1::{BodyLength, ResponseHead};

use self::stage::{Talk, contract, get};
use crate::choices::Choices;
use crate::http1::support::agreement;

/// A client that gathers bodies.
pub fn responses(data: &[u8]) {
    let mut choices = Choices::new(data);
    let (seed, options) = (choices.byte(), choices.byte());
    let asked = choices.pick(ASKED);
    let wire = choices.take(WIRE_BYTES_MAX);
    let limits = if options & TIGHT == 0 { Limits::default() } else { tight() };
    let contract = contract(&limits, asked).seed(seed.into());
    let contract = if options & STAYS_OPEN == 0 { contract } else { contract.stays_open() };
    contract.check_once(wire);
    agrees(wire);
    lives(asked.len(), usize::from(seed), wire);
}

/// Puts the first head to the other parser.
fn agrees(wire: &[u8]) {
    let mut talk = Talk::new();
    talk.say(get("/")).expect("it is ready");
    talk.stand.receive(wire);
    if let Ok(Step::Message(Incoming::Interim(head) | Incoming::Head(head))) = talk.stand.step() {
        agreement::of_response(&head, head.bytes());
        described(&head);
    }
}

/// All that can be asked of a head.
fn described(head: &ResponseHead) {
    for (name, _) in head.headers() {
        let name = str::from_utf8(name).expect("a name is text");
        assert!(head.header(name).is_some(), "a field is found by its name");
    }
    assert!(head.reason().iter().all(|byte| !matches!(byte, b'\r' | b'\n' | 0)), "a reason is in one line");
    assert_eq!(head.has_body(), head.body() != BodyLength::None);
    assert!(format!("{head:?}").contains(&head.status().to_string()));
}

/// Time passes between pieces, and then the client drains: whatever becomes of it, it ends.
fn lives(asked: usize, pause: usize, wire: &[u8]) {
    let mut talk = Talk::limited(Limits { pipeline_max: 8, ..Limits::default() });
    (0..asked).for_each(|_| talk.say(get("/")).expect("there is room for it"));
    // Who has not sent its requests waits for nothing yet.
    talk.sent();
    for piece in wire.chunks(1 + pause) {
        let heard = talk.hear(piece).map(drop).and_then(|()| talk.wait(pause as u64));
        assert!(heard.is_ok() || talk.is_finished(), "an error is the end");
        assert!(talk.stand.codec().unanswered() <= asked);
        if talk.is_finished() {
            return;
        }
    }
    let (client, mut out) = talk.stand.parts();
    let elsewhere = out.pool().copy(b"GET / HTTP/1.1");
    assert!(client.encoded(elsewhere, &mut out).is_err(), "a request whose response could not be read");
    assert!(client.unanswered() <= usize::from(client.config().limits().pipeline_max));
    talk.drain();
    assert!(!talk.is_ready() && talk.say(get("/")).is_err(), "who drains asks nothing more");
    while !talk.is_finished() {
        assert!(talk.stand.codec().poll_timeout().is_some(), "it waits for ever");
        let _ = talk.wait(61);
    }
}

/// What was asked, one behind the other.
const ASKED: &[&[&str]] = &[
    &["GET /"],
    &["HEAD /"],
    &["CONNECT a:1"],
    &["UPGRADE /"],
    &[],
    &["GET /", "GET /", "GET /"],
    &["HEAD /", "POST /", "HEAD /", "GET /"],
    &["GET /", "CONNECT a:1"],
];

/// Limits that short wires reach.
fn tight() -> Limits {
    Limits {
        head_bytes_max: 100,
        headers_max: 3,
        body_bytes_max: 20,
        chunk_extension_bytes_max: 10,
        trailer_bytes_max: 20,
        interim_max: 2,
        ..Limits::default()
    }
}

const TIGHT: u8 = 1;
const STAYS_OPEN: u8 = 2;

/// A longer wire finds nothing that a shorter one does not: the tight limits are below.
const WIRE_BYTES_MAX: usize = 1024;
