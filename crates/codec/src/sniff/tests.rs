use std::time::SystemTime;

use tidegate_buffer::{Outbound, Pool};

use super::*;
use crate::output::Time;

/// Bytes that a rule matches, the shortest of them that it does, and the name of the rule.
const SAMPLES: &[(&str, &[u8], usize)] = &[
    ("tls", b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03", 6),
    ("tls", b"\x16\x03\x00\0\x01\x01", 6),
    ("tls", b"\x16\x03\x04\x40\0\x01\xff\xff\xff", 6),
    ("proxy", b"PROXY TCP4 192.0.2.1 192.0.2.2 5000 443\r\nGET / HTTP/1.1\r\n", 9),
    ("proxy", b"PROXY UNKNOWN\r\n", 13),
    ("proxy", b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c", 12),
    ("http2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0", 24),
    ("http1", b"GET / HTTP/1.1\r\nHost: sea\r\n\r\n", 5),
    ("http1", b"OPTIONS * HTTP/1.1\r\n", 9),
    ("http1", b"PROPFIND /a HTTP/1.1\r\n", 10),
    ("http1", b"VERSION-CONTROL /a HTTP/1.1\r\n", 17),
    ("http1", b"GET HTTP://sea/ HTTP/1.1\r\n", 9),
    ("http1", b"GET https://sea/ HTTP/1.1\r\n", 10),
    ("http1", b"CONNECT sea:443 HTTP/1.1\r\n", 9),
    ("http1", b"\r\nGET / HTTP/1.1\r\n", 7),
    ("http1", b"\r\n\r\n\r\nGET / HTTP/1.1\r\n", 11),
];

type Named = (&'static str, fn(&[u8]) -> Match);
const RULES: [Named; 4] = [("tls", tls), ("proxy", proxy), ("http1", http1), ("http2", http2)];

/// Every order of the four rules.
fn orders() -> Vec<[Named; 4]> {
    let mut orders = Vec::new();
    for a in 0..4 {
        for b in (0..4).filter(|b| *b != a) {
            for c in (0..4).filter(|c| ![a, b].contains(c)) {
                orders.push([RULES[a], RULES[b], RULES[c], RULES[6 - a - b - c]]);
            }
        }
    }
    orders
}

fn rules(order: &[Named]) -> Rules<&'static str> {
    order.iter().fold(Rules::new(), |rules, (name, rule)| rules.rule(*rule, *name))
}

/// A sniffer that gets bytes in pieces.
struct Sniffing {
    sniffer: Sniffer<&'static str>,
    input: Input,
    queue: Outbound,
    pool: Pool,
    time: Time,
}

impl Sniffing {
    fn new(rules: Rules<&'static str>) -> Self {
        let (pool, time) = (Pool::new(), Time::new(Instant::now(), SystemTime::UNIX_EPOCH));
        let sniffer = Sniffer::new(Rc::new(rules));
        let mut sniffing = Self { sniffer, input: Input::new(), queue: Outbound::new(&pool), pool, time };
        sniffing.with(|sniffer, _, out| sniffer.on(Lifecycle::Opened, out)).expect("it opens");
        sniffing
    }

    fn with<R>(&mut self, act: impl FnOnce(&mut Sniffer<&'static str>, &mut Input, &mut Output<'_>) -> R) -> R {
        act(&mut self.sniffer, &mut self.input, &mut Output::new(&mut self.queue, &self.pool, &self.time))
    }

    fn receive(&mut self, bytes: &[u8]) -> Result<Step<&'static str>, SniffError> {
        self.input.append(self.pool.copy(bytes), &self.pool);
        let before = self.input.bytes().to_vec();
        let step = self.with(|sniffer, input, out| sniffer.decode(input, out));
        assert_eq!((self.input.bytes(), self.queue.pending()), (&before[..], 0), "it consumes and writes nothing");
        step
    }

    fn eof(&mut self) -> Result<Step<&'static str>, SniffError> {
        self.with(|sniffer, input, out| sniffer.decode_eof(input, out))
    }

    fn advance(&mut self, by: Duration) {
        self.time.advance(self.time.now() + by, || SystemTime::UNIX_EPOCH);
        if self.sniffer.poll_timeout().is_some_and(|at| at <= self.time.now()) {
            self.with(|sniffer, input, out| sniffer.handle_timeout(input, out)).expect("no error");
        }
    }
}

