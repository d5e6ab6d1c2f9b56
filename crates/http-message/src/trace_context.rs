//! `TraceContext`: the trace that a message belongs to, and the span that sends it (W3C Trace Context, level 2).

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

/// The trace that a request belongs to, and the span that stands for the request here.
///
/// ```
/// use tidegate::http::TraceContext;
///
/// let received = TraceContext::received(
///     [&b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"[..]],
///     [&b"sea=north"[..]],
/// );
/// assert_eq!(received.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
/// assert_eq!(received.parent_id().as_deref(), Some("00f067aa0ba902b7"));
/// assert_eq!((received.is_sampled(), received.tracestate()), (true, Some("sea=north")));
///
/// // A request that is sent to answer the received one has a span of its own.
/// let sent = received.child();
/// assert_eq!(sent.trace_id(), received.trace_id());
/// assert_eq!(sent.parent_id(), Some(received.span_id()));
///
/// // What is malformed is dropped, and a new trace begins.
/// let begun = TraceContext::received([&b"00-0"[..]], [&b"sea=north"[..]]);
/// assert_eq!((begun.parent_id(), begun.is_sampled(), begun.tracestate()), (None, false, None));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    trace: [u8; 16],
    span: [u8; 8],
    /// The span of the caller.
    parent: Option<[u8; 8]>,
    flags: u8,
    state: Option<Box<str>>,
}

impl TraceContext {
    /// A new trace with random ids. It is not sampled.
    #[must_use]
    pub fn begin() -> Self {
        let mut trace = [0; 16];
        trace[..8].copy_from_slice(&random().to_be_bytes());
        trace[8..].copy_from_slice(&random().to_be_bytes());
        Self { trace, span: random().to_be_bytes(), parent: None, flags: RANDOM, state: None }
    }

    /// The context of a received request, with a new span, from the values of its fields `traceparent` and `tracestate` in
    /// their order. It [begins](Self::begin) a trace if there is no `traceparent`, or more than one, or a malformed one; then
    /// `tracestate` does not count either.
    ///
    /// Of `tracestate` it keeps at most 32 members and [`TRACESTATE_BYTES_MAX`] bytes: one with more members, or with a
    /// malformed one, is dropped as a whole; of one that is too long members of more than 128 bytes are dropped first, then
    /// the last ones.
    #[must_use]
    pub fn received<'a>(
        traceparent: impl IntoIterator<Item = &'a [u8]>,
        tracestate: impl IntoIterator<Item = &'a [u8]>,
    ) -> Self {
        let mut values = traceparent.into_iter();
        match (values.next().and_then(parse_traceparent), values.next()) {
            (Some((trace, parent, flags)), None) => {
                let state = parse_tracestate(tracestate);
                Self { trace, span: random().to_be_bytes(), parent: Some(parent), flags, state }
            }
            _ => Self::begin(),
        }
    }

    /// A span of the same trace whose parent is this one, such as that of a request which is sent to answer this one.
    #[must_use]
    pub fn child(&self) -> Self {
        Self { span: random().to_be_bytes(), parent: Some(self.span), ..self.clone() }
    }

    /// The same context under other ids, which a tracer has given to the span that stands for the request. `parent` stays if
    /// the trace does. Zeros are no ids: then nothing changes.
    #[must_use]
    pub fn with_ids(mut self, trace: [u8; 16], span: [u8; 8], is_sampled: bool) -> Self {
        if trace == [0; 16] || span == [0; 8] {
            return self;
        }
        if trace != self.trace {
            // The tracer may have other ids than random ones.
            (self.parent, self.state, self.flags) = (None, None, 0);
        }
        (self.trace, self.span) = (trace, span);
        self.with_sampled(is_sampled)
    }

    /// The same context, recorded or not: the decision of a sampler.
    #[must_use]
    pub fn with_sampled(mut self, is_sampled: bool) -> Self {
        self.flags = if is_sampled { self.flags | SAMPLED } else { self.flags & !SAMPLED };
        self
    }

    /// The id of the trace: 32 hexadecimal digits.
    #[must_use]
    pub fn trace_id(&self) -> String {
        hex(&self.trace)
    }

    /// The id of the span that stands for this request: 16 hexadecimal digits.
    #[must_use]
    pub fn span_id(&self) -> String {
        hex(&self.span)
    }

    /// The id of the caller's span, if the request had one.
    #[must_use]
    pub fn parent_id(&self) -> Option<String> {
        self.parent.as_ref().map(|parent| hex(parent))
    }

    /// The id of the trace, as bytes.
    #[must_use]
    pub fn trace_bytes(&self) -> [u8; 16] {
        self.trace
    }

    /// The id of the span, as bytes.
    #[must_use]
    pub fn span_bytes(&self) -> [u8; 8] {
        self.span
    }

    /// The id of the caller's span, as bytes.
    #[must_use]
    pub fn parent_bytes(&self) -> Option<[u8; 8]> {
        self.parent
    }

    /// Whether the trace is recorded: by the caller, or as a tracer has [decided](Self::with_ids).
    #[must_use]
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// The value of `traceparent` for requests that are sent to answer this one.
    #[must_use]
    pub fn traceparent(&self) -> String {
        let mut text = String::with_capacity(TRACEPARENT_BYTES);
        text.push_str("00-");
        push_hex(&mut text, &self.trace);
        text.push('-');
        push_hex(&mut text, &self.span);
        text.push('-');
        push_hex(&mut text, &[self.flags]);
        text
    }

    /// The value of `tracestate` for them, if the request had one.
    #[must_use]
    pub fn tracestate(&self) -> Option<&str> {
        self.state.as_deref()
    }
}

