//! `RequestFacts` and `ResponseFacts`: the fields that the rules read, each from one pass over a head.

use tidegate_http1::{Fields, Headers};

use super::control::Directives;
use super::{Millis, date};

/// The fields of a request that the rules read.
#[derive(Debug, Default)]
pub(crate) struct RequestFacts<'a> {
    pub(crate) control: Directives,
    pub(crate) is_authorized: bool,
    pub(crate) has_upgrade: bool,
    pub(crate) range: Option<&'a [u8]>,
    pub(crate) if_range: Option<&'a [u8]>,
    pub(crate) if_none_match: Vec<&'a [u8]>,
    pub(crate) if_modified_since: Option<&'a [u8]>,
    /// `If-Match` or `If-Unmodified-Since`: for the origin alone (RFC 9111 §4.3.2).
    pub(crate) is_for_origin: bool,
}

impl<'a> RequestFacts<'a> {
    /// Of a request whose `Cache-Control` counts unless the cache ignores that of clients.
    pub(crate) fn of(headers: Headers<'a>, ignores_control: bool) -> Self {
        let mut facts = Self::default();
        let mut is_pragma = false;
        for (name, value) in headers {
            let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
            match name.len() {
                5 if is("range") => facts.range = Some(value),
                6 if is("pragma") => is_pragma |= value.eq_ignore_ascii_case(b"no-cache"),
                7 if is("upgrade") => facts.has_upgrade = true,
                8 if is("if-range") => facts.if_range = Some(value),
                8 if is("if-match") => facts.is_for_origin = true,
                13 if is("cache-control") => facts.control.add(value),
                13 if is("authorization") => facts.is_authorized = true,
                13 if is("if-none-match") => facts.if_none_match.push(value),
                17 if is("if-modified-since") => facts.if_modified_since = Some(value),
                19 if is("if-unmodified-since") => facts.is_for_origin = true,
                _ => {}
            }
        }
        if ignores_control {
            let no_store = facts.control.no_store;
            facts.control = Directives { no_store, ..Directives::default() };
        } else if is_pragma && !facts.control.is_present {
            // RFC 9111 §5.4.
            facts.control.no_cache = true;
        }
        facts
    }

    pub(crate) fn is_conditional(&self) -> bool {
        self.if_modified_since.is_some() || !self.if_none_match.is_empty()
    }
}

/// The host of a request without fields that change which stored response it gets, or how: most requests have none. `None` for any
/// other request.
///
/// `lines` are those of all fields and the empty line, which a parser has accepted. A field is recognised by its first letter and its length alone.
pub(crate) fn host_of_plain(lines: &[u8]) -> Option<&[u8]> {
    let mut host = None;
    let mut rest = lines;
    loop {
        let ends_at = |length: usize| rest.get(length) == Some(&b':');
        let is_host = ends_at(4) && rest[..4].eq_ignore_ascii_case(b"host");
        let is_special = match rest.first()? | 0x20 {
            b'h' => is_host && host.is_some(),
            // `Range`, `Pragma`, `Upgrade`, `Cache-Control`; those of conditions.
            b'r' => ends_at(5),
            b'p' => ends_at(6),
            b'u' => ends_at(7),
            b'c' => ends_at(13),
            b'i' => ends_at(8) || ends_at(13) || ends_at(17) || ends_at(19),
            // The empty line, as `\r | 0x20` is.
            b'-' if rest[0] == b'\r' => return host,
            _ => false,
        };
        if is_special {
            return None;
        }
        let end = memchr::memchr(b'\n', rest)?;
        if is_host {
            host = Some(rest[5..end].trim_ascii());
        }
        rest = &rest[end + 1..];
    }
}

/// The fields of a response that the rules read.
#[derive(Debug, Default)]
pub(crate) struct ResponseFacts<'a> {
    pub(crate) control: Directives,
    pub(crate) date: Option<Millis>,
    /// `Some(None)` if it is not valid, as `0` is.
    pub(crate) expires: Option<Option<Millis>>,
    /// In seconds.
    pub(crate) age: u64,
    pub(crate) last_modified: Option<&'a [u8]>,
    pub(crate) etag: Option<&'a [u8]>,
    pub(crate) vary: Vec<&'a [u8]>,
    pub(crate) sets_cookie: bool,
}

impl<'a> ResponseFacts<'a> {
    /// Of a response. A field among `targets` replaces `Cache-Control` and `Expires`: the first one that is valid (RFC 9213
    /// §2.2).
    pub(crate) fn of(fields: &'a Fields, targets: &[Box<str>]) -> Self {
        let mut facts = Self::default();
        let mut has_age = false;
        for (name, value) in fields.iter() {
            let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
            match name.len() {
                3 if is("age") && !has_age => (facts.age, has_age) = (age(value), true),
                4 if is("date") => facts.date = facts.date.or_else(|| date(value)),
                4 if is("etag") => facts.etag = facts.etag.or(Some(value)),
                4 if is("vary") => facts.vary.push(value),
                7 if is("expires") => facts.expires = Some(facts.expires.unwrap_or_else(|| date(value))),
                10 if is("set-cookie") => facts.sets_cookie = true,
                13 if is("cache-control") => facts.control.add(value),
                13 if is("last-modified") => facts.last_modified = facts.last_modified.or(Some(value)),
                _ => {}
            }
        }
        for target in targets {
            let named = fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case(target.as_bytes()));
            if let Some(control) = Directives::targeted(named.map(|(_, value)| value)) {
                (facts.control, facts.expires) = (control, None);
                break;
            }
        }
        facts
    }

    pub(crate) fn has_validator(&self) -> bool {
        self.etag.is_some() || self.last_modified.is_some_and(|value| date(value).is_some())
    }
}

/// The first number of `Age` (RFC 9111 §5.1); a value that is not valid is ignored.
fn age(value: &[u8]) -> u64 {
    let first = value.split(|&byte| byte == b',').next().unwrap_or_default().trim_ascii();
    std::str::from_utf8(first)
        .ok()
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
        .map_or(0, |text| if text.is_empty() { 0 } else { text.parse().unwrap_or(super::control::SECONDS_MAX) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_request_has_a_host_and_no_field_that_matters() {
        for (lines, expected) in [
            ("Host: sea\r\n", Some("sea")),
            ("A: 1\r\nhOST:  sea:80 \r\nUser-Agent: x\r\nConnection: close\r\nAccept: */*\r\n", Some("sea:80")),
            ("If: 1\r\nHost: sea\r\n", Some("sea")),
            ("A: 1\r\n", None),
            ("", None),
            ("Host: sea\r\nRange: bytes=0-1\r\n", None),
            ("Pragma: no-cache\r\nHost: sea\r\n", None),
            ("Host: sea\r\nUpgrade: websocket\r\n", None),
            ("Host: sea\r\ncache-control: no-cache\r\n", None),
            ("Host: sea\r\nIf-Range: \"a\"\r\n", None),
            ("Host: sea\r\nIf-Match: \"a\"\r\n", None),
            ("Host: sea\r\nIF-NONE-MATCH: \"a\"\r\n", None),
            ("Host: sea\r\nIf-Modified-Since: x\r\n", None),
            ("Host: sea\r\nIf-Unmodified-Since: x\r\n", None),
        ] {
            let text = format!("{lines}\r\n");
            assert_eq!(host_of_plain(text.as_bytes()), expected.map(str::as_bytes), "{lines}");
        }
    }
}
