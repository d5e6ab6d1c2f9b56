//! Names of fields that servers read alike, and the fields that belong to one connection.
//!
//! Servers that pass fields on in environment variables (RFC 3875 §4.1.18) read `Transfer_Encoding` as `Transfer-Encoding`,
//! and some read any byte in the place of the hyphen so. Names that such servers normalise to one of these are treated alike.

/// Whether two names are the same for a server that passes fields on in environment variables, where a byte that is neither a
/// letter nor a digit becomes `_`.
#[must_use]
#[inline]
pub fn is_same(ours: &[u8], theirs: &[u8]) -> bool {
    ours.len() == theirs.len() && has_prefix(theirs, ours)
}

/// Whether a name begins with a prefix for such a server.
#[must_use]
#[inline]
pub fn has_prefix(name: &[u8], prefix: &[u8]) -> bool {
    let is_same = |one: u8, other: u8| {
        one.eq_ignore_ascii_case(&other) || !(one.is_ascii_alphanumeric() || other.is_ascii_alphanumeric())
    };
    name.len() >= prefix.len() && name.iter().zip(prefix).all(|(one, other)| is_same(*one, *other))
}

/// Whether a field is for one connection alone (RFC 9110 §7.6.1), or is written by the codec; also for a server that reads
/// it as such a one.
#[must_use]
#[inline]
pub fn is_of_connection(name: &[u8]) -> bool {
    let is = |other: &[u8]| is_same(other, name);
    match name.len() {
        2 => is(b"te"),
        4 => is(b"host") || is(b"date"),
        6 => is(b"expect") || is(b"server"),
        7 => is(b"upgrade"),
        10 => is(b"connection") || is(b"keep-alive"),
        14 => is(b"content-length"),
        16 => is(b"proxy-connection"),
        17 => is(b"transfer-encoding"),
        _ => false,
    }
}
