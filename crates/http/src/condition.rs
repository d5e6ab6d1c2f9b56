//! `Condition`: a test of a request beside its host and path, by which a route is chosen.

use std::borrow::Cow;
use std::fmt;
use std::ops::Not;

use http::Method;
use percent_encoding::percent_decode;
use tidegate_http1::{self as http1, RequestHead};
use tidegate_proxy_protocol::Networks;
use tidegate_sys::Address;

use crate::client_address::TrustedProxies;
use crate::cookie_value;

/// A test of a request beside its host and path; see [`Router::any_if`](crate::Router::any_if). `!condition` is its opposite.
///
/// Values are compared byte by byte, names of fields without regard to case. A query is decoded first.
///
/// ```
/// use tidegate::http::{Condition, Router};
///
/// let router = Router::new()
///     .any_if("/api/{*path}", [Condition::header_equals("X-Canary", "1")], || "canary")
///     .any_if("/api/{*path}", [Condition::query("debug"), Condition::client_in("10.0.0.0/8".parse()?)], || "debug")
///     .any("/api/{*path}", || "stable");
/// # drop(router);
/// # Ok::<(), tidegate::proxy_protocol::InvalidNetwork>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Condition {
    subject: Subject,
    is_negated: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Subject {
    Method(Vec<String>),
    Header(String, ValueTest),
    Query(Vec<u8>, ValueTest),
    Cookie(String, ValueTest),
    Client(Networks, TrustedProxies),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum ValueTest {
    Present,
    Equals(Vec<u8>),
    StartsWith(Vec<u8>),
}

impl ValueTest {
    fn holds(&self, value: &[u8]) -> bool {
        match self {
            Self::Present => true,
            Self::Equals(expected) => value == expected,
            Self::StartsWith(prefix) => value.starts_with(prefix),
        }
    }
}

impl Condition {
    fn new(subject: Subject) -> Self {
        Self { subject, is_negated: false }
    }

    /// The method is one of these. GET stands for HEAD and for an HTTP/2 WebSocket as well, as in a
    /// [`Router`](crate::Router).
    pub fn methods(methods: impl IntoIterator<Item = Method>) -> Self {
        Self::new(Subject::Method(methods.into_iter().map(|method| method.as_str().to_owned()).collect()))
    }

    /// There is a field of this name.
    pub fn header(name: impl Into<String>) -> Self {
        Self::new(Subject::Header(name.into(), ValueTest::Present))
    }

    /// A field of this name has this value.
    pub fn header_equals(name: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        Self::new(Subject::Header(name.into(), ValueTest::Equals(value.into())))
    }

    /// The value of a field of this name begins so.
    pub fn header_starts_with(name: impl Into<String>, prefix: impl Into<Vec<u8>>) -> Self {
        Self::new(Subject::Header(name.into(), ValueTest::StartsWith(prefix.into())))
    }

    /// The query has this parameter.
    pub fn query(name: impl Into<Vec<u8>>) -> Self {
        Self::new(Subject::Query(name.into(), ValueTest::Present))
    }

    /// The query has this parameter with this value.
    pub fn query_equals(name: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        Self::new(Subject::Query(name.into(), ValueTest::Equals(value.into())))
    }

    /// The query has this parameter with a value that begins so.
    pub fn query_starts_with(name: impl Into<Vec<u8>>, prefix: impl Into<Vec<u8>>) -> Self {
        Self::new(Subject::Query(name.into(), ValueTest::StartsWith(prefix.into())))
    }

    /// There is a cookie of this name.
    pub fn cookie(name: impl Into<String>) -> Self {
        Self::new(Subject::Cookie(name.into(), ValueTest::Present))
    }

    /// The first cookie of this name has this value.
    pub fn cookie_equals(name: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        Self::new(Subject::Cookie(name.into(), ValueTest::Equals(value.into())))
    }

    /// The peer is in one of these networks.
    pub fn client_in(networks: Networks) -> Self {
        Self::client_behind(networks, TrustedProxies::default())
    }

    /// The client that trusted proxies name is in one of these networks.
    pub fn client_behind(networks: Networks, trusted: TrustedProxies) -> Self {
        Self::new(Subject::Client(networks, trusted))
    }

    /// Whether it holds for a request from a peer.
    pub(crate) fn holds(&self, head: &RequestHead, peer: &dyn Fn() -> Address) -> bool {
        self.is_negated != self.subject.holds(head, peer)
    }
}

impl Not for Condition {
    type Output = Self;

    fn not(self) -> Self {
        Self { is_negated: !self.is_negated, ..self }
    }
}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_negated { "!" } else { "" })?;
        self.subject.fmt(f)
    }
}

