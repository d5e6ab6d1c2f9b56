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
        let value = std::str::from_utf8(value).ok()?;
        let last = value.rsplit(", ").next().unwrap_or_default();
        let mut parts = last.split("; ").skip(1);
        let has = |name: &str| last.split("; ").skip(1).any(|part| part == name);
        let ttl = last.split("; ").find_map(|part| part.strip_prefix("ttl="));
        if has("collapsed") {
            return Some(Self::Joined);
        }
        if has("hit") {
            return Some(if ttl.is_some_and(|ttl| ttl.starts_with('-')) { Self::Stale } else { Self::Hit });
        }
        match parts.find_map(|part| part.strip_prefix("fwd="))? {
            "bypass" | "method" => Some(Self::Bypass),
            _ if last.split("; ").any(|part| part.strip_prefix("detail=") == Some(STALE_IF_ERROR)) => Some(Self::Stale),
            _ if has("fwd-status=304") => Some(Self::Revalidated),
            _ => Some(Self::Miss),
        }
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
}
