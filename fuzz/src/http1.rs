//! The HTTP/1.1 server side: any split of any bytes gives the same requests, errors and responses, and another parser
//! accepts every accepted request.
//!
//! The first byte is the seed of the split, the second one chooses the configuration; the rest is the peer's output.

#[expect(dead_code, reason = "the tests of the crate use the rest of it")]
#[path = "../../crates/http1/tests/suite/support/mod.rs"]
pub(crate) mod support;

use std::sync::{Arc, LazyLock};

use tidegate_codec::{Output, Pipeline, Step};
use tidegate_http1::{
    Chunk, Config, Incoming, Limits, Method, Outgoing, RequestHead, Response, Server, Status, StreamedResponse,
};
use tidegate_testkit::CodecHarness;
use tidegate_testkit::contract::{Contract, Transcript};

pub(crate) use self::support::seen_with;
use self::support::{Gathering, Request, agreement, seen};
use crate::choices::Choices;

/// A server that collects bodies and then answers, or answers each head at once and skips the body.
pub fn http1(data: &[u8]) {
    let mut choices = Choices::new(data);
    let (seed, options) = (choices.byte(), choices.byte());
    let config = &CONFIGS[usize::from(options & 7)];
    let wire = choices.take(WIRE_BYTES_MAX);
    let make = || Server::new(Arc::clone(config));
    if let Some(request) = seen(wire).requests.first() {
        agreement::of_request(request, wire);
    }
    let split = usize::from(seed).min(wire.len());
    let serial = exchange(wire.split_at(split), config, false);
    assert_eq!(exchange(wire.split_at(split), config, true), serial, "reading ahead changes nothing");
    if options & ANSWERS_EARLY == 0 {
        let contract = Contract::rendered(|| Gathering::new(make()), whole);
        run(contract.answer(|_, codec, out| answer(options, codec, out)), options, seed, wire);
    } else {
        let contract = Contract::rendered(make, |incoming| match incoming {
            Incoming::Head(head) => described(head),
            // Pieces of a body that is in progress when the response starts depend on the split.
            Incoming::Data(_) | Incoming::Trailers(_) | Incoming::End | Incoming::Preface => String::new(),
        });
        let answer = |incoming, codec: &mut Server, out: &mut Output<'_>| {
            let Incoming::Head(head) = incoming else { panic!("the body of a request that was answered") };
            answer(options, codec, out);
            assert_eq!(codec.is_switched(), head.method() == Method::Connect, "only a granted CONNECT is a tunnel");
        };
        run(contract.answer(answer), options, seed, wire);
    }
}

fn run<C: Pipeline>(contract: Contract<'_, C>, options: u8, seed: u8, wire: &[u8]) -> Transcript {
    let contract = contract.seed(seed.into());
    let contract = if options & STAYS_OPEN == 0 { contract } else { contract.stays_open() };
    contract.check_once(wire)
}

/// The input and output of an application that answers each request once it is complete: the heads, the bytes that it
/// has sent, and how decoding has failed. If it reads `ahead`, it does so behind every request that may have others in
/// progress behind it, and answers only when the codec yields no more.
fn exchange(
    (first, second): (&[u8], &[u8]),
    config: &Arc<Config>,
    ahead: bool,
) -> (Vec<String>, Vec<u8>, Option<String>) {
    let mut harness = CodecHarness::new(Server::new(Arc::clone(config)));
    let (mut heads, mut complete, mut answered, mut failure) = (Vec::new(), 0, 0, None);
    for part in [first, second] {
        harness.receive(part);
        while failure.is_none() {
            match harness.step() {
                Ok(Step::Message(Incoming::Head(head))) => {
                    heads.push(format!("{head:?}"));
                    complete += usize::from(!head.has_body());
                    let is_safe = matches!(head.method(), Method::Get | Method::Head | Method::Options);
                    if ahead && is_safe && head.header("upgrade").is_none() {
                        let (codec, _) = harness.parts();
                        codec.read_ahead();
                        assert!(codec.requests_ahead() < heads.len() - answered, "they have been yielded");
                    }
                }
                Ok(Step::Message(Incoming::End)) => complete += 1,
                Ok(Step::Message(_)) => {}
                Ok(Step::NeedMore | Step::End) if answered < complete => {
                    harness.encode(Response::text("ok").into()).expect("a response is owed");
                    answered += 1;
                }
                Ok(Step::NeedMore | Step::End) => break,
                Err(error) => failure = Some(format!("{error:?}")),
            }
        }
    }
    harness.flush().expect("nothing is held back");
    (heads, harness.take_sent(), failure)
}

