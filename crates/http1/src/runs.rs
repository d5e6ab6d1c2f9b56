//! The ends of runs of allowed bytes, in short or rare input. Heads use the scanner of `tidegate-scan` instead.
//!
//! Each function returns the first position, from `at` on, of a byte that is not allowed, or the length of `bytes`.

use tidegate_scan::{is_control, is_host, is_token};

/// The end of a token (RFC 9110 §5.6.2).
pub(crate) fn token_end(bytes: &[u8], at: usize) -> usize {
    end(bytes, at, |byte| !is_token(byte))
}

/// The end of a run of bytes that a field value may have.
pub(crate) fn value_end(bytes: &[u8], at: usize) -> usize {
    end(bytes, at, is_control)
}

/// The end of a run of bytes that a registered name or an address may have.
pub(crate) fn host_end(bytes: &[u8], at: usize) -> usize {
    end(bytes, at, |byte| !is_host(byte))
}

fn end(bytes: &[u8], at: usize, ends: impl Fn(u8) -> bool) -> usize {
    let rest = bytes.get(at..).unwrap_or_default();
    rest.iter().position(|byte| ends(*byte)).map_or(bytes.len(), |length| at + length)
}
