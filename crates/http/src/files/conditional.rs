//! Conditional requests (RFC 9110 §13): whether a file is sent, in the order of §13.2.2.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidegate_http_message::negotiate::AcceptedEncodings;

use crate::request::Request;

/// The fields of a request that a file depends on, from one pass over its head.
pub(super) struct FileConditions<'a> {
    pub(super) encodings: AcceptedEncodings,
    pub(super) range: Option<&'a [u8]>,
    /// Without any of the five, which is most of the time, nothing is compared.
    has_conditions: bool,
    /// The values of all fields of the name.
    if_match: Vec<&'a [u8]>,
    if_none_match: Vec<&'a [u8]>,
    if_modified_since: Option<&'a [u8]>,
    if_unmodified_since: Option<&'a [u8]>,
    if_range: Option<&'a [u8]>,
}

/// The validators of a representation.
pub(super) struct Validators<'a> {
    /// A strong entity tag, with its quotes.
    pub(super) etag: &'a str,
    /// `Last-Modified`, in seconds since 1970.
    pub(super) modified: u64,
}

/// The verdict of a request's conditions.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The representation is sent.
    Send,
    /// 304
    NotModified,
    /// 412
    Failed,
}

impl<'a> FileConditions<'a> {
    pub(super) fn of(request: &'a Request) -> Self {
        Self::from_fields(request.headers())
    }

    fn from_fields(fields: impl Iterator<Item = (&'a str, &'a [u8])>) -> Self {
        let mut conditions = Self {
            encodings: AcceptedEncodings::new(),
            range: None,
            has_conditions: false,
            if_match: Vec::new(),
            if_none_match: Vec::new(),
            if_modified_since: None,
            if_unmodified_since: None,
            if_range: None,
        };
        let mut range_fields = 0;
        for (name, value) in fields {
            match name.len() {
                5 if name.eq_ignore_ascii_case("range") => {
                    range_fields += 1;
                    conditions.range = Some(value);
                }
                8 if name.eq_ignore_ascii_case("if-match") => conditions.if_match.push(value),
                8 if name.eq_ignore_ascii_case("if-range") => conditions.if_range = Some(value),
                13 if name.eq_ignore_ascii_case("if-none-match") => conditions.if_none_match.push(value),
                15 if name.eq_ignore_ascii_case("accept-encoding") => conditions.encodings.add(value),
                17 if name.eq_ignore_ascii_case("if-modified-since") => conditions.if_modified_since = Some(value),
                19 if name.eq_ignore_ascii_case("if-unmodified-since") => conditions.if_unmodified_since = Some(value),
                _ => continue,
            }
            conditions.has_conditions |= name.as_bytes()[0].eq_ignore_ascii_case(&b'i');
        }
        if range_fields > 1 {
            // It is no list: several are malformed, and a malformed range is ignored (RFC 9110 §14.2).
            conditions.range = None;
        }
        conditions
    }

    /// Evaluates the conditions in the order of RFC 9110 §13.2.2, for GET or HEAD and a file that exists.
    pub(super) fn verdict(&self, validators: &Validators<'_>) -> Verdict {
        if !self.has_conditions {
            return Verdict::Send;
        }
        if !self.if_match.is_empty() {
            if !matches(&self.if_match, validators.etag, false) {
                return Verdict::Failed;
            }
        } else if let Some(date) = self.if_unmodified_since.and_then(seconds)
            && validators.modified > date
        {
            return Verdict::Failed;
        }
        if !self.if_none_match.is_empty() {
            if matches(&self.if_none_match, validators.etag, true) {
                return Verdict::NotModified;
            }
        } else if let Some(date) = self.if_modified_since.and_then(seconds)
            && validators.modified <= date
        {
            return Verdict::NotModified;
        }
        Verdict::Send
    }

    /// Whether a range may be sent: `If-Range` is absent, or names this representation by a strong comparison
    /// (RFC 9110 §13.1.5).
    pub(super) fn range_applies(&self, validators: &Validators<'_>, now: SystemTime) -> bool {
        match self.if_range {
            None => true,
            Some(value) if value.starts_with(b"\"") => value == validators.etag.as_bytes(),
            Some(value) => {
                // A date is a strong validator only if a second change in its second is impossible (§8.8.2.2).
                let since = now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
                seconds(value) == Some(validators.modified) && validators.modified + 1 < since
            }
        }
    }
}

/// Whether one of the entity tags in the lists is this one, or one list is `*`. A weak comparison ignores that a tag is
/// weak.
fn matches(lists: &[&[u8]], etag: &str, is_weak: bool) -> bool {
    lists.iter().any(|list| {
        let mut rest = list.trim_ascii();
        if rest == b"*" {
            return true;
        }
        // Every round consumes a tag, or a comma.
        loop {
            rest = rest.trim_ascii_start();
            let (tag, is_weak_tag) = match rest.strip_prefix(b"W/") {
                Some(tag) => (tag, true),
                None => (rest, false),
            };
            match tag {
                [b'"', text @ ..] => {
                    let Some(end) = memchr(text) else { return false };
                    if (is_weak || !is_weak_tag) && tag[..end + 2] == *etag.as_bytes() {
                        return true;
                    }
                    rest = &text[end + 1..];
                }
                [b',', after @ ..] => rest = after,
                // It is the end, or malformed.
                _ => return false,
            }
        }
    })
}