impl Subject {
    fn holds(&self, head: &RequestHead, peer: &dyn Fn() -> Address) -> bool {
        match self {
            Self::Method(methods) => {
                let method = match head.method() {
                    http1::Method::Head => "GET",
                    // WebSocket over HTTP/2, which is a GET over HTTP/1.1 (RFC 8441 §5).
                    http1::Method::Connect if head.protocol().is_some() => "GET",
                    _ => head.method_text(),
                };
                methods.iter().any(|one| one == method || one == head.method_text())
            }
            Self::Header(name, test) => {
                let mut lines = head.headers().filter(|(found, _)| found.eq_ignore_ascii_case(name.as_bytes()));
                lines.any(|(_, value)| test.holds(value))
            }
            Self::Query(name, test) => {
                let pairs = head.query_bytes().unwrap_or_default().split(|byte| *byte == b'&');
                pairs.filter(|pair| !pair.is_empty()).any(|pair| {
                    let equals = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
                    let value = pair.get(equals + 1..).unwrap_or_default();
                    *decoded(&pair[..equals]) == **name && test.holds(&decoded(value))
                })
            }
            Self::Cookie(name, test) => cookie_value::of_head(head, name).is_some_and(|value| test.holds(value)),
            Self::Client(networks, trusted) => trusted.client_of_head(&peer(), head.headers()).is_in(networks),
        }
    }
}

/// A name or a value of a query as forms have it: `+` is a space.
fn decoded(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.iter().any(|byte| matches!(byte, b'%' | b'+')) {
        return text.into();
    }
    let spaced: Vec<u8> = text.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    percent_decode(&spaced).collect::<Vec<u8>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::tests::request;

    fn holds(condition: &Condition, method: &str, target: &str, lines: &str) -> bool {
        let request = request(method, target, lines);
        condition.holds(request.head(), &|| request.peer().clone())
    }

    #[test]
    fn a_header_is_present_equal_or_begins_so_in_any_line() {
        let lines = "X-A: 1\r\nx-a: two words\r\n";
        for (condition, expected) in [
            (Condition::header("x-A"), true),
            (Condition::header("x-b"), false),
            (Condition::header_equals("X-A", "1"), true),
            (Condition::header_equals("X-A", "two words"), true),
            (Condition::header_equals("X-A", "two"), false),
            (Condition::header_starts_with("X-A", "two"), true),
            (Condition::header_starts_with("X-A", "Two"), false),
            (!Condition::header("x-A"), false),
            (!!Condition::header("x-A"), true),
        ] {
            assert_eq!(holds(&condition, "GET", "/", lines), expected, "{condition:?}");
        }
    }

    #[test]
    fn a_query_is_compared_decoded() {
        let target = "/a?b=c&%64=x%20y&e=f+g&h&=i&b=j";
        for (condition, expected) in [
            (Condition::query("b"), true),
            (Condition::query("d"), true),
            (Condition::query("h"), true),
            (Condition::query("c"), false),
            (Condition::query("%64"), false),
            (Condition::query_equals("d", "x y"), true),
            (Condition::query_equals("e", "f g"), true),
            (Condition::query_equals("h", ""), true),
            (Condition::query_equals("b", "j"), true),
            (Condition::query_starts_with("d", "x"), true),
            (Condition::query_starts_with("d", "y"), false),
        ] {
            assert_eq!(holds(&condition, "GET", target, ""), expected, "{condition:?}");
        }
        assert!(!holds(&Condition::query(""), "GET", "/?", ""));
    }

    #[test]
    fn a_method_a_cookie_and_a_client_are_compared() {
        let methods = Condition::methods([Method::GET, Method::from_bytes(b"PURGE").unwrap()]);
        for (method, expected) in [("GET", true), ("HEAD", true), ("PURGE", true), ("POST", false)] {
            assert_eq!(holds(&methods, method, "/", ""), expected, "{method}");
        }
        assert!(holds(&Condition::methods([Method::HEAD]), "HEAD", "/", ""));
        assert!(!holds(&Condition::methods([Method::HEAD]), "GET", "/", ""));
        let cookie = "Cookie: a=1; sid=b\r\n";
        assert!(holds(&Condition::cookie_equals("sid", "b"), "GET", "/", cookie));
        assert!(!holds(&Condition::cookie("si"), "GET", "/", cookie));
        let inside: Networks = "192.0.2.0/24".parse().unwrap();
        assert!(holds(&Condition::client_in(inside.clone()), "GET", "/", ""));
        let behind = Condition::client_behind(inside.clone(), TrustedProxies::new(inside));
        assert!(!holds(&behind, "GET", "/", "X-Forwarded-For: 9.9.9.9\r\n"));
    }
}
