//! `Outcome`: how a cache has handled a request, and its text in `Cache-Status` (RFC 9211).

use std::fmt::Write as _;

use tidegate_http::Response;
use tidegate_http1::Fields;

/// How a cache has handled a request, as its `Cache-Status` field tells (RFC 9211).
///
/// Middleware reads it from the response:
///
/// ```
/// use tidegate::http::cache::Outcome;
/// use tidegate::http::{Middleware, RequestInfo, Response};
///
/// struct Misses;
///
/// impl Middleware for Misses {
///     fn after(&self, request: &RequestInfo, response: &mut Response) {
///         if Outcome::of(response) == Some(Outcome::Miss) {
///             println!("{} was not stored", request.request().target());
///         }
///     }
/// }
/// # drop(Misses);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// A fresh stored response.
    Hit,
    /// A stale stored response.
    Stale,
    /// The stored response, after the upstream has validated it.
    Revalidated,
    /// The response of the upstream.
    Miss,
    /// The response that another request was waiting for already.
    Joined,
    /// The cache did not look: the method, or the request, does not allow it.
    Bypass,
}

impl Outcome {
    /// That of a response; `None` if no cache has seen the request.
    #[must_use]
    pub fn of(response: &Response) -> Option<Self> {
        let fields = tidegate_http::gateway::fields(response).iter();
        let (_, value) = fields.filter(|(name, _)| name.eq_ignore_ascii_case(b"cache-status")).last()?;
        // The last member is that of the cache nearest to the client.
        Self::of_member(split_unquoted(std::str::from_utf8(value).ok()?, ',').last()?)
    }

    /// That of a member; `None` if it says neither that there was a hit nor that the request was forwarded.
    fn of_member(member: &str) -> Option<Self> {
        let (mut is_hit, mut is_collapsed, mut forward) = (false, false, None);
        let (mut is_past_ttl, mut is_validated, mut replaces_error) = (false, false, false);
        for parameter in split_unquoted(member, ';').skip(1) {
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            match (key.trim(), value.trim()) {
                ("hit", "") => is_hit = true,
                ("collapsed", "") => is_collapsed = true,
                ("fwd", reason) => forward = Some(reason),
                ("fwd-status", status) => is_validated = status == "304",
                ("ttl", ttl) => is_past_ttl = ttl.starts_with('-'),
                ("detail", detail) => replaces_error = detail == STALE_IF_ERROR,
                _ => {}
            }
        }
        Some(match forward {
            _ if is_collapsed => Self::Joined,
            _ if is_hit => {
                if is_past_ttl {
                    Self::Stale
                } else {
                    Self::Hit
                }
            }
            None => return None,
            Some("bypass" | "method") => Self::Bypass,
            Some(_) if replaces_error => Self::Stale,
            Some(_) if is_validated => Self::Revalidated,
            Some(_) => Self::Miss,
        })
    }

    /// A word for logs: `hit`, `stale`, `revalidated`, `miss`, `joined`, `bypass`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Stale => "stale",
            Self::Revalidated => "revalidated",
            Self::Miss => "miss",
            Self::Joined => "joined",
            Self::Bypass => "bypass",
        }
    }
}

/// The parts of a structured field between separators that stand in no quoted string (RFC 9651 §3.3.3).
fn split_unquoted(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    text.split(move |letter| {
        let is_end = letter == separator && !is_quoted;
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            _ => {}
        }
        is_end
    })
}

/// The parameters of a `Cache-Status` member.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CacheStatus {
    pub(crate) is_hit: bool,
    /// Why the request went to the upstream.
    pub(crate) forward: Option<&'static str>,
    pub(crate) forward_status: Option<u16>,
    pub(crate) ttl: Option<i64>,
    pub(crate) is_stored: bool,
    pub(crate) is_collapsed: bool,
    pub(crate) detail: Option<&'static str>,
}

impl CacheStatus {
    /// A request that went to the upstream.
    pub(crate) fn forwarded(reason: &'static str) -> Self {
        Self { forward: Some(reason), ..Self::default() }
    }

    /// Adds the member of a cache of this name to fields.
    pub(crate) fn add_to(&self, fields: &mut Fields, name: &str) {
        fields.push_valid("Cache-Status", self.text(name).as_bytes());
    }

    pub(crate) fn text(&self, name: &str) -> String {
        let mut text = String::with_capacity(name.len() + 48);
        text.push_str(name);
        if self.is_hit {
            text.push_str("; hit");
        }
        if let Some(reason) = self.forward {
            text.push_str("; fwd=");
            text.push_str(reason);
        }
        if let Some(status) = self.forward_status {
            let _ = write!(text, "; fwd-status={status}");
        }
        if let Some(ttl) = self.ttl {
            text.push_str("; ttl=");
            text.push_str(itoa::Buffer::new().format(ttl));
        }
        if self.is_stored {
            text.push_str("; stored");
        }
        if self.is_collapsed {
            text.push_str("; collapsed");
        }
        if let Some(detail) = self.detail {
            text.push_str("; detail=");
            text.push_str(detail);
        }
        text
    }
}

/// The detail of a response in the place of an error.
pub(crate) const STALE_IF_ERROR: &str = "stale-if-error";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_is_read_back_from_its_field() {
        let forwarded = CacheStatus::forwarded;
        for (status, text, outcome) in [
            (CacheStatus { is_hit: true, ttl: Some(60), ..Default::default() }, "gate; hit; ttl=60", Outcome::Hit),
            (CacheStatus { is_hit: true, ttl: Some(-1), ..Default::default() }, "gate; hit; ttl=-1", Outcome::Stale),
            (
                CacheStatus { is_stored: true, forward_status: Some(304), ..forwarded("stale") },
                "gate; fwd=stale; fwd-status=304; stored",
                Outcome::Revalidated,
            ),
            (
                CacheStatus { detail: Some("no-store"), ..forwarded("uri-miss") },
                "gate; fwd=uri-miss; detail=no-store",
                Outcome::Miss,
            ),
            (
                CacheStatus { is_collapsed: true, ..forwarded("uri-miss") },
                "gate; fwd=uri-miss; collapsed",
                Outcome::Joined,
            ),
            (forwarded("method"), "gate; fwd=method", Outcome::Bypass),
            (
                CacheStatus { forward_status: Some(503), detail: Some(STALE_IF_ERROR), ..forwarded("stale") },
                "gate; fwd=stale; fwd-status=503; detail=stale-if-error",
                Outcome::Stale,
            ),
        ] {
            assert_eq!(status.text("gate"), text);
            let mut response = Response::new().header("Cache-Status", "origin; fwd=miss").unwrap();
            response.add_header("Cache-Status", text).unwrap();
            assert_eq!(Outcome::of(&response), Some(outcome), "{text}");
        }
        assert_eq!(Outcome::of(&Response::new()), None);
    }
    #[test]
    fn the_field_of_another_cache_may_have_strings_and_other_white_space() {
        for (value, outcome) in [
            ("edge;hit;ttl=-3", Some(Outcome::Stale)),
            ("origin; fwd=miss,edge ; hit ;ttl=3", Some(Outcome::Hit)),
            ("\"a, b; c\"; fwd=bypass; detail=\"hit; a \\\", b\"", Some(Outcome::Bypass)),
            ("edge; detail=\"; hit\"", None),
            ("edge", None),
        ] {
            let response = Response::new().header("Cache-Status", value).unwrap();
            assert_eq!(Outcome::of(&response), outcome, "{value}");
        }
    }
}
