//! Rules for common protocols.
//!
//! No two of [`tls`], [`proxy`], [`http1`] and [`http2`] match the same bytes, whatever their order:
//!
//! | first bytes | decided for |
//! |---|---|
//! | `PRI * HTTP/2.0` | HTTP/2: `PRI` is no HTTP/1 method (RFC 9113 §11.6) |
//! | `PROXY TCP`, `PROXY UNKNOWN` | the PROXY protocol: the target of an HTTP/1 request does not begin so |
//! | up to three times CR LF | undecided: HTTP/1 tolerates empty lines, and version 2 of the PROXY protocol begins so |
//! | CR LF CR LF NUL | version 2 of the PROXY protocol |
//! | `GET key` | none of them: a target begins with `/`, `*`, `http:` or `https:`, except for `CONNECT` |

use super::Match;

/// A protocol whose first bytes are always these.
///
/// ```
/// use tidegate::sniff::{self, Match};
///
/// let ssh = sniff::starts_with(b"SSH-2.0-");
/// assert_eq!(ssh(b"SSH"), Match::NeedMore);
/// assert_eq!(ssh(b"SSH-2.0-tide"), Match::Matched);
/// ```
pub fn starts_with(prefix: &'static [u8]) -> impl Fn(&[u8]) -> Match + Copy + 'static {
    move |first| compare(first, prefix)
}

/// A TLS record with a ClientHello, of any version since SSL 3.0 (RFC 8446 §5.1). Six bytes decide: handshake, major
/// version 3, a length of 1 to 2^14, `client_hello`.
#[must_use]
pub fn tls(first: &[u8]) -> Match {
    let fits = |index: usize| match index {
        0 => first[0] == HANDSHAKE,
        1 => first[1] == 3,
        2 => first[2] <= 4,
        3 => u16::from_be_bytes([first[3], 0]) <= RECORD_BYTES_MAX,
        4 => (1..=RECORD_BYTES_MAX).contains(&u16::from_be_bytes([first[3], first[4]])),
        _ => first[5] == CLIENT_HELLO,
    };
    decide((0..first.len().min(6)).all(fits), first.len() >= 6)
}

/// Either version of the PROXY protocol.
#[must_use]
pub fn proxy(first: &[u8]) -> Match {
    either(proxy_v1(first), proxy_v2(first))
}

/// Version 1 of the PROXY protocol: `PROXY`, a space, and `TCP` or `UNKNOWN`.
#[must_use]
pub fn proxy_v1(first: &[u8]) -> Match {
    either(compare(first, b"PROXY TCP"), compare(first, b"PROXY UNKNOWN"))
}

/// Version 2 of the PROXY protocol: its signature of twelve bytes.
#[must_use]
pub fn proxy_v2(first: &[u8]) -> Match {
    compare(first, b"\r\n\r\n\0\r\nQUIT\n")
}

/// The HTTP/2 connection preface (RFC 9113 §3.4), all 24 bytes of it.
#[must_use]
pub fn http2(first: &[u8]) -> Match {
    compare(first, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
}

/// An HTTP/1 request: a method and the beginning of its target (RFC 9112 §3).
///
/// The method is one of up to 32 upper-case letters and hyphens, as all registered ones are, and not `PRI`. A target
/// begins with `/`, `*`, `http:` or `https:`; that of `CONNECT` with any visible character. Up to three empty lines may
/// come before (RFC 9112 §2.2), as many as the codec tolerates.
#[must_use]
pub fn http1(first: &[u8]) -> Match {
    let mut line = first;
    for _ in 0..EMPTY_LINES_MAX {
        match line {
            [b'\r'] => return Match::NeedMore,
            [b'\r', b'\n', rest @ ..] => line = rest,
            _ => break,
        }
    }
    let length = line.iter().take_while(|byte| byte.is_ascii_uppercase() || **byte == b'-').count();
    if length > METHOD_BYTES_MAX {
        return Match::NotMatched;
    }
    let (method, rest) = line.split_at(length);
    match rest {
        [] => Match::NeedMore,
        [b' ', ..] if method.is_empty() || method == b"PRI" => Match::NotMatched,
        [b' '] => Match::NeedMore,
        [b' ', byte, ..] if method == b"CONNECT" => decide(byte.is_ascii_graphic(), true),
        [b' ', b'/' | b'*', ..] => Match::Matched,
        [b' ', target @ ..] => either(scheme(target, b"http:"), scheme(target, b"https:")),
        _ => Match::NotMatched,
    }
}

/// A scheme, which is compared without case (RFC 3986 §3.1).
fn scheme(target: &[u8], scheme: &[u8]) -> Match {
    let length = target.len().min(scheme.len());
    decide(target[..length].eq_ignore_ascii_case(&scheme[..length]), length == scheme.len())
}

/// The joint verdict of two rules.
fn either(one: Match, other: Match) -> Match {
    match (one, other) {
        (Match::Matched, _) | (_, Match::Matched) => Match::Matched,
        (Match::NeedMore, _) | (_, Match::NeedMore) => Match::NeedMore,
        (Match::NotMatched, Match::NotMatched) => Match::NotMatched,
    }
}

fn compare(first: &[u8], prefix: &[u8]) -> Match {
    let length = first.len().min(prefix.len());
    decide(first[..length] == prefix[..length], length == prefix.len())
}

fn decide(fits: bool, is_complete: bool) -> Match {
    match (fits, is_complete) {
        (false, _) => Match::NotMatched,
        (true, true) => Match::Matched,
        (true, false) => Match::NeedMore,
    }
}

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;

/// The most bytes of a TLS record, 2^14 (RFC 8446 §5.1).
const RECORD_BYTES_MAX: u16 = 1 << 14;

/// Longer than any registered method.
const METHOD_BYTES_MAX: usize = 32;

/// The HTTP/1 codec tolerates as many.
const EMPTY_LINES_MAX: usize = 3;
