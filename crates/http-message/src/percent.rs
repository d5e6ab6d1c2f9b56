//! Percent-encoding of paths (RFC 3986 §2.1).

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// The decoded text, if it is UTF-8. A `+` stays one: only in forms it is a space.
pub fn decode(text: &str) -> Option<Cow<'_, str>> {
    percent_decode_str(text).decode_utf8().ok()
}
