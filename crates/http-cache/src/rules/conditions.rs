//! Conditional requests of clients, answered from a stored response (RFC 9111 §4.3.2), and entity tags.

use super::control::Members;
use super::facts::RequestFacts;
use super::{Millis, date};

/// Whether the client has the stored response already: 304.
pub(crate) fn is_not_modified(
    request: &RequestFacts<'_>,
    etag: Option<&[u8]>,
    last_modified: Option<&[u8]>,
    received: Millis,
) -> bool {
    if !request.if_none_match.is_empty() {
        return request
            .if_none_match
            .iter()
            .any(|list| Members(list).any(|tag| tag == b"*" || etag.is_some_and(|etag| opaque(tag) == opaque(etag))));
    }
    let Some(since) = request.if_modified_since.and_then(date) else { return false };
    // Without `Last-Modified` the time of arrival counts.
    last_modified.and_then(date).unwrap_or(received) <= since
}

/// The tag without its mark of weakness: for the weak comparison (RFC 9110 §8.8.3.2).
pub(crate) fn opaque(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

/// Whether a range may be sent (RFC 9110 §13.1.5): `If-Range` is absent, or has the strong validator of the stored response.
pub(crate) fn range_applies(
    if_range: Option<&[u8]>,
    etag: Option<&[u8]>,
    last_modified: Option<&[u8]>,
    date_of_response: Option<Millis>,
) -> bool {
    let Some(value) = if_range else { return true };
    if value.starts_with(b"\"") {
        return etag == Some(value);
    }
    // A date is a strong validator if the response is at least a second younger (RFC 9110 §8.8.2.2).
    let modified = last_modified.and_then(date);
    last_modified == Some(value)
        && modified.zip(date_of_response).is_some_and(|(modified, date)| modified + 1000 <= date)
}