/// The trace, the parent and the flags. A later version than 00 may have more behind them.
fn parse_traceparent(value: &[u8]) -> Option<([u8; 16], [u8; 8], u8)> {
    let digits = |range: Range<usize>| value.get(range);
    let version = unhex::<1>(digits(0..2)?)?[0];
    let is_exact = value.len() == TRACEPARENT_BYTES;
    let has_dashes = [2, 35, 52].iter().all(|&at| value.get(at) == Some(&b'-'));
    if version == 0xff || !has_dashes || !(is_exact || (version > 0 && value.get(TRACEPARENT_BYTES) == Some(&b'-'))) {
        return None;
    }
    let (trace, span) = (unhex::<16>(digits(3..35)?)?, unhex::<8>(digits(36..52)?)?);
    let flags = unhex::<1>(digits(53..55)?)?[0];
    (trace != [0; 16] && span != [0; 8]).then_some((trace, span, flags & (SAMPLED | RANDOM)))
}

/// The members of all lines, or nothing if one is malformed or if there are too many.
fn parse_tracestate<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Option<Box<str>> {
    let mut members: Vec<&str> = Vec::new();
    for line in lines {
        for member in line.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            if member.is_empty() {
                continue;
            }
            if members.len() == TRACESTATE_MEMBERS_MAX || !is_member(member) {
                return None;
            }
            members.push(std::str::from_utf8(member).ok()?);
        }
    }
    let bytes = |members: &[&str]| members.iter().map(|member| member.len() + 1).sum::<usize>().saturating_sub(1);
    if bytes(&members) > TRACESTATE_BYTES_MAX {
        members.retain(|member| member.len() <= LONG_MEMBER_BYTES);
    }
    while bytes(&members) > TRACESTATE_BYTES_MAX {
        members.pop();
    }
    (!members.is_empty()).then(|| members.join(",").into())
}

/// Whether a member of `tracestate` is `KEY=VALUE` (Trace Context §3.3.1.3).
fn is_member(member: &[u8]) -> bool {
    let Some(equals) = member.iter().position(|byte| *byte == b'=') else { return false };
    let (key, value) = (&member[..equals], &member[equals + 1..]);
    let is_lower = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_key = matches!(key, [first, ..] if is_lower(*first))
        && key.len() <= 256
        && key.iter().all(|byte| is_lower(*byte) || matches!(byte, b'_' | b'-' | b'*' | b'/' | b'@'));
    let is_value =
        (1..=256).contains(&value.len()) && value.iter().all(|byte| matches!(byte, b' '..=b'~') && *byte != b'=');
    is_key && is_value
}

/// A random number above zero, which is no id.
fn random() -> u64 {
    thread_local! {
        static SEED: RandomState = RandomState::new();
        static NEXT: Cell<u64> = const { Cell::new(0) };
    }
    let number = NEXT.get();
    NEXT.set(number.wrapping_add(1));
    SEED.with(|seed| seed.hash_one(number)).max(1)
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    push_hex(&mut text, bytes);
    text
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        for digit in [byte >> 4, byte & 0xf] {
            text.push(char::from(b"0123456789abcdef"[usize::from(digit)]));
        }
    }
}