fn memchr(text: &[u8]) -> Option<usize> {
    text.iter().position(|&byte| byte == b'"')
}

/// An HTTP date in seconds since 1970. A malformed one is ignored.
fn seconds(date: &[u8]) -> Option<u64> {
    let date = httpdate::parse_http_date(std::str::from_utf8(date).ok()?).ok()?;
    date.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ETAG: &str = "\"7\"";
    /// Sun, 06 Nov 1994 08:49:37 GMT
    const MODIFIED: u64 = 784_111_777;
    const AT: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    fn conditions<'a>(fields: &[(&'a str, &'a str)]) -> FileConditions<'a> {
        FileConditions::from_fields(fields.iter().map(|&(name, value)| (name, value.as_bytes())))
    }

    fn verdict(fields: &[(&str, &str)]) -> Verdict {
        conditions(fields).verdict(&Validators { etag: ETAG, modified: MODIFIED })
    }

    #[test]
    fn each_condition_is_compared() {
        use Verdict::{Failed, NotModified, Send};
        for (name, value, expected) in [
            ("If-Match", "\"7\"", Send),
            ("If-Match", "*", Send),
            ("If-Match", "\"6\", \"7\"", Send),
            ("If-Match", "\"6\"", Failed),
            ("If-Match", "W/\"7\"", Failed),
            ("If-Match", "7", Failed),
            ("If-Match", "\"a,\"7\"", Failed),
            ("If-None-Match", "\"7\"", NotModified),
            ("If-None-Match", "W/\"7\"", NotModified),
            ("If-None-Match", "*", NotModified),
            ("If-None-Match", "\"a,b\" ,, W/\"7\"", NotModified),
            ("If-None-Match", "\"6\",\"77\"", Send),
            ("If-None-Match", "\"7", Send),
            ("If-None-Match", "", Send),
            ("If-Modified-Since", AT, NotModified),
            ("If-Modified-Since", AFTER, NotModified),
            ("If-Modified-Since", BEFORE, Send),
            ("If-Modified-Since", "Sunday, 06-Nov-94 08:49:37 GMT", NotModified),
            ("If-Modified-Since", "Sun Nov  6 08:49:37 1994", NotModified),
            ("If-Modified-Since", "yesterday", Send),
            ("If-Unmodified-Since", AT, Send),
            ("If-Unmodified-Since", AFTER, Send),
            ("If-Unmodified-Since", BEFORE, Failed),
            ("If-Unmodified-Since", "\u{e9}", Send),
        ] {
            assert_eq!(verdict(&[(name, value)]), expected, "{name}: {value}");
        }
    }

    #[test]
    fn conditions_are_evaluated_in_their_order() {
        use Verdict::{Failed, NotModified, Send};
        // A tag comes before a date of the same kind, and a failed condition before an unmodified file.
        assert_eq!(verdict(&[("If-Match", "\"7\""), ("If-Unmodified-Since", BEFORE)]), Send);
        assert_eq!(verdict(&[("If-Match", "\"6\""), ("If-None-Match", "\"7\"")]), Failed);
        assert_eq!(verdict(&[("If-None-Match", "\"6\""), ("If-Modified-Since", AFTER)]), Send);
        assert_eq!(verdict(&[("If-None-Match", "\"7\""), ("If-Modified-Since", BEFORE)]), NotModified);
        assert_eq!(verdict(&[("If-Unmodified-Since", BEFORE), ("If-None-Match", "\"7\"")]), Failed);
        assert_eq!(verdict(&[("If-Match", "*"), ("If-None-Match", "*")]), NotModified);
        assert_eq!(verdict(&[("If-None-Match", "\"1\""), ("if-none-match", "\"7\"")]), NotModified);
    }

    #[test]
    fn a_range_needs_a_strong_validator() {
        let now = UNIX_EPOCH + Duration::from_secs(MODIFIED + 60);
        let at_once = UNIX_EPOCH + Duration::from_secs(MODIFIED + 1);
        let validators = Validators { etag: ETAG, modified: MODIFIED };
        for (value, expected) in [
            ("\"7\"", true),
            ("\"6\"", false),
            ("W/\"7\"", false),
            (AT, true),
            (AFTER, false),
            (BEFORE, false),
            ("*", false),
        ] {
            assert_eq!(conditions(&[("If-Range", value)]).range_applies(&validators, now), expected, "{value}");
        }
        assert!(!conditions(&[("If-Range", AT)]).range_applies(&validators, at_once));
        assert!(conditions(&[]).range_applies(&validators, at_once));
        assert_eq!(conditions(&[("Range", "bytes=0-1"), ("Range", "bytes=2-3")]).range, None);
    }
}