#[test]
fn every_sample_is_recognised_at_every_split_in_every_order_of_the_rules() {
    for order in orders() {
        for (name, wire, _) in SAMPLES {
            for split in 0..=wire.len() {
                let mut sniffing = Sniffing::new(rules(&order));
                let first = sniffing.receive(&wire[..split]).unwrap();
                let step = if first == Step::NeedMore { sniffing.receive(&wire[split..]).unwrap() } else { first };
                assert_eq!(step, Step::Message(*name), "{} split at {split}", wire.escape_ascii());
                assert_eq!(sniffing.receive(b"more"), Ok(Step::End), "one message, whatever follows");
            }
        }
    }
}

#[test]
fn byte_by_byte_a_rule_matches_with_its_last_deciding_byte() {
    for (name, wire, deciding) in SAMPLES {
        let mut sniffing = Sniffing::new(rules(&RULES));
        for (index, byte) in wire[..*deciding].iter().enumerate() {
            let expected = if index + 1 == *deciding { Step::Message(*name) } else { Step::NeedMore };
            assert_eq!(sniffing.receive(&[*byte]), Ok(expected), "{} at {index}", wire.escape_ascii());
        }
    }
}

/// Alone and with all their beginnings, so that no rule contradicts its earlier verdict.
#[test]
fn at_most_one_rule_matches_and_verdicts_are_final() {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..20_000 {
        let (_, sample, _) = SAMPLES[round % SAMPLES.len()];
        let mut wire = sample.to_vec();
        for _ in 0..random() % 4 {
            let at = random() as usize % wire.len();
            match random() % 3 {
                0 => wire[at] = random() as u8,
                1 => wire[at] ^= 1 << (random() % 8),
                _ => wire.truncate(at.max(1)),
            }
        }
        let mut matched = Vec::new();
        for (name, rule) in RULES {
            let mut last = Match::NeedMore;
            for length in 1..=wire.len() {
                let now = rule(&wire[..length]);
                assert!(last == Match::NeedMore || last == now, "{name}: {} at {length}", wire.escape_ascii());
                last = now;
            }
            matched.extend((last == Match::Matched).then_some(name));
        }
        assert!(matched.len() <= 1, "{matched:?} match {}", wire.escape_ascii());
    }
}

#[test]
fn other_bytes_match_no_rule() {
    let others: [&[u8]; 16] = [
        b"\x16\x02\x01\0\x20\x01",
        b"\x16\x03\x05\0\x20\x01",
        b"\x16\x03\x01\0\0\x01",
        b"\x16\x03\x01\x40\x01\x01",
        b"\x16\x03\x01\0\x20\x02",
        b"\x80\x2e\x01\0\x02",
        b"PRI / HTTP/1.1\r\n",
        b"PRI * HTTP/2.1",
        b"get / HTTP/1.1\r\n",
        b"GET key\r\n",
        b"GET hello\r\n",
        b"GET\t/ HTTP/1.1\r\n",
        b" / HTTP/1.1\r\n",
        b"\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\n",
        b"\nGET / HTTP/1.1\r\n",
        b"CONNECT \x01",
    ];
    for wire in others {
        assert_eq!(Sniffing::new(rules(&RULES)).receive(wire), Err(SniffError::NoMatch), "{}", wire.escape_ascii());
        let mut otherwise = Sniffing::new(rules(&RULES).otherwise("lines"));
        assert_eq!(otherwise.receive(wire), Ok(Step::Message("lines")), "{}", wire.escape_ascii());
    }
    assert_eq!(http1(&[b'A'; METHOD_AND_MORE]), Match::NotMatched);
    assert_eq!(http1(&[b'A'; METHOD_AND_MORE - 1]), Match::NeedMore);
}

const METHOD_AND_MORE: usize = 33;

/// A rule that never decides.
fn insatiable(_: &[u8]) -> Match {
    Match::NeedMore
}

#[test]
fn a_rule_sees_no_more_than_the_most_bytes() {
    let seeing = |first: &[u8]| {
        assert!(first.len() <= 4, "it sees {} bytes", first.len());
        Match::NeedMore
    };
    let sniffer = |rules: Rules<_>| Sniffing::new(rules.rule(seeing, "all").rule(http1, "http1").bytes_max(4));
    assert_eq!(sniffer(Rules::new()).receive(b"GET"), Ok(Step::NeedMore));
    assert_eq!(sniffer(Rules::new()).receive(b"GET "), Err(SniffError::TooManyBytes));
    assert_eq!(sniffer(Rules::new()).receive(&[7; 60_000]), Err(SniffError::TooManyBytes));
    assert_eq!(sniffer(Rules::new().otherwise("other")).receive(b"GET / HTTP"), Ok(Step::Message("other")));
    let mut by_default = Sniffing::new(Rules::new().rule(insatiable, "all"));
    assert_eq!(by_default.receive(&[7; FIRST_BYTES_MAX - 1]), Ok(Step::NeedMore));
    assert_eq!(by_default.receive(&[7]), Err(SniffError::TooManyBytes));
    // None would never match.
    assert_eq!(Sniffing::new(Rules::new().rule(tls, "tls").bytes_max(0)).receive(b"\x17"), Err(SniffError::NoMatch));
}

