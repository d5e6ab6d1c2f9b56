//! Stacks of filters: any split of hostile bytes below them decodes alike, and plain bytes arrive through them.
//!
//! The first byte is the seed of the split, the second one chooses the stack. The rest is the wire below the stack; or
//! the plain bytes above it, in records whose length comes next, and then the stack must decode the messages that the
//! codec alone decodes.

use std::error::Error;

use tidegate_codec::framing::{Lines, Payload};
use tidegate_codec::{Codec, Filters, Output, Over, Pipeline, Slice};
use tidegate_testkit::contract::{Contract, Transcript};
use tidegate_testkit::filters::{StripPrefix, ToyTls};

use crate::choices::Choices;
use crate::framings::{WIRE_BYTES_MAX, text};

/// Lines under every stack of the two test filters.
pub fn filters(data: &[u8]) {
    let mut choices = Choices::new(data);
    let seed = choices.byte();
    let options = choices.byte();
    let record = if options & IN_ORDER == 0 { 0 } else { 1 + choices.below(16) };
    let bytes = choices.take(WIRE_BYTES_MAX);
    let check = Check { seed, bytes, record, cut_off: options & CUT_OFF != 0, open: options & STAYS_OPEN != 0 };
    let tls = |wire: &[u8]| ToyTls::client_wire(KEY, wire, record);
    let prefixed = |wire: &[u8]| [PREFIX, wire].concat();
    let over_tls = Over::new(ToyTls::server(KEY), plain());
    assert_eq!(over_tls.codec().protocol(), plain().protocol(), "the codec is that above the filter");
    match options & 7 {
        0 => check.stack(|| Over::new(ToyTls::server(KEY), plain()), &tls),
        1 => check.stack(|| Over::new(ToyTls::client(KEY), plain()), &|wire| ToyTls::server_wire(KEY, wire, record)),
        2 => check.stack(|| Over::new(StripPrefix::new(PREFIX), plain()), &prefixed),
        3 => {
            let make = || Over::new(ToyTls::server(KEY), Over::new(StripPrefix::new(PREFIX), plain()));
            check.stack(make, &|wire| tls(&prefixed(wire)));
        }
        4 => {
            let make = || Over::new(StripPrefix::new(PREFIX), Over::new(ToyTls::server(KEY), plain()));
            check.stack(make, &|wire| prefixed(&tls(wire)));
        }
        5 => {
            // Their types are erased.
            let filters = || Filters::default().with(ToyTls::server(KEY)).with(StripPrefix::new(PREFIX));
            let mut stacked = filters().stack(plain());
            assert!(stacked.filter_mut::<ToyTls>().is_some() && stacked.filter::<StripPrefix>().is_some());
            check.stack(|| filters().stack(plain()), &|wire| tls(&prefixed(wire)));
        }
        _ => {
            // Two equal filters: the output of the outer one is the wire of the inner one.
            let make = || Over::new(ToyTls::server(KEY), Over::new(ToyTls::server(KEY), plain()));
            check.stack(make, &|wire| tls(&tls(wire)));
        }
    }
}

struct Check<'a> {
    seed: u8,
    bytes: &'a [u8],
    record: usize,
    cut_off: bool,
    open: bool,
}

impl Check<'_> {
    /// Decodes the bytes below a stack, or the bytes above it after `wire` has encoded them.
    fn stack<C>(&self, make: impl Fn() -> C, wire: &dyn Fn(&[u8]) -> Vec<u8>)
    where
        C: Pipeline<In = Slice, Out = Payload>,
    {
        let mut names = Vec::new();
        make().protocols(&mut |name| names.push(name));
        assert_eq!(names.first(), Some(&plain().protocol()), "the codec is the first of {names:?}");
        if self.record == 0 {
            self.run(make, self.bytes);
            return;
        }
        let mut wire = wire(self.bytes);
        let alone = self.run(plain, self.bytes);
        if self.cut_off {
            // Some of the last bytes are missing: the messages are a prefix of the complete ones.
            wire.truncate(wire.len().saturating_sub(1 + usize::from(self.seed & 7)));
            let stacked = self.run(make, &wire);
            let count = stacked.messages.len();
            assert_eq!(alone.messages.get(..count), Some(&stacked.messages[..]), "truncated input decodes differently");
            return;
        }
        let stacked = self.run(make, &wire);
        assert_eq!(stacked.messages, alone.messages, "the filters change the messages");
        if !self.open {
            assert_eq!(stacked.blame(), alone.blame(), "the filters change the blame");
        }
    }

    fn run<C>(&self, make: impl Fn() -> C, wire: &[u8]) -> Transcript
    where
        C: Pipeline<In = Slice, Out = Payload>,
    {
        let answer = |line: Slice, codec: &mut C, out: &mut Output<'_>| {
            // A line that ends with CR is refused: with LF alone it would not decode to itself.
            if let Err(error) = codec.encode(line.into(), out) {
                assert!(!error.to_string().is_empty() && error.source().is_none(), "{error:?}");
            }
        };
        // Records depend on the time of the flush, and so on the split; their own tests check that they are valid.
        let contract =
            Contract::rendered(make, |line| text(line)).answer(answer).replies(|_| Vec::new()).seed(self.seed.into());
        let contract = if self.open { contract.stays_open() } else { contract };
        contract.check_once(wire)
    }
}

fn plain() -> Lines {
    Lines::new().with_line_bytes_max(LINE_BYTES_MAX)
}

const KEY: u8 = 0x5a;
const PREFIX: &[u8] = b"PROXY\r\n";

/// Short, so that the limit is reached.
const LINE_BYTES_MAX: usize = 40;

/// The bytes are the plain bytes above the stack.
const IN_ORDER: u8 = 8;
const CUT_OFF: u8 = 16;
const STAYS_OPEN: u8 = 32;