/// Lower-case digits only, as the standard demands.
fn unhex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (place, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *place = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

/// Bytes of `tracestate` that are kept (Trace Context §3.3.1.5).
pub const TRACESTATE_BYTES_MAX: usize = 512;

const TRACESTATE_MEMBERS_MAX: usize = 32;
const LONG_MEMBER_BYTES: usize = 128;
const TRACEPARENT_BYTES: usize = 55;

/// The trace is recorded.
const SAMPLED: u8 = 1;
/// The last seven bytes of the trace's id are random.
const RANDOM: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traceparent_is_parsed_strictly() {
        let valid = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let (trace, parent, flags) = parse_traceparent(valid.as_bytes()).expect("it is valid");
        assert_eq!((hex(&trace).as_str(), hex(&parent).as_str(), flags), (&valid[3..35], &valid[36..52], 1));
        let invalid = [
            "",
            "00",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
            "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01x",
        ];
        for text in invalid {
            assert_eq!(parse_traceparent(text.as_bytes()), None, "{text}");
        }
        assert!(parse_traceparent(b"01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more").is_some());
        let (.., flags) = parse_traceparent(b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-ff").unwrap();
        assert_eq!(flags, SAMPLED | RANDOM, "flags that are not known are not passed on");
    }

    #[test]
    fn traceparent_is_cut_at_every_length_and_never_panics() {
        let valid = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        for length in 0..valid.len() {
            assert_eq!(parse_traceparent(&valid[..length]), None, "{length}");
        }
    }

    #[test]
    fn two_parents_are_none() {
        let value: &[u8] = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(TraceContext::received([value, value], []).parent_id(), None);
        assert!(TraceContext::received([value], []).parent_id().is_some());
    }

    fn state(lines: &[&str]) -> Option<String> {
        parse_tracestate(lines.iter().map(|line| line.as_bytes())).map(Into::into)
    }

    #[test]
    fn tracestate_has_its_members_in_their_order_or_is_dropped() {
        for (lines, expected) in [
            (&["a=1,b=2"][..], Some("a=1,b=2")),
            (&["a=1 ,\tb=2", "", "c@d=e f"], Some("a=1,b=2,c@d=e f")),
            (&["0a=!~"], Some("0a=!~")),
            (&["a=1,,b=2,"], Some("a=1,b=2")),
            (&[""], None),
            (&["A=1"], None),
            (&["a=1,b"], None),
            (&["=1"], None),
            (&["a="], None),
            (&["a=1=2"], None),
            (&["a=\u{fc}"], None),
            (&["a.b=1"], None),
        ] {
            assert_eq!(state(lines).as_deref(), expected, "{lines:?}");
        }
        assert_eq!(state(&[&format!("{}=1", "k".repeat(257))]), None);
        assert_eq!(state(&[&format!("k={}", "1".repeat(257))]), None);
    }

    #[test]
    fn tracestate_has_at_most_32_members_and_512_bytes() {
        let members = |count: usize| (0..count).map(|number| format!("k{number}=1")).collect::<Vec<_>>().join(",");
        assert!(state(&[&members(32)]).is_some());
        assert_eq!(state(&[&members(33)]), None);
        let long = |name: &str, bytes: usize| format!("{name}={}", "1".repeat(bytes - name.len() - 1));
        let exact = [long("a", 255), long("b", 256)].join(",");
        assert_eq!((state(&[&exact]), exact.len()), (Some(exact), 512));
        // Long members go first, then the last ones.
        let short = (0..5).map(|number| long(&format!("s{number}"), 100)).collect::<Vec<_>>();
        let mixed = format!("{},{},{}", short[..3].join(","), long("long", 129), short[3..].join(","));
        assert_eq!(state(&[&mixed]), Some(short[..5].join(",")));
        let many = (0..8).map(|number| long(&format!("s{number}"), 128)).collect::<Vec<_>>();
        assert_eq!(state(&[&many.join(",")]), Some(many[..3].join(",")));
    }

    #[test]
    fn a_tracer_gives_ids_of_its_own() {
        let received =
            TraceContext::received([&b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"[..]], [&b"a=1"[..]]);
        let same = received.clone().with_ids(received.trace_bytes(), [7; 8], true);
        assert_eq!(same.traceparent(), "00-4bf92f3577b34da6a3ce929d0e0e4736-0707070707070707-01");
        assert_eq!((same.parent_bytes(), same.tracestate()), (received.parent_bytes(), Some("a=1")));
        let other = received.clone().with_ids([1; 16], [7; 8], false);
        assert_eq!((other.parent_id(), other.tracestate(), other.is_sampled()), (None, None, false));
        assert_eq!(received.clone().with_ids([0; 16], [7; 8], true), received);
    }

    #[test]
    fn ids_are_not_repeated() {
        let ids: std::collections::HashSet<_> = (0..1000).map(|_| TraceContext::begin().trace_bytes()).collect();
        assert_eq!(ids.len(), 1000);
    }
}