#[test]
fn a_rule_that_does_not_match_is_not_called_again() {
    let calls = Rc::new(std::cell::Cell::new(0));
    let counted = calls.clone();
    let never = move |_: &[u8]| {
        counted.set(counted.get() + 1);
        Match::NotMatched
    };
    let mut sniffing = Sniffing::new(Rules::new().rule(never, "never").rule(http1, "http1"));
    for byte in b"GET " {
        assert_eq!(sniffing.receive(&[*byte]), Ok(Step::NeedMore));
    }
    assert_eq!(sniffing.receive(b"/"), Ok(Step::Message("http1")));
    assert_eq!(calls.get(), 1);
}

#[test]
fn the_deadline_decides_for_silence_or_for_too_few_bytes() {
    let late = |rules: Rules<&'static str>, bytes: &[u8]| {
        let mut sniffing = Sniffing::new(rules.rule(http1, "http1"));
        assert_eq!(sniffing.receive(bytes), Ok(Step::NeedMore));
        sniffing.advance(DEADLINE - Duration::from_millis(1));
        assert_eq!(sniffing.receive(b""), Ok(Step::NeedMore), "the deadline has not come");
        sniffing.advance(Duration::from_millis(1));
        assert_eq!(sniffing.sniffer.poll_timeout(), None, "it comes once");
        sniffing.receive(b"")
    };
    assert_eq!(late(Rules::new(), b""), Err(SniffError::Silent));
    assert_eq!(late(Rules::new(), b"GE"), Err(SniffError::Late));
    assert_eq!(late(Rules::new().otherwise("other"), b""), Err(SniffError::Silent));
    assert_eq!(late(Rules::new().otherwise("other"), b"GE"), Ok(Step::Message("other")));
    assert_eq!(late(Rules::new().when_silent("greets"), b""), Ok(Step::Message("greets")));
    assert_eq!(late(Rules::new().when_silent("greets"), b"GE"), Err(SniffError::Late));
    // Bytes that arrive together with the deadline count.
    let mut sniffing = Sniffing::new(Rules::new().rule(http1, "http1").deadline(Duration::from_secs(1)));
    sniffing.advance(Duration::from_secs(1));
    assert_eq!(sniffing.receive(b"GET /"), Ok(Step::Message("http1")));
}

#[test]
fn where_no_more_comes_a_rule_that_needs_more_stops_no_other() {
    let rules = || Rules::new().rule(insatiable, "never").rule(http1, "http1").otherwise("other");
    let mut sniffing = Sniffing::new(rules());
    assert_eq!(sniffing.receive(b"GET /"), Ok(Step::NeedMore));
    assert_eq!(sniffing.eof(), Ok(Step::Message("http1")));
    assert_eq!(Sniffing::new(rules().bytes_max(5)).receive(b"GET /"), Ok(Step::Message("http1")));
}

#[test]
fn a_method_named_proxy_is_a_request() {
    for first in [&b"PROXY / HTTP/1.1\r\n"[..], b"PROXY *", b"PROXY http://name/"] {
        assert_eq!((http1(first), proxy(first)), (Match::Matched, Match::NotMatched));
    }
    assert_eq!((http1(b"PROXY TCP4 "), proxy(b"PROXY TCP4 ")), (Match::NotMatched, Match::Matched));
}

#[test]
fn the_end_of_the_stream_decides_for_the_received_bytes() {
    let end = |rules: Rules<&'static str>, bytes: &[u8]| {
        let mut sniffing = Sniffing::new(rules.rule(http1, "http1"));
        sniffing.input.append(sniffing.pool.copy(bytes), &sniffing.pool);
        sniffing.eof()
    };
    assert_eq!(end(Rules::new(), b""), Ok(Step::End));
    assert_eq!(end(Rules::new().otherwise("other").when_silent("greets"), b""), Ok(Step::End));
    assert_eq!(end(Rules::new(), b"GET"), Err(SniffError::Ended));
    assert_eq!(end(Rules::new(), b"get"), Err(SniffError::NoMatch));
    assert_eq!(end(Rules::new().otherwise("other"), b"GET"), Ok(Step::Message("other")));
    assert_eq!(end(Rules::new(), b"GET /"), Ok(Step::Message("http1")));
}
