//! The rules of protocol sniffing: no bytes, in no pieces, make two rules match, a verdict change, or a byte vanish.
//!
//! The first byte chooses the order of the rules and the limits, the second one is the seed of the split. The rest are
//! the first bytes of a connection, from which the peer ends its stream or at which the deadline comes.

use std::rc::Rc;
use std::time::Duration;

use tidegate_codec::sniff::{self, Match, Rules, SniffError, Sniffer};
use tidegate_codec::{Lifecycle, Step};
use tidegate_testkit::CodecHarness;

use crate::choices::Choices;

type Rule = fn(&[u8]) -> Match;

const RULES: [(u8, Rule); 4] = [(0, sniff::tls), (1, sniff::proxy), (2, sniff::http1), (3, sniff::http2)];
const OTHERWISE: u8 = 4;

/// Sniffs the same bytes in pieces and whole.
pub fn sniff(data: &[u8]) {
    let mut choices = Choices::new(data);
    let options = choices.byte();
    let seed = choices.byte();
    let wire = choices.take(WIRE_BYTES_MAX);
    let alone: Vec<_> = RULES.iter().filter(|(_, rule)| matches(*rule, wire)).map(|(value, _)| *value).collect();
    assert!(alone.len() <= 1, "the rules {alone:?} match the same bytes");
    let whole = run(options, &[wire]);
    let mut pieces = Vec::new();
    let mut left = wire;
    let mut state = u32::from(seed) + 1;
    while !left.is_empty() {
        state = state.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        let (piece, rest) = left.split_at(left.len().min(1 + (state >> 16) as usize % 7));
        pieces.push(piece);
        left = rest;
    }
    assert_eq!(run(options, &pieces), whole, "the split decides");
    if options & SHORT == 0 {
        let expected = alone.first().copied();
        let is_default = matches!(whole, Ok(Some(OTHERWISE)) | Err(_) | Ok(None));
        assert!(expected.is_none() && is_default || whole == Ok(expected), "{whole:?}, but {expected:?} matches");
    }
}

/// Whether a rule matches; its verdicts must not contradict each other.
fn matches(rule: Rule, wire: &[u8]) -> bool {
    let mut last = Match::NeedMore;
    for length in 1..=wire.len() {
        let verdict = rule(&wire[..length]);
        assert!(last == Match::NeedMore || verdict == last, "a verdict is not final");
        last = verdict;
    }
    last == Match::Matched
}

/// The verdict of the sniffer, at the latest at the end of the stream or at the deadline.
fn run(options: u8, pieces: &[&[u8]]) -> Result<Option<u8>, SniffError> {
    let first = usize::from(options & 3);
    let order = RULES.iter().cycle().skip(first).take(RULES.len());
    let mut rules = order.fold(Rules::new(), |rules, (value, rule)| rules.rule(*rule, *value));
    if options & HAS_DEFAULT != 0 {
        rules = rules.otherwise(OTHERWISE);
    }
    if options & SHORT != 0 {
        rules = rules.bytes_max(SHORT_BYTES);
    }
    let mut harness = CodecHarness::new(Sniffer::new(Rc::new(rules.deadline(DEADLINE))));
    harness.notify(Lifecycle::Opened).expect("it opens");
    let mut sent = Vec::new();
    for piece in pieces {
        sent.extend_from_slice(piece);
        harness.receive(piece);
        let step = harness.step()?;
        assert_eq!(harness.input().bytes(), sent, "the bytes stay");
        if let Step::Message(value) = step {
            assert_eq!(harness.step(), Ok(Step::End), "there is one message");
            return Ok(Some(value));
        }
    }
    let step = if options & DEADLINE_COMES == 0 {
        harness.decode_eof()?
    } else {
        harness.advance_time(DEADLINE)?;
        match harness.step() {
            Err(SniffError::Silent | SniffError::Late) => return Ok(None),
            step => step?,
        }
    };
    assert_eq!(harness.input().bytes(), sent, "the bytes stay");
    Ok(match step {
        Step::Message(value) => Some(value),
        Step::End => None,
        Step::NeedMore => panic!("it is undecided after all"),
    })
}

const HAS_DEFAULT: u8 = 4;
const SHORT: u8 = 8;
const DEADLINE_COMES: u8 = 16;

const SHORT_BYTES: usize = 8;
const WIRE_BYTES_MAX: usize = 300;
const DEADLINE: Duration = Duration::from_secs(1);
