//! The contract detects broken codecs: one for each of its checks.

use std::fmt;

use tidegate_codec::framing::{Lines, Payload};
use tidegate_codec::{Blame, Codec, Fault, Input, Output, Slice, Step};
use tidegate_testkit::contract::{Contract, Outcome, check, never_panics, refuses_before_allocating};

/// A codec that is only a function, with its state in `State`.
struct Broken(State, fn(&mut State, &mut Input, &mut Output<'_>) -> Result<Step<Slice>, Refused>);

#[derive(Default)]
struct State {
    kept: Option<Slice>,
    calls: usize,
}

#[derive(Debug)]
struct Refused;

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("refused")
    }
}

impl std::error::Error for Refused {}

impl Fault for Refused {
    fn blame(&self) -> Blame {
        Blame::Peer
    }
}

impl Codec for Broken {
    type In = Slice;
    type Out = Payload;
    type Error = Refused;

    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Slice>, Refused> {
        (self.1)(&mut self.0, input, reply)
    }

    fn encode(&mut self, _: Payload, _: &mut Output<'_>) -> Result<(), Refused> {
        Err(Refused)
    }
}

fn broken(decode: fn(&mut State, &mut Input, &mut Output<'_>) -> Result<Step<Slice>, Refused>) -> impl Fn() -> Broken {
    move || Broken(State::default(), decode)
}

#[test]
#[should_panic(expected = "when they came byte by byte, 4 of them: message 0 is b\"e\" instead of b\"ebb\\n\"")]
fn a_codec_that_decodes_partial_messages_is_detected() {
    let make =
        broken(|_, input, _| Ok(if input.is_empty() { Step::NeedMore } else { Step::Message(input.take_all()) }));
    check(make, b"ebb\n");
}

#[test]
#[should_panic(expected = "the replies differ from byte 2 on")]
fn a_codec_that_replies_once_per_dispatch_is_detected() {
    let make = broken(|_, input, reply| {
        reply.write(b"+");
        input.consume(input.len());
        Ok(Step::NeedMore)
    });
    check(make, b"ebb\n");
}

#[test]
#[should_panic(expected = "open instead of failed with Refused, to blame: Peer")]
fn a_codec_that_misses_an_error_is_detected() {
    let make = broken(|_, input, _| {
        let failed = input.bytes().starts_with(b"\r\n");
        input.consume(input.len());
        if failed { Err(Refused) } else { Ok(Step::NeedMore) }
    });
    Contract::new(make).stays_open().check(b"\r\n");
}

#[test]
#[should_panic(expected = "split in two at byte 2")]
fn a_codec_that_fails_at_one_split_only_is_detected() {
    let make = broken(|state, input, _| {
        state.calls += usize::from(!input.is_empty());
        // Wrong only when the first byte of its end arrives alone.
        if input.bytes() == b"ab" && state.calls == 1 {
            return Err(Refused);
        }
        Ok(if input.len() < 4 { Step::NeedMore } else { Step::Message(input.take(4)) })
    });
    check(make, b"abcd");
}

#[test]
#[should_panic(expected = "still refers to the loop's scratch")]
fn a_codec_that_keeps_the_scratch_is_detected() {
    let make = broken(|state, input, _| {
        if !input.is_empty() {
            state.kept = Some(input.take_all());
        }
        Ok(Step::NeedMore)
    });
    check(make, b"ebb\n");
}

#[test]
#[should_panic(expected = "bytes of memory are held though everything was dropped")]
fn a_codec_that_leaks_is_detected() {
    let make = broken(|_, input, reply| {
        if input.is_empty() {
            return Ok(Step::NeedMore);
        }
        let bytes = input.take_all();
        std::mem::forget(reply.pool().copy(&bytes));
        Ok(Step::NeedMore)
    });
    check(make, b"ebb\n");
}

#[test]
#[should_panic(expected = "messages and no end")]
fn a_codec_that_never_ends_is_detected() {
    never_panics(broken(|_, _, reply| Ok(Step::Message(reply.pool().copy(b"again")))), b"ebb\n", 1);
}

#[test]
#[should_panic(expected = "bytes of memory")]
fn a_codec_that_allocates_a_declared_length_is_detected() {
    let make = broken(|state, input, reply| {
        let Some(&declared) = input.bytes().first() else { return Ok(Step::NeedMore) };
        state.kept = Some(reply.pool().copy(&vec![0; usize::from(declared) << 12]));
        Err(Refused)
    });
    refuses_before_allocating(make, b"\xff");
}

#[test]
#[should_panic(expected = "it was not refused: 0 messages")]
fn a_codec_that_waits_for_a_declared_length_is_detected() {
    refuses_before_allocating(broken(|_, _, _| Ok(Step::NeedMore)), b"\xff\xff\xff\xff");
}

#[test]
#[should_panic(expected = "never below three")]
fn a_codec_that_panics_is_detected() {
    let make = broken(|_, input, _| {
        assert!(input.bytes().iter().all(|byte| *byte > 2), "a length is never below three");
        input.consume(input.len());
        Ok(Step::NeedMore)
    });
    never_panics(make, b"\x03abc", 100);
}

#[test]
fn a_transcript_has_the_messages_and_the_outcome() {
    let seen = check(Lines::new, b"ebb\nflow");
    assert_eq!(seen.messages, [r#"b"ebb""#]);
    let error = "Truncated { bytes: 4 }".to_owned();
    assert_eq!(seen.outcome, Outcome::Failed { error, blame: Blame::Peer });
    assert_eq!(Contract::new(Lines::new).stays_open().check(b"ebb\nflow").outcome, Outcome::Open);
    assert_eq!(check(Lines::new, b"").outcome, Outcome::Ended);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    // The log of all messages, in whatever pieces they arrive, must be the same with the same seed.
    let log = |seed| {
        let seen = std::cell::RefCell::new(Vec::new());
        let contract = Contract::rendered(Lines::new, |line| {
            seen.borrow_mut().push(line.to_vec());
            String::new()
        });
        contract.seed(seed).never_panics(b"ebb\nflow\n", 200);
        seen.into_inner()
    };
    assert_eq!(log(7), log(7));
    assert_ne!(log(7), log(8));
}
