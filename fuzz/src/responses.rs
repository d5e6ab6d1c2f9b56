//! The HTTP/1.1 client side: any split of any bytes gives the same responses and errors, and another parser accepts
//! every accepted response.
//!
//! The first byte is the seed of the split, the second one chooses the limits, and the third one the requests; the rest
//! is the peer's output.

#[expect(dead_code, reason = "the tests of the crate use the rest of it")]
#[path = "../../crates/http1/tests/suite/support/client.rs"]
mod support;

use std::sync::Arc;

use tidegate_codec::{Codec, Step};
use tidegate_http1::client::{Incoming, Limits};
use tidegate_http1::{BodyLength, Client, ResponseHead, Version};
use tidegate_testkit::CodecHarness;

use self::support::{Talk, config, contract, get};
use crate::choices::Choices;
use crate::http1::support::agreement::{HEADERS_MAX, text, with_known_version};

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
    trims(wire);
    lives(asked.len(), usize::from(seed), wire);
}

/// Compares the first head with the other parser.
fn agrees(wire: &[u8]) {
    let mut talk = Talk::new();
    talk.say(get("/")).expect("it is ready");
    talk.harness.receive(wire);
    if let Ok(Step::Message(Incoming::Interim(head) | Incoming::Head(head))) = talk.harness.step() {
        agrees_with_httparse(&head, head.bytes());
        described(&head);
    }
}

/// Checks the response head that is all of `wire`.
///
/// # Panics
/// If `httparse` refuses it, or sees something else.
fn agrees_with_httparse(head: &ResponseHead, wire: &[u8]) {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut other = httparse::Response::new(&mut headers);
    let wire = with_known_version(wire);
    let status = other.parse(&wire);
    assert_eq!(status, Ok(httparse::Status::Complete(wire.len())), "{head:?}");
    assert_eq!(
        (other.code, other.version),
        (Some(head.status().code()), Some(u8::from(head.version() > Version::Http10)))
    );
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let headers: Vec<_> = head.headers().map(|(name, value)| (lossy(name), lossy(value))).collect();
    assert_eq!(headers, other.headers.iter().map(text).collect::<Vec<_>>());
}

/// A client that takes white space before colons reads every response that another client accepts in the same way.
fn trims(wire: &[u8]) {
    let trimming = config(Limits::default()).trim_field_names(true);
    let mut trimming = Talk { harness: CodecHarness::new(Client::new(Arc::new(trimming))) };
    trimming.say(get("/")).expect("it is ready");
    trimming.sent();
    let (strict, trimmed) = (Talk::asked().receive(wire), trimming.receive(wire));
    if let Ok(messages) = strict {
        assert_eq!(trimmed.expect("it accepts more"), messages);
    }
}

/// Calls all accessors of a head.
fn described(head: &ResponseHead) {
    for (name, _) in head.headers() {
        let name = str::from_utf8(name).expect("a name is text");
        assert!(head.header(name).is_some(), "a field is found by its name");
    }
    assert!(head.reason().iter().all(|byte| !matches!(byte, b'\r' | b'\n' | 0)), "a reason is in one line");
    assert_eq!(head.has_body(), head.body() != BodyLength::None);
    if head.header("connection").is_none() {
        assert!(!head.has_connection_options(), "it has no option");
        assert!(!head.keeps_alive() || head.version() == Version::Http11, "HTTP/1.0 keeps no connection by itself");
    }
    assert!(format!("{head:?}").contains(&head.status().to_string()));
}

/// Time passes between pieces, and then the client drains: in every case it finishes.
fn lives(asked: usize, pause: usize, wire: &[u8]) {
    let mut talk = Talk::limited(Limits { pipeline_max: 8, ..Limits::default() });
    (0..asked).for_each(|_| talk.say(get("/")).expect("there is room for it"));
    // The response deadline starts only when the requests are sent.
    talk.sent();
    for piece in wire.chunks(1 + pause) {
        let outcome = talk.receive(piece).map(drop).and_then(|()| talk.wait(pause as u64));
        assert!(outcome.is_ok() || talk.is_finished(), "an error finishes the client");
        assert!(talk.harness.codec().unanswered() <= asked);
        if talk.is_finished() {
            return;
        }
    }
    let client = talk.harness.codec();
    assert!(client.unanswered() <= usize::from(client.config().limits().pipeline_max));
    talk.drain();
    assert!(!talk.is_ready() && talk.say(get("/")).is_err(), "a draining client sends no request");
    while !talk.is_finished() {
        assert!(talk.harness.codec().poll_timeout().is_some(), "it waits for ever");
        let _ = talk.wait(61);
    }
}

/// Sequences of requests.
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

/// Longer input finds nothing more: the tight limits are below this.
const WIRE_BYTES_MAX: usize = 1024;
