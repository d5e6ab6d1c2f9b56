//! Where runs of allowed bytes end, in what is short or rare: heads have a scanner of their own, `tidegate-scan`.
//!
//! Each function gives the first position, from `at` on, of a byte that does not belong, or the length of `bytes`.

use tidegate_scan::{is_control, is_host, is_token};

/// The end of a token (RFC 9110 §5.6.2).
pub(crate) fn token_end(bytes: &[u8], at: usize) -> usize {
    end(bytes, at, |byte| !is_token(byte))
}

/// The end of what may be the value of a field.
pub(crate) fn value_end(bytes: &[u8], at: usize) -> usize {
    end(bytes, at, is_control)
}

/// The end of what a registered name or an address may be made of.
pub(crate) fn host_end(bytes: &[u8], at: usize) -> usize {
    end(bytes, at, |byte| !is_host(byte))
}

fn end(bytes: &[u8], at: usize, ends: impl Fn(u8) -> bool) -> usize {
    let rest = bytes.get(at..).unwrap_or_default();
    rest.iter().position(|byte| ends(*byte)).map_or(bytes.len(), |length| at + length)
}
