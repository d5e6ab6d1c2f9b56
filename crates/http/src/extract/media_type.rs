//! The media type of a request's body.

use crate::request::Request;

/// The media type of a request's body without its parameters, as it was sent; nothing if the request does not name one.
pub(crate) fn of(request: &Request) -> &str {
    let value = request.header_str("content-type").unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim_ascii()
}

/// Whether a media type is JSON: `application/json`, or one that ends with `+json` (RFC 6839 §3.1).
#[cfg(feature = "json")]
pub(crate) fn is_json(media_type: &str) -> bool {
    let is_suffix = || {
        let Some(start) = media_type.len().checked_sub(5) else { return false };
        media_type.as_bytes()[start..].eq_ignore_ascii_case(b"+json") && media_type.contains('/')
    };
    media_type.eq_ignore_ascii_case("application/json") || is_suffix()
}

#[cfg(all(test, feature = "json"))]
mod tests {
    use super::*;

    #[test]
    fn json_is_recognised_by_type_and_suffix() {
        for json in ["application/json", "Application/JSON", "application/problem+json", "a/b+JSON"] {
            assert!(is_json(json), "{json}");
        }
        for other in
            ["", "json", "+json", "text/plain", "application/jsonp", "application/json+x", "x\u{fc}json", "ü+jso"]
        {
            assert!(!is_json(other), "{other}");
        }
    }
}
