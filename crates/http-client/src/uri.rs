//! URIs of requests: their origin, their target, and their credentials.

use http::Uri;
use http::uri::Authority;
use tidegate_http_upstream::{Origin, default_port};
use tidegate_sys::Address;

use super::error::ClientError;

/// The origin of a URI.
pub(super) fn origin_of(uri: &Uri, at: Option<Address>) -> Result<Origin, ClientError> {
    let is_secure = match uri.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        Some(_) => return Err(ClientError::Scheme),
        None => return Err(ClientError::Uri),
    };
    let authority = uri.authority().ok_or(ClientError::Uri)?;
    let AuthorityParts { host, after_host, .. } = AuthorityParts::of(authority);
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if host.is_empty() {
        return Err(ClientError::Uri);
    }
    let port = port_of(after_host, default_port(is_secure))?;
    let (tunnels, via, may_be_http2, is_http3) = (false, None, false, false);
    let host = lower(host).into();
    Ok(Origin { is_secure, host, port, at, tunnels, via, may_be_http2, is_http3, endpoint: None, alternative: None })
}

/// A host in lower case, but for a zone: the names of network interfaces have case.
fn lower(host: &str) -> String {
    let (ip, zone) = host.split_at(host.find('%').unwrap_or(host.len()));
    ip.to_ascii_lowercase() + zone
}

/// The parts of an authority (RFC 3986 §3.2).
struct AuthorityParts<'a> {
    userinfo: Option<&'a str>,
    /// An IPv6 address has its brackets.
    host: &'a str,
    /// Empty, or the port after a colon.
    after_host: &'a str,
}

impl<'a> AuthorityParts<'a> {
    fn of(authority: &'a Authority) -> Self {
        let text = authority.as_str();
        let (userinfo, text) = match text.bytes().rposition(|byte| byte == b'@') {
            Some(at) => (Some(&text[..at]), &text[at + 1..]),
            None => (None, text),
        };
        let end = if text.starts_with('[') {
            text.bytes().position(|byte| byte == b']').map(|at| at + 1)
        } else {
            text.bytes().position(|byte| byte == b':')
        };
        let (host, after_host) = text.split_at(end.unwrap_or(text.len()));
        Self { userinfo, host, after_host }
    }
}

/// The port of an authority. It may be empty (RFC 3986 §3.2.3), and the library takes one that is too large for none.
pub(super) fn port(authority: &Authority, default: u16) -> Result<u16, ClientError> {
    port_of(AuthorityParts::of(authority).after_host, default)
}

fn port_of(after_host: &str, default: u16) -> Result<u16, ClientError> {
    match after_host.strip_prefix(':') {
        None | Some("") => Ok(default),
        Some(port) => port.parse().ok().filter(|port| *port != 0).ok_or(ClientError::Uri),
    }
}

/// The target of a request in origin form (RFC 9112 §3.2.1).
pub(super) fn origin_form(uri: &Uri) -> String {
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    if target.starts_with('/') { target.to_owned() } else { format!("/{target}") }
}

/// A URI as users write it. The library refuses some bytes that servers and other clients accept, such as a backtick: they
/// are sent as escapes. Control characters and spaces are an error.
pub(super) fn parse_uri(text: &str) -> Result<Uri, ClientError> {
    text.parse().or_else(|_| {
        let start = text.find("://").map_or(0, |at| at + 3);
        let start = text[start..].find(['/', '?']).map_or(text.len(), |at| start + at);
        let (before, target) = text.split_at(start);
        let target = percent_encoding::utf8_percent_encode(target, REFUSED_BY_LIBRARY);
        format!("{before}{target}").parse().map_err(|_| ClientError::Uri)
    })
}

/// Bytes beside those that the type of a URI accepts although no URI has them.
const REFUSED_BY_LIBRARY: &percent_encoding::AsciiSet =
    &percent_encoding::AsciiSet::EMPTY.add(b'<').add(b'>').add(b'`').add(b'"').add(b'\\').add(b'^');

/// The name and the password that a URI has before its host, if it has them.
pub(super) fn userinfo(uri: &Uri) -> Option<&str> {
    AuthorityParts::of(uri.authority()?).userinfo
}

/// The URI with more pairs in its query.
#[cfg(feature = "form")]
pub(super) fn with_query(uri: &Uri, pairs: &str) -> Result<Uri, ClientError> {
    if pairs.is_empty() {
        return Ok(uri.clone());
    }
    let target = origin_form(uri);
    let separator = if uri.query().is_some() { '&' } else { '?' };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(format!("{target}{separator}{pairs}").parse().map_err(|_| ClientError::Uri)?);
    Uri::from_parts(parts).map_err(|_| ClientError::Uri)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(text: &str) -> Result<Origin, ClientError> {
        origin_of(&text.parse().map_err(|_| ClientError::Uri)?, None)
    }

    #[test]
    fn the_origin_of_a_uri_is_its_scheme_host_and_port() {
        for (text, is_secure, host, port, field) in [
            ("http://Sea.Example", false, "sea.example", 80, "sea.example"),
            ("https://sea.example:443/a?b", true, "sea.example", 443, "sea.example"),
            ("http://sea.example:/", false, "sea.example", 80, "sea.example"),
            ("https://user:word@sea.example:8443/", true, "sea.example", 8443, "sea.example:8443"),
            ("http://[2001:DB8::1]:81/", false, "2001:db8::1", 81, "[2001:db8::1]:81"),
            ("http://[FE80::1%25Wlan0]:81/", false, "fe80::1%25Wlan0", 81, "[fe80::1]:81"),
        ] {
            let found = origin(text).expect(text);
            assert_eq!((found.is_secure, &*found.host, found.port), (is_secure, host, port), "{text}");
            assert_eq!(found.host_field(), field, "{text}");
        }
    }

    #[test]
    fn a_uri_without_a_host_or_of_another_scheme_has_no_origin() {
        for text in ["/a", "sea.example", "http://sea.example:0/", "http://sea.example:65536/", "http://:80/"] {
            assert!(matches!(origin(text), Err(ClientError::Uri)), "{text}: {:?}", origin(text));
        }
        for text in ["ftp://sea.example/", "file://sea.example/etc/passwd", "ws://sea.example/"] {
            assert!(matches!(origin(text), Err(ClientError::Scheme)), "{text}");
        }
    }

    #[test]
    fn a_uri_may_have_the_characters_that_browsers_send() {
        for (text, target) in [
            ("http://a/|{}%", "/|{}%"),
            ("http://a/`", "/%60"),
            ("http://a?<\\>", "/?%3C%5C%3E"),
            ("http://a/%zz`%41", "/%zz%60%41"),
        ] {
            assert_eq!(origin_form(&parse_uri(text).expect(text)), target);
        }
        for text in ["http://a b/", "http://a/ b", "http://a/\r\n", "http://a`/", "http://a/\t`", ""] {
            assert!(matches!(parse_uri(text), Err(ClientError::Uri)), "{text:?}");
        }
    }

    #[test]
    fn a_target_begins_with_a_slash() {
        for (text, target) in
            [("http://a", "/"), ("http://a?b", "/?b"), ("http://a/b?c", "/b?c"), ("http://a/b#c", "/b")]
        {
            assert_eq!(origin_form(&text.parse().expect(text)), target);
        }
    }
}