/// A complete response, of the kind that `options` chooses.
fn answer<C: Pipeline<Out = Outgoing, Error = tidegate_http1::Error>>(
    options: u8,
    codec: &mut C,
    out: &mut Output<'_>,
) {
    let response = match options >> 6 {
        0 => Response::text("ok").into(),
        1 => Response::new(Status::NO_CONTENT).into(),
        2 => Response::text("the last").close().into(),
        _ => StreamedResponse::new(Status::OK).into(),
    };
    codec.encode(response, out).expect("a response is owed");
    if options >> 6 == 3 {
        // Fails for a CONNECT: the tunnel is open, and the bytes after the head are not HTTP.
        let _ = codec.encode(Chunk::new(b"piece by piece").into(), out);
        let _ = codec.encode(Outgoing::End, out);
    }
}

/// A request as text.
fn whole(request: &Request) -> String {
    let Request { method, target, headers, body, trailers } = request;
    format!("{method} {target} {headers:?} {body} {trailers:?}")
}

/// Calls all accessors of a head, and asserts that they agree.
fn described(head: &RequestHead) -> String {
    let target = head.target();
    assert!(head.target_bytes().starts_with(target.as_bytes()), "a target is text up to a byte that is not");
    assert!(head.path_bytes().starts_with(head.path().as_bytes()), "a path is text up to a byte that is not");
    let is_split = |byte: &u8| *byte <= b' ' || matches!(byte, b'#' | 0x7f);
    assert!(!head.target_bytes().iter().any(is_split), "nothing in a target ends it");
    assert!(head.method_text().len() + head.target_bytes().len() < head.bytes().len(), "a head holds its first line");
    assert!(head.method().name().is_none_or(|name| name == head.method_text()), "a method is the sent one");
    assert_eq!(head.protocol(), None, "HTTP/1.1 has no extended CONNECT");
    for (name, value) in head.headers() {
        assert!(!name.is_empty() && name.iter().all(u8::is_ascii_graphic), "a field has a name");
        assert!(!value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)), "a value is in one line");
        let name = str::from_utf8(name).expect("a name is text");
        assert!(head.header(name).is_some(), "a field is found by its name");
    }
    format!(
        "{head:?} {:?} {} {:?} {} {} {}",
        head.method(),
        head.path(),
        head.query(),
        head.host(),
        head.keeps_alive(),
        head.expects_continue()
    )
}

/// The default configuration, and some with limits that short wires reach.
pub(crate) static CONFIGS: LazyLock<[Arc<Config>; 8]> = LazyLock::new(|| {
    std::array::from_fn(|index| {
        let limits = if index & 1 == 0 { Limits::default() } else { tight() };
        Arc::new(Config::new(limits).continue_by_hand(index & 2 != 0).length_required(index & 4 != 0))
    })
});

/// Limits that short wires reach.
fn tight() -> Limits {
    Limits {
        request_line_bytes_max: 40,
        head_bytes_max: 100,
        headers_max: 3,
        body_bytes_max: 20,
        chunk_extension_bytes_max: 10,
        trailer_bytes_max: 20,
        skip_bytes_max: 12,
        ..Limits::default()
    }
}

const ANSWERS_EARLY: u8 = 8;
const STAYS_OPEN: u8 = 16;

/// Longer input finds nothing more: the tight limits are below this.
const WIRE_BYTES_MAX: usize = 1024;
