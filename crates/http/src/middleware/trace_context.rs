//! `TraceContexts`: the trace that a request belongs to (W3C Trace Context, level 1).

use std::cell::Cell;
use std::fmt::{self, Write as _};
use std::hash::{BuildHasher, RandomState};

use super::Middleware;
use crate::request::Request;
use crate::response::Response;

/// Finds the trace that a request belongs to, in its fields `traceparent` and `tracestate`, or begins one. Functions find
/// it among the request's [`extensions`](crate::Request::extensions), as a [`TraceContext`], and pass it on with their
/// own requests.
pub struct TraceContexts {
    seed: RandomState,
    next: Cell<u64>,
}

/// The trace that a request belongs to, and the span that stands for the request here.
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

    /// Whether the caller records the trace.
    #[must_use]
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// The value of `traceparent` for requests that are made to answer this one.
    #[must_use]
    pub fn traceparent(&self) -> String {
        format!("00-{}-{}-{:02x}", hex(&self.trace), hex(&self.span), self.flags)
    }

    /// The value of `tracestate` for them, if the request had one.
    #[must_use]
    pub fn tracestate(&self) -> Option<&str> {
        self.state.as_deref()
    }

    /// Parses `traceparent`. A later version than 00 may have more behind it.
    fn parse(value: &[u8]) -> Option<([u8; 16], [u8; 8], u8)> {
        let digits = |range: std::ops::Range<usize>| value.get(range);
        let version = unhex::<1>(digits(0..2)?)?[0];
        let is_exact = value.len() == TRACEPARENT_BYTES;
        let dashes = [2, 35, 52].iter().all(|&at| value.get(at) == Some(&b'-'));
        if version == 0xff || !dashes || !(is_exact || (version > 0 && value.get(TRACEPARENT_BYTES) == Some(&b'-'))) {
            return None;
        }
        let (trace, span) = (unhex::<16>(digits(3..35)?)?, unhex::<8>(digits(36..52)?)?);
        let flags = unhex::<1>(digits(53..55)?)?[0];
        (trace != [0; 16] && span != [0; 8]).then_some((trace, span, flags & SAMPLED))
    }
}

impl TraceContexts {
    /// Middleware that finds or begins traces.
    #[must_use]
    pub fn new() -> Self {
        Self { seed: RandomState::new(), next: Cell::new(0) }
    }

    fn random(&self) -> u64 {
        let number = self.next.get();
        self.next.set(number.wrapping_add(1));
        // Zero is no id.
        self.seed.hash_one(number).max(1)
    }
}

impl Default for TraceContexts {
    fn default() -> Self {
        Self::new()
    }
}

impl Middleware for TraceContexts {
    fn before(&self, request: &mut Request) -> Result<(), Response> {
        let span = self.random().to_be_bytes();
        let given = request.header("traceparent").and_then(TraceContext::parse);
        let context = match given {
            Some((trace, parent, flags)) => {
                let state = request.header_str("tracestate").filter(|state| state.len() <= STATE_BYTES_MAX);
                TraceContext { trace, span, parent: Some(parent), flags, state: state.map(Into::into) }
            }
            None => {
                let halves = [self.random(), self.random()].map(u64::to_be_bytes);
                let mut trace = [0; 16];
                trace[..8].copy_from_slice(&halves[0]);
                trace[8..].copy_from_slice(&halves[1]);
                TraceContext { trace, span, parent: None, flags: 0, state: None }
            }
        };
        request.extensions_mut().insert(context);
        Ok(())
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
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

impl fmt::Debug for TraceContexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TraceContexts")
    }
}

const TRACEPARENT_BYTES: usize = 55;
const STATE_BYTES_MAX: usize = 512;
const SAMPLED: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traceparent_is_parsed_strictly() {
        let valid = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let (trace, parent, flags) = TraceContext::parse(valid.as_bytes()).expect("it is valid");
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
            assert_eq!(TraceContext::parse(text.as_bytes()), None, "{text}");
        }
        assert!(TraceContext::parse(b"01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more").is_some());
    }
}
